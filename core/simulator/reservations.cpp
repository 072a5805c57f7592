#include "simulator/reservations.hpp"

#include <algorithm>
#include <map>
#include <numeric>
#include <tuple>

#include "base/index.hpp"

namespace gpuyard {

std::vector<std::int32_t> kinds_of(std::span<const Demand> demands, bool limited) {
    std::vector<std::int32_t> kinds(demands.size());
    std::iota(kinds.begin(), kinds.end(), 0);
    if (limited) return kinds;
    using Key =
        std::tuple<DemandKind, std::int32_t, std::int32_t, std::int32_t, std::int32_t, std::vector<std::uint8_t>>;
    std::map<Key, std::int32_t> first;
    for (std::int32_t& kind : kinds) {
        const Demand& d = demands[as_index(kind)];
        kind = first.try_emplace({d.kind, d.gpus, d.gpu_milli, d.nodes, d.queue, d.allows}, kind).first->second;
    }
    return kinds;
}

void Reservations::load(std::span<const Reservation> plan) {
    clear_plan();
    for (const Reservation& entry : plan)
        if (snapshot_.demand(entry.demand).queue == queue_) plan_.push_back(entry);
    checked_.resize(plan_.size());
    follows_chances_ = false;  // they take it that reservations are as they would be made
    followed_ = false;
}

void Reservations::clear_plan() {
    plan_.clear();
    checked_.clear();
}

bool Reservations::anyone_overdue() const {
    return std::any_of(snapshot_.active.begin(), snapshot_.active.end(), [&](const ActiveJob& job) {
        return job.expected_end_us <= snapshot_.now_us && snapshot_.demand(job.demand).queue == queue_;
    });
}

Time Reservations::longest(const QueuedJob& job) const {
    const Time left = left_of(job);
    if (left == kEndless) return kEndless;
    if (same_speed_) return restore_of(job) + left;
    const Demand& demand = demand_of(job);
    Time most = 0;
    for (const PoolOption& option : demand.pools) {
        const double speed = demand.gpus > 0 ? snapshot_.state.spec().pools[as_index(option.pool)].speed : 1.0;
        most = std::max(most, run_time(left, speed, 1, 1, 0.0));
    }
    return restore_of(job) + most;
}

void Reservations::enter(const Reservation& entry) {
    if (entry.begin_us == kEndless) return;
    profile_.hold(entry.begin_us, entry.end_us, snapshot_.demand(entry.demand), entry.parts);
    touch(entry);
}

void Reservations::give_up(const Reservation& entry) {
    earliest_.forget();
    if (entry.begin_us == kEndless) return;
    profile_.release(entry.begin_us, entry.end_us, snapshot_.demand(entry.demand), entry.parts);
    touch(entry);
}

void Reservations::make(Reservation& entry, const QueuedJob& job, Placer& placer, Time latest_us) {
    entry = {job.job, job.demand, kEndless, kEndless, {}};
    const Time length = longest(job);
    const Time known = placer.needs_only_room() ? earliest_.of(kind_[as_index(job.demand)], length) : 0;
    const Demand& demand = demand_of(job);
    made_ = {};
    if (follows_chances_) made_.table = chances_.table_of(demand.gpus, length);
    if (follows_chances_ && on_one_node(demand)) {
        made_.chance = chances_.best(made_.table, known);
        entry.begin_us = made_.chance.begin_us;
        take_on_one_node(demand, made_.chance.node);
    } else {
        entry.begin_us = profile_.find(length, demand, job.row, known, latest_us, placer, allocation_);
    }
    if (latest_us == kEndless) earliest_.found(kind_[as_index(job.demand)], length, entry.begin_us);
    if (entry.begin_us == kEndless) return;
    entry.end_us = expected_end(entry.begin_us + restore_of(job),
                                allocation_.run_time(left_of(job), snapshot_.settings->locality_penalty));
    entry.parts = allocation_.parts;
    enter(entry);
    note_checked(made_);
}

void Reservations::improve(Reservation& entry, const QueuedJob& job, Placer& placer) {
    const Reservation before = entry;
    give_up(before);
    make(entry, job, placer, before.begin_us);
    if (entry.begin_us <= before.begin_us) return;
    give_up(entry);
    entry = before;
    enter(entry);
}

// While nobody holds a reservation for later, what is free only grows: a job that fits now fits for as long as it
// takes.
bool Reservations::start_at_once(Reservation& entry, const QueuedJob& job, Placer& placer) {
    const Demand& demand = demand_of(job);
    if (!placer.place(now_, demand, job.row, allocation_)) return false;
    const Time now = snapshot_.now_us;
    const Time end =
        expected_end(now + restore_of(job), allocation_.run_time(left_of(job), snapshot_.settings->locality_penalty));
    entry = {job.job, job.demand, now, end, allocation_.parts};
    now_.hold(demand, allocation_.parts);
    return true;
}

void Reservations::build() {
    source_.take(snapshot_, queue_);
    earliest_.forget();
    profile_.build(source_, snapshot_);
    chances_.forget();
    for (const Reservation& entry : plan_) enter(entry);
    built_ = true;
}

void Reservations::keep_common_beginning(std::span<const QueuedJob* const> order) {
    std::size_t common = 0;
    while (common < std::min(plan_.size(), order.size()) && plan_[common].job == order[common]->job) ++common;
    if (built_)
        for (std::size_t i = common; i < plan_.size(); ++i) give_up(plan_[i]);
    plan_.resize(common);
    checked_.resize(common);
}

const std::vector<Reservation>& Reservations::update(std::span<const QueuedJob* const> order, Placer& placer) {
    const bool overdue = anyone_overdue();
    if (postponed_) {
        if (snapshot_.nodes_changed || overdue)
            clear_plan();
        else
            finish_postponed(order, placer);
        postponed_ = false;
    }
    const bool missed =
        std::any_of(plan_.begin(), plan_.end(), [&](const Reservation& r) { return r.begin_us < snapshot_.now_us; });
    const bool surprised = snapshot_.nodes_changed || missed || overdue;
    const bool early = snapshot_.finished_early[as_index(queue_)] != 0;
    if (surprised) clear_plan();
    built_ = followed_ && !surprised && (!early || follows_chances_);
    if (built_) profile_.advance(snapshot_.now_us);
    if (built_ && early) follow_early_ends();
    keep_common_beginning(order);
    const std::size_t kept = plan_.size();
    if (kept > 0 && !built_) build();
    if (early) improve_kept(order, kept, placer);
    if (!built_) now_ = snapshot_.state;
    // While someone is overdue no reservation is an event, and most often the next instant drops them all.
    const bool may_postpone = may_postpone_ && overdue;
    if (may_postpone) hope_for(order, placer);
    for (std::size_t i = kept; i < order.size() && !postponed_; ++i) {
        if (may_postpone && hopeful_.empty()) {
            postpone();
            break;
        }
        Reservation entry{};
        made_ = {};
        if (built_ || !start_at_once(entry, *order[i], placer)) {
            if (!built_) build();
            make(entry, *order[i], placer);
            if (may_postpone && entry.begin_us == snapshot_.now_us) now_.hold(demand_of(*order[i]), entry.parts);
        }
        if (may_postpone) lower_hopes(i, entry, placer);
        plan_.push_back(std::move(entry));
        checked_.push_back(made_);
    }
    followed_ = built_;
    return plan_;
}

Time Reservations::next_begin() const {
    if (anyone_overdue()) return kEndless;
    Time next = kEndless;
    for (const Reservation& entry : plan_) next = std::min(next, entry.begin_us);
    return next;
}

void Reservations::drop_started() {
    if (postponed_)
        for (const Reservation& entry : plan_)
            if (entry.begin_us == snapshot_.now_us) started_.push_back(entry);
    std::size_t left = 0;
    for (std::size_t i = 0; i < plan_.size(); ++i) {
        if (plan_[i].begin_us == snapshot_.now_us) continue;
        if (left != i) {
            plan_[left] = std::move(plan_[i]);
            checked_[left] = checked_[i];
        }
        ++left;
    }
    plan_.resize(left);
    checked_.resize(left);
}

}  // namespace gpuyard
