// What users, groups and quotas hold and have used: the books that every start and every end of a run is entered in.
#pragma once

#include <cstdint>
#include <vector>

#include "base/index.hpp"
#include "base/job.hpp"
#include "policy/order.hpp"
#include "policy/policy.hpp"

namespace gpuyard {

// What the jobs of a user hold.
struct Holdings {
    std::int64_t milli = 0;  // of GPUs
    std::int64_t cpus = 0;
    std::int64_t memory_mib = 0;

    void add(const Demand& demand, std::int64_t times) {
        milli += times * demand.total_milli();
        cpus += times * demand.cpus;
        memory_mib += times * demand.memory_mib;
    }
    void add(const Holdings& other) {
        milli += other.milli;
        cpus += other.cpus;
        memory_mib += other.memory_mib;
    }
};

// What orders need to know beyond the queue; what none needs is not kept up to date.
struct Needs {
    bool usage = false;     // decayed usage of users and groups
    bool holdings = false;  // what users hold
    bool history = false;   // predictions and the Gittins index
};

struct Accounts {
    std::vector<DecayedUsage> user_usage, group_usage;
    std::vector<Holdings> user_holdings;
    std::vector<std::int64_t> group_milli;       // of GPUs, held by the jobs of each group
    std::vector<std::int64_t> quota_held_milli;  // by quota, if there are any

    void open(std::size_t users, std::size_t groups, const Settings& settings) {
        user_usage.assign(users, {});
        group_usage.assign(groups, {});
        user_holdings.assign(users, {});
        group_milli.assign(groups, 0);
        quota_held_milli.assign(settings.quota_milli.size(), 0);
    }

    // A job begins (+1) or ceases (-1) to hold what it asked for.
    void enter(Time now_us, const Settings& settings, const Demand& demand, std::int32_t user_number,
               std::int32_t group_number, std::int64_t sign, Needs needs = {true, true, false}) {
        const auto user = as_index(user_number), group = as_index(group_number);
        const std::int64_t milli = sign * demand.total_milli();
        if (needs.usage) {
            user_usage[user].change(now_us, settings.usage_half_life_s, milli);
            group_usage[group].change(now_us, settings.usage_half_life_s, milli);
        }
        if (needs.holdings) {
            user_holdings[user].add(demand, sign);
            group_milli[group] += milli;
        }
        if (!quota_held_milli.empty()) quota_held_milli[as_index(settings.quota_of_group[group])] += milli;
    }
};

}  // namespace gpuyard
