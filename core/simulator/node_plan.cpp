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
    by_begin_.clear();
    by_end_.clear();
    masked_now_.reset(now_, 0);
}

bool NodePlan::may_start(std::int32_t demand, Time run_us) {
    close_reserved(masked_now_, clock_.now_us, expected_end(clock_.now_us, run_us));
    return placer_.placeable(masked_now_.state, demands_[as_index(demand)]);
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
    masked_later_.reset(now_, reserved_.size());
    released_ = 0;
    times_.clear();
    std::sort(releases_.begin(), releases_.end(),
              [](const Release& a, const Release& b) { return a.end_us < b.end_us; });
    room_times_.begin(now_);
    for (const Release& release : releases_) {
        room_times_.release(release.end_us, parts_of(release));
        if (release.end_us > clock_.now_us && (times_.empty() || times_.back() != release.end_us))
            times_.push_back(release.end_us);
    }
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
    if (expected_end_us == kEndless) return masked_later_.state.hold(demands_[as_index(demand)], parts);
    const auto at = std::upper_bound(releases_.begin(), releases_.end(), expected_end_us,
                                     [](Time end, const Release& release) { return end < release.end_us; });
    // At the time at which `masked_later_` is the job is gone again, or it has to hold it.
    if (as_index(at - releases_.begin()) < released_)
        ++released_;
    else
        masked_later_.state.hold(demands_[as_index(demand)], parts);
    releases_.insert(at, {expected_end_us, demand, parts_.size(), static_cast<std::uint32_t>(parts.size())});
    parts_.insert(parts_.end(), parts.begin(), parts.end());
    add_time(expected_end_us);
}

void NodePlan::move_to(Time time) {
    for (; released_ < releases_.size() && releases_[released_].end_us <= time; ++released_) {
        const Demand& demand = demands_[as_index(releases_[released_].demand)];
        masked_later_.state.release(demand, parts_of(releases_[released_]));
    }
    for (; released_ > 0 && releases_[released_ - 1].end_us > time; --released_)
        masked_later_.state.hold(demands_[as_index(releases_[released_ - 1].demand)],
                                 parts_of(releases_[released_ - 1]));
}

// Nodes that are reserved at any moment of the time span, both ends included, take no part.
void NodePlan::close_reserved(Masked& masked, Time from_us, Time to_us) {
    masked.from_us = from_us;
    masked.to_us = to_us;
    const auto begins = [&](std::size_t place) { return reserved_[by_begin_[place]].begin_us; };
    const auto ends = [&](std::size_t place) { return reserved_[by_end_[place]].end_us; };
    while (masked.begun < by_begin_.size() && begins(masked.begun) <= to_us)
        close_or_open(masked, by_begin_[masked.begun++]);
    while (masked.begun > 0 && begins(masked.begun - 1) > to_us) close_or_open(masked, by_begin_[--masked.begun]);
    while (masked.ended < by_end_.size() && ends(masked.ended) <= from_us)
        close_or_open(masked, by_end_[masked.ended++]);
    while (masked.ended > 0 && ends(masked.ended - 1) > from_us) close_or_open(masked, by_end_[--masked.ended]);
}

void NodePlan::close_or_open(Masked& masked, std::size_t reservation) {
    const Reserved& entry = reserved_[reservation];
    const std::uint8_t closed = entry.begin_us <= masked.to_us && entry.end_us > masked.from_us ? 1 : 0;
    if (closed == masked.closed[reservation]) return;
    masked.closed[reservation] = closed;
    // Now, a node on which nothing is free takes no part anyway: within a pass nothing is released.
    const auto parts = &masked == &masked_now_
                           ? std::span(parts_).subspan(entry.first_part + entry.part_count, entry.open_count)
                           : parts_of(entry);
    for (const Part& part : parts) {
        if (closed)
            masked.state.take_offline(part.node);
        else
            masked.state.bring_online(part.node);
    }
}

// A new reservation, in the order of begins and ends already.
void NodePlan::take_in(Masked& masked, std::size_t reservation) {
    masked.closed.push_back(0);
    if (reserved_[reservation].begin_us <= masked.to_us) ++masked.begun;
    if (reserved_[reservation].end_us <= masked.from_us) ++masked.ended;
    close_or_open(masked, reservation);
}

void NodePlan::Masked::reset(const ClusterState& free, std::size_t reservations) {
    state = free;
    closed.assign(reservations, 0);
    from_us = to_us = kNever;
    begun = ended = 0;
}

bool NodePlan::place_at(Time time, std::int32_t demand, std::int64_t row, Time run_us, Allocation& out) {
    const bool is_now = time == clock_.now_us;
    if (!is_now) move_to(time);
    const Demand& needs = demands_[as_index(demand)];
    if (is_now && placer_.needs_only_room() && !placer_.placeable(now_, needs)) {
        known_[as_index(demand)].room_us = time + 1;
        return false;
    }
    Masked& masked = is_now ? masked_now_ : masked_later_;
    close_reserved(masked, time, expected_end(time, run_us));
    return placer_.place(masked.state, needs, row, out);
}

// The first candidate in [from, until) at which the job can begin.
Time NodePlan::find_later(Known& known, Time from_us, Time until_us, std::int32_t demand, std::int64_t row, Time run_us,
                          Allocation& out) {
    for (auto time = std::lower_bound(times_.begin(), times_.end(), from_us);
         time != times_.end() && *time < until_us && *time <= clock_.latest_us; ++time) {
        known.first_us = std::min(known.first_us, *time);
        if (place_at(*time, demand, row, run_us, out)) return *time;
    }
    return kEndless;
}

Time NodePlan::find(std::int32_t demand, std::int64_t row, Time run_us, Allocation& out) {
    Known& known = known_[as_index(demand)];
    if (known.pass != pass_)
        known = {.pass = pass_,
                 .run_us = kEndless,
                 .begin_us = clock_.now_us,
                 .room_us = clock_.now_us,
                 .first_us = kEndless};
    const bool repeats = placer_.needs_only_room() && run_us >= known.run_us;
    Time found = kEndless;
    if (std::max(known.room_us, repeats ? known.begin_us : 0) <= clock_.now_us &&
        place_at(clock_.now_us, demand, row, run_us, out)) {
        found = clock_.now_us;
    } else {
        prepare_later();
        if (!known.counted && placer_.needs_only_room() && !splits_freely(placer_.rule()))
            known.room_us = std::max(known.room_us, room_times_.first(demands_[as_index(demand)]));
        known.counted = true;
        // Reservations and starts only ever take room away, but they make new times to try. Before the first that was
        // tried there may be more room than now: jobs whose expected end is past are gone after now.
        const Time known_us = repeats ? known.begin_us : clock_.now_us;
        if (repeats)
            found = find_later(known, known.room_us, std::min(known.first_us, known_us), demand, row, run_us, out);
        if (found == kEndless)
            found = find_later(known, std::max(known.room_us, known_us), kEndless, demand, row, run_us, out);
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

// The last reservation to where it belongs.
void NodePlan::take_in_order(std::vector<std::uint32_t>& order, Time Reserved::* time) {
    const auto at = std::upper_bound(order.begin(), order.end(), reserved_.back().*time,
                                     [&](Time value, std::uint32_t other) { return value < reserved_[other].*time; });
    order.insert(at, static_cast<std::uint32_t>(reserved_.size() - 1));
}

void NodePlan::reserve(Time begin_us, Time run_us, std::span<const Part> parts) {
    const Time begin = std::max(round_down(begin_us), round_down(clock_.now_us));
    Time end = expected_end(begin_us, run_us);
    if (end != kEndless) end = std::max(round_down(end), begin + clock_.resolution_us);
    Reserved entry{begin, end, parts_.size(), static_cast<std::uint32_t>(parts.size()), 0};
    parts_.insert(parts_.end(), parts.begin(), parts.end());
    for (const Part& part : parts) {
        if (!with_cpu_jobs_ && now_.free_milli(part.node) == 0) continue;
        parts_.push_back(part);
        ++entry.open_count;
    }
    reserved_.push_back(entry);
    take_in_order(by_begin_, &Reserved::begin_us);
    take_in_order(by_end_, &Reserved::end_us);
    take_in(masked_now_, reserved_.size() - 1);
    if (ready_) take_in(masked_later_, reserved_.size() - 1);
    if (ready_) add_time(end);
}

}  // namespace gpuyard
