// Runs from start to end, and the nodes that they need: the second half of FullSimulator.
#include <stdexcept>
#include <string>

#include "base/index.hpp"
#include "base/rng.hpp"
#include "simulator/full_simulator.hpp"

namespace gpuyard {

namespace {

constexpr std::int32_t kMostFailures = 100'000;
constexpr std::int64_t kMostIdleFailures = 1'000'000;

}  // namespace

// --- Starting ---------------------------------------------------------------------------------------------

// When all of these nodes are awake; those that sleep begin to wake now.
Time FullSimulator::awake_time(std::span<const Part> parts) {
    if (settings_->sleep_after_us < 0) return view_.now_us;
    Time awake = view_.now_us;
    for (const Part& part : parts) {
        const std::size_t node = as_index(part.node);
        if (view_.power.asleep(node, view_.now_us, settings_->sleep_after_us))
            view_.power.awake_at_us[node] = view_.now_us + settings_->wake_us;
        awake = std::max(awake, view_.power.awake_at_us[node]);
    }
    return awake;
}

void FullSimulator::apply(const Decision& decision) {
    for (const Start& start : decision.starts) {
        const std::size_t i = as_index(start.job);
        if (!began_[i]) backfilled_[i] = start.backfilled ? 1 : 0;
        Allocation allocation = allocation_of(view_.state.spec(), jobs_->demand_of(i), start.parts);
        if (start.stops.empty() && state_[i] == JobState::waiting) {
            start_now(start.job, allocation);
            continue;
        }
        Time effect = view_.now_us + 1;
        for (const JobId victim : start.stops)
            effect = std::max(effect, view_.now_us + settings_->checkpoint_of(jobs_->demand_of(as_index(victim))));
        if (state_[i] == JobState::stopping)
            effect = run_of(start.job).released_us;  // moved: it begins when its stop takes effect
        for (const JobId victim : start.stops) stop(victim, effect);
        promise(start.job, std::move(allocation), std::max(effect, awake_time(start.parts)));
    }
    view_.reservations = decision.reservations;
    wake_us_ = decision.wake_us;
}

void FullSimulator::start_now(JobId job, const Allocation& allocation) {
    const Time begins = awake_time(allocation.parts);
    leave_queue(job);
    take(job, allocation, begins);
    if (begins == view_.now_us)
        begin(job);
    else
        events_.push({begins, EventKind::begin, job, run_at_[as_index(job)]});
}

void FullSimulator::promise(JobId job, Allocation allocation, Time begin_us) {
    if (state_[as_index(job)] == JobState::waiting) {
        leave_queue(job);
        state_[as_index(job)] = JobState::promised;
    }
    for (const Part& part : allocation.parts) {
        view_.state.take_offline(part.node);
        use_node(part.node, +1);
    }
    ++promised_;
    promise_at_[as_index(job)] = std::ssize(promises_);
    events_.push({begin_us, EventKind::begin, job, ~std::ssize(promises_)});
    live_promises_.push_back(std::ssize(promises_));
    promises_.push_back({job, std::move(allocation), true});
}

void FullSimulator::void_promise(std::int64_t index) {
    Promise& promise = promises_[as_index(index)];
    promise.valid = false;
    std::erase(live_promises_, index);
    promise_at_[as_index(promise.job)] = kNone;
    --promised_;
    for (const Part& part : promise.allocation.parts) {
        view_.state.bring_online(part.node);
        use_node(part.node, -1);
    }
    promise.allocation = {};
}

void FullSimulator::use_node(std::int32_t node, std::int32_t change) {
    std::int32_t& users = view_.power.users[as_index(node)];
    users += change;
    if (users == 0) view_.power.idle_since_us[as_index(node)] = view_.now_us;
}

// Takes the allocation for a run that begins at `begin_us`.
// A job begins (+1) or ceases (-1) to hold what it asked for.
void FullSimulator::enter_books(JobId job, std::int64_t sign) {
    const Demand& demand = jobs_->demand_of(as_index(job));
    const Holder holder = holder_of(as_index(job));
    view_.enter(view_.now_us, *settings_, demand, holder, sign, needs_);
    if (needs_.fair) association_usage_.change(view_.now_us, holder.association, sign * demand.total_milli());
}

void FullSimulator::take(JobId job, const Allocation& allocation, Time begin_us) {
    const std::size_t i = as_index(job);
    const Demand& demand = jobs_->demand_of(i);
    const Time now = view_.now_us;
    idle_failures_ = 0;
    view_.state.hold(demand, allocation.parts);
    for (const Part& part : allocation.parts) use_node(part.node, +1);
    enter_books(job, +1);
    changed_ = true;

    const Time restore = done_us_[i] > 0 ? settings_->restore_of(demand) : 0;
    ActiveJob active = begun(queued(job), begin_us);
    active.state = RunState::starting;
    active.restore_us = restore;
    active.run_on(allocation, settings_->locality_penalty);
    const Time left = active.left_us();
    const std::size_t first = view_.parts.size();
    active_at_[i] = std::ssize(view_.active);
    view_.add_active(active, allocation.parts);
    run_at_[i] = std::ssize(runs_);
    runs_.push_back({.job = job,
                     .taken_us = now,
                     .restore_us = restore,
                     .first_part = first,
                     .part_count = static_cast<std::uint32_t>(allocation.parts.size())});
    state_[i] = JobState::starting;

    Time run = allocation.run_time(jobs_->duration_us[i] - done_us_[i], settings_->locality_penalty);
    if (settings_->kill_at_estimate && left != kEndless) {
        const Time allowed = allocation.run_time(left, settings_->locality_penalty);
        if (allowed < run) {
            run = allowed;
            runs_.back().ending = RunEnding::timeout;
        }
    }
    if (begin_us > kLatest - run - restore)
        throw std::overflow_error("the simulated time exceeds the simulator's clock (2^62 microseconds)");
    runs_.back().stop_us = begin_us + restore + run;
}

void FullSimulator::begin(JobId job) {
    const std::size_t i = as_index(job);
    state_[i] = JobState::running;
    began_[i] = 1;
    if (left_queue_us_[i] - queued_us_[i] >= settings_->starvation_us) promoted_us_[i] = attained_us_[i];
    Run& run = run_of(job);
    run.begin_us = view_.now_us;
    ActiveJob& active = active_of(job);
    active.state = RunState::running;
    active.promoted_us = promoted_us_[i];
    events_.push({run.stop_us, EventKind::finish, job, run_at_[i]});
}

// --- Ending -----------------------------------------------------------------------------------------------

void FullSimulator::stop(JobId job, Time effect_us) {
    Run& run = run_of(job);
    run.stop_us = view_.now_us;
    run.released_us = effect_us;
    run.ending = RunEnding::stopped;
    state_[as_index(job)] = JobState::stopping;
    active_of(job).state = RunState::stopping;
    active_of(job).stop_us = view_.now_us;
    events_.push({effect_us, EventKind::stop, job, run_at_[as_index(job)]});
}

// Gives back what the job holds. Its run is over.
void FullSimulator::release(JobId job) {
    const std::size_t i = as_index(job);
    const Demand& demand = jobs_->demand_of(i);
    const Time now = view_.now_us;
    Run& run = run_of(job);
    run.released_us = now;
    const auto parts = parts_of(run);
    view_.state.release(demand, parts);
    for (const Part& part : parts) use_node(part.node, -1);
    enter_books(job, -1);
    changed_ = true;
    const std::size_t at = as_index(active_at_[i]);
    view_.active[at] = view_.active.back();
    active_at_[as_index(view_.active[at].job)] = static_cast<std::int64_t>(at);
    view_.active.pop_back();
    active_at_[i] = kNone;
}

void FullSimulator::finish(JobId job) {
    const std::size_t i = as_index(job);
    const ActiveJob active = active_of(job);
    const Demand& demand = jobs_->demand_of(i);
    attained_us_[i] += active.progress_us(view_.now_us);
    if (active.expected_end_us > view_.now_us) {
        view_.finished_early[as_index(demand.queue)] = 1;
        const auto parts = view_.parts_of(active);
        view_.early_ends.push_back({active.demand, active.expected_end_us, {parts.begin(), parts.end()}});
    }
    release(job);
    state_[i] = JobState::finished;
    ++finished_;
    release_successors(job);
    if (!needs_.history) return;
    const bool timeout = run_of(job).ending == RunEnding::timeout;
    const Time ran = timeout ? std::min(jobs_->duration_us[i], estimate_of(i)) : jobs_->duration_us[i];
    history_.add(jobs_->user_of(i), jobs_->group_of(i), demand.gpus, ran);
    view_.gittins.add(GittinsHistory::gpu_seconds(attained_us_[i], demand.total_milli()));
}

// Credits a run that did not finish with its progress, of which the work of `kept_us` is kept.
void FullSimulator::keep_work(JobId job, Time progress_us, Time kept_us) {
    const std::size_t i = as_index(job);
    const double slowdown = active_of(job).slowdown;
    done_us_[i] = std::min(done_us_[i] + work_done(kept_us, slowdown), jobs_->duration_us[i] - 1);
    attained_us_[i] += progress_us;
    run_of(job).lost_us = work_done(progress_us, slowdown) - work_done(kept_us, slowdown);
}

void FullSimulator::stop_takes_effect(JobId job) {
    const std::size_t i = as_index(job);
    const Run& run = run_of(job);
    const Time progress = std::max(Time{0}, run.stop_us - (run.begin_us + run.restore_us));
    keep_work(job, progress, progress);
    release(job);
    queued_us_[i] = view_.now_us;
    if (promise_at_[i] == kNone)
        enter_queue(job);
    else {
        state_[i] = JobState::promised;  // moved: it does not wait
        left_queue_us_[i] = view_.now_us;
    }
}

// --- Nodes ------------------------------------------------------------------------------------------------

void FullSimulator::fail_node(std::int32_t node) {
    const auto uses = [&](std::span<const Part> parts) {
        return std::any_of(parts.begin(), parts.end(), [&](const Part& part) { return part.node == node; });
    };
    std::vector<JobId> failing;
    for (const ActiveJob& job : view_.active)
        if (uses(view_.parts_of(job))) failing.push_back(job.job);
    std::sort(failing.begin(), failing.end());
    for (const JobId job : failing) fail_run(job);
    for (const std::int64_t index : std::vector<std::int64_t>(live_promises_)) {
        if (!uses(promises_[as_index(index)].allocation.parts)) continue;
        const JobId job = promises_[as_index(index)].job;
        void_promise(index);
        if (state_[as_index(job)] == JobState::promised) enter_queue(job);
    }
    if (++idle_failures_ > kMostIdleFailures && !waiting_.empty())
        throw EndlessFailures(
            "job " + std::to_string(waiting_.front()) + " waits, and nothing has started or finished over " +
            std::to_string(kMostIdleFailures) +
            " node failures: so many nodes as it needs may never be up together; let nodes fail less or repair faster");
    view_.state.take_offline(node);
    view_.nodes_changed = true;
    changed_ = true;
    ++nodes_down_;
    down_.push_back({node, view_.now_us, -1});
    events_.push({view_.now_us + draw_time(kStreamRepair, node, settings_->mttr_us), EventKind::repair, node, 0});
    ++failures_of_node_[as_index(node)];
}

void FullSimulator::fail_run(JobId job) {
    const std::size_t i = as_index(job);
    if (promise_at_[i] != kNone) void_promise(promise_at_[i]);
    if (state_[i] == JobState::starting) {  // as if it had not started
        release(job);
        enter_queue(job);
        return;
    }
    Run& run = run_of(job);
    if (state_[i] == JobState::running) run.stop_us = view_.now_us;
    run.ending = RunEnding::failed;
    const Time progress = std::max(Time{0}, run.stop_us - (run.begin_us + run.restore_us));
    const Time every = settings_->checkpoint_every_us;
    keep_work(job, progress, every > 0 ? progress - progress % every : 0);
    release(job);
    queued_us_[i] = view_.now_us;
    if (++failures_of_job_[i] >= kMostFailures)
        throw EndlessFailures("job " + std::to_string(job) + " was hit by " + std::to_string(kMostFailures) +
                              " node failures and may never finish: checkpoint more often or let nodes fail less");
    enter_queue(job);
}

void FullSimulator::repair_node(std::int32_t node) {
    view_.state.bring_online(node);
    view_.nodes_changed = true;
    changed_ = true;
    --nodes_down_;
    view_.power.idle_since_us[as_index(node)] = view_.now_us;
    view_.power.awake_at_us[as_index(node)] = view_.now_us;
    for (auto down = down_.rbegin(); down != down_.rend(); ++down)
        if (down->node == node) {
            down->to_us = view_.now_us;
            break;
        }
    events_.push({view_.now_us + draw_time(kStreamFailure, node, settings_->mtbf_us), EventKind::failure, node, 0});
}

std::vector<Downtime> FullSimulator::downtime(Time end_us) const {
    std::vector<Downtime> all;
    for (Downtime down : down_) {
        if (down.from_us >= end_us) continue;
        down.to_us = down.to_us < 0 ? end_us : std::min(down.to_us, end_us);
        all.push_back(down);
    }
    return all;
}

}  // namespace gpuyard
