#include "simulator/reservations.hpp"

#include <algorithm>

#include "base/index.hpp"
#include "cluster/node_fit.hpp"

namespace gpuyard {

Profile::Profile(std::shared_ptr<const ClusterSpec> spec, bool limited)
    : spec_(spec),
      limited_(limited),
      window_(spec) {}

void PlanSource::take(const Snapshot& snapshot, std::int32_t queue) {
    now_us = snapshot.now_us;
    state = snapshot.state;
    running.clear();
    for (const ActiveJob& job : snapshot.active)
        if (snapshot.demand(job.demand).queue == queue && job.expected_end_us != kEndless)
            running.push_back({job.expected_end_us, job.demand, job.part_count, job.first_part});
}

void Profile::build(const PlanSource& source, const Snapshot& snapshot) {
    const ClusterState& state = source.state;
    for (Row& row : rows_) spare_.push_back(std::move(row));
    rows_.clear();
    window_ = state;
    Row first;
    first.time_us = source.now_us;
    first.pool_empty.resize(spec_->pools.size());
    for (std::size_t pool = 0; pool < spec_->pools.size(); ++pool)
        first.pool_empty[pool] = state.pool_empty(static_cast<std::int32_t>(pool));
    first.bucket_count.assign(spec_->buckets, 0);
    for (std::size_t i = 0; i < spec_->node_count(); ++i) {
        const auto node = static_cast<std::int32_t>(i);
        first.empty.push_back(state.empty(node));
        if (state.available(node))
            ++first.bucket_count[spec_->pools[as_index(spec_->pool[i])].first_bucket + as_index(first.empty.back())];
        if (!limited_) continue;
        first.cpus.push_back(state.free_cpus(node));
        first.memory_mib.push_back(state.free_memory(node));
    }
    rows_.push_back(std::move(first));
    by_end_.assign(source.running.begin(), source.running.end());
    std::sort(by_end_.begin(), by_end_.end(), [](const PlanSource::Held& a, const PlanSource::Held& b) {
        return a.expected_end_us < b.expected_end_us;
    });
    for (const PlanSource::Held& job : by_end_) {
        const std::size_t at = row_at(std::max(job.expected_end_us, source.now_us + 1));
        change_row(rows_[at], snapshot.demand(job.demand),
                   std::span(snapshot.parts).subspan(job.first_part, job.part_count), +1);
        ++rows_[at].ends;
    }
}

void Profile::advance(Time now_us) {
    std::size_t gone = 0;
    while (gone + 1 < rows_.size() && rows_[gone + 1].time_us <= now_us) ++gone;
    for (std::size_t i = 0; i < gone; ++i) spare_.push_back(std::move(rows_[i]));
    rows_.erase(rows_.begin(), rows_.begin() + static_cast<std::ptrdiff_t>(gone));
    rows_.front().time_us = now_us;
}

// The row that begins at this time, made if there is none.
std::size_t Profile::row_at(Time time_us) {
    const auto found = std::lower_bound(rows_.begin(), rows_.end(), time_us,
                                        [](const Row& row, Time time) { return row.time_us < time; });
    const auto at = as_index(found - rows_.begin());
    if (found != rows_.end() && found->time_us == time_us) return at;
    Row fresh;
    if (!spare_.empty()) {
        fresh = std::move(spare_.back());
        spare_.pop_back();
    }
    fresh = rows_[at - 1];
    fresh.time_us = time_us;
    fresh.ends = fresh.begins = 0;
    rows_.insert(rows_.begin() + static_cast<std::ptrdiff_t>(at), std::move(fresh));
    return at;
}

void Profile::change(Time begin_us, Time end_us, const Demand& demand, std::span<const Part> parts, std::int32_t sign) {
    const std::size_t from = row_at(begin_us);
    rows_[from].begins -= sign;
    std::size_t to = rows_.size();
    if (end_us != kEndless) {
        to = row_at(end_us);
        rows_[to].ends -= sign;
    }
    for (std::size_t i = from; i < to; ++i) change_row(rows_[i], demand, parts, sign);
    if (to < rows_.size()) drop_if_idle(to);
    drop_if_idle(from);
}

// A row at which nothing begins or ends any more says what the one before it says. Were these kept, an order that
// changes with every arrival would leave more of them behind with each plan it gives up.
void Profile::drop_if_idle(std::size_t at) {
    if (at == 0 || rows_[at].begins > 0 || rows_[at].ends > 0) return;
    spare_.push_back(std::move(rows_[at]));
    rows_.erase(rows_.begin() + static_cast<std::ptrdiff_t>(at));
}

void Profile::change_row(Row& row, const Demand& demand, std::span<const Part> parts, std::int32_t sign) const {
    for (const Part& part : parts) {
        const std::size_t node = as_index(part.node);
        const Pool& pool = spec_->pools[as_index(spec_->pool[node])];
        --row.bucket_count[pool.first_bucket + as_index(row.empty[node])];
        row.empty[node] += sign * part.gpus;
        ++row.bucket_count[pool.first_bucket + as_index(row.empty[node])];
        row.pool_empty[as_index(spec_->pool[node])] += sign * part.gpus;
        if (!limited_) continue;
        const std::int32_t share = part.gpus > 0 ? part.gpus : 1;
        row.cpus[node] += sign * demand.cpus_for(share);
        row.memory_mib[node] += sign * demand.memory_for(share);
    }
}

// False only if the job cannot be placed while no more than this is free.
bool Profile::may_fit(const Row& row, const Demand& demand, const Placer& placer) const {
    if (demand.kind == DemandKind::cpu_only) return true;
    std::int64_t free = 0;
    for (const PoolOption& option : demand.pools) {
        const std::int64_t here = row.pool_empty[as_index(option.pool)];
        free += here;
        if (demand.nodes > 0) {
            const Pool& pool = spec_->pools[as_index(option.pool)];
            const std::int32_t* count = row.bucket_count.data() + pool.first_bucket;
            if (enough_nodes(demand, pool.size, [&](std::int32_t empty) { return count[empty]; })) return true;
            continue;
        }
        if (splits_freely(placer.rule()) || here < demand.gpus) continue;
        if (!placer.needs_only_room()) return true;
        const Pool& pool = spec_->pools[as_index(option.pool)];
        const std::int32_t* count = row.bucket_count.data() + pool.first_bucket;
        const std::int32_t whole = count[pool.size];
        if (whole < option.full_nodes) continue;
        if (option.remainder == 0 || whole > option.full_nodes) return true;
        for (std::int32_t empty = option.remainder; empty < pool.size; ++empty)
            if (count[empty] > 0) return true;
    }
    return demand.nodes == 0 && splits_freely(placer.rule()) && free >= demand.gpus;
}

void Profile::least_free(std::size_t from, std::size_t to) {
    least_.empty = rows_[from].empty;
    least_.cpus = rows_[from].cpus;
    least_.memory_mib = rows_[from].memory_mib;
    const auto lower = [](auto& least, const auto& other) {
        for (std::size_t i = 0; i < least.size(); ++i) least[i] = std::min(least[i], other[i]);
    };
    for (std::size_t i = from + 1; i < to; ++i) {
        lower(least_.empty, rows_[i].empty);
        lower(least_.cpus, rows_[i].cpus);
        lower(least_.memory_mib, rows_[i].memory_mib);
    }
    window_.set_free(least_.empty, least_.cpus, least_.memory_mib);
}

// `to` is where a row blocks the job.
Profile::Fit Profile::fit_from(std::size_t from, std::size_t& to, Time length_us, const Demand& demand,
                               std::int64_t row, Placer& placer, Allocation& out) {
    const Time end = expected_end(rows_[from].time_us, length_us);
    to = from;
    while (to < rows_.size() && rows_[to].time_us < end && may_fit(rows_[to], demand, placer)) ++to;
    if (to < rows_.size() && rows_[to].time_us < end) return Fit::blocked;
    least_free(from, to);
    return placer.place(window_, demand, row, out) ? Fit::fits : Fit::misfit;
}

bool Profile::fits_at_once(Time length_us, const Demand& demand, std::int64_t row, Placer& placer, Allocation& out) {
    std::size_t to = 0;
    return fit_from(0, to, length_us, demand, row, placer, out) == Fit::fits;
}

Time Profile::find(Time length_us, const Demand& demand, std::int64_t row, Placer& placer, Allocation& out) {
    for (std::size_t from = 0; from < rows_.size(); ++from) {
        if (from > 0 && rows_[from].ends == 0) continue;
        std::size_t to = from;
        const Fit fit = fit_from(from, to, length_us, demand, row, placer, out);
        if (fit == Fit::fits) return rows_[from].time_us;
        if (fit == Fit::blocked) from = to;  // whatever begins up to here has this row in its time
    }
    return kEndless;
}

// --- Reservations -----------------------------------------------------------------------------------------

void Reservations::load(std::span<const Reservation> plan) {
    plan_.clear();
    for (const Reservation& entry : plan)
        if (snapshot_.demand(entry.demand).queue == queue_) plan_.push_back(entry);
    followed_ = false;
}

bool Reservations::anyone_overdue() const {
    return std::any_of(snapshot_.active.begin(), snapshot_.active.end(), [&](const ActiveJob& job) {
        return job.expected_end_us <= snapshot_.now_us && snapshot_.demand(job.demand).queue == queue_;
    });
}

Time Reservations::longest(const QueuedJob& job) const {
    const Time left = left_of(job);
    if (left == kEndless) return kEndless;
    const Demand& demand = demand_of(job);
    Time most = 0;
    for (const PoolOption& option : demand.pools) {
        const double speed = demand.gpus > 0 ? snapshot_.state.spec().pools[as_index(option.pool)].speed : 1.0;
        most = std::max(most, run_time(left, speed, 1, 1, 0.0));
    }
    return restore_of(job) + most;
}

void Reservations::enter(const Reservation& entry) {
    if (entry.begin_us != kEndless)
        profile_.hold(entry.begin_us, entry.end_us, snapshot_.demand(entry.demand), entry.parts);
}

void Reservations::give_up(const Reservation& entry) {
    if (entry.begin_us != kEndless)
        profile_.release(entry.begin_us, entry.end_us, snapshot_.demand(entry.demand), entry.parts);
}

void Reservations::make(Reservation& entry, const QueuedJob& job, Placer& placer) {
    entry = {job.job, job.demand, kEndless, kEndless, {}};
    entry.begin_us = profile_.find(longest(job), demand_of(job), job.row, placer, allocation_);
    if (entry.begin_us == kEndless) return;
    entry.end_us = expected_end(entry.begin_us + restore_of(job),
                                allocation_.run_time(left_of(job), snapshot_.settings->locality_penalty));
    entry.parts = allocation_.parts;
    enter(entry);
}

void Reservations::improve(Reservation& entry, const QueuedJob& job, Placer& placer) {
    const Reservation before = entry;
    give_up(before);
    make(entry, job, placer);
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
    profile_.build(source_, snapshot_);
    for (const Reservation& entry : plan_) enter(entry);
    built_ = true;
}

void Reservations::keep_common_beginning(std::span<const QueuedJob* const> order) {
    std::size_t common = 0;
    while (common < std::min(plan_.size(), order.size()) && plan_[common].job == order[common]->job) ++common;
    if (built_)
        for (std::size_t i = common; i < plan_.size(); ++i) give_up(plan_[i]);
    plan_.resize(common);
}

const std::vector<Reservation>& Reservations::update(std::span<const QueuedJob* const> order, Placer& placer) {
    const bool overdue = anyone_overdue();
    if (postponed_) {
        if (snapshot_.nodes_changed || overdue)
            plan_.clear();
        else
            finish_postponed(order, placer);
        postponed_ = false;
    }
    const bool missed =
        std::any_of(plan_.begin(), plan_.end(), [&](const Reservation& r) { return r.begin_us < snapshot_.now_us; });
    const bool surprised = snapshot_.nodes_changed || missed || overdue;
    const bool early = snapshot_.finished_early[as_index(queue_)] != 0;
    if (surprised) plan_.clear();
    built_ = followed_ && !surprised && !early;
    if (built_) profile_.advance(snapshot_.now_us);
    keep_common_beginning(order);
    const std::size_t kept = plan_.size();
    if (kept > 0 && !built_) build();
    if (early)
        for (std::size_t i = 0; i < kept; ++i) improve(plan_[i], *order[i], placer);
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
        if (built_ || !start_at_once(entry, *order[i], placer)) {
            if (!built_) build();
            make(entry, *order[i], placer);
            if (may_postpone && entry.begin_us == snapshot_.now_us) now_.hold(demand_of(*order[i]), entry.parts);
        }
        if (may_postpone) lower_hopes(i, entry, *order[i], placer);
        plan_.push_back(std::move(entry));
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
    std::erase_if(plan_, [&](const Reservation& entry) { return entry.begin_us == snapshot_.now_us; });
}

}  // namespace gpuyard
