// What a finished schedule says over time: time means that need the state of every node at every instant, and who
// shared the cluster with whom. Times are microseconds on the workload's clock. Malformed input throws
// std::invalid_argument. The meaning of each number is in docs/contract/metrics.md.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace gpuyard {

// Where and when each job ran. Job i holds node_gpus[k] GPUs of node[k] for node_offset[i] <= k < node_offset[i + 1].
struct Allocations {
    std::span<const std::int64_t> start_us;
    std::span<const std::int64_t> end_us;
    std::span<const std::int64_t> node_offset;  // one more than jobs
    std::span<const std::int32_t> node;
    std::span<const std::int32_t> node_gpus;
    std::span<const std::int32_t> gpu_index;  // of a job: the GPU that it shares, -1 if it shares none
    std::span<const std::int32_t> gpu_milli;  // of a job: thousandths of a GPU; read for sharing jobs only
};

struct TimeMeans {
    // Population variance, over the nodes with GPUs, of busy GPUs / size.
    double load_imbalance = 0.0;
    // Free GPUs on partly used nodes / free GPUs; 0 while none is free.
    double fragmentation = 0.0;
    // Of each node: time during which a GPU has at least one sharing job, summed over its GPUs.
    std::vector<double> shared_busy_us;
};

// Means over [from_us, to_us], which must hold every run. `node_size` is the number of GPUs of each node.
TimeMeans time_means(const Allocations& allocations, std::span<const std::int32_t> node_size, std::int64_t from_us,
                     std::int64_t to_us);

// For each job the number of distinct users (its own included) with a job in the system at some time of its stay:
// user u counts iff a job of u has submit < this end and end > this submit. User numbers are small and not negative.
// O(n log n) for n jobs.
std::vector<std::int32_t> users_active(std::span<const std::int32_t> user, std::span<const std::int64_t> submit_us,
                                       std::span<const std::int64_t> end_us);

}  // namespace gpuyard
