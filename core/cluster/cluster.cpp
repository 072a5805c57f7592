#include "cluster/cluster.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <stdexcept>
#include <tuple>

#include "base/index.hpp"

namespace gpuyard {

namespace {

void lay_out_buckets(ClusterSpec& spec) {
    for (Pool& pool : spec.pools) {
        pool.shape = BitTreeShape(pool.nodes.size());
        pool.first_word = spec.bucket_words;
        pool.first_bucket = spec.buckets;
        const std::size_t count = as_index(pool.size) + 1;
        spec.bucket_words += count * pool.shape.words();
        spec.buckets += count;
    }
}

}  // namespace

ClusterSpec::ClusterSpec(const NodeColumns& nodes, std::span<const double> type_speed, bool track,
                         const PowerColumns& power, std::vector<Partition> given_partitions)
    : size(nodes.gpus.begin(), nodes.gpus.end()),
      pool(nodes.gpus.size(), -1),
      position(nodes.gpus.size(), -1),
      partitions(std::move(given_partitions)),
      cpus(nodes.cpus.begin(), nodes.cpus.end()),
      memory_mib(nodes.memory_mib.begin(), nodes.memory_mib.end()),
      track_gpus(track) {
    const std::size_t count = size.size();
    if (nodes.type.size() != count || cpus.size() != count || memory_mib.size() != count || nodes.owner.size() != count)
        throw std::invalid_argument("node columns differ in length");
    for (std::size_t node = 0; node < count; ++node) {
        check_node(nodes, node, type_speed.size());
        first_gpu.push_back(total_gpus);
        total_gpus += as_index(size[node]);
        if (cpus[node] != kUnlimited) given_cpus += cpus[node];
        if (memory_mib[node] != kUnlimited) given_memory_mib += memory_mib[node];
    }
    if (!partitions.empty()) {
        more_pools.resize(count);
        number_queues();
        for (std::size_t i = 0; i < partitions.size(); ++i)
            for (const std::int32_t node : partitions[i].nodes)
                add_to_pool(nodes, type_speed, node, partitions[i].queue, static_cast<std::int32_t>(i));
    }
    const std::int32_t outside = queues;  // of nodes outside of all partitions: no job is in it
    for (std::size_t node = 0; node < count; ++node)
        if (pool[node] < 0)
            add_to_pool(nodes, type_speed, static_cast<std::int32_t>(node),
                        partitions.empty() ? nodes.owner[node] + 1 : outside, -1);
    lay_out_buckets(*this);
    if (!power.node_idle_w.empty()) add_power(nodes, power);
}

void ClusterSpec::check_node(const NodeColumns& nodes, std::size_t node, std::size_t types) const {
    if (size[node] < 0 || as_index(nodes.type[node]) >= types || nodes.owner[node] < -1)
        throw std::invalid_argument("node " + std::to_string(node) +
                                    " has a negative size, an unknown type or a bad owner");
    if (track_gpus && size[node] > 64)
        throw std::invalid_argument("shared GPUs (gpu_milli below 1000) need nodes of at most 64 GPUs; node " +
                                    std::to_string(node) + " has " + std::to_string(size[node]));
    if (!partitions.empty() && nodes.owner[node] >= 0)
        throw std::invalid_argument("a cluster has partitions or owned nodes, not both");
}

// Partitions that share a node, directly or through others, have one queue.
void ClusterSpec::number_queues() {
    constexpr std::int32_t none = -1;
    std::vector<std::int32_t> queue_of_node(size.size(), none);
    std::vector<std::int32_t> merged;  // by queue: into which other one, itself if none
    const auto root = [&](std::int32_t queue) {
        while (merged[as_index(queue)] != queue) queue = merged[as_index(queue)];
        return queue;
    };
    for (Partition& partition : partitions) {
        partition.queue = static_cast<std::int32_t>(merged.size());
        merged.push_back(partition.queue);
        for (const std::int32_t node : partition.nodes) {
            if (node < 0 || as_index(node) >= size.size())
                throw std::invalid_argument("a partition has node " + std::to_string(node) + ", which is not there");
            std::int32_t& queue = queue_of_node[as_index(node)];
            if (queue == none) queue = partition.queue;
            const std::int32_t a = root(queue), b = root(partition.queue);
            merged[as_index(std::max(a, b))] = std::min(a, b);
            partition.gpus += size[as_index(node)];
            if (cpus[as_index(node)] != kUnlimited) partition.given_cpus += cpus[as_index(node)];
            if (memory_mib[as_index(node)] != kUnlimited) partition.given_memory_mib += memory_mib[as_index(node)];
        }
    }
    std::vector<std::int32_t> numbers(merged.size(), none);
    queues = 0;
    for (Partition& partition : partitions) {
        std::int32_t& number = numbers[as_index(root(partition.queue))];
        if (number == none) number = queues++;
        partition.queue = number;
    }
}

void ClusterSpec::add_to_pool(const NodeColumns& nodes, std::span<const double> type_speed, std::int32_t node,
                              std::int32_t queue, std::int32_t partition) {
    const std::size_t i = as_index(node);
    queues = std::max(queues, queue + 1);
    auto found = std::find_if(pools.begin(), pools.end(), [&](const Pool& p) {
        return p.type == nodes.type[i] && p.queue == queue && p.partition == partition && p.size == size[i];
    });
    if (found == pools.end()) {
        Pool fresh;
        fresh.type = nodes.type[i];
        fresh.queue = queue;
        fresh.partition = partition;
        fresh.size = size[i];
        fresh.speed = type_speed[as_index(fresh.type)];
        found = pools.insert(pools.end(), fresh);
    }
    const Membership in{static_cast<std::int32_t>(found - pools.begin()),
                        static_cast<std::int32_t>(found->nodes.size())};
    found->nodes.push_back(node);
    if (pool[i] >= 0) {
        more_pools[i].push_back(in);
        return;
    }
    pool[i] = in.pool;
    position[i] = in.position;
}

void ClusterSpec::add_power(const NodeColumns& nodes, const PowerColumns& power) {
    const auto milliwatts = [](double watts) { return static_cast<std::int64_t>(std::nearbyint(watts * 1000.0)); };
    has_watts = true;
    gpu_extra_mw.resize(size.size());
    for (std::size_t node = 0; node < size.size(); ++node) {
        const std::size_t type = as_index(nodes.type[node]);
        idle_mw += milliwatts(power.node_idle_w[node]);
        if (size[node] == 0) continue;
        idle_mw += size[node] * milliwatts(power.type_idle_w[type]);
        gpu_extra_mw[node] = milliwatts(power.type_peak_w[type]) - milliwatts(power.type_idle_w[type]);
    }
    for (Pool& p : pools) {
        p.peak_w = power.type_peak_w[as_index(p.type)];
        p.idle_w = power.node_idle_w[as_index(p.nodes.front())];
    }
}

Demand ClusterSpec::make_demand(std::int32_t gpus, std::int32_t gpu_milli, std::int64_t job_cpus,
                                std::int64_t job_memory, std::int32_t queue, std::span<const std::int32_t> types,
                                std::int32_t nodes, std::int32_t partition) const {
    Demand demand;
    demand.gpus = gpus;
    demand.gpu_milli = gpu_milli;
    demand.cpus = job_cpus;
    demand.memory_mib = job_memory;
    demand.nodes = nodes;
    demand.partition = partition;
    demand.queue = partition < 0 ? queue : partitions[as_index(partition)].queue;
    demand.tier = partition < 0 ? 0 : partitions[as_index(partition)].tier;
    demand.limited = job_cpus > 0 || job_memory > 0;
    demand.kind = gpus == 0 ? DemandKind::cpu_only : gpu_milli < 1000 ? DemandKind::shared : DemandKind::whole;
    demand.size_gpus = static_cast<double>(demand.total_milli()) / 1000.0;
    demand.allows.assign(pools.size(), 0);
    for (std::size_t id = 0; id < pools.size(); ++id) {
        const Pool& p = pools[id];
        const bool type_ok = types.empty() || std::find(types.begin(), types.end(), p.type) != types.end();
        if (p.queue != demand.queue || p.partition != partition || !type_ok || (gpus > 0 && p.size == 0)) continue;
        PoolOption option{static_cast<std::int32_t>(id), 0, 0, 1};
        if (gpus > 0) {
            option.full_nodes = gpus / p.size;
            option.remainder = gpus % p.size;
            option.fewest_nodes = option.full_nodes + (option.remainder > 0 ? 1 : 0);
            if (has_watts)
                option.energy_rate =
                    (demand.size_gpus * p.peak_w + (demand.size_gpus / static_cast<double>(p.size)) * p.idle_w) /
                    p.speed;
        }
        if (nodes > 0) option.fewest_nodes = nodes;
        demand.pools.push_back(option);
        demand.allows[id] = 1;
        demand.allowed_gpus += static_cast<std::int64_t>(p.nodes.size()) * p.size;
    }
    std::sort(demand.pools.begin(), demand.pools.end(), [&](const PoolOption& a, const PoolOption& b) {
        const Pool& pa = pools[as_index(a.pool)];
        const Pool& pb = pools[as_index(b.pool)];
        if (gpus == 0) return std::tuple(pa.size, a.pool) < std::tuple(pb.size, b.pool);
        return std::tuple(-pa.speed, a.fewest_nodes, a.pool) < std::tuple(-pb.speed, b.fewest_nodes, b.pool);
    });
    demand.pools_by_energy = demand.pools;
    std::stable_sort(demand.pools_by_energy.begin(), demand.pools_by_energy.end(),
                     [](const PoolOption& a, const PoolOption& b) { return a.energy_rate < b.energy_rate; });
    if (!demand.pools.empty()) demand.energy_rate = demand.pools_by_energy.front().energy_rate;
    return demand;
}

ClusterState::ClusterState(std::shared_ptr<const ClusterSpec> spec)
    : spec_(std::move(spec)),
      empty_(spec_->size),
      offline_(spec_->node_count(), 0),
      free_cpus_(spec_->cpus),
      free_memory_(spec_->memory_mib),
      words_(spec_->bucket_words, 0),
      bucket_count_(spec_->buckets, 0),
      pool_empty_(spec_->pools.size(), 0),
      pool_free_milli_(spec_->pools.size(), 0),
      pool_running_(spec_->pools.size(), 0),
      gpu_free_(spec_->track_gpus ? spec_->total_gpus : 0, 1000) {
    for (std::size_t id = 0; id < spec_->pools.size(); ++id) {
        const Pool& pool = spec_->pools[id];
        std::uint64_t* full = words_.data() + pool.first_word + as_index(pool.size) * pool.shape.words();
        for (std::size_t i = 0; i < pool.nodes.size(); ++i) pool.shape.insert(full, i);
        bucket_count_[pool.first_bucket + as_index(pool.size)] = static_cast<std::int32_t>(pool.nodes.size());
        pool_empty_[id] = static_cast<std::int64_t>(pool.nodes.size()) * pool.size;
        pool_free_milli_[id] = pool_empty_[id] * 1000;
    }
}

std::int64_t ClusterState::free_milli(std::int32_t node) const {
    if (!spec_->track_gpus) return static_cast<std::int64_t>(empty_[as_index(node)]) * 1000;
    std::int64_t sum = 0;
    for (std::int32_t gpu = 0; gpu < spec_->size[as_index(node)]; ++gpu) sum += gpu_free(node, gpu);
    return sum;
}

std::int32_t ClusterState::fullest_gpu(std::int32_t node, std::int32_t milli) const {
    std::int32_t best = -1;
    for (std::int32_t gpu = 0; gpu < spec_->size[as_index(node)]; ++gpu) {
        const std::int32_t left = gpu_free(node, gpu);
        if (left >= milli && (best < 0 || left < gpu_free(node, best))) best = gpu;
    }
    return best;
}

std::uint64_t ClusterState::lowest_empty(std::int32_t node, std::int32_t count) const {
    if (!spec_->track_gpus) return 0;
    std::uint64_t mask = 0;
    for (std::int32_t gpu = 0; count > 0; ++gpu) {
        if (gpu_free(node, gpu) != 1000) continue;
        mask |= std::uint64_t{1} << gpu;
        --count;
    }
    return mask;
}

std::int64_t ClusterState::extra_mw(const Demand& demand, std::span<const Part> parts) const {
    std::int64_t extra = 0;
    for (const Part& part : parts) {
        if (demand.kind == DemandKind::shared && gpu_free(part.node, std::countr_zero(part.gpu_mask)) != 1000) continue;
        extra += part.gpus * spec_->gpu_extra_mw[as_index(part.node)];
    }
    return extra;
}

void ClusterState::set_free(std::span<const std::int32_t> empty, std::span<const std::int64_t> cpus,
                            std::span<const std::int64_t> memory_mib) {
    for (std::size_t node = 0; node < empty.size(); ++node)
        if (empty_[node] != empty[node]) set_empty(static_cast<std::int32_t>(node), empty[node]);
    std::copy(cpus.begin(), cpus.end(), free_cpus_.begin());
    std::copy(memory_mib.begin(), memory_mib.end(), free_memory_.begin());
}

void ClusterState::choose_gpus(const Demand& demand, std::span<Part> parts) const {
    if (!spec_->track_gpus || demand.gpus == 0) return;
    for (Part& part : parts)
        part.gpu_mask = demand.kind == DemandKind::shared ? std::uint64_t{1} << fullest_gpu(part.node, demand.gpu_milli)
                                                          : lowest_empty(part.node, part.gpus);
}

void ClusterState::take_offline(std::int32_t node) {
    if (offline_[as_index(node)] == 0) show(node, false);
    ++offline_[as_index(node)];
}

void ClusterState::bring_online(std::int32_t node) {
    if (--offline_[as_index(node)] == 0) show(node, true);
}

// Puts what the node has free into the counts that placement goes by, or takes it out.
void ClusterState::show(std::int32_t node, bool in_buckets) {
    spec_->visit_pools(node, [&](ClusterSpec::Membership in) { show_in_pool(in, node, in_buckets); });
}

void ClusterState::show_in_pool(ClusterSpec::Membership in, std::int32_t node, bool in_buckets) {
    const Pool& pool = spec_->pools[as_index(in.pool)];
    const std::int32_t empty = empty_[as_index(node)];
    const std::int32_t sign = in_buckets ? 1 : -1;
    std::uint64_t* bucket = words_.data() + pool.first_word + as_index(empty) * pool.shape.words();
    const std::size_t at = as_index(in.position);
    if (in_buckets)
        pool.shape.insert(bucket, at);
    else
        pool.shape.erase(bucket, at);
    bucket_count_[pool.first_bucket + as_index(empty)] += sign;
    pool_empty_[as_index(in.pool)] += sign * empty;
    pool_free_milli_[as_index(in.pool)] += sign * free_milli(node);
}

void ClusterState::move_in_pool(ClusterSpec::Membership in, std::int32_t before, std::int32_t empty) {
    const Pool& pool = spec_->pools[as_index(in.pool)];
    const std::size_t at = as_index(in.position);
    const std::size_t words = pool.shape.words();
    pool.shape.erase(words_.data() + pool.first_word + as_index(before) * words, at);
    pool.shape.insert(words_.data() + pool.first_word + as_index(empty) * words, at);
    --bucket_count_[pool.first_bucket + as_index(before)];
    ++bucket_count_[pool.first_bucket + as_index(empty)];
    pool_empty_[as_index(in.pool)] += empty - before;
}

void ClusterState::set_empty(std::int32_t node, std::int32_t empty) {
    const std::int32_t before = empty_[as_index(node)];
    if (spec_->has_watts) busy_mw_ += (before - empty) * spec_->gpu_extra_mw[as_index(node)];
    empty_[as_index(node)] = empty;
    if (available(node)) spec_->visit_pools(node, [&](ClusterSpec::Membership in) { move_in_pool(in, before, empty); });
}

void ClusterState::change_gpus(const Demand& demand, const Part& part, std::int32_t sign) {
    const std::size_t base = spec_->first_gpu[as_index(part.node)];
    const std::int32_t step = sign * demand.gpu_milli;
    std::int32_t empty = empty_[as_index(part.node)];
    for (std::uint64_t rest = part.gpu_mask; rest != 0; rest &= rest - 1) {
        std::int32_t& left = gpu_free_[base + as_index(std::countr_zero(rest))];
        empty -= left == 1000 ? 1 : 0;
        left += step;
        empty += left == 1000 ? 1 : 0;
    }
    if (empty != empty_[as_index(part.node)]) set_empty(part.node, empty);
}

void ClusterState::change(const Demand& demand, std::span<const Part> parts, std::int32_t sign) {
    for (const Part& part : parts) {
        const std::size_t node = as_index(part.node);
        std::int64_t shown_milli = 0;
        if (part.gpus > 0) {
            if (spec_->track_gpus)
                change_gpus(demand, part, sign);
            else
                set_empty(part.node, empty_[node] + sign * part.gpus);
            if (available(part.node)) shown_milli = static_cast<std::int64_t>(sign) * part.gpus * demand.gpu_milli;
        }
        if (demand.limited) {
            const std::int32_t share = part.gpus > 0 ? part.gpus : 1;
            free_cpus_[node] += sign * demand.cpus_for(share);
            free_memory_[node] += sign * demand.memory_for(share);
        }
        spec_->visit_pools(part.node, [&](ClusterSpec::Membership in) {
            pool_free_milli_[as_index(in.pool)] += shown_milli;
            pool_running_[as_index(in.pool)] -= sign;
        });
    }
}

}  // namespace gpuyard
