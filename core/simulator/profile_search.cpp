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

// Or `latest_us`, if there is none before that.
Time Profile::first_in_pool(const PoolOption& option, Time length_us, Time not_before_us, Time latest_us) {
    const Pool& pool = spec_->pools[as_index(option.pool)];
    const bool single = option.fewest_nodes == 1;
    Time first = latest_us;
    whole_.clear();
    partial_.clear();
    const auto collect = [&](std::int32_t node, std::int64_t gpus, Chances& chances) {
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
    const auto open_at = [](const Chances& chances, Time time) {
        const auto begun = std::upper_bound(chances.from_us.begin(), chances.from_us.end(), time);
        const auto over = std::lower_bound(chances.until_us.begin(), chances.until_us.end(), time);
        return (begun - chances.from_us.begin()) - (over - chances.until_us.begin());
    };
    // It may begin only when a span does, of either kind.
    const auto enough = [&](Time time) {
        return open_at(whole_, time) >= option.full_nodes &&
               (option.remainder == 0 || open_at(partial_, time) > option.full_nodes);
    };
    for (const Chances* chances : {&whole_, &partial_})
        for (const Time time : chances->from_us) {
            if (time >= first) break;
            if (enough(time)) first = time;
        }
    return first;
}

}  // namespace gpuyard
