#include "simulator/room_times.hpp"

#include <algorithm>

#include "base/index.hpp"

namespace gpuyard {

void RoomTimes::begin(const ClusterState& now) {
    spec_ = &now.spec();
    empty_.resize(spec_->node_count());
    // A node that is down stays down: it is never seen to have more.
    for (std::size_t node = 0; node < empty_.size(); ++node) {
        const auto id = static_cast<std::int32_t>(node);
        empty_[node] = now.available(id) ? now.empty(id) : spec_->size[node];
    }
    now_.assign(spec_->buckets, 0);
    more_us_.resize(spec_->buckets);
    for (auto& times : more_us_) times.clear();
    for (const Pool& pool : spec_->pools) {
        std::int32_t nodes = 0;
        for (std::int32_t empty = pool.size; empty >= 0; --empty) {
            nodes += now.bucket_count(pool, empty);
            now_[pool.first_bucket + as_index(empty)] = nodes;
        }
    }
}

void RoomTimes::release(Time time_us, std::span<const Part> parts) {
    for (const Part& part : parts) {
        std::int32_t& empty = empty_[as_index(part.node)];
        // The parts of shared GPUs add up to more than the node has.
        const std::int32_t after = std::min(empty + part.gpus, spec_->size[as_index(part.node)]);
        spec_->visit_pools(part.node, [&](ClusterSpec::Membership in) {
            const std::size_t first = spec_->pools[as_index(in.pool)].first_bucket;
            for (std::int32_t more = empty + 1; more <= after; ++more)
                more_us_[first + as_index(more)].push_back(time_us);
        });
        empty = after;
    }
}

// When so many nodes have so many empty GPUs.
Time RoomTimes::nth_node(const Pool& pool, std::int32_t empty, std::int32_t count) const {
    const std::size_t bucket = pool.first_bucket + as_index(empty);
    if (count <= now_[bucket]) return kAlways;
    const std::size_t more = as_index(count - now_[bucket]);
    return more <= more_us_[bucket].size() ? more_us_[bucket][more - 1] : kEndless;
}

Time RoomTimes::first_in(const Demand& demand, const PoolOption& option) const {
    const Pool& pool = spec_->pools[as_index(option.pool)];
    if (demand.nodes > 0) {
        const std::int32_t least = demand.least_share(), larger = demand.larger_shares();
        if (least + (larger > 0 ? 1 : 0) > pool.size) return kEndless;
        const Time with_more = larger > 0 ? nth_node(pool, least + 1, larger) : kAlways;
        return std::max(with_more, nth_node(pool, least, demand.nodes));
    }
    const Time full = nth_node(pool, pool.size, option.full_nodes);
    // The full nodes have that many, too.
    if (option.remainder == 0) return full;
    return std::max(full, nth_node(pool, option.remainder, option.full_nodes + 1));
}

Time RoomTimes::first(const Demand& demand) const {
    if (demand.kind != DemandKind::whole) return kAlways;
    Time first = kEndless;
    for (const PoolOption& option : demand.pools) first = std::min(first, first_in(demand, option));
    return first;
}

}  // namespace gpuyard
