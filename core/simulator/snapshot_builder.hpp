// A snapshot from plain columns, as an adapter of a live cluster has them: docs/contract/snapshot.md. And the columns
// of a snapshot.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "cluster/job_table.hpp"
#include "simulator/snapshot.hpp"

namespace gpuyard {

// What is wrong with the columns, for people.
struct SnapshotError : std::invalid_argument {
    using std::invalid_argument::invalid_argument;
};

// Which nodes entries hold: parts `offset[i]` to `offset[i + 1]` of the other columns. Masks of GPUs may be missing.
struct PartColumns {
    std::span<const std::int64_t> offset;
    std::span<const std::int32_t> node, gpus;
    std::span<const std::uint64_t> gpu_mask;

    std::vector<Part> of(std::size_t entry) const;
};

// What a job needs. All of one length, like the other columns of its table.
struct NeedColumns {
    std::span<const std::int32_t> gpus, gpu_milli, queue, type_set;
    std::span<const std::int64_t> cpus, memory_mib;
    std::span<const std::int32_t> nodes, partition;

    DemandKey key(std::size_t i) const {
        return {gpus[i], gpu_milli[i], queue[i], type_set[i], cpus[i], memory_mib[i], nodes[i], partition[i]};
    }
};

struct SnapshotColumns {
    struct Queue {
        NeedColumns needs;
        std::span<const JobId> job;
        std::span<const Time> submit_us, estimate_us, deadline_us, queued_us, prediction_us, done_us, attained_us,
            promoted_us;
        std::span<const std::int32_t> user, group, qos;
        std::span<const double> priority, fair_factor;
        std::span<const std::int64_t> row;
    } queue;
    struct Running {
        NeedColumns needs;
        std::span<const JobId> job;
        std::span<const Time> begin_us, estimate_us, restore_us, done_us, attained_us, promoted_us, stop_us;
        std::span<const Time> expected_end_us;  // may be missing: found from begin and estimate
        std::span<const std::int32_t> user, group, qos;
        std::span<const std::uint8_t> state;
        std::span<const std::int64_t> row;
        PartColumns parts;
    } running;
    struct Nodes {
        std::span<const std::uint8_t> down;
        std::span<const std::int32_t> promised;
        std::span<const Time> idle_since_us, awake_at_us;
    } nodes;
    struct Owners {  // users or groups
        std::span<const double> usage;
        std::span<const Time> updated_us;
    } users, groups;
    struct Plan {
        std::span<const JobId> job;
        std::span<const Time> begin_us, end_us;
        PartColumns parts;
    } plan;
    std::vector<std::vector<std::int32_t>> type_sets;
    std::span<const std::int64_t> finished_gpu_s, finished_jobs;
    std::span<const std::int32_t> mix_gpus, mix_gpu_milli;
    std::span<const std::int64_t> mix_jobs;
    std::span<const std::uint8_t> finished_early;  // by queue
    Time now_us = 0;
    Time calculated_us = 0;
    std::uint64_t instant = 0;
    double origin_s = 0.0;
    Time epoch_us = 0;
    ArrivalRate arrivals;
    bool nodes_changed = false;
    bool backfill_due = false;
};

// Columns must have the right lengths, and numbers of users, groups, types and queues must be in range; what is checked
// here is whether jobs, nodes and reservations agree. Throws SnapshotError.
Snapshot build_snapshot(std::shared_ptr<const ClusterSpec> cluster, std::shared_ptr<const Settings> settings,
                        const SnapshotColumns& columns);

}  // namespace gpuyard
