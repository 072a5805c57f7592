// What searches for a time have found so far. While nothing is given up, what is free only shrinks: a job finds no
// earlier time than one of the same demand that takes no longer found before it.
#pragma once

#include <algorithm>
#include <vector>

#include "base/index.hpp"
#include "base/job.hpp"

namespace gpuyard {

class EarliestBegins {
public:
    explicit EarliestBegins(std::size_t demands) : of_(demands) {}

    // To be called when something is given up.
    void forget() { ++epoch_; }

    // Before this a job that takes so long does not begin.
    Time of(std::int32_t demand, Time length_us) {
        const std::vector<Found>& found = known(demand);
        const auto longer = std::upper_bound(found.begin(), found.end(), length_us,
                                             [](Time length, const Found& f) { return length < f.length_us; });
        return longer == found.begin() ? 0 : (longer - 1)->begin_us;
    }

    void found(std::int32_t demand, Time length_us, Time begin_us) {
        std::vector<Found>& found = known(demand);
        const auto at = std::lower_bound(found.begin(), found.end(), length_us,
                                         [](const Found& f, Time length) { return f.length_us < length; });
        const auto surpassed = std::find_if(at, found.end(), [&](const Found& f) { return f.begin_us > begin_us; });
        found.insert(found.erase(at, surpassed), {length_us, begin_us});
    }

private:
    struct Found {
        Time length_us, begin_us;
    };
    struct Known {
        std::uint64_t epoch = 0;
        std::vector<Found> found;  // both ascend
    };

    std::vector<Found>& known(std::int32_t demand) {
        Known& k = of_[as_index(demand)];
        if (k.epoch != epoch_) {
            k.found.clear();
            k.epoch = epoch_;
        }
        return k.found;
    }

    std::vector<Known> of_;
    std::uint64_t epoch_ = 1;
};

}  // namespace gpuyard
