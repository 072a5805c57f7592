// The fair-share factors of `multifactor`: docs/contract/slurm.md, section 4.
#pragma once

#include <span>
#include <vector>

#include "base/job.hpp"
#include "policy/order.hpp"
#include "policy/policy.hpp"

namespace gpuyard {

// The factor of each association, from the usage of each.
std::vector<double> fair_factors(const Multifactor& shares, std::span<const double> usage);

// What associations have used, of which nobody asks but as of a last calculation. Times do not descend.
class AssociationUsage {
public:
    void open(std::size_t associations);
    // Its jobs hold so much more, or less.
    void change(Time now_us, std::int32_t association, std::int64_t milli_gpus) {
        changes_.push_back({now_us, association, milli_gpus});
    }
    // The factor of each association, whatever has changed since that time.
    std::vector<double> factors(Time as_of_us, const Settings& settings);

private:
    struct Change {
        Time time_us;
        std::int32_t association;
        std::int64_t milli_gpus;
    };
    void count(Time as_of_us, double half_life_s);

    std::vector<DecayedUsage> usage_;  // without what follows
    std::vector<Change> changes_;
};

}  // namespace gpuyard
