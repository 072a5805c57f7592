#include "simulator/native_policy.hpp"

#include <algorithm>
#include <cmath>

#include "base/index.hpp"

namespace gpuyard {

namespace {

constexpr std::size_t kMostDemandsToTry = 256;

}  // namespace

NativePolicy::NativePolicy(const Policy& policy, const Snapshot& snapshot, bool for_run)
    : policy_(policy),
      order_traits_(traits_of(policy.order)),
      snapshot_(snapshot),
      settings_(*snapshot.settings),
      placer_(policy.placement, settings_.seed),
      fixed_(order_traits_.fixed_while_waiting() || order_traits_.changes_by_period()),
      queues_(as_index(snapshot.state.spec().queues)),
      waiting_of_(snapshot.demands->size(), 0),
      state_(snapshot.state),
      usage_(snapshot.user_usage.size(), 0.0),
      usage_as_of_(snapshot.user_usage.size(), ~std::uint64_t{0}),
      shadow_(snapshot.state.shared_spec()),
      misfits_(snapshot.demands->size(), 0),
      no_room_(snapshot.demands->size(), 0),
      room_maker_(snapshot) {
    placer_.set_mix(&snapshot.mix);
    placer_.set_power_cap(settings_.power_cap_mw);
    if (settings_.sleep_after_us >= 0) placer_.set_asleep(&asleep_);
    for (std::size_t d = 0; d < snapshot.demands->size(); ++d)
        queues_[as_index((*snapshot.demands)[d].queue)].demands.push_back(static_cast<std::int32_t>(d));
    const ClusterSpec& spec = snapshot.state.spec();
    if (order_traits_.remembers == Memory::fair_factor)
        for (const Demand& demand : *snapshot.demands)
            factors_.emplace_back(demand, spec, settings_.multifactor.favor_small);
    waiting_in_.assign(std::max(spec.partitions.size(), std::size_t{1}), 0);
    for (std::size_t p = 0; p < spec.partitions.size(); ++p)
        queues_[as_index(spec.partitions[p].queue)].partitions.push_back(static_cast<std::int32_t>(p));
    for (Queue& queue : queues_)
        if (queue.partitions.empty()) queue.partitions.push_back(0);
    if (policy.backfill == Backfill::slurm) node_plan_ = std::make_unique<NodePlan>(state_, *snapshot.demands, placer_);
    passes_indexed_ = for_run && indexes();
    if (for_run && orders_by_period())
        make_period_indexes();
    else if (for_run && orders_by_level())
        make_level_indexes();
    else if (passes_indexed_)
        make_indexes();
    if (policy.backfill != Backfill::conservative) return;
    const bool limited = counts_cpus_or_memory(snapshot.state.spec(), *snapshot.demands);
    const bool may_postpone =
        for_run && order_traits_.fixed_while_waiting() && !policy.ages() && placer_.needs_only_room();
    for (std::size_t q = 0; q < queues_.size(); ++q)
        queues_[q].plan =
            std::make_unique<Reservations>(snapshot, static_cast<std::int32_t>(q), limited, placer_, may_postpone);
}

// --- Who waits --------------------------------------------------------------------------------------------

// Keeps a job, and says what its entry is and whose.
NativePolicy::Queue& NativePolicy::know(const QueuedJob& job, Entry& entry) {
    Queue& queue = queues_[as_index(snapshot_.demand(job.demand).queue)];
    if (waiting_of_[as_index(job.demand)]++ == 0) ++queue.waiting_demands;
    ++queue.waiting;
    std::size_t slot = slots_.size();
    if (free_slots_.empty()) {
        slots_.push_back(job);
    } else {
        slot = free_slots_.back();
        free_slots_.pop_back();
        slots_[slot] = job;
    }
    ++waiting_in_[partition_of(job)];
    const bool by_score = fixed_ && !queue.period;
    entry = {by_score ? fixed_score(job) : 0.0, job.job, slot, by_score ? snapshot_.demand(job.demand).tier : 0};
    entry_of_.emplace(job.job, entry);
    return queue;
}

void NativePolicy::entered(const QueuedJob& job) {
    Entry entry{};
    Queue& queue = know(job, entry);
    if (queue.period) notice_period();
    if (RankIndex* index = queue.any_index()) return index->insert(indexed(job, entry.slot));
    if (queue.levels) {
        if (policy_.order == Order::tiresias) fed_.emplace(job.queued_us, job.job);
        return queue.levels->insert(job.job, entry.slot, level_of(job));
    }
    queue.entries.insert(std::upper_bound(queue.entries.begin(), queue.entries.end(), entry), entry);
    if (fixed_ && policy_.ages() && !is_aged(job)) young_.emplace(job.submit_us, job.job);
}

void NativePolicy::all_entered(std::span<const QueuedJob> jobs) {
    slots_.reserve(slots_.size() + jobs.size());
    entry_of_.reserve(entry_of_.size() + jobs.size());
    for (const QueuedJob& job : jobs) {
        Entry entry{};
        know(job, entry).entries.push_back(entry);
        if (fixed_ && policy_.ages() && !is_aged(job)) young_.emplace(job.submit_us, job.job);
    }
    for (Queue& queue : queues_) std::sort(queue.entries.begin(), queue.entries.end());
}

void NativePolicy::left(JobId job) {
    const auto known = entry_of_.find(job);
    const Entry entry = known->second;
    const std::int32_t demand = job_of(entry).demand;
    Queue& queue = queues_[as_index(snapshot_.demand(demand).queue)];
    if (--waiting_of_[as_index(demand)] == 0) --queue.waiting_demands;
    --waiting_in_[partition_of(job_of(entry))];
    --queue.waiting;
    free_slots_.push_back(entry.slot);
    if (!young_.empty()) young_.erase({job_of(entry).submit_us, job});
    entry_of_.erase(known);
    if (queue.period) notice_period();
    if (RankIndex* index = queue.any_index()) return index->erase(indexed(job_of(entry), entry.slot));
    if (queue.levels) {
        fed_.erase({job_of(entry).queued_us, job});
        return queue.levels->erase(job, entry.slot);
    }
    queue.entries.erase(std::lower_bound(queue.entries.begin(), queue.entries.end(), entry));
}

// --- Passes -----------------------------------------------------------------------------------------------

void NativePolicy::prepare() {
    decision_.starts.clear();
    decision_.reservations.clear();
    decision_.wake_us = kEndless;
    age();
    if (policy_.backfill == Backfill::conservative) return;
    state_ = snapshot_.state;
    quota_held_milli_ = snapshot_.quota_held_milli;
    if (!settings_.limits.empty()) limits_held_ = snapshot_.limits;
    if (settings_.sleep_after_us < 0) return;
    asleep_.resize(snapshot_.state.spec().node_count());
    awake_at_us_ = snapshot_.power.awake_at_us;
    for (std::size_t node = 0; node < asleep_.size(); ++node)
        asleep_[node] = snapshot_.power.asleep(node, snapshot_.now_us, settings_.sleep_after_us) ? 1 : 0;
}

Decision NativePolicy::decide(bool use_snapshots_plan) {
    prepare();
    for (std::size_t q = 0; q < queues_.size(); ++q) {
        current_ = &queues_[q];
        current_queue_ = static_cast<std::int32_t>(q);
        if (current_->waiting == 0) {
            if (current_->plan) current_->plan->forget();
            continue;
        }
        if (policy_.backfill == Backfill::conservative)
            follow_plan(current_queue_, use_snapshots_plan);
        else if (policy_.backfill == Backfill::slurm)
            make_main_pass();
        else
            make_pass(current_queue_);
    }
    if (policy_.backfill == Backfill::slurm && snapshot_.backfill_due) make_backfill_passes();
    return std::move(decision_);
}

// Whether any waiting job fits at all, where that is cheaper to know than the order.
bool NativePolicy::anything_fits(const Queue& queue) {
    if (queue.demands.size() > kMostDemandsToTry) return true;
    return std::any_of(queue.demands.begin(), queue.demands.end(), [&](std::int32_t d) {
        return waiting_of_[as_index(d)] > 0 && placer_.placeable(state_, snapshot_.demand(d));
    });
}

void NativePolicy::make_pass(std::int32_t queue) {
    if (passes_indexed_) return pass_indexed();
    if (makes_room())
        room_maker_.begin(queue, order_traits_.preempts, [this](const ActiveJob& job) { return score_of(job); });
    else if (!anything_fits(*current_))
        return;
    rank(*current_);
    started_.assign(current_->waiting, 0);
    borrowing_ = false;
    started_running_.clear();
    running_parts_.clear();
    scan();
    if (settings_.quota_milli.empty() || !settings_.quota_borrowing || anyone_within_quota()) return;
    borrowing_ = true;
    scan();
}

void NativePolicy::scan() {
    at_ = 0;
    ScanPass(*this, policy_, placer_, state_).run(misfits_, marked_, allocation_);
    forget_no_room();
}

void NativePolicy::forget_no_room() {
    for (const std::int32_t demand : marked_no_room_) no_room_[as_index(demand)] = 0;
    marked_no_room_.clear();
}

Candidate NativePolicy::candidate_at(std::size_t place) const {
    const QueuedJob& job = job_of((*order_)[place]);
    return {.job = job.job,
            .demand = job.demand,
            .estimate_us = job.estimate_us,
            .row = job.row,
            .aged = is_aged(job),
            .tier = snapshot_.demand(job.demand).tier,
            .place = place};
}

bool NativePolicy::next(Candidate& out) {
    while (at_ < current_->waiting && started_[at_]) ++at_;
    if (at_ == current_->waiting) return false;
    sort_until(at_ + 1);
    out = candidate_at(at_++);
    if (out.job == watch_.job) watch(out);
    return true;
}

bool NativePolicy::may_run_more(const Candidate& candidate) const {
    if (!settings_.limits.empty() && !limits_held_.allows(demand_of(candidate), job_at(candidate).holder())) {
        if (candidate.job == watch_.job) watch_.over_quota = true;
        return false;
    }
    return borrowing_ || within_quota(candidate);
}

bool NativePolicy::within_quota(const Candidate& candidate) const {
    if (settings_.quota_milli.empty()) return true;
    const auto quota = as_index(settings_.quota_of_group[as_index(job_at(candidate).group)]);
    const bool within = quota_held_milli_[quota] + demand_of(candidate).total_milli() <= settings_.quota_milli[quota];
    if (candidate.job == watch_.job) watch_.over_quota = !within;
    return within;
}

bool NativePolicy::anyone_within_quota() {
    sort_until(current_->waiting);
    for (std::size_t place = 0; place < order_->size(); ++place)
        if (!started_[place] && within_quota(candidate_at(place))) return true;
    return false;
}

Time NativePolicy::begin_at(const Allocation& allocation) const {
    Time begin = snapshot_.now_us;
    if (settings_.sleep_after_us < 0) return begin;
    for (const Part& part : allocation.parts) {
        const std::size_t node = as_index(part.node);
        begin = std::max(begin, asleep_[node] ? snapshot_.now_us + settings_.wake_us : awake_at_us_[node]);
    }
    return begin;
}

void NativePolicy::wake(const Allocation& allocation) {
    if (settings_.sleep_after_us < 0) return;
    for (const Part& part : allocation.parts) {
        const std::size_t node = as_index(part.node);
        if (!asleep_[node]) continue;
        asleep_[node] = 0;
        awake_at_us_[node] = snapshot_.now_us + settings_.wake_us;
    }
}

Time NativePolicy::expected_end_at(const Candidate& candidate, const Allocation& allocation) const {
    if (candidate.job == watch_.job) watch_.admitted = true;
    if (candidate.estimate_us == kEndless) return kEndless;
    const Time done = job_at(candidate).done_us;
    const Time restore = done > 0 ? settings_.restore_of(demand_of(candidate)) : 0;
    const Time left = std::max(Time{1}, candidate.estimate_us - done);
    return begin_at(allocation) + restore + allocation.run_time(left, settings_.locality_penalty);
}

Shadow& NativePolicy::shadow_of(const Candidate& head) {
    watch_.head = head.job;
    running_.clear();
    for (const ActiveJob& job : snapshot_.active) {
        if (snapshot_.demand(job.demand).queue != current_queue_) continue;
        const auto parts = snapshot_.parts_of(job);
        running_.insert({.expected_end_us = job.expected_end_us,
                         .job = job.job,
                         .demand = job.demand,
                         .part_count = job.part_count,
                         .first_part = running_parts_.size()});
        running_parts_.insert(running_parts_.end(), parts.begin(), parts.end());
    }
    for (const RunningJob& job : started_running_) running_.insert(job);
    shadow_.compute(snapshot_.now_us, demand_of(head), placer_, state_, {running_, running_parts_, *snapshot_.demands});
    return shadow_;
}

void NativePolicy::start(const Candidate& candidate, const Allocation& allocation, bool backfilled) {
    const Demand& demand = demand_of(candidate);
    if (policy_.backfill == Backfill::easy || policy_.backfill == Backfill::easy_sjf ||
        policy_.backfill == Backfill::slurm) {
        started_running_.push_back({.expected_end_us = expected_end_at(candidate, allocation),
                                    .job = candidate.job,
                                    .demand = candidate.demand,
                                    .part_count = static_cast<std::uint32_t>(allocation.parts.size()),
                                    .first_part = running_parts_.size()});
        running_parts_.insert(running_parts_.end(), allocation.parts.begin(), allocation.parts.end());
    }
    wake(allocation);
    state_.hold(demand, allocation.parts);
    if (settings_.defragment) forget_no_room();
    if (!passes_indexed_) started_[candidate.place] = 1;
    if (!settings_.quota_milli.empty())
        quota_held_milli_[as_index(settings_.quota_of_group[as_index(job_at(candidate).group)])] +=
            demand.total_milli();
    if (!settings_.limits.empty()) limits_held_.enter(demand, job_at(candidate).holder(), +1);
    decision_.starts.push_back({candidate.job, allocation.parts, backfilled, {}});
}

void NativePolicy::close(const Allocation& allocation) {
    for (const Part& part : allocation.parts) state_.take_offline(part.node);
    wake(allocation);
}

bool NativePolicy::make_room(const Candidate& candidate, bool blocked) {
    if (candidate.job == watch_.job) watch_.misfit = true;
    if (watch_.head < 0) {
        watch_.head = candidate.job;
        watch_.head_aged = candidate.aged;
    }
    if (!makes_room()) return false;
    std::uint8_t& none = no_room_[as_index(candidate.demand)];
    if (none) return false;
    if (!room_maker_.make(state_, demand_of(candidate), candidate.row, (*order_)[candidate.place].score, placer_,
                          asleep_, room_)) {
        // Jobs that rank behind it have no more to take from. That does not follow where more room can hinder. For
        // moves it matters where the rule happens to place the job: the same place until somebody starts.
        if (settings_.defragment ? placer_.rule() != Placement::random : placer_.needs_only_room()) {
            none = 1;
            marked_no_room_.push_back(candidate.demand);
        }
        return false;
    }
    started_[candidate.place] = 1;
    if (settings_.defragment) forget_no_room();
    decision_.starts.push_back({candidate.job, room_.allocation.parts, blocked, room_.stops});
    close(room_.allocation);
    if (room_.moves) {
        decision_.starts.push_back({room_.stops.front(), room_.moved_to.parts, false, {}});
        close(room_.moved_to);
    }
    return true;
}

void NativePolicy::follow_plan(std::int32_t queue, bool use_snapshots_plan) {
    Reservations& plan = *queues_[as_index(queue)].plan;
    if (use_snapshots_plan) plan.load(snapshot_.reservations);
    rank(*current_);
    sort_until(order_->size());
    planned_.clear();
    // Who is planned later takes nothing from the job that `explain` asks about.
    const bool up_to_watched = watch_.job >= 0 && snapshot_.reservations.empty();
    for (const Entry& entry : *order_) {
        planned_.push_back(&job_of(entry));
        if (up_to_watched && entry.job == watch_.job) break;
    }
    bool passed_over = false;
    for (const Reservation& entry : plan.update(planned_, placer_)) {
        if (entry.begin_us == snapshot_.now_us)
            decision_.starts.push_back({entry.job, entry.parts, passed_over, {}});
        else
            passed_over = true;
        if (use_snapshots_plan && entry.begin_us != snapshot_.now_us) decision_.reservations.push_back(entry);
    }
    plan.drop_started();
    decision_.wake_us = std::min(decision_.wake_us, plan.next_begin());
}

// --- On a snapshot ----------------------------------------------------------------------------------------

Decision decide(const Snapshot& snapshot, const Policy& policy) {
    NativePolicy native(policy, snapshot);
    native.all_entered(snapshot.queue);
    Decision decision = native.decide(true);
    decision.native = snapshot.from_simulator;
    decision.instant = snapshot.instant;
    return decision;
}

Explanation explain(const Snapshot& snapshot, const Policy& policy, JobId job) {
    NativePolicy native(policy, snapshot);
    native.all_entered(snapshot.queue);
    return native.explain(job);
}

std::vector<std::pair<double, JobId>> ranking(const Snapshot& snapshot, const Policy& policy) {
    NativePolicy native(policy, snapshot);
    native.all_entered(snapshot.queue);
    return native.ranking();
}

}  // namespace gpuyard
