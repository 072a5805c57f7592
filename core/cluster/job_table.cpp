#include "cluster/job_table.hpp"

#include <algorithm>
#include <cmath>
#include <stdexcept>
#include <string>

#include "base/index.hpp"
#include "base/rng.hpp"

namespace gpuyard {

namespace {

template <class T>
T value_or(std::span<const T> column, std::size_t i, T otherwise) {
    return column.empty() ? otherwise : column[i];
}

template <class T>
void check_length(std::span<const T> column, std::size_t jobs, const char* name, bool optional = true) {
    if (column.size() != jobs && !(optional && column.empty()))
        throw std::invalid_argument(std::string("column ") + name + " has " + std::to_string(column.size()) +
                                    " entries for " + std::to_string(jobs) + " jobs");
}

void check_lengths(const JobColumns& c) {
    const std::size_t jobs = c.submit_us.size();
    check_length(c.duration_us, jobs, "duration", false);
    check_length(c.estimate_us, jobs, "estimate", false);
    check_length(c.gpus, jobs, "gpus", false);
    check_length(c.gpu_milli, jobs, "gpu_milli");
    check_length(c.cpus, jobs, "cpus");
    check_length(c.memory_mib, jobs, "memory_mib");
    check_length(c.nodes, jobs, "nodes");
    check_length(c.queue, jobs, "queue");
    check_length(c.type_set, jobs, "type_set");
    check_length(c.priority, jobs, "priority");
    check_length(c.deadline_us, jobs, "deadline");
    check_length(c.user, jobs, "user");
    check_length(c.group, jobs, "group");
    check_length(c.row, jobs, "row");
    check_length(c.partition, jobs, "partition");
    check_length(c.qos, jobs, "qos");
    check_length(c.association, jobs, "association");
    if (!c.after_offset.empty() &&
        (c.after_offset.size() != jobs + 1 || as_index(c.after_offset.back()) != c.after.size()))
        throw std::invalid_argument("column after_offset does not fit column after");
    if (jobs > static_cast<std::size_t>(INT32_MAX)) throw std::invalid_argument("more than 2^31 - 1 jobs");
}

void check_job(const JobColumns& c, std::size_t i, const DemandKey& key, const ClusterSpec& cluster) {
    constexpr Time longest = (Time{1} << 32) * 1'000'000;
    const bool time_ok = c.submit_us[i] >= (i == 0 ? 0 : c.submit_us[i - 1]) && c.submit_us[i] <= longest &&
                         c.duration_us[i] >= 1 && c.duration_us[i] <= longest && c.estimate_us[i] >= 1;
    const bool gpus_ok = key.gpus >= 0 && key.gpu_milli >= 1 && key.gpu_milli <= 1000 &&
                         (key.gpu_milli == 1000 || key.gpus == 1) && (key.gpu_milli == 1000 || cluster.track_gpus);
    const bool rest_ok =
        key.cpus >= 0 && key.cpus <= kUnlimited && key.memory_mib >= 0 && key.memory_mib <= kUnlimited &&
        key.nodes >= 0 && key.queue >= 0 && key.queue < cluster.queues && key.type_set >= -1 &&
        key.type_set < static_cast<std::int32_t>(c.type_sets.size()) &&
        (c.user.empty() || (c.user[i] >= 0 && c.user[i] < c.users)) &&
        (cluster.partitions.empty() ? key.partition == -1 : as_index(key.partition) < cluster.partitions.size());
    if (!(time_ok && gpus_ok && rest_ok)) throw std::invalid_argument("job " + std::to_string(i) + " is out of range");
}

template <class T>
std::vector<T> copied(std::span<const T> column) {
    return {column.begin(), column.end()};
}

}  // namespace

std::size_t DemandTable::Hash::operator()(const DemandKey& k) const {
    const auto u = [](std::int64_t v) { return static_cast<std::uint64_t>(v); };
    return splitmix64(splitmix64(u(k.gpus) << 32 ^ u(k.gpu_milli) << 20 ^ u(k.queue) << 10 ^ u(k.type_set)) ^
                      splitmix64(u(k.cpus) ^ u(k.memory_mib) << 24 ^ u(k.nodes) << 44 ^ u(k.partition) << 52));
}

std::int32_t DemandTable::number(const DemandKey& key) {
    if (key == last_) return last_number_;
    DemandKey asked = key;  // those that come to the same are one demand
    asked.nodes = asked_nodes(key.gpus, key.nodes);
    const auto [entry, fresh] = known_.try_emplace(asked, static_cast<std::int32_t>(demands_.size()));
    if (fresh) {
        const std::span<const std::int32_t> types =
            key.type_set < 0 ? std::span<const std::int32_t>() : type_sets_[as_index(key.type_set)];
        demands_.push_back(cluster_.make_demand(key.gpus, key.gpu_milli, key.cpus, key.memory_mib, key.queue, types,
                                                asked.nodes, key.partition));
    }
    last_ = key;
    last_number_ = entry->second;
    return last_number_;
}

JobTable make_jobs(const ClusterSpec& cluster, const JobColumns& c) {
    check_lengths(c);
    JobTable table;
    table.submit_us = copied(c.submit_us);
    table.duration_us = copied(c.duration_us);
    table.estimate_us = copied(c.estimate_us);
    table.priority = copied(c.priority);
    table.deadline_us = copied(c.deadline_us);
    table.user = copied(c.user);
    table.row = copied(c.row);
    table.group = copied(c.group);
    table.qos = copied(c.qos);
    table.association = copied(c.association);
    table.after_offset = copied(c.after_offset);
    table.after = copied(c.after);
    for (const JobId job : table.after)
        if (job < 0 || job >= table.size()) throw std::invalid_argument("column after names a job that is not there");
    table.users = c.users;
    table.groups = c.groups;
    table.origin_s = c.origin_s;
    table.epoch_us = c.epoch_us;
    DemandTable demands(cluster, c.type_sets);
    table.demand.reserve(c.submit_us.size());
    for (std::size_t i = 0; i < c.submit_us.size(); ++i) {
        const DemandKey key{c.gpus[i],
                            value_or(c.gpu_milli, i, 1000),
                            value_or(c.queue, i, 0),
                            value_or(c.type_set, i, -1),
                            value_or(c.cpus, i, std::int64_t{0}),
                            value_or(c.memory_mib, i, std::int64_t{0}),
                            value_or(c.nodes, i, 0),
                            value_or(c.partition, i, -1)};
        check_job(c, i, key, cluster);
        table.demand.push_back(demands.number(key));
    }
    table.demands = demands.take();
    return table;
}

std::vector<Time> noisy_estimates(std::span<const Time> duration_us, std::span<const std::int64_t> row,
                                  std::uint64_t seed, double sigma) {
    std::vector<Time> estimates(duration_us.size());
    for (std::size_t i = 0; i < estimates.size(); ++i) {
        const auto key = static_cast<std::uint64_t>(value_or(row, i, static_cast<std::int64_t>(i)));
        const double noisy = seconds(duration_us[i]) * std::exp(sigma * normal(seed, kStreamNoise, key, 0));
        const double us = std::min(std::max(std::nearbyint(noisy * 1e6), 1.0), 0x1p53);
        estimates[i] = static_cast<Time>(us);
    }
    return estimates;
}

}  // namespace gpuyard
