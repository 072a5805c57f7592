// What a scheduler may know at a decision point, and what it decides. True durations are not in it.
#pragma once

#include <memory>
#include <vector>

#include "backfill.hpp"
#include "cluster.hpp"
#include "policy.hpp"

namespace gpuyard {

struct QueuedJob {
    JobId job;
    Time submit_us;
    Time estimate_us;  // kEndless = unknown
    std::int32_t demand;
    std::int32_t user;
    double priority;
    Time deadline_us;  // kEndless = none
    std::int64_t row;
};

// Filled by the simulator, or by an adapter of a live cluster.
struct Snapshot {
    Time now_us = 0;
    std::uint64_t instant = 0;
    double origin_s = 0.0;
    Settings settings;
    std::shared_ptr<const std::vector<Demand>> demands;
    std::vector<QueuedJob> queue;       // in order of arrival
    std::vector<RunningJob> running;    // by (expected end, job)
    std::vector<Part> parts;            // of the running jobs
    std::vector<double> user_usage;     // decayed GPU-seconds now
    ClusterState state;

    explicit Snapshot(ClusterState free) : state(std::move(free)) {}
};

struct Start {
    JobId job;
    std::vector<Part> parts;
    bool backfilled = false;
};

struct Decision {
    std::vector<Start> starts;  // in the order in which they are made
};

// The native policies as a function of a snapshot: one pass over each queue.
Decision decide(const Snapshot& snapshot, const Policy& policy);

}  // namespace gpuyard
