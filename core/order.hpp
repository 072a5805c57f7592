// Scores of jobs: docs/simulator.md, section 8. Smaller goes first; ties by submit time, then id.
#pragma once

#include "policy.hpp"

namespace gpuyard {

// Whether a job's score stays the same for as long as it waits.
bool is_static(Order order);

// One job as an order sees it.
struct Scored {
    Time submit_us;
    Time estimate_us;  // kEndless = unknown
    double size_gpus;
    double priority;
    Time deadline_us;
    std::int64_t row;
    double user_usage;
};

struct Moment {
    Time now_us;
    std::uint64_t instant;
    std::uint64_t seed;
    double origin_s;
};

// For every order but Order::scored.
double score(Order order, const Scored& job, const Moment& moment);

// Adds a job to the columns that an order from outside sees.
void append(QueueColumns& columns, const Scored& job, std::int32_t user, JobId id);

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
