// A waiting job as the encoder of observations sees it.
#pragma once

#include <array>
#include <cstdint>

#include "cluster/cluster.hpp"
#include "observation/env_spec.hpp"
#include "policy/placement.hpp"
#include "simulator/snapshot.hpp"

namespace gpuyard {

// What columns are relative to.
struct ClusterScale {
    explicit ClusterScale(const ClusterSpec& spec);

    double gpus, nodes, largest_size, most_cpus, most_memory, top_speed;
};

// What decisions are made from comes first and fills one cache line: most looks need no more.
struct alignas(64) WindowJob {
    JobId job;
    std::int64_t row;
    Time submit_us, estimate_us, deadline_us;
    double estimate_s;  // 0 if unknown
    double bound_s;     // max(estimate, 10)
    std::int32_t demand, user;
    std::array<float, kJobColumnCount> columns;  // those that do not change while it waits; the others are 0
    std::int32_t group;

    bool knows_estimate() const { return estimate_us != kEndless; }
    // With many environments a job is far away when its turn comes.
    void fetch() const { __builtin_prefetch(this); }
    void fetch_columns() const {
        __builtin_prefetch(reinterpret_cast<const char*>(this) + 64);
        __builtin_prefetch(reinterpret_cast<const char*>(this) + 128);
    }
};

// `rule`: the placement, which decides which pool comes first.
WindowJob make_window_job(const QueuedJob& job, const Demand& demand, Placement rule, const ClusterSpec& spec,
                          const ClusterScale& scale);

inline double quotient(double a, double b) { return b == 0.0 ? 0.0 : a / b; }

}  // namespace gpuyard
