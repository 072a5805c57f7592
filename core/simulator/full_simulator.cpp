#include "simulator/full_simulator.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <stdexcept>
#include <string>

#include "base/index.hpp"
#include "base/rng.hpp"

namespace gpuyard {

FullSimulator::FullSimulator(std::shared_ptr<const ClusterSpec> cluster, std::shared_ptr<const JobTable> jobs,
                             std::shared_ptr<const Settings> settings, Needs needs, const Past& past)
    : jobs_(std::move(jobs)),
      settings_(std::move(settings)),
      needs_(needs),
      view_(ClusterState(cluster)) {
    const std::size_t count = jobs_->submit_us.size();
    const std::size_t nodes = cluster->node_count();
    view_.origin_s = jobs_->origin_s;
    view_.epoch_us = jobs_->epoch_us;
    view_.settings = settings_;
    view_.demands = std::shared_ptr<const std::vector<Demand>>(jobs_, &jobs_->demands);
    view_.open(as_index(jobs_->users), as_index(jobs_->groups), *settings_);
    association_usage_.open(view_.fair_factor.size());
    view_.finished_early.assign(as_index(cluster->queues), 0);
    view_.power = {std::vector<std::int32_t>(nodes, 0), std::vector<Time>(nodes, 0), std::vector<Time>(nodes, 0)};
    view_.instant = ~std::uint64_t{0};  // the first instant is 0
    state_.assign(count, JobState::unborn);
    for (auto* column : {&done_us_, &attained_us_, &promoted_us_, &queued_us_, &left_queue_us_, &prediction_us_})
        column->assign(count, 0);
    for (auto* column : {&active_at_, &run_at_, &promise_at_}) column->assign(count, kNone);
    backfilled_.assign(count, 0);
    began_.assign(count, 0);
    runs_.reserve(count);
    link_successors();
    history_ = past.run_times;
    view_.gittins = past.gittins;
    if (settings_->mtbf_us == 0) return;
    failures_of_job_.assign(count, 0);
    failures_of_node_.assign(nodes, 0);
    for (std::size_t node = 0; node < nodes; ++node) {
        const auto id = static_cast<std::int32_t>(node);
        events_.push({draw_time(kStreamFailure, id, settings_->mtbf_us), EventKind::failure, id, 0});
    }
}

std::unique_ptr<FullSimulator> FullSimulator::copy() const {
    std::unique_ptr<FullSimulator> copied(new FullSimulator(*this));
    copied->listener_ = nullptr;
    return copied;
}

Time FullSimulator::draw_time(std::uint64_t stream, std::int32_t node, Time mean_us) const {
    const double e =
        exponential(settings_->seed, stream, static_cast<std::uint64_t>(node), failures_of_node_[as_index(node)]);
    const double us = std::nearbyint(static_cast<double>(mean_us) * e);
    return std::max(Time{1}, static_cast<Time>(us));
}

bool FullSimulator::stale(const Event& event) const {
    const std::size_t i = as_index(event.id);
    switch (event.kind) {
        case EventKind::finish: return state_[i] != JobState::running || run_at_[i] != event.serial;
        case EventKind::stop: return state_[i] != JobState::stopping || run_at_[i] != event.serial;
        case EventKind::begin:
            if (event.serial < 0) return !promises_[as_index(~event.serial)].valid;
            return state_[i] != JobState::starting || run_at_[i] != event.serial;
        default: return false;
    }
}

// Whether jobs wait, and nothing will ever happen that could change what can start.
bool FullSimulator::stuck() const {
    return next_arrival_ == jobs_->submit_us.size() && view_.active.empty() && promised_ == 0 && nodes_down_ == 0 &&
           wake_us_ == kEndless;
}

Time FullSimulator::next_time() {
    while (!events_.empty() && stale(events_.top())) events_.pop();
    if (finished_ == jobs_->size() || stuck()) return kEndless;
    return std::min(next_happening(), wake_us_);
}

// Without the policy's wish to be woken.
Time FullSimulator::next_happening() const {
    Time next = next_arrival_ < jobs_->submit_us.size() ? jobs_->submit_us[next_arrival_] : kEndless;
    if (!events_.empty()) next = std::min(next, events_.top().time);
    next = std::min(next, next_backfill());
    if (settings_->ticks && !waiting_.empty()) {
        const Time before = std::max(view_.now_us, decides_from_us_ - 1);
        next = std::min(next, (before / settings_->reschedule_us + 1) * settings_->reschedule_us);
    }
    return next;
}

void FullSimulator::play(const Beginning& beginning) {
    if (!beginning.is_given()) return;
    decides_from_us_ = beginning.decides_from_us;
    GivenStarts given(*jobs_, beginning);
    for (wake_us_ = given.next_time(); next_time() < decides_from_us_; wake_us_ = given.next_time()) {
        next_instant();
        while (given.due(view_.now_us)) {
            const GivenStart start = given.take(view_.state);
            start_now(start.job, allocation_of(view_.state.spec(), jobs_->demand_of(as_index(start.job)), start.parts));
        }
    }
}

bool FullSimulator::next_instant() {
    const Time next = next_time();
    if (next == kEndless) return false;
    if (next > kLatest)
        throw std::overflow_error("the simulated time exceeds the simulator's clock (2^62 microseconds)");
    only_woken_ = next == wake_us_ && next < next_happening();
    view_.backfill_due = next == next_backfill();
    if (view_.backfill_due) {
        changed_ = false;
        calc_at_backfill_us_ = settings_->multifactor.calculated_us(next);
    }
    const Time calculated_us = settings_->multifactor.calculated_us(next);
    if (needs_.fair && calculated_us != view_.calculated_us)
        view_.fair_factor = association_usage_.factors(calculated_us, *settings_);
    view_.calculated_us = calculated_us;
    view_.now_us = next;
    ++view_.instant;
    view_.nodes_changed = false;
    wake_us_ = kEndless;
    std::fill(view_.finished_early.begin(), view_.finished_early.end(), std::uint8_t{0});
    view_.early_ends.clear();
    while (!events_.empty() && events_.top().time == next) {
        const Event event = events_.top();
        events_.pop();
        if (!stale(event)) handle(event);
    }
    std::sort(freed_.begin(), freed_.end());
    for (const JobId job : freed_) arrive(job);
    freed_.clear();
    while (next_arrival_ < jobs_->submit_us.size() && jobs_->submit_us[next_arrival_] == next)
        submit(static_cast<JobId>(next_arrival_++));
    return true;
}

void FullSimulator::handle(const Event& event) {
    switch (event.kind) {
        case EventKind::finish: return finish(event.id);
        case EventKind::repair: return repair_node(static_cast<std::int32_t>(event.id));
        case EventKind::failure: return fail_node(static_cast<std::int32_t>(event.id));
        case EventKind::stop: return stop_takes_effect(event.id);
        case EventKind::begin: break;
    }
    if (event.serial >= 0) return begin(event.id);
    const std::int64_t index = ~event.serial;
    Allocation allocation = promises_[as_index(index)].allocation;
    void_promise(index);
    view_.state.choose_gpus(jobs_->demand_of(as_index(event.id)), allocation.parts);
    take(event.id, allocation, view_.now_us);
    begin(event.id);
}

// --- Jobs that come after others: docs/contract/slurm.md, section 3 -----------------------------------------

void FullSimulator::link_successors() {
    if (jobs_->after_offset.empty()) return;
    const std::size_t count = jobs_->submit_us.size();
    waits_for_.assign(count, 0);
    successor_offset_.assign(count + 1, 0);
    for (const JobId job : jobs_->after) ++successor_offset_[as_index(job) + 1];
    std::partial_sum(successor_offset_.begin(), successor_offset_.end(), successor_offset_.begin());
    successors_.resize(jobs_->after.size());
    std::vector<std::int64_t> at = successor_offset_;
    for (std::size_t i = 0; i < count; ++i)
        for (std::int64_t k = jobs_->after_offset[i]; k < jobs_->after_offset[i + 1]; ++k) {
            successors_[as_index(at[as_index(jobs_->after[as_index(k)])]++)] = static_cast<JobId>(i);
            ++waits_for_[i];
        }
}

void FullSimulator::release_successors(JobId job) {
    if (waits_for_.empty()) return;
    for (std::int64_t k = successor_offset_[as_index(job)]; k < successor_offset_[as_index(job) + 1]; ++k) {
        const JobId next = successors_[as_index(k)];
        if (--waits_for_[as_index(next)] == 0 && static_cast<std::size_t>(next) < next_arrival_) freed_.push_back(next);
    }
}

void FullSimulator::submit(JobId job) {
    if (waits_for_.empty() || waits_for_[as_index(job)] == 0) arrive(job);
}

// --- What Slurm's scheduler does at its own times: docs/contract/slurm.md, sections 4 and 5 -----------------

// When the next backfill pass is made if nothing happens before.
Time FullSimulator::next_backfill() const {
    const SlurmBackfill& slurm = settings_->slurm;
    if (slurm.interval_us == 0 || waiting_.empty()) return kEndless;
    Time from = std::max(view_.now_us + 1, decides_from_us_);
    if (!changed_ && !slurm.always_changed) {
        if (!slurm.goes_by_calc) return kEndless;
        from = std::max(from, calc_at_backfill_us_ + settings_->multifactor.calc_us);
    }
    return (from + slurm.interval_us - 1) / slurm.interval_us * slurm.interval_us;
}

void FullSimulator::arrive(JobId job) {
    const std::size_t i = as_index(job);
    if (needs_.history)
        prediction_us_[i] = history_.predict(jobs_->user_of(i), jobs_->group_of(i), jobs_->demand_of(i).gpus);
    view_.mix.add(jobs_->demand_of(i));
    view_.arrivals.add(view_.now_us);
    queued_us_[i] = view_.now_us;
    enter_queue(job);
}

void FullSimulator::enter_queue(JobId job) {
    changed_ = true;
    state_[as_index(job)] = JobState::waiting;
    waiting_.insert(std::lower_bound(waiting_.begin(), waiting_.end(), job), job);
    if (listener_ != nullptr) listener_->entered(queued(job));
}

void FullSimulator::leave_queue(JobId job) {
    left_queue_us_[as_index(job)] = view_.now_us;
    waiting_.erase(std::lower_bound(waiting_.begin(), waiting_.end(), job));
    if (listener_ != nullptr) listener_->left(job);
}

QueuedJob FullSimulator::queued(JobId job) const {
    const std::size_t i = as_index(job);
    return {.job = job,
            .submit_us = jobs_->submit_us[i],
            .estimate_us = estimate_of(i),
            .demand = jobs_->demand[i],
            .user = jobs_->user_of(i),
            .group = jobs_->group_of(i),
            .association = jobs_->association_of(i),
            .qos = jobs_->qos_of(i),
            .priority = jobs_->priority_of(i),
            .deadline_us = jobs_->deadline_of(i),
            .row = jobs_->row_of(i),
            .queued_us = queued_us_[i],
            .prediction_us = prediction_us_[i],
            .done_us = done_us_[i],
            .attained_us = attained_us_[i],
            .promoted_us = promoted_us_[i]};
}

Snapshot FullSimulator::snapshot() const {
    // Without the parts of all runs so far, which the simulator keeps for the schedule: they grow with the log.
    Snapshot copy(static_cast<const SnapshotState&>(view_));
    copy.from_simulator = true;
    for (ActiveJob& job : copy.active) {
        const auto parts = view_.parts_of(job);
        job.first_part = copy.parts.size();
        copy.parts.insert(copy.parts.end(), parts.begin(), parts.end());
    }
    std::sort(copy.active.begin(), copy.active.end(), [](const ActiveJob& a, const ActiveJob& b) {
        return a.expected_end_us != b.expected_end_us ? a.expected_end_us < b.expected_end_us : a.job < b.job;
    });
    for (const JobId job : waiting_) copy.queue.push_back(queued(job));
    return copy;
}

}  // namespace gpuyard
