#include "env/episode.hpp"

#include <algorithm>
#include <stdexcept>
#include <string>

#include "base/index.hpp"
#include "base/rng.hpp"
#include "policy/placement.hpp"

namespace gpuyard {

Demand confined(const Demand& demand, const ClusterSpec& cluster, std::size_t pool) {
    Demand in_pool = demand;
    const auto elsewhere = [&](const PoolOption& option) { return as_index(option.pool) != pool; };
    std::erase_if(in_pool.pools, elsewhere);
    std::erase_if(in_pool.pools_by_energy, elsewhere);
    for (std::size_t p = 0; p < in_pool.allows.size(); ++p)
        if (p != pool) in_pool.allows[p] = 0;
    const Pool& p = cluster.pools[pool];
    in_pool.allowed_gpus = in_pool.pools.empty() ? 0 : static_cast<std::int64_t>(p.nodes.size()) * p.size;
    return in_pool;
}

namespace {

// Without the pools on whose nodes the job does not fit alone.
void confine_to_one_node(Demand& demand, const ClusterSpec& cluster) {
    const auto too_small = [&](const PoolOption& option) {
        return option.fewest_nodes > 1 || cluster.pools[as_index(option.pool)].size < demand.gpus;
    };
    for (const PoolOption& option : demand.pools) {
        if (!too_small(option)) continue;
        const Pool& pool = cluster.pools[as_index(option.pool)];
        demand.allows[as_index(option.pool)] = 0;
        demand.allowed_gpus -= static_cast<std::int64_t>(pool.nodes.size()) * pool.size;
    }
    std::erase_if(demand.pools, too_small);
    std::erase_if(demand.pools_by_energy, too_small);
}

std::shared_ptr<const JobTable> jobs_for(const ClusterSpec& cluster, std::shared_ptr<const JobTable> jobs,
                                         const EnvSpec& env) {
    if (!env.chooses_host()) return jobs;
    auto confined = std::make_shared<JobTable>(*jobs);
    for (Demand& demand : confined->demands) {
        if (demand.nodes > 1)
            throw std::invalid_argument("a job asks for " + std::to_string(demand.nodes) +
                                        " nodes, and this environment puts each job on one host");
        confine_to_one_node(demand, cluster);
        if (demand.pools.empty())
            throw std::invalid_argument("a job of " + std::to_string(demand.gpus) + " GPUs does not fit on one node");
    }
    return confined;
}

}  // namespace

EpisodeTable::EpisodeTable(std::shared_ptr<const ClusterSpec> spec, std::shared_ptr<const JobTable> table,
                           std::shared_ptr<const Settings> simulated, const EnvSpec& env)
    : cluster(std::move(spec)),
      empty(cluster),
      scale(*cluster),
      jobs(jobs_for(*cluster, std::move(table), env)),
      settings(std::move(simulated)) {
    window_jobs.reserve(jobs->submit_us.size());
    for (std::size_t i = 0; i < jobs->submit_us.size(); ++i) {
        QueuedJob job{};
        job.job = static_cast<JobId>(i);
        job.submit_us = jobs->submit_us[i];
        job.estimate_us = jobs->estimate_us[i];
        job.demand = jobs->demand[i];
        job.user = jobs->user_of(i);
        job.group = jobs->group_of(i);
        job.priority = jobs->priority_of(i);
        job.deadline_us = jobs->deadline_of(i);
        job.row = jobs->row_of(i);
        window_jobs.push_back(make_window_job(job, jobs->demand_of(i), env.base.placement, *cluster, scale));
    }
    if (env.kind != EnvKind::select_job_and_pool) return;
    Placer placer(env.base.placement, 0);
    for (const Demand& demand : jobs->demands) {
        for (std::size_t pool = 0; pool < cluster->pools.size(); ++pool) {
            in_pool_.push_back(confined(demand, *cluster, pool));
            ever_in_pool.push_back(!in_pool_.back().pools.empty() && placer.placeable(empty, in_pool_.back()) ? 1 : 0);
        }
    }
}

Episode WindowSource::at(std::int64_t row) const {
    if (row < 0 || row + jobs > end)
        throw std::invalid_argument("no window of " + std::to_string(jobs) + " jobs starts at row " +
                                    std::to_string(row));
    const std::int64_t before = std::min(warmup, row);
    const std::int64_t after = std::min(cooldown, end - row - jobs);
    return {table, row - before, before + jobs + after, before, after};
}

Episode WindowSource::drawn(std::uint64_t seed, std::uint64_t episode) const {
    const auto places = static_cast<double>(starts_end() - begin);
    return at(begin + static_cast<std::int64_t>(uniform(seed, kStreamEpisode, episode, 0) * places));
}

}  // namespace gpuyard
