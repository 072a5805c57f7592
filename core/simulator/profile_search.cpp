// When a gang can begin, node by node: each node has its times, and the gang needs enough nodes at one of them.
#include <algorithm>

#include "base/index.hpp"
#include "simulator/profile.hpp"

namespace gpuyard {

// Whether a job needs nothing but whole nodes and one more with room.
bool Profile::searches_nodes(const Demand& demand) const {
    return demand.kind == DemandKind::whole && demand.nodes == 0 && !(demand.limited && limited_) && needs_only_room_ &&
           !splits_freely_;
}

// Calls `found(from, until)` with the spans of time, ascending, at which a job may begin that takes so many GPUs of a
// node for so long, until it returns false or they do not begin before a time. The last moment of a span is in it.
template <class Found>
void Profile::visit_chances(std::int32_t node, std::int64_t gpus, Time length_us, Time not_before_us, Time before_us,
                            Found found) const {
    const std::vector<Step>& steps = steps_[as_index(node)];
    Time from = kEndless;
    for (std::size_t i = 0; i < steps.size(); ++i) {
        if (i + 1 < steps.size() && steps[i + 1].time_us <= not_before_us) continue;
        if (steps[i].empty >= gpus) {
            if (from == kEndless) from = std::max(steps[i].time_us, not_before_us);
            if (from >= before_us) return;
            continue;
        }
        if (from != kEndless && length_us != kEndless && steps[i].time_us - from >= length_us &&
            !found(from, steps[i].time_us - length_us))
            return;
        from = kEndless;
    }
    if (from != kEndless) found(from, kEndless);
}

// From when on enough nodes are free for good: what begins later need not be searched for.
Time Profile::whole_for_good(const PoolOption& option) {
    const Pool& pool = spec_->pools[as_index(option.pool)];
    const auto needed = as_index(option.fewest_nodes);
    for_good_.clear();
    for (const std::int32_t node : pool.nodes) {
        const std::vector<Step>& steps = steps_[as_index(node)];
        if (!window_.available(node) || steps.back().empty < pool.size) continue;
        for_good_.push_back(steps.back().time_us);
    }
    if (for_good_.size() < needed) return kEndless;
    const auto last = for_good_.begin() + static_cast<std::ptrdiff_t>(needed - 1);
    std::nth_element(for_good_.begin(), last, for_good_.end());
    return *last;
}

// Or `latest_us`, if there is none before that.
Time Profile::first_in_pool(const PoolOption& option, Time length_us, Time not_before_us, Time latest_us) {
    const Pool& pool = spec_->pools[as_index(option.pool)];
    const bool single = option.fewest_nodes == 1;
    Time first = single ? latest_us : std::min(latest_us, std::max(not_before_us, whole_for_good(option)));
    whole_.clear();
    partial_.clear();
    const auto collect = [&](std::int32_t node, std::int64_t gpus, Spans& chances) {
        visit_chances(node, gpus, length_us, not_before_us, first, [&](Time from, Time until) {
            if (single) {
                first = from;
                return false;
            }
            chances.from_us.push_back(from);
            chances.until_us.push_back(until);
            return true;
        });
    };
    for (const std::int32_t node : pool.nodes) {
        if (!window_.available(node)) continue;
        if (option.full_nodes > 0) collect(node, pool.size, whole_);
        if (option.remainder > 0) collect(node, option.remainder, partial_);
        if (first == not_before_us) return first;
    }
    if (single) return first;
    for (std::vector<Time>* times : {&whole_.from_us, &whole_.until_us, &partial_.from_us, &partial_.until_us})
        std::sort(times->begin(), times->end());
    // Nodes at a moment: those whose spans have begun by it, without those whose spans have ended before it.
    const auto open_at = [](const Spans& chances, Time time) {
        const auto begun = std::upper_bound(chances.from_us.begin(), chances.from_us.end(), time);
        const auto over = std::lower_bound(chances.until_us.begin(), chances.until_us.end(), time);
        return (begun - chances.from_us.begin()) - (over - chances.until_us.begin());
    };
    // It may begin only when a span does, of either kind.
    const auto enough = [&](Time time) {
        return open_at(whole_, time) >= option.full_nodes &&
               (option.remainder == 0 || open_at(partial_, time) > option.full_nodes);
    };
    for (const Spans* chances : {&whole_, &partial_})
        for (const Time time : chances->from_us) {
            if (time >= first) break;
            if (enough(time)) first = time;
        }
    return first;
}

// Whether the rule goes by what nodes have free and their numbers alone.
bool Profile::chooses_by_room() const {
    const bool by_room = rule_ == Placement::consolidate || rule_ == Placement::best_fit ||
                         rule_ == Placement::first_fit || rule_ == Placement::worst_fit;
    return by_room && !spec_->track_gpus;
}

bool Profile::ranks_nodes(const Demand& demand) const {
    return chooses_by_room() && std::all_of(demand.pools.begin(), demand.pools.end(),
                                            [](const PoolOption& o) { return o.fewest_nodes == 1; });
}

// Whether a gang takes nothing but whole nodes, those with the lowest numbers.
bool Profile::takes_whole_nodes(const Demand& demand) const {
    return chooses_by_room() && searches_nodes(demand) &&
           std::all_of(demand.pools.begin(), demand.pools.end(),
                       [](const PoolOption& o) { return o.full_nodes > 0 && o.remainder == 0; });
}

Time Profile::find_whole_nodes(Time length_us, const Demand& demand, Time not_before_us, Time latest_us,
                               Allocation& out) {
    const Time from = std::max(not_before_us, time_us_.front());
    Time first = kEndless;
    for (const PoolOption& option : demand.pools) {
        const Time begin =
            whole_nodes_[as_index(option.pool)].first(option.full_nodes, length_us, from, std::min(latest_us, first));
        // Of pools in which it may begin at one time the first is taken.
        if (begin >= first) continue;
        first = begin;
        out.pool = option.pool;
        out.fewest_nodes = option.fewest_nodes;
    }
    if (first == kEndless) return first;
    const Pool& pool = spec_->pools[as_index(out.pool)];
    out.speed = pool.speed;
    out.parts.clear();
    whole_nodes_[as_index(out.pool)].visit(first, [&](std::size_t position) {
        out.parts.push_back({pool.nodes[position], pool.size, 0});
        return std::ssize(out.parts) < out.fewest_nodes;
    });
    return first;
}

std::int64_t Profile::rank_of(std::int64_t least_empty) const {
    if (rule_ == Placement::first_fit) return 0;
    return rule_ == Placement::worst_fit ? -least_empty : least_empty;
}

Profile::Chance Profile::first_on_node(std::int32_t node, std::int64_t gpus, Time length_us, Time not_before_us) const {
    if (!window_.available(node)) return {};
    const std::vector<Step>& steps = steps_[as_index(node)];
    std::size_t i = 0;
    while (i + 1 < steps.size() && steps[i + 1].time_us <= not_before_us) ++i;
    while (i < steps.size()) {
        if (steps[i].empty < gpus) {
            ++i;
            continue;
        }
        const Time from = std::max(steps[i].time_us, not_before_us);
        const Time end = expected_end(from, length_us);
        std::int64_t least = steps[i].empty;
        for (++i; i < steps.size() && steps[i].time_us < end && steps[i].empty >= gpus; ++i)
            least = std::min(least, steps[i].empty);
        if (i == steps.size() || steps[i].time_us >= end) return {from, rank_of(least), node};
    }
    return {};
}

Profile::Chance Profile::first_in(const Pool& pool, std::int64_t gpus, Time length_us, Time not_before_us) const {
    const Time from = std::max(not_before_us, time_us_.front());
    const std::int64_t least_rank = rank_of(rule_ == Placement::worst_fit ? pool.size : gpus);
    Chance best;
    for (const std::int32_t node : pool.nodes) {
        const Chance chance = first_on_node(node, gpus, length_us, from);
        if (chance.before(best)) best = chance;
        if (best.begin_us == from && best.rank == least_rank) break;
    }
    return best;
}

Time Profile::first_over(std::int32_t node, std::int64_t gpus, Time length_us, Time begin_us, Time end_us) const {
    Time first = kEndless;
    if (!window_.available(node)) return first;
    visit_chances(node, gpus, length_us, time_us_.front(), end_us, [&](Time from, Time until) {
        if (until != kEndless && until + length_us <= begin_us) return true;
        if (from < end_us) first = from;
        return false;
    });
    return first;
}

Time Profile::find_on_one_node(Time length_us, const Demand& demand, Time not_before_us, Time latest_us,
                               Allocation& out) const {
    Chance best;
    for (const PoolOption& option : demand.pools) {
        const Pool& pool = spec_->pools[as_index(option.pool)];
        const Chance chance = first_in(pool, demand.gpus, length_us, not_before_us);
        // Of pools in which it may begin at one time the first is taken.
        if (chance.begin_us >= best.begin_us) continue;
        best = chance;
        out.pool = option.pool;
        out.fewest_nodes = option.fewest_nodes;
        out.speed = pool.speed;
    }
    if (best.begin_us == kEndless || best.begin_us > latest_us) return kEndless;
    out.parts.assign(1, {best.node, demand.gpus, 0});
    return best.begin_us;
}

// The least that a node has free from the first moment on until a time, or anything less than is needed.
std::int64_t Profile::least_until(std::int32_t node, Time end_us, std::int64_t needed) const {
    const std::vector<Step>& steps = steps_[as_index(node)];
    std::size_t i = 0;
    while (i + 1 < steps.size() && steps[i + 1].time_us <= time_us_.front()) ++i;
    std::int64_t least = steps[i].empty;
    for (++i; i < steps.size() && steps[i].time_us < end_us && least >= needed; ++i)
        least = std::min(least, steps[i].empty);
    return least;
}

bool Profile::has_room_at_once(const PoolOption& option, Time end_us, std::vector<Part>& where) const {
    const Pool& pool = spec_->pools[as_index(option.pool)];
    const std::int64_t needed = option.remainder > 0 ? option.remainder : pool.size;
    std::int32_t whole = option.full_nodes;
    bool partial = option.remainder > 0;
    where.clear();
    for (const std::int32_t node : pool.nodes) {
        if (whole == 0 && !partial) break;
        if (!window_.available(node)) continue;
        const std::int64_t least = least_until(node, end_us, needed);
        if (whole > 0 && least >= pool.size)
            --whole;
        else if (partial && least >= needed)
            partial = false;
        else
            continue;
        where.push_back({node, 0, 0});
    }
    return whole == 0 && !partial;
}

}  // namespace gpuyard
