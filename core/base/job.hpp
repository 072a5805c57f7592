// Jobs as the core sees them: columns, and the distinct resource demands among them.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "base/index.hpp"

namespace gpuyard {

using Time = std::int64_t;  // microseconds
using JobId = std::int64_t;

inline constexpr Time kEndless = INT64_MAX;                        // an unknown estimate, a missing deadline
inline constexpr Time kLatest = Time{1} << 62;                     // a simulated instant beyond this is an error
inline constexpr std::int64_t kUnlimited = std::int64_t{1} << 40;  // CPUs or memory that were not given

inline double seconds(Time us) { return static_cast<double>(us) / 1e6; }

// N of docs/contract/simulator.md, section 3: how many nodes a job asks for whose user named so many (0: none). 0 if it
// does not ask for any.
inline std::int32_t asked_nodes(std::int32_t gpus, std::int32_t named) {
    const std::int32_t nodes = gpus > 0 && gpus < named ? gpus : named;
    return nodes == 1 && gpus <= 1 ? 0 : nodes;
}

enum class DemandKind : std::uint8_t { whole, shared, cpu_only };

// How a gang of whole GPUs sits in one pool: `full_nodes` empty nodes and `remainder` GPUs on one more.
struct PoolOption {
    std::int32_t pool;
    std::int32_t full_nodes;
    std::int32_t remainder;
    std::int32_t fewest_nodes;  // n_min of docs/contract/simulator.md
    double energy_rate = 0.0;   // watts at speed 1, if the cluster's are known
};

// What a job needs and where it may sit. Jobs with the same needs share one Demand, and so fit or do not fit together.
struct Demand {
    std::int32_t gpus = 0;
    std::int32_t gpu_milli = 1000;
    std::int64_t cpus = 0;
    std::int64_t memory_mib = 0;
    std::int32_t nodes = 0;  // that it asks for; 0: as few as the placement rule takes
    std::int32_t queue = 0;
    std::int32_t partition = -1;  // -1: of a cluster without any
    std::int32_t tier = 0;        // of its partition; higher goes first
    DemandKind kind = DemandKind::whole;
    bool limited = false;                     // needs CPUs or memory
    double size_gpus = 0.0;                   // n of docs/contract/simulator.md
    std::vector<PoolOption> pools;            // allowed pools, in the order in which they are tried
    std::vector<PoolOption> pools_by_energy;  // the same by energy rate, if watts are known
    double energy_rate = 0.0;                 // the least over its pools
    std::vector<std::uint8_t> allows;         // by pool id
    std::int64_t allowed_gpus = 0;            // GPUs of all allowed pools

    std::int64_t total_milli() const { return static_cast<std::int64_t>(gpus) * gpu_milli; }
    // A job that asks for nodes holds `least_share()` GPUs on each, and one more on `larger_shares()` of them.
    std::int32_t least_share() const { return gpus / nodes; }
    std::int32_t larger_shares() const { return gpus % nodes; }
    std::int64_t cpus_for(std::int32_t k) const { return share(cpus, k); }
    std::int64_t memory_for(std::int32_t k) const { return share(memory_mib, k); }

private:
    std::int64_t share(std::int64_t total, std::int32_t k) const {
        if (gpus <= 1) return nodes > 1 ? (total + nodes - 1) / nodes : total;
        return (total * k + gpus - 1) / gpus;
    }
};

// Columns of a workload, sorted by submit time. Empty optional columns mean the default for every job.
struct JobTable {
    std::vector<Time> submit_us;
    std::vector<Time> duration_us;
    std::vector<Time> estimate_us;           // kEndless = unknown
    std::vector<std::int32_t> demand;        // index into demands
    std::vector<double> priority;            // optional, default 1
    std::vector<Time> deadline_us;           // optional, default kEndless
    std::vector<std::int32_t> user;          // optional, default 0
    std::vector<std::int32_t> group;         // optional, default 0
    std::vector<std::int64_t> row;           // optional, default position
    std::vector<std::int32_t> qos;           // optional, default -1: none
    std::vector<std::int32_t> association;   // optional, default 0: its user in its group
    std::vector<std::int64_t> after_offset;  // optional; job i comes after `after` of [offset[i], offset[i + 1])
    std::vector<JobId> after;
    std::vector<Demand> demands;
    std::int32_t users = 1;
    std::int32_t groups = 1;
    double origin_s = 0.0;
    Time epoch_us = 0;  // what the log's clock showed at time 0

    std::int64_t size() const { return static_cast<std::int64_t>(submit_us.size()); }
    double priority_of(std::size_t i) const { return priority.empty() ? 1.0 : priority[i]; }
    Time deadline_of(std::size_t i) const { return deadline_us.empty() ? kEndless : deadline_us[i]; }
    std::int32_t user_of(std::size_t i) const { return user.empty() ? 0 : user[i]; }
    std::int32_t group_of(std::size_t i) const { return group.empty() ? 0 : group[i]; }
    std::int32_t qos_of(std::size_t i) const { return qos.empty() ? -1 : qos[i]; }
    std::int32_t association_of(std::size_t i) const { return association.empty() ? 0 : association[i]; }
    std::int64_t row_of(std::size_t i) const { return row.empty() ? static_cast<std::int64_t>(i) : row[i]; }
    const Demand& demand_of(std::size_t i) const { return demands[as_index(demand[i])]; }
};

}  // namespace gpuyard
