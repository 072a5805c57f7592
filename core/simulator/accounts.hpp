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

// Who holds: in which books a job is entered.
struct Holder {
    std::int32_t user = 0, group = 0, association = 0, qos = -1;
};

// What the running jobs that a limit counts hold, by user or group: docs/contract/slurm.md, section 2.
class LimitBook {
public:
    void open(const std::vector<Limit>& limits, std::size_t users, std::size_t groups) {
        limits_ = &limits;
        held_.clear();
        for (const Limit& limit : limits)
            held_.emplace_back(limit.per == LimitPer::all ? 1 : limit.per == LimitPer::user ? users : groups);
    }
    void enter(const Demand& demand, const Holder& holder, std::int64_t sign) {
        for (std::size_t i = 0; i < held_.size(); ++i) {
            if (!(*limits_)[i].concerns(demand.partition, holder.qos)) continue;
            Held& held = held_[i][entry((*limits_)[i], holder)];
            held.milli += sign * demand.total_milli();
            held.jobs += sign;
        }
    }
    // Whether one more such job may run.
    bool allows(const Demand& demand, const Holder& holder) const {
        for (std::size_t i = 0; i < held_.size(); ++i) {
            const Limit& limit = (*limits_)[i];
            if (!limit.concerns(demand.partition, holder.qos)) continue;
            const Held& held = held_[i][entry(limit, holder)];
            if (held.jobs + 1 > limit.jobs || held.milli + demand.total_milli() > limit.milli) return false;
        }
        return true;
    }

private:
    struct Held {
        std::int64_t milli = 0, jobs = 0;
    };
    static std::size_t entry(const Limit& limit, const Holder& holder) {
        return limit.per == LimitPer::all ? 0 : as_index(limit.per == LimitPer::user ? holder.user : holder.group);
    }

    const std::vector<Limit>* limits_ = nullptr;
    std::vector<std::vector<Held>> held_;  // by limit
};

// What orders need to know beyond the queue; what none needs is not kept up to date.
struct Needs {
    bool usage = false;     // decayed usage of users and groups
    bool fair = false;      // fair-share factors
    bool holdings = false;  // what users hold
    bool history = false;   // predictions and the Gittins index
};

struct Accounts {
    std::vector<DecayedUsage> user_usage, group_usage;
    std::vector<Holdings> user_holdings;
    std::vector<std::int64_t> group_milli;       // of GPUs, held by the jobs of each group
    std::vector<std::int64_t> quota_held_milli;  // by quota, if there are any
    std::vector<double> fair_factor;             // by association, as of the last calculation of `multifactor`
    LimitBook limits;

    void open(std::size_t users, std::size_t groups, const Settings& settings) {
        user_usage.assign(users, {});
        group_usage.assign(groups, {});
        user_holdings.assign(users, {});
        group_milli.assign(groups, 0);
        quota_held_milli.assign(settings.quota_milli.size(), 0);
        fair_factor.assign(settings.multifactor.association_group.size(), 1.0);
        limits.open(settings.limits, users, groups);
    }

    // A job begins (+1) or ceases (-1) to hold what it asked for.
    void enter(Time now_us, const Settings& settings, const Demand& demand, const Holder& holder, std::int64_t sign,
               Needs needs = {.usage = true, .holdings = true}) {
        const auto user = as_index(holder.user), group = as_index(holder.group);
        const std::int64_t milli = sign * demand.total_milli();
        limits.enter(demand, holder, sign);
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
