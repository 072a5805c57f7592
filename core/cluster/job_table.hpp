// Builds the core's job table from the columns of a workload.
#pragma once

#include <span>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/index.hpp"
#include "base/job.hpp"
#include "cluster/cluster.hpp"

namespace gpuyard {

struct DemandKey {
    std::int32_t gpus, gpu_milli, queue, type_set;  // type_set: index into sets of types, -1 = any
    std::int64_t cpus, memory_mib;
    std::int32_t nodes;           // that its user named, 0 = none
    std::int32_t partition = -1;  // -1 = none
    bool operator==(const DemandKey&) const = default;
};

// The distinct demands among jobs, numbered in the order in which they come.
class DemandTable {
public:
    DemandTable(const ClusterSpec& cluster, const std::vector<std::vector<std::int32_t>>& type_sets)
        : cluster_(cluster),
          type_sets_(type_sets) {}

    // The number of this demand, which must be in range.
    std::int32_t number(const DemandKey& key);
    std::vector<Demand> take() { return std::move(demands_); }
    const Demand& operator[](std::int32_t i) const { return demands_[as_index(i)]; }

private:
    struct Hash {
        std::size_t operator()(const DemandKey& key) const;
    };
    const ClusterSpec& cluster_;
    const std::vector<std::vector<std::int32_t>>& type_sets_;
    std::vector<Demand> demands_;
    std::unordered_map<DemandKey, std::int32_t, Hash> known_;
    DemandKey last_{-1, 0, 0, 0, 0, 0, 0, -1};
    std::int32_t last_number_ = -1;
};

// Optional columns may be empty.
struct JobColumns {
    std::span<const Time> submit_us;
    std::span<const Time> duration_us;
    std::span<const Time> estimate_us;  // kEndless = unknown
    std::span<const std::int32_t> gpus;
    std::span<const std::int32_t> gpu_milli;           // optional
    std::span<const std::int64_t> cpus;                // optional
    std::span<const std::int64_t> memory_mib;          // optional
    std::span<const std::int32_t> nodes;               // optional, 0 = not asked for
    std::span<const std::int32_t> queue;               // optional, default 0
    std::span<const std::int32_t> type_set;            // optional, index into type_sets, -1 = any
    std::span<const double> priority;                  // optional
    std::span<const Time> deadline_us;                 // optional
    std::span<const std::int32_t> user;                // optional
    std::span<const std::int32_t> group;               // optional
    std::span<const std::int64_t> row;                 // optional
    std::span<const std::int32_t> partition;           // optional, -1 = none
    std::span<const std::int32_t> qos;                 // optional, -1 = none
    std::span<const std::int32_t> association;         // optional
    std::span<const std::int64_t> after_offset;        // optional, one more than there are jobs
    std::span<const JobId> after;                      // of job i: those from after_offset[i] to after_offset[i + 1]
    std::vector<std::vector<std::int32_t>> type_sets;  // a set that matches no type of the cluster is {-1}
    std::int32_t users = 1;
    std::int32_t groups = 1;
    double origin_s = 0.0;
    Time epoch_us = 0;
};

// Throws std::invalid_argument for columns that break the rules of docs/contract/simulator.md, section 3.
JobTable make_jobs(const ClusterSpec& cluster, const JobColumns& columns);

// Duration times lognormal noise, keyed by original row: docs/contract/simulator.md, section 4. `row` may be empty.
std::vector<Time> noisy_estimates(std::span<const Time> duration_us, std::span<const std::int64_t> row,
                                  std::uint64_t seed, double sigma);

}  // namespace gpuyard
