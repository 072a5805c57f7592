// What a node can hold of a gang, and the nodes of a bucket one by one: what every rule of placement asks.
#pragma once

#include <algorithm>
#include <cstdint>

#include "cluster/cluster.hpp"

namespace gpuyard {

inline bool has_cpus_and_memory(const ClusterState& state, const Demand& demand, std::int32_t node, std::int32_t gpus) {
    return !demand.limited ||
           (state.free_cpus(node) >= demand.cpus_for(gpus) && state.free_memory(node) >= demand.memory_for(gpus));
}

// The most GPUs of a gang that a node can hold, at most `wanted`.
inline std::int32_t most_gpus(const ClusterState& state, const Demand& demand, std::int32_t node, std::int32_t wanted) {
    std::int64_t most = std::min(wanted, state.empty(node));
    // ceil(cpus * k / G) <= free  <=>  cpus * k <= free * G
    if (demand.cpus > 0) most = std::min(most, state.free_cpus(node) * demand.gpus / demand.cpus);
    if (demand.memory_mib > 0) most = std::min(most, state.free_memory(node) * demand.gpus / demand.memory_mib);
    return static_cast<std::int32_t>(most);
}

// Whether a job with GPUs that asks for nodes has enough of them in a pool, CPUs and memory aside. `count` gives the
// number of nodes with exactly so many empty GPUs.
template <class Count>
bool enough_nodes(const Demand& demand, std::int32_t size, Count count) {
    if (size < demand.least_share()) return false;
    std::int32_t holders = 0;
    for (std::int32_t empty = size; empty > demand.least_share(); --empty) holders += count(empty);
    return holders >= demand.larger_shares() && holders + count(demand.least_share()) >= demand.nodes;
}

// Calls `visit` with the nodes of a bucket by ascending id, until it returns false.
template <class Visit>
void visit_bucket(const ClusterState& state, const Pool& pool, std::int32_t empty, Visit visit) {
    if (state.bucket_count(pool, empty) == 0) return;
    const std::uint64_t* bucket = state.bucket(pool, empty);
    for (std::size_t at = pool.shape.first(bucket); at != BitTreeShape::npos; at = pool.shape.next(bucket, at + 1))
        if (!visit(pool.nodes[at])) return;
}

}  // namespace gpuyard
