// What a native policy consists of, and the settings of a simulation.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/index.hpp"
#include "base/job.hpp"
#include "base/named.hpp"
#include "policy/placement.hpp"

namespace gpuyard {

// By what jobs are considered first; order.hpp has the table of what is true of each.
enum class Order : std::uint8_t {
    fifo,
    lifo,
    sjf,
    ljf,
    smallest,
    largest,
    saf,
    laf,
    wspt,
    power,
    wfp3,
    unicep,
    f1,
    f2,
    f3,
    f4,
    priority,
    edf,
    fair_share,
    random,
    power_aware,
    qssf,
    group_fair_share,
    drf,
    multifactor,
    srtf,
    ssf,
    las,
    las_2d,
    tiresias,
    gittins,
    scored,  // by a function from outside
};

enum class Backfill : std::uint8_t { strict, greedy, easy, easy_sjf, conservative, slurm };

// `express:T0:K` of docs/contract/simulator.md, section 11. K = 0 admits everything.
struct Express {
    double t0_s = 1.0;
    double k = 0.0;
};

// Columns of one queue at a decision point, for orders that are functions from outside.
struct QueueColumns {
    Time now_us = 0;
    std::vector<double> submit_s, wait_s, estimate_s, gpus, priority, deadline_s, user_usage;  // NaN = unknown or none
    std::vector<std::int64_t> user, job;
};
using ScoreFunction = std::function<void(const QueueColumns&, std::span<double> scores)>;

struct Policy {
    Order order = Order::fifo;
    double order_parameter = 1.0;  // the exponent of Order::power
    Backfill backfill = Backfill::strict;
    Express express;
    Placement placement = Placement::consolidate;
    ScoreFunction scores;         // for Order::scored
    Time max_wait_us = kEndless;  // the ageing bound of section 11; kEndless = none

    bool ages() const { return max_wait_us != kEndless; }
    // Whether a job that waits has waited so long that it has a claim.
    bool is_aged(Time now_us, Time submit_us) const { return ages() && now_us - submit_us >= max_wait_us; }
};

inline constexpr std::array<Named<Backfill>, 6> kBackfills{{
    {"strict", Backfill::strict},
    {"greedy", Backfill::greedy},
    {"easy", Backfill::easy},
    {"easy-sjf", Backfill::easy_sjf},
    {"conservative", Backfill::conservative},
    {"slurm", Backfill::slurm},
}};
inline constexpr std::array<Named<Placement>, 15> kPlacements{{
    {"consolidate", Placement::consolidate},
    {"best-fit", Placement::best_fit},
    {"first-fit", Placement::first_fit},
    {"worst-fit", Placement::worst_fit},
    {"first-available", Placement::first_available},
    {"anywhere", Placement::anywhere},
    {"spread", Placement::spread},
    {"random", Placement::random},
    {"power-aware", Placement::power_aware},
    {"tetris", Placement::tetris},
    {"fgd", Placement::fgd},
    {"tier", Placement::tier},
    {"tier-balance", Placement::tier_balance},
    {"tier-lex", Placement::tier_lex},
    {"tier-cost", Placement::tier_cost},
}};

// By name; std::invalid_argument for one that is not in the tables above.
inline Backfill backfill_from_name(std::string_view name) { return from_name(kBackfills, name, "backfill"); }
inline Placement placement_from_name(std::string_view name) { return from_name(kPlacements, name, "placement"); }

// How `multifactor` compares what users have used with their shares.
enum class FairShare : std::uint8_t { tree, classic };

// Weights of the terms of `multifactor`, and what they go by: docs/contract/slurm.md, section 4.
struct Multifactor {
    double age = 0.0, fair_share = 0.0, size = 0.0, partition = 0.0, qos = 0.0, gpus = 0.0, cpus = 0.0, memory = 0.0,
           priority = 0.0;
    double max_age_s = 1.0;
    bool favor_small = false;
    FairShare shares = FairShare::tree;
    Time calc_us = 300'000'000;                   // it is calculated at multiples of this
    std::vector<std::int32_t> association_group;  // by association: a user in a group, in order of both names
    std::vector<double> association_share;
    std::vector<double> group_share;  // by group
    std::vector<double> qos_factor;   // by QOS

    // The last time at which it was calculated, also on clocks that begin below 0.
    Time calculated_us(Time now_us) const { return now_us - ((now_us % calc_us) + calc_us) % calc_us; }
};

// Whose running jobs a limit counts.
enum class LimitPer : std::uint8_t { user, group, all };

// A limit on running jobs of a partition or QOS: docs/contract/slurm.md, section 2.
struct Limit {
    bool of_qos = false;      // else of a partition
    std::int32_t number = 0;  // of the partition or QOS
    LimitPer per = LimitPer::user;
    std::int64_t milli = INT64_MAX;  // of GPUs
    std::int64_t jobs = INT64_MAX;

    bool concerns(std::int32_t partition, std::int32_t qos) const { return (of_qos ? qos : partition) == number; }
};

// The backfill rule `slurm`: docs/contract/slurm.md, section 5.
struct SlurmBackfill {
    Time interval_us = 0;                                                        // 0: no backfill passes
    std::int64_t max_jobs = 0, max_jobs_of_partition = 0, max_jobs_of_user = 0;  // 0: all
    Time window_us = 0;
    Time resolution_us = 1;
    bool always_changed = false;  // the order may change while nothing happens
    bool goes_by_calc = false;    // it changes with the calculations of `multifactor`
};

// What holds for a whole simulation. docs/contract/simulator.md says what each means; the defaults that users see are
// in Python.
struct Settings {
    std::uint64_t seed = 0;
    bool kill_at_estimate = false;
    double locality_penalty = 0.0;
    double usage_half_life_s = 604800.0;
    bool predict = false;                           // estimates are predictions from finished jobs
    std::vector<double> user_weight, group_weight;  // by number; empty: all 1
    Multifactor multifactor;
    SlurmBackfill slurm;
    std::vector<Limit> limits;
    std::vector<std::int64_t> quota_milli;     // empty: no quotas
    std::vector<std::int32_t> quota_of_group;  // by group, an index into quota_milli
    bool quota_borrowing = true;
    bool ticks = false;  // decide at every multiple of reschedule_us too
    Time reschedule_us = 60'000'000;
    Time min_run_us = 0;
    Time checkpoint_us = -1;  // -1: by gang size
    Time restore_us = -1;
    bool defragment = false;
    std::vector<double> tiresias_levels_gpu_s;
    Time starvation_us = kEndless;
    Time mtbf_us = 0;  // 0: nodes do not fail
    Time mttr_us = 1;
    Time checkpoint_every_us = 0;  // 0: none between stops
    Time sleep_after_us = -1;      // -1: never
    Time wake_us = 0;
    std::int64_t power_cap_mw = INT64_MAX;

    double weight_of_user(std::int32_t user) const { return user_weight.empty() ? 1.0 : user_weight[as_index(user)]; }
    double weight_of_group(std::int32_t group) const {
        return group_weight.empty() ? 1.0 : group_weight[as_index(group)];
    }
    // How long a job's GPUs are kept when it is stopped, and how long it takes before it makes progress again.
    Time checkpoint_of(const Demand& demand) const {
        return std::max(Time{1}, checkpoint_us >= 0 ? checkpoint_us : by_gang_size(demand));
    }
    Time restore_of(const Demand& demand) const { return restore_us >= 0 ? restore_us : by_gang_size(demand); }

private:
    static Time by_gang_size(const Demand& demand) {
        return demand.gpus <= 8 ? 3'500'000 : demand.gpus <= 32 ? 15'000'000 : 30'000'000;
    }
};

}  // namespace gpuyard
