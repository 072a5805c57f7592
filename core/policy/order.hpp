// Scores of jobs: docs/contract/simulator.md, section 8. Smaller goes first; ties by submit time, then id.
#pragma once

#include <span>

#include "simulator/history.hpp"
#include "policy/policy.hpp"

namespace gpuyard {

// Whether a job's score depends on nothing but the job table.
bool is_static(Order order);
// Whether a job's score stays the same from when it enters the queue until it leaves it.
bool is_fixed_while_waiting(Order order);

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
    Time done_us = 0;           // work done, at speed 1
    Time attained_us = 0;       // service
    Time promoted_us = 0;       // service that no longer counts for the level of `tiresias`
    bool starving = false;
    std::int64_t total_milli = 0;
    double dominant_share = 0.0;
    double fair_factor = 0.0;
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

// For every order but Order::scored.
double score(Order order, const Scored& job, const Moment& moment);

// Adds a job to the columns that an order from outside sees.
void append(QueueColumns& columns, const Scored& job, std::int32_t user, JobId id);
// The scores that an order from outside gives; std::invalid_argument if one is NaN.
void score_from_outside(const Policy& policy, const QueueColumns& columns, std::span<double> scores);

// A user's GPU-seconds, fading with a half-life.
class DecayedUsage {
public:
    double at(Time now_us, double half_life_s) const;
    // Brings the usage up to date, then changes what the user holds.
    void change(Time now_us, double half_life_s, std::int64_t milli_gpus);

private:
    double usage_ = 0.0;
    Time updated_us_ = 0;
    std::int64_t held_milli_ = 0;
};

}  // namespace gpuyard
