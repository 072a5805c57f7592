// What is true of each order, and scores of jobs: docs/contract/simulator.md, section 8. Smaller goes first; ties by
// submit time, then id.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string_view>

#include "cluster/cluster.hpp"
#include "policy/policy.hpp"
#include "simulator/history.hpp"

namespace gpuyard {

// When the score of a waiting job may change.
enum class Changes : std::uint8_t {
    never,          // it depends on nothing but the job table
    between_waits,  // it stays the same from when the job enters the queue until it leaves it
    by_period,      // for all jobs together, at multiples of a time
    always,
};

// What an order goes by that neither the job, its runs nor the settings state.
enum class Memory : std::uint8_t {
    nothing,
    user_usage,   // decayed
    group_usage,  // decayed
    fair_factor,  // from the decayed usage of all users in all groups
    holdings,     // of each user, now
    predictions,  // of run times, from finished jobs
    gpu_times,    // of finished jobs
};

// Everything that is true of an order besides its score. Whoever treats orders differently asks here, in Python too.
struct OrderTraits {
    std::string_view name;  // empty for Order::scored
    Order order;
    bool preempts = false;       // it may stop running jobs
    bool uses_estimate = false;  // jobs without one go last
    bool needs_watts = false;
    Changes changes = Changes::never;
    Memory remembers = Memory::nothing;

    constexpr bool is_static() const { return changes == Changes::never; }
    constexpr bool fixed_while_waiting() const { return is_static() || changes == Changes::between_waits; }
    constexpr bool changes_by_period() const { return changes == Changes::by_period; }
    constexpr bool remembers_usage() const {
        return remembers == Memory::user_usage || remembers == Memory::group_usage;
    }
    constexpr bool predicts() const { return remembers == Memory::predictions; }
    constexpr bool remembers_finished_jobs() const { return predicts() || remembers == Memory::gpu_times; }
    // Users, groups and finished jobs, who are known by their users, may make a difference.
    constexpr bool sees_names() const { return remembers != Memory::nothing; }
    // The lean simulator keeps all that it goes by.
    constexpr bool runs_lean() const {
        return !preempts && (remembers == Memory::nothing || remembers == Memory::user_usage);
    }
};

// In the order of the enum.
inline constexpr std::array<OrderTraits, 31> kOrders{{
    {.name = "fifo", .order = Order::fifo},
    {.name = "lifo", .order = Order::lifo},
    {.name = "sjf", .order = Order::sjf, .uses_estimate = true},
    {.name = "ljf", .order = Order::ljf, .uses_estimate = true},
    {.name = "smallest", .order = Order::smallest},
    {.name = "largest", .order = Order::largest},
    {.name = "saf", .order = Order::saf, .uses_estimate = true},
    {.name = "laf", .order = Order::laf, .uses_estimate = true},
    {.name = "wspt", .order = Order::wspt, .uses_estimate = true},
    {.name = "power", .order = Order::power, .uses_estimate = true},
    {.name = "wfp3", .order = Order::wfp3, .uses_estimate = true, .changes = Changes::always},
    {.name = "unicep", .order = Order::unicep, .uses_estimate = true, .changes = Changes::always},
    {.name = "f1", .order = Order::f1, .uses_estimate = true},
    {.name = "f2", .order = Order::f2, .uses_estimate = true},
    {.name = "f3", .order = Order::f3, .uses_estimate = true},
    {.name = "f4", .order = Order::f4, .uses_estimate = true},
    {.name = "priority", .order = Order::priority},
    {.name = "edf", .order = Order::edf},
    {.name = "fair-share", .order = Order::fair_share, .changes = Changes::always, .remembers = Memory::user_usage},
    {.name = "random", .order = Order::random, .changes = Changes::always},
    {.name = "power-aware", .order = Order::power_aware, .uses_estimate = true, .needs_watts = true},
    {.name = "qssf", .order = Order::qssf, .changes = Changes::between_waits, .remembers = Memory::predictions},
    {.name = "group-fair-share",
     .order = Order::group_fair_share,
     .changes = Changes::always,
     .remembers = Memory::group_usage},
    {.name = "drf", .order = Order::drf, .changes = Changes::always, .remembers = Memory::holdings},
    {.name = "multifactor",
     .order = Order::multifactor,
     .changes = Changes::by_period,
     .remembers = Memory::fair_factor},
    {.name = "srtf", .order = Order::srtf, .preempts = true, .uses_estimate = true, .changes = Changes::between_waits},
    {.name = "ssf", .order = Order::ssf, .preempts = true, .uses_estimate = true, .changes = Changes::between_waits},
    {.name = "las", .order = Order::las, .preempts = true, .changes = Changes::between_waits},
    {.name = "las-2d", .order = Order::las_2d, .preempts = true, .changes = Changes::between_waits},
    {.name = "tiresias", .order = Order::tiresias, .preempts = true, .changes = Changes::always},
    {.name = "gittins",
     .order = Order::gittins,
     .preempts = true,
     .changes = Changes::always,
     .remembers = Memory::gpu_times},
}};
inline constexpr OrderTraits kScored{
    .name = "", .order = Order::scored, .changes = Changes::always, .remembers = Memory::user_usage};

inline constexpr const OrderTraits& traits_of(Order order) {
    return order == Order::scored ? kScored : kOrders[static_cast<std::size_t>(order)];
}

// By name; std::invalid_argument for one that is not in the table.
Order order_from_name(std::string_view name);

// What `multifactor` goes by that jobs of one demand have in common: docs/contract/slurm.md, section 4.
struct DemandFactors {
    double size = 0.0, partition = 0.0;
    double gpu_share = 0.0, cpu_share = 0.0, memory_share = 0.0;  // of the partition's

    DemandFactors() = default;
    DemandFactors(const Demand& demand, const ClusterSpec& cluster, bool favor_small);
};

// One job as an order sees it. What most orders do not look at comes last.
struct Scored {
    Time submit_us = 0;
    Time estimate_us = kEndless;  // kEndless = unknown
    double size_gpus = 0.0;
    double priority = 0.0;
    Time deadline_us = kEndless;  // kEndless = none
    std::int64_t row = 0;
    double user_usage = 0.0;  // over the user's weight
    double group_usage = 0.0;
    double energy_rate = 0.0;
    Time prediction_us = 0;
    Time done_us = 0;      // work done, at speed 1
    Time attained_us = 0;  // service
    Time promoted_us = 0;  // service that no longer counts for the level of `tiresias`
    bool starving = false;
    std::int64_t total_milli = 0;
    double dominant_share = 0.0;
    Time age_us = 0;  // for the rest: docs/contract/slurm.md, section 4
    double fair_factor = 0.0, qos_factor = 0.0;
    const DemandFactors* factors = nullptr;
};

struct Moment {
    Time now_us;
    std::uint64_t instant;
    std::uint64_t seed;
    double origin_s;
    double cluster_gpus = 0.0;
    const Settings* settings = nullptr;       // for multifactor and tiresias
    const GittinsHistory* gittins = nullptr;  // for gittins
    double order_parameter = 1.0;             // for power
};

// Of `multifactor`, which goes by nothing else of the moment.
double multifactor_score(const Scored& job, const Multifactor& weights);
// For every order but Order::scored.
double score(Order order, const Scored& job, const Moment& moment);

// Adds a job to the columns that an order from outside sees.
void append(QueueColumns& columns, const Scored& job, std::int32_t user, JobId id);
// The scores that an order from outside gives; std::invalid_argument if one is NaN.
void score_from_outside(const Policy& policy, const QueueColumns& columns, std::span<double> scores);

// A user's GPU-seconds, fading with a half-life.
class DecayedUsage {
public:
    DecayedUsage() = default;
    // So much as of that time, by a user who holds nothing.
    DecayedUsage(double usage, Time updated_us) : usage_(usage), updated_us_(updated_us) {}

    double usage() const { return usage_; }
    Time updated_us() const { return updated_us_; }
    // Of a user who has held this much since the usage was last brought up to date.
    void set_held(std::int64_t milli_gpus) { held_milli_ = milli_gpus; }
    double at(Time now_us, double half_life_s) const;
    // Brings the usage up to date, then changes what the user holds.
    void change(Time now_us, double half_life_s, std::int64_t milli_gpus);

private:
    double usage_ = 0.0;
    Time updated_us_ = 0;
    std::int64_t held_milli_ = 0;
};

}  // namespace gpuyard
