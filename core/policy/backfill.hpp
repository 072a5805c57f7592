// The rules by which a job may start now: admission and the head's shadow time. docs/contract/simulator.md, sections 10
// and 11.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "cluster/cluster.hpp"
#include "policy/placement.hpp"
#include "policy/policy.hpp"
#include "simulator/running_jobs.hpp"

namespace gpuyard {

// Everything that runs in one queue.
struct Running {
    const RunningJobs& jobs;
    std::span<const Part> parts;
    std::span<const Demand> demands;

    std::span<const Part> parts_of(const RunningJob& job) const {
        return parts.subspan(job.first_part, job.part_count);
    }
};

// now + run time, endless if the run time is.
inline Time expected_end(Time now_us, Time run_us) { return run_us == kEndless ? kEndless : now_us + run_us; }

// The express lane: how long a job may be to start at a given allocation.
class Gate {
public:
    Gate(const Express& express, const ClusterState& state, const Demand& demand, const Allocation& allocation);
    bool admits(Time estimate_us) const;
    bool admits_all() const { return open_; }

private:
    const Express& express_;
    bool open_ = true;
    double room_ = 0.0;
};

// When the head of a queue can start, and what is free then.
class Shadow {
public:
    explicit Shadow(std::shared_ptr<const ClusterSpec> spec) : state_(std::move(spec)) {}

    void compute(Time now_us, const Demand& head, Placer& placer, const ClusterState& state, const Running& running);

    Time time() const { return time_us_; }
    // Whether the head is still placeable at the shadow time if these parts are held then.
    bool leaves_room(const Demand& head, Placer& placer, const Demand& demand, std::span<const Part> parts);
    // Accounts for a job that was backfilled.
    void started(Time expected_end_us, const Demand& demand, std::span<const Part> parts) {
        if (expected_end_us > time_us_) state_.hold(demand, parts);
    }

private:
    Time time_us_ = kEndless;
    ClusterState state_;
};

}  // namespace gpuyard
