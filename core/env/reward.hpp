// The terms of rewards: docs/contract/mdp.md.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "base/index.hpp"
#include "base/job.hpp"
#include "cluster/cluster.hpp"
#include "observation/env_spec.hpp"

namespace gpuyard {

// Variance over nodes with GPUs of busy GPUs / size; without any, of CPUs held / CPUs over nodes on which they are
// given.
double load_variance(const ClusterState& state);

class Rewards {
public:
    explicit Rewards(const EnvSpec& spec) : spec_(spec) {}

    // For an episode of `jobs`, the first `warmup` of which are not its own. Those from `own_to` on do not count.
    void reset(const JobTable& jobs, const ClusterState& state, std::int64_t warmup, std::int64_t own_to);
    // Nothing that happened so far counts.
    void forget() { terms_.fill(0.0); }

    void arrived(JobId job);
    void started(JobId job, std::span<const Part> parts);
    void finished(JobId job, std::span<const Part> parts, bool completed);
    // Time passes, in which nothing changes.
    void pass(Time from_us, Time to_us);
    void add(Term term, double value) { terms_[static_cast<std::size_t>(term)] += value; }

    // The weighted sum since it was last taken.
    double take();

    double share(JobId job) const { return share_[as_index(job)]; }
    double waiting_share() const { return waiting_share_; }
    double unfinished_share() const { return unfinished_share_; }
    double own_work() const { return work_; }  // GPU-seconds, or CPU-seconds without GPU jobs
    bool counts_gpus() const { return counts_gpus_; }

private:
    bool uses(Term term) const { return spec_.weight(term) != 0.0; }
    bool counts(JobId job) const { return job < own_to_; }
    void pass_slowdown(Time from_us, Time to_us, double dt);
    void hold(JobId job, std::span<const Part> parts, std::int64_t sign);
    double unfairness() const;

    const EnvSpec& spec_;
    const JobTable* jobs_ = nullptr;
    const ClusterState* state_ = nullptr;
    std::array<double, kTerms> terms_{};
    std::int64_t own_to_ = 0;
    double own_jobs_ = 1.0;
    bool counts_gpus_ = true;
    double work_ = 0.0;
    std::vector<double> share_;                 // of the episode's work, by job; 0 for those that do not count
    std::int64_t in_system_ = 0, waiting_ = 0;  // of those that count
    double slowdown_rate_ = 0.0;                // of waiting jobs whose bounded slowdown grows
    std::vector<JobId> delayed_;                // waiting jobs whose bounded slowdown is still 1
    double waiting_share_ = 0.0, unfinished_share_ = 0.0;
    std::int64_t held_cpus_ = 0;  // where CPUs are given
    double speed_sum_ = 0.0;      // of all GPUs
    std::vector<std::int64_t> user_milli_, user_jobs_;
    std::int64_t users_in_system_ = 0, milli_sum_ = 0;
    double milli_squares_ = 0.0;
};

}  // namespace gpuyard
