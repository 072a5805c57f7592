// When the nodes of a pool are wholly free, for gangs that take whole nodes: most of their times are found by counting.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/index.hpp"
#include "base/job.hpp"

namespace gpuyard {

class WholeNodes {
public:
    struct Gap {
        Time from_us, until_us;
        bool operator==(const Gap&) const = default;
    };

    // As many nodes, none of which is ever free.
    void clear(std::size_t nodes);
    // A node is wholly free in these gaps, which ascend, and again from a time on for good (kEndless: never).
    void set(std::size_t position, std::span<const Gap> gaps, Time for_good_us);

    // The first time, from `not_before_us` to `latest_us`, at which so many nodes are free for so long; kEndless if
    // there is none.
    Time first(std::int32_t count, Time length_us, Time not_before_us, Time latest_us);
    // Calls `found` with the positions, ascending, of nodes that are free at the time last found for as long as was
    // asked, until it returns false.
    template <class Found>
    void visit(Time begin_us, Found found) {
        open_.assign(open_.size(), 0);
        for (const Chance& chance : chances_)
            if (chance.from_us <= begin_us && begin_us <= chance.until_us) open_[chance.position] = 1;
        for (std::size_t at = 0; at < for_good_us_.size(); ++at)
            if ((for_good_us_[at] <= begin_us || open_[at] != 0) && !found(at)) return;
    }

private:
    // From when on nodes are free for good, and how many more than before.
    struct Good {
        Time time_us;
        std::int32_t nodes;
    };
    // A gang may begin there, on a node with gaps.
    struct Chance {
        Time from_us, until_us;
        std::size_t position;
    };

    void count_good(Time time_us, std::int32_t nodes);
    void collect_chances(Time length_us, Time not_before_us, Time last_us);

    std::vector<Time> for_good_us_;        // by position
    std::vector<std::vector<Gap>> gaps_;   // by position
    std::vector<std::uint64_t> has_gaps_;  // bits by position
    std::vector<Good> good_;               // ascending
    std::vector<Chance> chances_;          // of the last search
    std::vector<Time> from_us_, until_us_;
    std::vector<std::uint8_t> open_;  // by position
};

}  // namespace gpuyard
