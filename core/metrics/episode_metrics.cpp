#include "metrics/episode_metrics.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <stdexcept>
#include <string>

#include "base/index.hpp"
#include "env/reward.hpp"
#include "observation/prospects.hpp"

namespace gpuyard {

namespace {

constexpr double kUndefined = std::numeric_limits<double>::quiet_NaN();
constexpr double kStarved = 86400.0;

double ratio(double part, double whole) { return whole > 0.0 ? part / whole : kUndefined; }

// Linear interpolation between order statistics of sorted values.
double quantile(const std::vector<double>& sorted, double q) {
    const double at = q * static_cast<double>(sorted.size() - 1);
    const auto low = static_cast<std::size_t>(at);
    if (low + 1 >= sorted.size()) return sorted.back();
    return sorted[low] + (at - static_cast<double>(low)) * (sorted[low + 1] - sorted[low]);
}

// Free GPUs on partly used nodes / free GPUs, by fraction.
double free_on_used_nodes(const ClusterState& state) {
    const ClusterSpec& spec = state.spec();
    std::int64_t free_milli = 0, fragments = spec.track_gpus ? 0 : 1000 * fragmented_gpus(state);
    for (std::size_t pool = 0; pool < spec.pools.size(); ++pool)
        free_milli += state.pool_free_milli(static_cast<std::int32_t>(pool));
    for (std::size_t i = 0; spec.track_gpus && i < spec.node_count(); ++i) {
        const std::int64_t free = state.free_milli(static_cast<std::int32_t>(i));
        if (free < 1000 * static_cast<std::int64_t>(spec.size[i])) fragments += free;
    }
    return quotient(static_cast<double>(fragments), static_cast<double>(free_milli));
}

// What the jobs held, in units times seconds.
struct Held {
    double gpu = 0.0, flops = 0.0, cpu = 0.0, memory = 0.0;

    void add(const ClusterSpec& spec, const Demand& demand, std::span<const Part> parts, double run) {
        for (const Part& part : parts) {
            const std::size_t node = as_index(part.node);
            const double gpus = static_cast<double>(static_cast<std::int64_t>(part.gpus) * demand.gpu_milli) / 1000.0;
            gpu += gpus * run;
            flops += gpus * run * spec.pools[as_index(spec.pool[node])].speed;
            const std::int32_t share = part.gpus > 0 ? part.gpus : 1;
            if (spec.cpus[node] != kUnlimited) cpu += static_cast<double>(demand.cpus_for(share)) * run;
            if (spec.memory_mib[node] != kUnlimited) memory += static_cast<double>(demand.memory_for(share)) * run;
        }
    }
};

}  // namespace

std::size_t episode_metric_from_name(std::string_view name) {
    const auto found = std::find(kEpisodeMetrics.begin(), kEpisodeMetrics.end(), name);
    if (found == kEpisodeMetrics.end()) throw std::invalid_argument("unknown metric " + std::string(name));
    return as_index(found - kEpisodeMetrics.begin());
}

void EpisodeMetrics::pass(const ClusterState& state, double dt) {
    const ClusterSpec& spec = state.spec();
    if (spec.has_watts) energy_mw_s_ += static_cast<double>(spec.idle_mw + state.busy_mw()) * dt;
    if (spec.total_gpus == 0) return;
    variance_s_ += load_variance(state) * dt;
    fragmentation_s_ += free_on_used_nodes(state) * dt;
}

void EpisodeMetrics::put_statistics(double*& out, std::vector<double>& values) const {
    if (values.empty()) {
        out = std::fill_n(out, 5, kUndefined);
        return;
    }
    double sum = 0.0;
    for (const double value : values) sum += value;
    *out++ = sum / static_cast<double>(values.size());
    std::sort(values.begin(), values.end());
    for (const double q : {0.50, 0.95, 0.99}) *out++ = quantile(values, q);
    *out++ = values.back();
}

void EpisodeMetrics::compute(const LeanSimulator& simulator, std::int64_t first, std::int64_t end, Time begin_us,
                             double* out) {
    const JobTable& jobs = simulator.jobs();
    const ClusterSpec& spec = simulator.state().spec();
    const LeanSimulator::Record& record = simulator.record();
    for (auto* column : {&wait_, &jct_, &slowdown_, &bounded_}) column->clear();
    user_sum_.assign(as_index(jobs.users), 0.0);
    user_count_.assign(as_index(jobs.users), 0.0);
    Held held;
    double completed = 0.0, deadlines = 0.0, met = 0.0, starved = 0.0, waited = 0.0;
    Time last_us = begin_us;
    for (std::size_t i = as_index(first); i < as_index(end); ++i) {
        const bool has_deadline = jobs.deadline_of(i) != kEndless;
        deadlines += has_deadline ? 1.0 : 0.0;
        const Time end_us = record.end_us[i];
        if (record.start_us[i] < 0 || end_us > simulator.now()) continue;
        last_us = std::max(last_us, end_us);
        const double wait = seconds(record.start_us[i] - jobs.submit_us[i]);
        const double jct = seconds(end_us - jobs.submit_us[i]);
        const double run = seconds(jobs.duration_us[i]);
        wait_.push_back(wait);
        jct_.push_back(jct);
        slowdown_.push_back(jct / run);
        bounded_.push_back(std::max(1.0, jct / std::max(run, 10.0)));
        user_sum_[as_index(jobs.user_of(i))] += bounded_.back();
        user_count_[as_index(jobs.user_of(i))] += 1.0;
        const bool is_complete = record.ending[i] == static_cast<std::uint8_t>(Ending::completed);
        completed += is_complete ? 1.0 : 0.0;
        met += has_deadline && is_complete && end_us <= jobs.deadline_of(i) ? 1.0 : 0.0;
        starved += wait > kStarved ? 1.0 : 0.0;
        waited += wait;
        held.add(spec, jobs.demand_of(i), simulator.parts_of(static_cast<JobId>(i)),
                 seconds(end_us - record.start_us[i]));
    }
    const auto own = static_cast<double>(end - first);
    const auto finished = static_cast<double>(wait_.size());
    for (auto* column : {&wait_, &jct_, &slowdown_, &bounded_}) put_statistics(out, *column);
    const double makespan = finished > 0.0 ? seconds(last_us - begin_us) : kUndefined;
    double flops = 0.0;
    for (const Pool& pool : spec.pools)
        flops += static_cast<double>(static_cast<std::int64_t>(pool.nodes.size()) * pool.size) * pool.speed;
    const auto use = [&](double amount, double capacity) {
        return finished > 0.0 ? ratio(amount, capacity * makespan) : kUndefined;
    };
    const bool has_gpus = spec.total_gpus > 0 && finished > 0.0;
    const double energy_kwh = spec.has_watts && finished > 0.0 ? energy_mw_s_ / 3.6e9 : kUndefined;
    double means = 0.0, squares = 0.0, users = 0.0;
    for (std::size_t user = 0; user < user_sum_.size(); ++user) {
        if (user_count_[user] == 0.0) continue;
        const double mean = user_sum_[user] / user_count_[user];
        means += mean;
        squares += mean * mean;
        users += 1.0;
    }
    for (const double value :
         {makespan, use(held.gpu, static_cast<double>(spec.total_gpus)), use(held.flops, flops),
          use(held.cpu, static_cast<double>(spec.given_cpus)),
          use(held.memory, static_cast<double>(spec.given_memory_mib)), has_gpus ? variance_s_ / makespan : kUndefined,
          has_gpus ? fragmentation_s_ / makespan : kUndefined,
          finished > 0.0 ? ratio(completed, makespan / 3600.0) : kUndefined, completed, ratio(completed, own),
          finished > 0.0 ? ratio(waited, makespan) : kUndefined, energy_kwh, ratio(energy_kwh, completed),
          ratio(means * means, users * squares), ratio(deadlines - met, deadlines), starved, own - finished})
        *out++ = value;
}

}  // namespace gpuyard
