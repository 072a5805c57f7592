// Where episodes come from: jobs for a cluster, whole or in windows.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <vector>

#include "base/index.hpp"
#include "base/job.hpp"
#include "cluster/cluster.hpp"
#include "observation/env_spec.hpp"
#include "observation/window_job.hpp"

namespace gpuyard {

// A demand that may be met in one pool only.
Demand confined(const Demand& demand, const ClusterSpec& cluster, std::size_t pool);

// Jobs and the cluster they run on, with all that can be known of them beforehand. Shared by environments.
struct EpisodeTable {
    EpisodeTable(std::shared_ptr<const ClusterSpec> cluster, std::shared_ptr<const JobTable> jobs,
                 std::shared_ptr<const Settings> settings, const EnvSpec& spec);

    const Demand& in_pool(std::int32_t demand, std::size_t pool) const {
        return in_pool_[as_index(demand) * cluster->pools.size() + pool];
    }

    std::shared_ptr<const ClusterSpec> cluster;
    ClusterState empty;
    ClusterScale scale;
    std::shared_ptr<const JobTable> jobs;
    std::shared_ptr<const Settings> settings;  // those of the EnvSpec, with the users and groups of these jobs
    std::vector<WindowJob> window_jobs;
    std::vector<std::uint8_t> ever_in_pool;  // by demand and pool, for SelectJobAndPool: whether it can ever sit there

private:
    std::vector<Demand> in_pool_;  // each demand confined to each pool, for SelectJobAndPool
};

// `count` jobs from `first` on; the first `warmup` of them only fill the cluster, the last `cooldown` only keep it
// busy.
struct Episode {
    std::shared_ptr<const EpisodeTable> table;
    std::int64_t first = 0;
    std::int64_t count = 0;
    std::int64_t warmup = 0;
    std::int64_t cooldown = 0;
};

// Windows of a table, drawn by seed: docs/contract/mdp.md, "Episodes".
struct WindowSource {
    std::shared_ptr<const EpisodeTable> table;
    std::int64_t begin = 0, end = 0;  // rows to draw from
    std::int64_t jobs = 0;            // of an episode
    std::int64_t warmup = 0, cooldown = 0;

    // Windows that are drawn start before this row: they leave room for cool-down.
    std::int64_t starts_end() const { return end - jobs - std::min(cooldown, (end - begin - jobs) / 2) + 1; }
    Episode at(std::int64_t row) const;
    Episode drawn(std::uint64_t seed, std::uint64_t episode) const;
};

}  // namespace gpuyard
