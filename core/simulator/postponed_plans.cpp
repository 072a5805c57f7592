// Plans of `conservative` that are made only as far as somebody may start now. What is missing of them is made up for
// at the next instant, as of the moment at which it was left out, if that instant does not drop the plan.
#include <algorithm>

#include "base/index.hpp"
#include "simulator/reservations.hpp"

namespace gpuyard {

// All kinds of which some job fits into what is free now, reservations aside.
void Reservations::hope_for(std::span<const QueuedJob* const> order, Placer& placer) {
    hopeful_.clear();
    asked_.resize(hope_.size(), 0);
    for (std::size_t i = order.size(); i-- > 0;) {
        const QueuedJob& job = *order[i];
        const std::int32_t kind = kind_[as_index(job.demand)];
        Hope& hope = hope_[as_index(kind)];
        if (!asked_[as_index(kind)]) {
            asked_[as_index(kind)] = 1;
            waiting_.push_back(kind);
            hope.shortest_us.clear();
            hope.length_us = -1;
            hope.placeable = placer.placeable(snapshot_.state, demand_of(job));
            if (hope.placeable) hopeful_.push_back(kind);
        }
        if (!hope.placeable) continue;
        const Time length = longest(job);
        if (hope.shortest_us.empty() || length < hope.shortest_us.back().second)
            hope.shortest_us.emplace_back(i, length);
    }
    for (const std::int32_t kind : waiting_) asked_[as_index(kind)] = 0;
    waiting_.clear();
}

// Whether the shortest job of a kind that is not planned yet can begin now. What is too long for it is so for all that
// take as long or longer, and stays so.
bool Reservations::keeps_hope(std::int32_t kind, const Reservation& entry, Placer& placer) {
    Hope& hope = hope_[as_index(kind)];
    const Time length = hope.shortest_us.back().second;
    const bool untouched = std::none_of(hope.witness.begin(), hope.witness.end(), [&](const Part& w) {
        return std::any_of(entry.parts.begin(), entry.parts.end(), [&](const Part& p) { return p.node == w.node; });
    });
    if (length <= hope.length_us && untouched) return true;
    if (!profile_.fits_at_once(length, snapshot_.demand(kind), placer, allocation_)) return false;
    hope.length_us = length;
    hope.witness = allocation_.parts;
    return true;
}

// After the job at this place has made its reservation.
void Reservations::lower_hopes(std::size_t at, const Reservation& entry, Placer& placer) {
    const bool begins = entry.begin_us == snapshot_.now_us;
    std::erase_if(hopeful_, [&](std::int32_t kind) {
        auto& shortest = hope_[as_index(kind)].shortest_us;
        while (!shortest.empty() && shortest.back().first <= at) shortest.pop_back();
        if (shortest.empty()) return true;
        if (begins && !placer.placeable(now_, snapshot_.demand(kind))) return true;
        return built_ && !keeps_hope(kind, entry, placer);
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
        chances_.forget();
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
        checked_.push_back(made_);
    }
}

}  // namespace gpuyard
