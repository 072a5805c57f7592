#include "simulator/snapshot.hpp"

#include <algorithm>

#include "base/index.hpp"

namespace gpuyard {

void ActiveJob::run_on(const Allocation& allocation, double locality_penalty) {
    const auto nodes = static_cast<std::int32_t>(allocation.parts.size());
    const double excess =
        static_cast<double>(nodes - allocation.fewest_nodes) / static_cast<double>(allocation.fewest_nodes);
    slowdown = (1.0 / allocation.speed) * (1.0 + locality_penalty * excess);
    expected_end_us = expected_end(begin_us + restore_us, allocation.run_time(left_us(), locality_penalty));
}

ActiveJob begun(const QueuedJob& job, Time begin_us) {
    return {.job = job.job,
            .estimate_us = job.estimate_us,
            .demand = job.demand,
            .user = job.user,
            .group = job.group,
            .association = job.association,
            .qos = job.qos,
            .row = job.row,
            .begin_us = begin_us,
            .done_us = job.done_us,
            .attained_us = job.attained_us,
            .promoted_us = job.promoted_us};
}

Allocation allocation_of(const ClusterSpec& spec, const Demand& demand, std::span<const Part> parts) {
    Allocation allocation;
    allocation.parts.assign(parts.begin(), parts.end());
    if (demand.nodes > 0) allocation.fewest_nodes = demand.nodes;
    if (demand.gpus == 0) return allocation;
    std::int32_t largest = 0;
    for (std::size_t k = 0; k < parts.size(); ++k) {
        const Pool& pool = spec.pools[as_index(spec.pool[as_index(parts[k].node)])];
        allocation.speed = k == 0 ? pool.speed : std::min(allocation.speed, pool.speed);
        largest = std::max(largest, pool.size);
    }
    if (demand.nodes == 0) allocation.fewest_nodes = (demand.gpus + largest - 1) / largest;
    return allocation;
}

}  // namespace gpuyard
