#include "observation/window_job.hpp"

#include <algorithm>
#include <cmath>

#include "base/index.hpp"

namespace gpuyard {

namespace {

constexpr double kMonth = 2592000.0;  // seconds

}  // namespace

ClusterScale::ClusterScale(const ClusterSpec& spec)
    : gpus(static_cast<double>(spec.total_gpus)),
      nodes(static_cast<double>(spec.node_count())),
      largest_size(0.0),
      most_cpus(0.0),
      most_memory(0.0),
      top_speed(1.0) {
    for (std::size_t node = 0; node < spec.node_count(); ++node) {
        largest_size = std::max(largest_size, static_cast<double>(spec.size[node]));
        if (spec.cpus[node] != kUnlimited) most_cpus = std::max(most_cpus, static_cast<double>(spec.cpus[node]));
        if (spec.memory_mib[node] != kUnlimited)
            most_memory = std::max(most_memory, static_cast<double>(spec.memory_mib[node]));
    }
    for (const Pool& pool : spec.pools) top_speed = std::max(top_speed, pool.speed);
}

WindowJob make_window_job(const QueuedJob& job, const Demand& demand, Placement rule, const ClusterSpec& spec,
                          const ClusterScale& scale) {
    WindowJob out{};
    out.job = job.job;
    out.row = job.row;
    out.submit_us = job.submit_us;
    out.estimate_us = job.estimate_us;
    out.deadline_us = job.deadline_us;
    out.demand = job.demand;
    out.user = job.user;
    out.group = job.group;
    const bool known = job.estimate_us != kEndless;
    const double r = known ? seconds(job.estimate_us) : 0.0;
    const double n = demand.size_gpus;
    out.estimate_s = r;
    out.bound_s = std::max(r, 10.0);
    std::size_t at = 0;
    const auto put = [&](double value) { out.columns[at++] = static_cast<float>(value); };
    put(1.0);
    put(0.0);  // wait
    put(known ? std::min(std::log(1.0 + r) / std::log(1.0 + kMonth), 1.0) : 0.0);
    put(known ? 1.0 : 0.0);
    put(quotient(n, scale.gpus));
    put(quotient(std::log(1.0 + n), std::log(1.0 + scale.gpus)));
    put(known ? std::min(quotient(std::log(1.0 + r * n), std::log(1.0 + kMonth * scale.gpus)), 1.0) : 0.0);
    put(std::min(quotient(static_cast<double>(demand.cpus), scale.most_cpus), 1.0));
    put(std::min(quotient(static_cast<double>(demand.memory_mib), scale.most_memory), 1.0));
    put(0.5 * (1.0 + job.priority / (1.0 + std::abs(job.priority))));
    put(0.0);  // slowdown
    put(1.0);  // deadline
    put(0.0);  // fits
    put(0.0);  // free_after
    const PoolOption& first = pools_of(demand, rule).front();
    const auto members = static_cast<double>(spec.pools[as_index(first.pool)].nodes.size());
    put(std::min(static_cast<double>(first.fewest_nodes) / members, 1.0));
    return out;
}

}  // namespace gpuyard
