#include "simulator/preemption.hpp"

#include <algorithm>
#include <tuple>

#include "base/index.hpp"

namespace gpuyard {

void RoomMaker::begin(std::int32_t queue, bool may_preempt, std::function<double(const ActiveJob&)> score) {
    queue_ = queue;
    may_preempt_ = may_preempt;
    score_ = std::move(score);
    collected_ = false;
    collected_movable_ = false;
    stopped_.assign(snapshot_.active.size(), 0);
}

bool RoomMaker::may_stop(const ActiveJob& job) const {
    return job.may_stop(snapshot_.now_us, snapshot_.settings->min_run_us);
}

// All that may be stopped, in a heap: most often only the few worst are needed in order.
void RoomMaker::collect() {
    collected_ = true;
    heap_.clear();
    worst_.clear();
    for (std::size_t i = 0; i < snapshot_.active.size(); ++i)
        if (demand_of(i).queue == queue_ && may_stop(active(i)) && !stopped_[i])
            heap_.push_back({score_(active(i)), active(i).job, i});
    std::make_heap(heap_.begin(), heap_.end());
}

// The k-th worst, or none.
const RoomMaker::Victim* RoomMaker::victim(std::size_t k) {
    while (worst_.size() <= k) {
        if (heap_.empty()) return nullptr;
        std::pop_heap(heap_.begin(), heap_.end());
        worst_.push_back(heap_.back());
        heap_.pop_back();
    }
    return &worst_[k];
}

bool RoomMaker::make(const ClusterState& state, const Demand& demand, std::int64_t row, double score, Placer& placer,
                     const std::vector<std::uint8_t>& asleep, Room& out) {
    out.stops.clear();
    out.moves = false;
    if (may_preempt_ && preempt(state, demand, row, score, placer, out)) return true;
    return snapshot_.settings->defragment && demand.kind == DemandKind::whole &&
           move_one(state, demand, row, placer, asleep, out);
}

bool RoomMaker::preempt(const ClusterState& state, const Demand& demand, std::int64_t row, double score, Placer& placer,
                        Room& out) {
    if (!collected_) collect();
    if (victim(0) == nullptr || worst_.front().score <= score) return false;
    room_ = state;
    released_.clear();
    bool fits = false;
    for (std::size_t k = 0; !fits; ++k) {
        const Victim* const next = victim(k);
        if (next == nullptr || next->score <= score) return false;
        if (stopped_[next->active]) continue;
        room_.release(demand_of(next->active), snapshot_.parts_of(active(next->active)));
        released_.push_back(next->active);
        fits = placer.placeable(room_, demand);
    }
    for (std::size_t k = released_.size(); k-- > 0;) {
        const std::size_t spared = released_[k];
        room_.hold(demand_of(spared), snapshot_.parts_of(active(spared)));
        if (placer.placeable(room_, demand)) {
            released_.erase(released_.begin() + static_cast<std::ptrdiff_t>(k));
            continue;
        }
        room_.release(demand_of(spared), snapshot_.parts_of(active(spared)));
    }
    placer.place(room_, demand, row, out.allocation);
    for (const std::size_t i : released_) {
        stopped_[i] = 1;
        out.stops.push_back(active(i).job);
    }
    return true;
}

bool RoomMaker::move_one(const ClusterState& state, const Demand& demand, std::int64_t row, Placer& placer,
                         const std::vector<std::uint8_t>& asleep, Room& out) {
    if (!collected_movable_) {
        collected_movable_ = true;
        movable_.clear();
        for (std::size_t i = 0; i < snapshot_.active.size(); ++i)
            if (demand_of(i).queue == queue_ && demand_of(i).kind == DemandKind::whole && active(i).part_count == 1 &&
                may_stop(active(i)))
                movable_.push_back(i);
        std::sort(movable_.begin(), movable_.end(), [&](std::size_t a, std::size_t b) {
            return std::tuple(demand_of(a).gpus, active(a).job) < std::tuple(demand_of(b).gpus, active(b).job);
        });
    }
    const auto wakes = [&](const Allocation& allocation) {
        return !asleep.empty() && std::any_of(allocation.parts.begin(), allocation.parts.end(),
                                              [&](const Part& part) { return asleep[as_index(part.node)] != 0; });
    };
    room_ = state;
    for (const std::size_t i : movable_) {
        if (stopped_[i]) continue;
        const auto parts = snapshot_.parts_of(active(i));
        room_.release(demand_of(i), parts);
        if (placer.place(room_, demand, row, out.allocation) && !wakes(out.allocation)) {
            room_.hold(demand, out.allocation.parts);
            const bool both = placer.place(room_, demand_of(i), active(i).row, out.moved_to) && !wakes(out.moved_to);
            if (both) {
                stopped_[i] = 1;
                out.stops.push_back(active(i).job);
                out.moves = true;
                return true;
            }
            room_.release(demand, out.allocation.parts);
        }
        room_.hold(demand_of(i), parts);
    }
    return false;
}

}  // namespace gpuyard
