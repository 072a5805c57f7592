// Plans of `conservative` that are made only as far as somebody may start now. What is missing of them is made up for
// at the next instant, as of the moment at which it was left out, if that instant does not drop the plan.
#include <algorithm>

#include "base/index.hpp"
#include "simulator/reservations.hpp"

namespace gpuyard {

// All demands of which some job fits into what is free now, reservations aside.
void Reservations::hope_for(std::span<const QueuedJob* const> order, Placer& placer) {
    hopeful_.clear();
    unhelped_ = last_look_ = 0;
    asked_.resize(hope_.size(), 0);
    for (std::size_t i = order.size(); i-- > 0;) {
        const QueuedJob& job = *order[i];
        Hope& hope = hope_[as_index(job.demand)];
        if (!asked_[as_index(job.demand)]) {
            asked_[as_index(job.demand)] = 1;
            waiting_.push_back(job.demand);
            hope.shortest_us.clear();
            hope.placeable = placer.placeable(snapshot_.state, demand_of(job));
            if (hope.placeable) hopeful_.push_back(job.demand);
        }
        if (!hope.placeable) continue;
        const Time behind = hope.shortest_us.empty() ? kEndless : hope.shortest_us.back().second;
        hope.shortest_us.emplace_back(i, std::min(behind, longest(job)));
    }
    for (const std::int32_t demand : waiting_) asked_[as_index(demand)] = 0;
    waiting_.clear();
}

// After the job at this place has made its reservation.
void Reservations::lower_hopes(std::size_t at, const Reservation& entry, const QueuedJob& job, Placer& placer) {
    const bool begins = entry.begin_us == snapshot_.now_us;
    // Each look at all of them costs as much as a few reservations: ever fewer while that does not help.
    const bool look = built_ && ++unhelped_ >= 2 * last_look_;
    if (look) last_look_ = unhelped_;
    std::erase_if(hopeful_, [&](std::int32_t demand) {
        auto& shortest = hope_[as_index(demand)].shortest_us;
        while (!shortest.empty() && shortest.back().first <= at) shortest.pop_back();
        if (shortest.empty()) return true;
        if (begins) return !placer.placeable(now_, snapshot_.demand(demand));
        // What is too long for one job is so for all that take as long or longer, and stays so.
        return (look || (demand == job.demand && built_)) &&
               !profile_.fits_at_once(shortest.back().second, snapshot_.demand(demand), job.row, placer, allocation_);
    });
}

void Reservations::postpone() {
    postponed_ = true;
    started_.clear();
    if (!built_) source_.take(snapshot_, queue_);
}

// The rest of the plan of the last instant. Who waited then still ranks in the same order, behind whom it has planned.
void Reservations::finish_postponed(std::span<const QueuedJob* const> order, Placer& placer) {
    if (!followed_) {
        earliest_.forget();
        profile_.build(source_, snapshot_);
        for (const Reservation& entry : started_) enter(entry);
        for (const Reservation& entry : plan_) enter(entry);
        followed_ = true;
    }
    std::size_t planned = 0;
    for (const QueuedJob* job : order) {
        if (job->queued_us == snapshot_.now_us || planned++ < plan_.size()) continue;
        Reservation entry{};
        make(entry, *job, placer);
        plan_.push_back(std::move(entry));
    }
}

}  // namespace gpuyard
