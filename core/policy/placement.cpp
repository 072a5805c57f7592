#include "policy/placement.hpp"

#include <algorithm>
#include <cmath>
#include <stdexcept>
#include <tuple>
#include <utility>

#include "base/index.hpp"
#include "base/rng.hpp"
#include "cluster/node_fit.hpp"
#include "cluster/node_score.hpp"

namespace gpuyard {

namespace {

constexpr std::int32_t kNone = -1;

// Whether a node can hold a job that sits on one node only.
bool holds_single(const ClusterState& state, const Demand& demand, std::int32_t node) {
    if (!state.available(node) || !has_cpus_and_memory(state, demand, node, 1)) return false;
    return demand.kind == DemandKind::cpu_only || state.fullest_gpu(node, demand.gpu_milli) >= 0;
}

Part single_part(const ClusterState& state, const Demand& demand, std::int32_t node) {
    if (demand.kind == DemandKind::cpu_only) return {node, 0, 0};
    return {node, 1, std::uint64_t{1} << state.fullest_gpu(node, demand.gpu_milli)};
}

// The lowest node of a bucket that can hold `gpus` of the gang, satisfies `wanted` and is not among the sorted `taken`;
// `kNone` if there is none.
template <class Wanted>
std::int32_t first_in_bucket(const ClusterState& state, const Demand& demand, const Pool& pool, std::int32_t empty,
                             std::int32_t gpus, const std::vector<Part>& taken, Wanted wanted) {
    if (state.bucket_count(pool, empty) == 0) return kNone;
    const std::uint64_t* bucket = state.bucket(pool, empty);
    auto skip = taken.begin();
    for (std::size_t at = pool.shape.first(bucket); at != BitTreeShape::npos; at = pool.shape.next(bucket, at + 1)) {
        const std::int32_t node = pool.nodes[at];
        while (skip != taken.end() && skip->node < node) ++skip;
        if (skip != taken.end() && skip->node == node) continue;
        if (wanted(node) && has_cpus_and_memory(state, demand, node, gpus)) return node;
    }
    return kNone;
}

// What `tetris` (a double) or `fgd` (an integer, exact) chooses by; the smaller the better.
using Score = std::pair<double, std::int64_t>;

// The node with the best score, the lowest-numbered one among equals.
struct BestNode {
    std::int32_t node = kNone;
    Score score;

    void offer(std::int32_t other, const Score& with) {
        if (node != kNone && (with > score || (with == score && other > node))) return;
        node = other;
        score = with;
    }
};

void settle_free_split(const ClusterState& state, const Demand& demand, Allocation& out) {
    const ClusterSpec& spec = state.spec();
    std::sort(out.parts.begin(), out.parts.end(), [](const Part& a, const Part& b) { return a.node < b.node; });
    out.pool = kNone;
    out.speed = 1.0;
    out.fewest_nodes = 1;
    if (demand.gpus == 0) return;
    std::int32_t largest = 0;
    for (std::size_t i = 0; i < out.parts.size(); ++i) {
        const Pool& pool = spec.pools[as_index(spec.pool[as_index(out.parts[i].node)])];
        out.speed = i == 0 ? pool.speed : std::min(out.speed, pool.speed);
        largest = std::max(largest, pool.size);
    }
    out.fewest_nodes = (demand.gpus + largest - 1) / largest;
}

}  // namespace

Time run_time(Time duration_us, double speed, std::int32_t nodes_used, std::int32_t fewest_nodes,
              double locality_penalty) {
    if (duration_us == kEndless) return kEndless;
    if (speed == 1.0 && nodes_used == fewest_nodes) return duration_us;  // what the expression below comes to
    const double excess = static_cast<double>(nodes_used - fewest_nodes) / static_cast<double>(fewest_nodes);
    const double run = std::nearbyint((static_cast<double>(duration_us) / speed) * (1.0 + locality_penalty * excess));
    if (!(run <= 0x1p62)) throw std::overflow_error("a run time exceeds the simulator's clock (2^62 microseconds)");
    return std::max(Time{1}, static_cast<Time>(run));
}

bool Placer::place(const ClusterState& state, const Demand& demand, std::int64_t row, Allocation& out) {
    if (demand.nodes > 0) return place_on_asked_nodes(state, demand, row, out);
    if (splits_freely(rule_)) return place_freely(state, demand, row, out);
    if (is_tier(rule_) && demand.kind == DemandKind::whole) return place_in_tiers(state, demand, out);
    if (rule_ == Placement::first_available) return place_first_available(state, demand, out);
    return place_in_pools(state, demand, out);
}

bool Placer::placeable(const ClusterState& state, const Demand& demand) {
    if (demand.kind != DemandKind::whole || demand.limited || cap_mw_ != kNoCap) return place(state, demand, 0, probe_);
    if (demand.nodes > 0)
        return std::any_of(demand.pools.begin(), demand.pools.end(), [&](const PoolOption& option) {
            const Pool& pool = state.spec().pools[as_index(option.pool)];
            return enough_nodes(demand, pool.size, [&](std::int32_t e) { return state.bucket_count(pool, e); });
        });
    if (splits_freely(rule_)) {
        std::int64_t free = 0;
        for (const PoolOption& option : demand.pools) free += state.pool_empty(option.pool);
        return free >= demand.gpus;
    }
    if (is_tier(rule_)) {
        TierSearch::check(state.spec(), demand);
        return std::any_of(demand.pools.begin(), demand.pools.end(),
                           [&](const PoolOption& option) { return TierSearch::any(state, demand, option); });
    }
    for (const PoolOption& option : demand.pools) {
        const Pool& pool = state.spec().pools[as_index(option.pool)];
        const std::int32_t whole = state.bucket_count(pool, pool.size);
        if (whole < option.full_nodes) continue;
        if (option.remainder == 0 || whole > option.full_nodes) return true;
        for (std::int32_t empty = option.remainder; empty < pool.size; ++empty)
            if (state.bucket_count(pool, empty) > 0) return true;
    }
    return false;
}

bool Placer::place_in_pools(const ClusterState& state, const Demand& demand, Allocation& out) {
    for (const PoolOption& option : pools_of(demand))
        if (place_in_pool(state, demand, option, out) && within_cap(state, demand, out)) return true;
    return false;
}

bool Placer::place_first_available(const ClusterState& state, const Demand& demand, Allocation& out) {
    bool found = false;
    for (const PoolOption& option : demand.pools) {
        if (!place_in_pool(state, demand, option, other_) || !within_cap(state, demand, other_)) continue;
        if (!found || other_.parts.front().node < out.parts.front().node) std::swap(out, other_);
        found = true;
    }
    return found;
}

bool Placer::place_in_pool(const ClusterState& state, const Demand& demand, const PoolOption& option, Allocation& out) {
    out.parts.clear();
    out.pool = option.pool;
    out.fewest_nodes = option.fewest_nodes;
    out.speed = demand.gpus > 0 ? state.spec().pools[as_index(option.pool)].speed : 1.0;
    if (demand.kind == DemandKind::whole) return place_gang(state, demand, option, out);
    if (goes_by_score()) return place_single_by_score(state, demand, option, out);
    return place_single(state, demand, option, out);
}

bool Placer::place_gang(const ClusterState& state, const Demand& demand, const PoolOption& option, Allocation& out) {
    const Pool& pool = state.spec().pools[as_index(option.pool)];
    if (state.bucket_count(pool, pool.size) < option.full_nodes || state.pool_empty(option.pool) < demand.gpus)
        return false;
    take_full_nodes(state, demand, option, false, out);
    if (asleep_ != nullptr && rule_ == Placement::power_aware) {
        take_full_nodes(state, demand, option, true, out);
        std::sort(out.parts.begin(), out.parts.end(), [](const Part& a, const Part& b) { return a.node < b.node; });
    }
    if (std::ssize(out.parts) < option.full_nodes) return false;
    if (option.remainder == 0) return true;
    const std::int32_t node = goes_by_score() ? scored_remainder_node(state, demand, option, out.parts)
                                              : remainder_node(state, demand, option, out.parts);
    if (node == kNone) return false;
    const Part part{node, option.remainder, state.lowest_empty(node, option.remainder)};
    const auto behind = std::find_if(out.parts.begin(), out.parts.end(), [&](const Part& p) { return p.node > node; });
    out.parts.insert(behind, part);
    return true;
}

// Adds the lowest-numbered whole nodes that the gang still needs; for `power-aware`, those that sleep or those that do
// not.
void Placer::take_full_nodes(const ClusterState& state, const Demand& demand, const PoolOption& option, bool sleeping,
                             Allocation& out) {
    if (option.full_nodes == 0) return;
    const Pool& pool = state.spec().pools[as_index(option.pool)];
    const std::uint64_t* whole = state.bucket(pool, pool.size);
    for (std::size_t at = pool.shape.first(whole);
         at != BitTreeShape::npos && std::ssize(out.parts) < option.full_nodes; at = pool.shape.next(whole, at + 1)) {
        const std::int32_t node = pool.nodes[at];
        if (rule_ == Placement::power_aware && sleeps(node) != sleeping) continue;
        if (!has_cpus_and_memory(state, demand, node, pool.size)) continue;
        out.parts.push_back({node, pool.size, state.lowest_empty(node, pool.size)});
    }
}

std::int32_t Placer::remainder_node(const ClusterState& state, const Demand& demand, const PoolOption& option,
                                    const std::vector<Part>& taken) const {
    const Pool& pool = state.spec().pools[as_index(option.pool)];
    const auto first = [&](std::int32_t empty) {
        return first_in_bucket(state, demand, pool, empty, option.remainder, taken, [](std::int32_t) { return true; });
    };
    if (rule_ == Placement::power_aware) {
        for (const bool sleeping : {false, true})
            for (std::int32_t empty = option.remainder; empty <= pool.size; ++empty) {
                const std::int32_t node = first_in_bucket(state, demand, pool, empty, option.remainder, taken,
                                                          [&](std::int32_t n) { return sleeps(n) == sleeping; });
                if (node != kNone) return node;
            }
        return kNone;
    }
    if (rule_ == Placement::worst_fit) {
        for (std::int32_t empty = pool.size; empty >= option.remainder; --empty)
            if (const std::int32_t node = first(empty); node != kNone) return node;
        return kNone;
    }
    const bool lowest_id = rule_ == Placement::first_fit || rule_ == Placement::first_available;
    std::int32_t best = kNone;
    for (std::int32_t empty = option.remainder; empty <= pool.size; ++empty) {
        const std::int32_t node = first(empty);
        if (node == kNone) continue;
        if (!lowest_id) return node;
        if (best == kNone || node < best) best = node;
    }
    return best;
}

// The node for a job without GPUs, where nodes are told apart by their free CPUs alone.
std::int32_t Placer::cpu_node(const ClusterState& state, const Demand& demand, const PoolOption& option) const {
    const bool takes_first = rule_ == Placement::first_fit || rule_ == Placement::first_available;
    std::int32_t best = kNone;
    std::int64_t best_free = 0;
    for (const std::int32_t node : state.spec().pools[as_index(option.pool)].nodes) {
        const std::int64_t free = state.free_cpus(node);
        if (free < demand.cpus || state.free_memory(node) < demand.memory_mib || !state.available(node)) continue;
        if (takes_first) return node;
        if (best != kNone && (rule_ == Placement::worst_fit ? free <= best_free : free >= best_free)) continue;
        best = node;
        best_free = free;
    }
    return best;
}

// Shared and CPU-only jobs sit on one node.
bool Placer::place_single(const ClusterState& state, const Demand& demand, const PoolOption& option, Allocation& out) {
    if (demand.kind == DemandKind::cpu_only && rule_ != Placement::power_aware) {
        const std::int32_t node = cpu_node(state, demand, option);
        if (node != kNone) out.parts.push_back({node, 0, 0});
        return node != kNone;
    }
    using Key = std::tuple<bool, std::int64_t, std::int64_t>;
    const bool shared = demand.kind == DemandKind::shared;
    const auto key = [&](std::int32_t node) -> Key {
        const std::int64_t free = shared ? state.free_milli(node) : state.free_cpus(node);
        const bool asleep = rule_ == Placement::power_aware && sleeps(node);
        if (rule_ == Placement::worst_fit) return {asleep, -free, 0};
        if (rule_ == Placement::first_fit || rule_ == Placement::first_available) return {asleep, 0, 0};
        return shared ? Key{asleep, state.gpu_free(node, state.fullest_gpu(node, demand.gpu_milli)), free}
                      : Key{asleep, free, 0};
    };
    std::int32_t best = kNone;
    Key best_key;
    for (const std::int32_t node : state.spec().pools[as_index(option.pool)].nodes) {
        if (!holds_single(state, demand, node)) continue;
        const Key candidate = key(node);
        if (best != kNone && candidate >= best_key) continue;
        best = node;
        best_key = candidate;
    }
    if (best == kNone) return false;
    out.parts.push_back(single_part(state, demand, best));
    return true;
}

// The allowed nodes that are not full, in the rule's order.
void Placer::order_nodes(const ClusterState& state, const Demand& demand, std::int64_t row) {
    const ClusterSpec& spec = state.spec();
    nodes_.clear();
    for (std::size_t i = 0; i < spec.node_count(); ++i) {
        const auto node = static_cast<std::int32_t>(i);
        if (!spec.may_use(demand, node) || (demand.kind == DemandKind::whole && state.empty(node) == 0)) continue;
        if (!state.available(node)) continue;
        std::uint64_t key = 0;
        if (rule_ == Placement::random) {
            key = draw(seed_, kStreamPlacement, static_cast<std::uint64_t>(row), i);
        } else if (rule_ == Placement::spread) {
            const std::int64_t free = demand.kind == DemandKind::whole    ? state.empty(node)
                                      : demand.kind == DemandKind::shared ? state.free_milli(node)
                                                                          : state.free_cpus(node);
            key = ~static_cast<std::uint64_t>(free);
        }
        nodes_.push_back({key, node});
    }
    if (rule_ == Placement::anywhere) return;
    std::sort(nodes_.begin(), nodes_.end(),
              [](const Ranked& a, const Ranked& b) { return std::tie(a.key, a.node) < std::tie(b.key, b.node); });
}

bool Placer::split_gang(const ClusterState& state, const Demand& demand, Allocation& out) {
    std::int32_t missing = demand.gpus;
    for (const Ranked& ranked : nodes_) {
        const std::int32_t gpus = most_gpus(state, demand, ranked.node, missing);
        if (gpus == 0) continue;
        out.parts.push_back({ranked.node, gpus, state.lowest_empty(ranked.node, gpus)});
        missing -= gpus;
        if (missing == 0) return true;
    }
    return false;
}

bool Placer::place_freely(const ClusterState& state, const Demand& demand, std::int64_t row, Allocation& out) {
    std::int64_t free = 0;
    for (const PoolOption& option : demand.pools) free += state.pool_empty(option.pool);
    if (demand.kind == DemandKind::whole && free < demand.gpus) return false;
    order_nodes(state, demand, row);
    out.parts.clear();
    if (demand.kind == DemandKind::whole) {
        if (!split_gang(state, demand, out)) return false;
    } else {
        const auto found = std::find_if(nodes_.begin(), nodes_.end(),
                                        [&](const Ranked& r) { return holds_single(state, demand, r.node); });
        if (found == nodes_.end()) return false;
        out.parts.push_back(single_part(state, demand, found->node));
    }
    settle_free_split(state, demand, out);
    return within_cap(state, demand, out);
}

const JobMix& Placer::mix() const {
    static const JobMix nobody;
    return mix_ != nullptr ? *mix_ : nobody;
}

std::int32_t Placer::scored_remainder_node(const ClusterState& state, const Demand& demand, const PoolOption& option,
                                           const std::vector<Part>& taken) const {
    const Pool& pool = state.spec().pools[as_index(option.pool)];
    // Without CPUs and memory all nodes of a bucket score the same, and the first of them stands for the others. For
    // `fgd` they do in any case.
    const bool first_only = rule_ == Placement::fgd || !demand.limited;
    BestNode best;
    for (std::int32_t empty = option.remainder; empty <= pool.size; ++empty) {
        const Score growth =
            rule_ == Placement::fgd ? Score{0.0, growth_of_whole(mix(), pool.size, empty, option.remainder)} : Score{};
        visit_bucket(state, pool, empty, [&](std::int32_t node) {
            const bool is_taken =
                std::any_of(taken.begin(), taken.end(), [&](const Part& part) { return part.node == node; });
            if (is_taken || !has_cpus_and_memory(state, demand, node, option.remainder)) return true;
            best.offer(node,
                       rule_ == Placement::fgd ? growth : Score{-alignment(state, demand, node, option.remainder), 0});
            return !first_only;
        });
    }
    return best.node;
}

bool Placer::place_single_by_score(const ClusterState& state, const Demand& demand, const PoolOption& option,
                                   Allocation& out) const {
    BestNode best;
    for (const std::int32_t node : state.spec().pools[as_index(option.pool)].nodes) {
        if (!holds_single(state, demand, node)) continue;
        if (rule_ == Placement::tetris)
            best.offer(node, {-alignment(state, demand, node, 1), 0});
        else
            best.offer(
                node,
                {0.0, demand.kind == DemandKind::shared ? growth_of_shared(mix(), state, node, demand.gpu_milli) : 0});
    }
    if (best.node == kNone) return false;
    out.parts.push_back(single_part(state, demand, best.node));
    return true;
}

bool Placer::place_in_tiers(const ClusterState& state, const Demand& demand, Allocation& out) {
    TierSearch::check(state.spec(), demand);
    const auto take = [&](const PoolOption& option) {
        out.pool = option.pool;
        out.fewest_nodes = option.fewest_nodes;
        out.speed = state.spec().pools[as_index(option.pool)].speed;
        return true;
    };
    if (rule_ == Placement::tier_cost) {
        for (const PoolOption& option : demand.pools)
            if (tiers_.cheapest(state, demand, option, out.parts) && take(option) && within_cap(state, demand, out))
                return true;
        return false;
    }
    const TierKey key = rule_ == Placement::tier           ? TierKey::fragments
                        : rule_ == Placement::tier_balance ? TierKey::balance
                                                           : TierKey::ids;
    for (const bool second_tier : {false, true})
        for (const PoolOption& option : demand.pools)
            if (tiers_.best(state, demand, option, key, second_tier, out.parts) && take(option) &&
                within_cap(state, demand, out))
                return true;
    return false;
}

std::vector<JobId> never_placeable(std::shared_ptr<const ClusterSpec> cluster, const JobTable& jobs, Placement rule,
                                   std::int64_t power_cap_mw) {
    const ClusterState empty(std::move(cluster));
    Placer placer(rule, 0);
    placer.set_power_cap(power_cap_mw);
    std::vector<std::uint8_t> fits;
    for (const Demand& demand : jobs.demands) fits.push_back(placer.placeable(empty, demand) ? 1 : 0);
    std::vector<JobId> never;
    for (std::size_t i = 0; i < jobs.demand.size(); ++i)
        if (!fits[as_index(jobs.demand[i])]) never.push_back(static_cast<JobId>(i));
    return never;
}

}  // namespace gpuyard
