#include "simulator/node_plan.hpp"

#include <algorithm>

#include "policy/backfill.hpp"

namespace gpuyard {

void NodePlan::begin(const Clock& clock) {
    clock_ = clock;
    ready_ = false;
    releases_.clear();
    reserved_.clear();
    parts_.clear();
    ++pass_;
    masked_now_.state = now_;
    masked_now_.closed.clear();
    const std::size_t nodes = now_.spec().node_count();
    first_begin_us_.assign(nodes, kEndless);
    open_.clear();
    for (std::size_t node = 0; node < nodes; ++node) {
        const auto id = static_cast<std::int32_t>(node);
        if (now_.available(id) && (now_.spec().size[node] == 0 || now_.free_milli(id) > 0 || with_cpu_jobs_))
            open_.push_back(id);
    }
}

bool NodePlan::all_reserved(Time until_us) {
    while (!open_.empty() && first_begin_us_[as_index(open_.back())] <= until_us) open_.pop_back();
    return open_.empty();
}

void NodePlan::add_running(Time expected_end_us, std::int32_t demand, std::span<const Part> parts) {
    if (expected_end_us == kEndless) return;
    // One whose expected end is past is gone at every time after now.
    const Time end = std::max(expected_end_us, clock_.now_us);
    releases_.push_back({end, demand, parts_.size(), static_cast<std::uint32_t>(parts.size())});
    parts_.insert(parts_.end(), parts.begin(), parts.end());
}

void NodePlan::prepare_later() {
    if (ready_) return;
    ready_ = true;
    later_ = now_;
    masked_later_.state = now_;
    masked_later_.closed.clear();
    released_ = 0;
    times_.clear();
    std::sort(releases_.begin(), releases_.end(),
              [](const Release& a, const Release& b) { return a.end_us < b.end_us; });
    for (const Release& release : releases_)
        if (release.end_us > clock_.now_us && (times_.empty() || times_.back() != release.end_us))
            times_.push_back(release.end_us);
    for (const Reserved& entry : reserved_) add_time(entry.end_us);
}

void NodePlan::add_time(Time time) {
    if (time <= clock_.now_us || time == kEndless) return;
    const auto at = std::lower_bound(times_.begin(), times_.end(), time);
    if (at == times_.end() || *at != time) times_.insert(at, time);
}

void NodePlan::add_started(Time expected_end_us, std::int32_t demand, std::span<const Part> parts) {
    masked_now_.state.hold(demands_[as_index(demand)], parts);
    if (!ready_) return add_running(expected_end_us, demand, parts);
    if (expected_end_us == kEndless) return hold_later(demands_[as_index(demand)], parts);
    const auto at = std::upper_bound(releases_.begin(), releases_.end(), expected_end_us,
                                     [](Time end, const Release& release) { return end < release.end_us; });
    // At the time at which `later_` is the job is gone again, or `later_` has to hold it.
    if (as_index(at - releases_.begin()) < released_)
        ++released_;
    else
        hold_later(demands_[as_index(demand)], parts);
    releases_.insert(at, {expected_end_us, demand, parts_.size(), static_cast<std::uint32_t>(parts.size())});
    parts_.insert(parts_.end(), parts.begin(), parts.end());
    add_time(expected_end_us);
}

void NodePlan::hold_later(const Demand& demand, std::span<const Part> parts) {
    later_.hold(demand, parts);
    masked_later_.state.hold(demand, parts);
}

void NodePlan::move_to(Time time) {
    for (; released_ < releases_.size() && releases_[released_].end_us <= time; ++released_) {
        const Demand& demand = demands_[as_index(releases_[released_].demand)];
        later_.release(demand, parts_of(releases_[released_]));
        masked_later_.state.release(demand, parts_of(releases_[released_]));
    }
    for (; released_ > 0 && releases_[released_ - 1].end_us > time; --released_)
        hold_later(demands_[as_index(releases_[released_ - 1].demand)], parts_of(releases_[released_ - 1]));
}

// Nodes that are reserved at any moment of the time span, both ends included, take no part.
void NodePlan::close_reserved(Masked& masked, Time from_us, Time to_us) {
    masked.closed.resize(reserved_.size(), 0);
    for (std::size_t i = 0; i < reserved_.size(); ++i) {
        const Reserved& entry = reserved_[i];
        const std::uint8_t closed = entry.begin_us <= to_us && entry.end_us > from_us ? 1 : 0;
        if (closed == masked.closed[i]) continue;
        masked.closed[i] = closed;
        for (const Part& part : parts_of(entry)) {
            if (closed)
                masked.state.take_offline(part.node);
            else
                masked.state.bring_online(part.node);
        }
    }
}

bool NodePlan::place_at(Time time, std::int32_t demand, std::int64_t row, Time run_us, Allocation& out) {
    const bool is_now = time == clock_.now_us;
    if (!is_now) move_to(time);
    const Demand& needs = demands_[as_index(demand)];
    if (placer_.needs_only_room() && !placer_.placeable(is_now ? now_ : later_, needs)) {
        known_[as_index(demand)].room_us = time + 1;
        return false;
    }
    Masked& masked = is_now ? masked_now_ : masked_later_;
    close_reserved(masked, time, expected_end(time, run_us));
    return placer_.place(masked.state, needs, row, out);
}

Time NodePlan::find(std::int32_t demand, std::int64_t row, Time run_us, Allocation& out) {
    Known& known = known_[as_index(demand)];
    if (known.pass != pass_)
        known = {.pass = pass_, .run_us = kEndless, .begin_us = clock_.now_us, .room_us = clock_.now_us};
    Time from = known.room_us;
    // Reservations and starts only ever take room away.
    if (placer_.needs_only_room() && run_us >= known.run_us) from = std::max(from, known.begin_us);
    Time found = kEndless;
    if (from <= clock_.now_us && place_at(clock_.now_us, demand, row, run_us, out)) {
        found = clock_.now_us;
    } else {
        prepare_later();
        for (auto time = std::lower_bound(times_.begin(), times_.end(), from);
             time != times_.end() && *time <= clock_.latest_us && found == kEndless; ++time)
            if (place_at(*time, demand, row, run_us, out)) found = *time;
    }
    known.run_us = run_us;
    known.begin_us = found;
    return found;
}

// To a multiple of the resolution on the log's clock.
Time NodePlan::round_down(Time time) const {
    const Time over = (clock_.epoch_us + time) % clock_.resolution_us;
    return time - (over < 0 ? over + clock_.resolution_us : over);
}

void NodePlan::reserve(Time begin_us, Time run_us, std::span<const Part> parts) {
    const Time begin = std::max(round_down(begin_us), round_down(clock_.now_us));
    Time end = expected_end(begin_us, run_us);
    if (end != kEndless) end = std::max(round_down(end), begin + clock_.resolution_us);
    reserved_.push_back({begin, end, parts_.size(), static_cast<std::uint32_t>(parts.size())});
    parts_.insert(parts_.end(), parts.begin(), parts.end());
    for (const Part& part : parts) {
        Time& first = first_begin_us_[as_index(part.node)];
        first = std::min(first, begin);
    }
    if (ready_) add_time(end);
}

}  // namespace gpuyard
