// Metrics of one episode: the formulas of docs/contract/metrics.md that need no price and no second run.
#pragma once

#include <array>
#include <string_view>
#include <vector>

#include "simulator/lean_simulator.hpp"

namespace gpuyard {

inline constexpr std::array<std::string_view, 37> kEpisodeMetrics{
    "mean_wait_s",
    "p50_wait_s",
    "p95_wait_s",
    "p99_wait_s",
    "max_wait_s",
    "mean_jct_s",
    "p50_jct_s",
    "p95_jct_s",
    "p99_jct_s",
    "max_jct_s",
    "mean_slowdown",
    "p50_slowdown",
    "p95_slowdown",
    "p99_slowdown",
    "max_slowdown",
    "mean_bounded_slowdown",
    "p50_bounded_slowdown",
    "p95_bounded_slowdown",
    "p99_bounded_slowdown",
    "max_bounded_slowdown",
    "makespan_s",
    "gpu_utilization",
    "flops_utilization",
    "cpu_utilization",
    "memory_utilization",
    "load_imbalance",
    "fragmentation",
    "throughput_jobs_per_h",
    "completed_jobs",
    "completion_rate",
    "mean_queue_length",
    "energy_kwh",
    "energy_per_job_kwh",
    "jain_fairness",
    "deadline_miss_rate",
    "starved_jobs",
    "unfinished_jobs",
};
std::size_t episode_metric_from_name(std::string_view name);

class EpisodeMetrics {
public:
    void reset() { variance_s_ = fragmentation_s_ = energy_mw_s_ = 0.0; }
    // Time passes, in which nothing changes.
    void pass(const ClusterState& state, double dt);

    // Of the jobs from `first` up to `end` that have finished by now; those that do not apply are NaN. `out` has
    // kEpisodeMetrics.size() places.
    void compute(const LeanSimulator& simulator, std::int64_t first, std::int64_t end, Time begin_us, double* out);

private:
    void put_statistics(double*& out, std::vector<double>& values) const;

    double variance_s_ = 0.0, fragmentation_s_ = 0.0, energy_mw_s_ = 0.0;
    std::vector<double> wait_, jct_, slowdown_, bounded_;
    std::vector<double> user_sum_, user_count_;
};

}  // namespace gpuyard
