// Jobs that ask for nodes: the last part of docs/contract/simulator.md, section 9.
#include <algorithm>

#include "base/index.hpp"
#include "base/rng.hpp"
#include "cluster/node_fit.hpp"
#include "cluster/node_score.hpp"
#include "policy/placement.hpp"

namespace gpuyard {

bool Placer::place_on_asked_nodes(const ClusterState& state, const Demand& demand, std::int64_t row, Allocation& out) {
    bool found = false;
    for (const PoolOption& option : pools_of(demand)) {
        if (!take_asked_nodes(state, demand, option, row, other_) || !within_cap(state, demand, other_)) continue;
        if (!found || other_.parts.front().node < out.parts.front().node) std::swap(out, other_);
        found = true;
        if (rule_ != Placement::first_available) break;
    }
    return found;
}

bool Placer::take_asked_nodes(const ClusterState& state, const Demand& demand, const PoolOption& option,
                              std::int64_t row, Allocation& out) {
    const Pool& pool = state.spec().pools[as_index(option.pool)];
    out.parts.clear();
    out.pool = splits_freely(rule_) ? -1 : option.pool;
    out.fewest_nodes = demand.nodes;
    out.speed = demand.gpus > 0 ? pool.speed : 1.0;
    const std::int32_t share = demand.least_share(), larger = demand.larger_shares();
    if (demand.gpus > 0 &&
        !enough_nodes(demand, pool.size, [&](std::int32_t e) { return state.bucket_count(pool, e); }))
        return false;
    if (larger > 0 && !take_best_nodes(state, demand, pool, share + 1, larger, row, out.parts)) return false;
    if (!take_best_nodes(state, demand, pool, share, demand.nodes - larger, row, out.parts)) return false;
    return true;
}

// Adds the first `count` nodes, in the rule's order, of those that can hold `gpus` of the job and are not among the
// sorted `taken` yet.
bool Placer::take_best_nodes(const ClusterState& state, const Demand& demand, const Pool& pool, std::int32_t gpus,
                             std::int32_t count, std::int64_t row, std::vector<Part>& taken) {
    asked_.clear();
    auto skip = taken.begin();
    for (const std::int32_t node : pool.nodes) {
        while (skip != taken.end() && skip->node < node) ++skip;
        if (skip != taken.end() && skip->node == node) continue;
        if (!state.available(node) || state.empty(node) < gpus) continue;
        if (!has_cpus_and_memory(state, demand, node, std::max(gpus, 1))) continue;
        asked_.push_back(asked_rank(state, demand, node, gpus, row));
    }
    if (std::ssize(asked_) < count) return false;
    const auto last = asked_.begin() + count;
    std::partial_sort(asked_.begin(), last, asked_.end(), [](const AskedRank& a, const AskedRank& b) { return a < b; });
    for (auto rank = asked_.begin(); rank != last; ++rank)
        taken.push_back({rank->node, gpus, state.lowest_empty(rank->node, gpus)});
    std::sort(taken.begin(), taken.end(), [](const Part& a, const Part& b) { return a.node < b.node; });
    return true;
}

Placer::AskedRank Placer::asked_rank(const ClusterState& state, const Demand& demand, std::int32_t node,
                                     std::int32_t gpus, std::int64_t row) const {
    const std::int64_t free = demand.gpus > 0 ? state.empty(node) : state.free_cpus(node);
    AskedRank rank{.node = node};
    switch (rule_) {
        case Placement::first_fit:
        case Placement::first_available:
        case Placement::anywhere: break;
        case Placement::worst_fit:
        case Placement::spread: rank.key = -free; break;
        case Placement::random: {
            const std::uint64_t drawn =
                draw(seed_, kStreamPlacement, static_cast<std::uint64_t>(row), static_cast<std::uint64_t>(node));
            rank.key = static_cast<std::int64_t>(drawn ^ (std::uint64_t{1} << 63));  // in the order of the draws
            break;
        }
        case Placement::tetris: rank.misalignment = -alignment(state, demand, node, std::max(gpus, 1)); break;
        case Placement::fgd:
            if (gpus > 0) rank.key = growth_of_whole(mix(), state.spec().size[as_index(node)], state.empty(node), gpus);
            break;
        case Placement::power_aware: rank.asleep = sleeps(node); [[fallthrough]];
        default: rank.key = free;  // consolidate, best-fit and the tiers
    }
    return rank;
}

}  // namespace gpuyard
