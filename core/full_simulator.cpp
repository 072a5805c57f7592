#include "full_simulator.hpp"

#include <cmath>
#include <stdexcept>
#include <string>

#include "rng.hpp"

namespace gpuyard {

namespace {

constexpr std::int32_t kMostFailures = 100'000;

std::size_t as_index(std::int64_t i) { return static_cast<std::size_t>(i); }

}  // namespace

FullSimulator::FullSimulator(std::shared_ptr<const ClusterSpec> cluster, std::shared_ptr<const JobTable> jobs,
                             std::shared_ptr<const Settings> settings, Needs needs, std::span<const PastJob> past)
    : jobs_(std::move(jobs)), settings_(std::move(settings)), needs_(needs), view_(ClusterState(cluster)) {
    const std::size_t count = jobs_->submit_us.size();
    const std::size_t nodes = cluster->node_count();
    view_.origin_s = jobs_->origin_s;
    view_.settings = settings_;
    view_.demands = std::shared_ptr<const std::vector<Demand>>(jobs_, &jobs_->demands);
    view_.user_usage.resize(as_index(jobs_->users));
    view_.group_usage.resize(as_index(jobs_->groups));
    view_.user_holdings.resize(as_index(jobs_->users));
    view_.quota_held_milli.assign(settings_->quota_milli.size(), 0);
    view_.finished_early.assign(as_index(cluster->queues), 0);
    view_.power = {std::vector<std::int32_t>(nodes, 0), std::vector<Time>(nodes, 0), std::vector<Time>(nodes, 0)};
    view_.instant = ~std::uint64_t{0};  // the first instant is 0
    state_.assign(count, JobState::unborn);
    for (auto* column : {&done_us_, &attained_us_, &promoted_us_, &queued_us_, &left_queue_us_, &prediction_us_}) column->assign(count, 0);
    for (auto* column : {&active_at_, &run_at_, &promise_at_}) column->assign(count, kNone);
    backfilled_.assign(count, 0);
    began_.assign(count, 0);
    runs_.reserve(count);
    for (const PastJob& job : past) {
        history_.add(job.user, job.group, job.gpus, job.run_us);
        view_.gittins.add(GittinsHistory::gpu_seconds(job.run_us, job.milli));
    }
    if (settings_->mtbf_us == 0) return;
    failures_of_job_.assign(count, 0);
    failures_of_node_.assign(nodes, 0);
    for (std::size_t node = 0; node < nodes; ++node) {
        const auto id = static_cast<std::int32_t>(node);
        events_.push({draw_time(kStreamFailure, id, settings_->mtbf_us), EventKind::failure, id, 0});
    }
}

Time FullSimulator::draw_time(std::uint64_t stream, std::int32_t node, Time mean_us) const {
    const double u = uniform(settings_->seed, stream, static_cast<std::uint64_t>(node), failures_of_node_[as_index(node)]);
    const double us = std::nearbyint(static_cast<double>(mean_us) * -std::log(1.0 - u));
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
    return next_arrival_ == jobs_->submit_us.size() && view_.active.empty() && promised_ == 0 && nodes_down_ == 0 && wake_us_ == kEndless;
}

Time FullSimulator::next_time() {
    while (!events_.empty() && stale(events_.top())) events_.pop();
    if (finished_ == jobs_->size() || stuck()) return kEndless;
    Time next = next_arrival_ < jobs_->submit_us.size() ? jobs_->submit_us[next_arrival_] : kEndless;
    if (!events_.empty()) next = std::min(next, events_.top().time);
    next = std::min(next, wake_us_);
    if (settings_->ticks && !waiting_.empty())
        next = std::min(next, (view_.now_us / settings_->reschedule_us + 1) * settings_->reschedule_us);
    return next;
}

bool FullSimulator::next_instant() {
    const Time next = next_time();
    if (next == kEndless) return false;
    if (next > kLatest) throw std::overflow_error("the simulated time exceeds the simulator's clock (2^62 microseconds)");
    view_.now_us = next;
    ++view_.instant;
    view_.nodes_changed = false;
    wake_us_ = kEndless;
    std::fill(view_.finished_early.begin(), view_.finished_early.end(), std::uint8_t{0});
    while (!events_.empty() && events_.top().time == next) {
        const Event event = events_.top();
        events_.pop();
        if (!stale(event)) handle(event);
    }
    while (next_arrival_ < jobs_->submit_us.size() && jobs_->submit_us[next_arrival_] == next)
        arrive(static_cast<JobId>(next_arrival_++));
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

void FullSimulator::arrive(JobId job) {
    const std::size_t i = as_index(job);
    if (needs_.history)
        prediction_us_[i] = history_.predict(jobs_->user_of(i), jobs_->group_of(i), jobs_->demand_of(i).gpus);
    view_.mix.add(jobs_->demand_of(i));
    queued_us_[i] = view_.now_us;
    enter_queue(job);
}

void FullSimulator::enter_queue(JobId job) {
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
    return {job,           jobs_->submit_us[i],   estimate_of(i),     jobs_->demand[i], jobs_->user_of(i),  jobs_->group_of(i),
            jobs_->priority_of(i), jobs_->deadline_of(i), jobs_->row_of(i), queued_us_[i],    prediction_us_[i], done_us_[i],
            attained_us_[i], promoted_us_[i]};
}

Snapshot FullSimulator::snapshot() const {
    Snapshot copy(view_.state);
    copy = view_;
    copy.parts.clear();
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

// --- Starting ---------------------------------------------------------------------------------------------

Allocation FullSimulator::allocation_of(const Demand& demand, std::span<const Part> parts) const {
    const ClusterSpec& spec = view_.state.spec();
    Allocation allocation;
    allocation.parts.assign(parts.begin(), parts.end());
    if (demand.gpus == 0) return allocation;
    std::int32_t largest = 0;
    for (std::size_t k = 0; k < parts.size(); ++k) {
        const Pool& pool = spec.pools[as_index(spec.pool[as_index(parts[k].node)])];
        allocation.speed = k == 0 ? pool.speed : std::min(allocation.speed, pool.speed);
        largest = std::max(largest, pool.size);
    }
    allocation.fewest_nodes = (demand.gpus + largest - 1) / largest;
    return allocation;
}

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
        Allocation allocation = allocation_of(jobs_->demand_of(i), start.parts);
        if (start.stops.empty() && state_[i] == JobState::waiting) {
            start_now(start.job, allocation);
            continue;
        }
        Time effect = view_.now_us + 1;
        for (const JobId victim : start.stops)
            effect = std::max(effect, view_.now_us + settings_->checkpoint_of(jobs_->demand_of(as_index(victim))));
        if (state_[i] == JobState::stopping) effect = run_of(start.job).released_us;  // moved: it begins when its stop takes effect
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
    promises_.push_back({job, std::move(allocation), true});
}

void FullSimulator::void_promise(std::int64_t index) {
    Promise& promise = promises_[as_index(index)];
    promise.valid = false;
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
void FullSimulator::take(JobId job, const Allocation& allocation, Time begin_us) {
    const std::size_t i = as_index(job);
    const Demand& demand = jobs_->demand_of(i);
    const Time now = view_.now_us;
    view_.state.hold(demand, allocation.parts);
    for (const Part& part : allocation.parts) use_node(part.node, +1);
    if (needs_.usage) {
        view_.user_usage[as_index(jobs_->user_of(i))].change(now, settings_->usage_half_life_s, demand.total_milli());
        view_.group_usage[as_index(jobs_->group_of(i))].change(now, settings_->usage_half_life_s, demand.total_milli());
    }
    if (needs_.holdings) view_.user_holdings[as_index(jobs_->user_of(i))].add(demand, +1);
    if (!settings_->quota_milli.empty())
        view_.quota_held_milli[as_index(settings_->quota_of_group[as_index(jobs_->group_of(i))])] += demand.total_milli();

    const auto nodes = static_cast<std::int32_t>(allocation.parts.size());
    const double excess = static_cast<double>(nodes - allocation.fewest_nodes) / static_cast<double>(allocation.fewest_nodes);
    const double slowdown = (1.0 / allocation.speed) * (1.0 + settings_->locality_penalty * excess);
    const Time restore = done_us_[i] > 0 ? settings_->restore_of(demand) : 0;
    const Time estimate = estimate_of(i);
    const Time left = estimate == kEndless ? kEndless : std::max(Time{1}, estimate - done_us_[i]);
    const Time expected = expected_end(begin_us + restore, allocation.run_time(left, settings_->locality_penalty));
    const std::size_t first = view_.parts.size();
    view_.parts.insert(view_.parts.end(), allocation.parts.begin(), allocation.parts.end());
    active_at_[i] = std::ssize(view_.active);
    view_.active.push_back({job, estimate, jobs_->demand[i], jobs_->row_of(i), RunState::starting, begin_us, restore, slowdown, expected, done_us_[i],
                            attained_us_[i], promoted_us_[i], first, static_cast<std::uint32_t>(nodes)});
    run_at_[i] = std::ssize(runs_);
    runs_.push_back({job, now, -1, -1, -1, restore, 0, RunEnding::completed, first, static_cast<std::uint32_t>(nodes)});
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
    if (needs_.usage) {
        view_.user_usage[as_index(jobs_->user_of(i))].change(now, settings_->usage_half_life_s, -demand.total_milli());
        view_.group_usage[as_index(jobs_->group_of(i))].change(now, settings_->usage_half_life_s, -demand.total_milli());
    }
    if (needs_.holdings) view_.user_holdings[as_index(jobs_->user_of(i))].add(demand, -1);
    if (!settings_->quota_milli.empty())
        view_.quota_held_milli[as_index(settings_->quota_of_group[as_index(jobs_->group_of(i))])] -= demand.total_milli();
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
    if (active.expected_end_us > view_.now_us) view_.finished_early[as_index(demand.queue)] = 1;
    release(job);
    state_[i] = JobState::finished;
    ++finished_;
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
    for (std::size_t index = 0; index < promises_.size(); ++index) {
        if (!promises_[index].valid || !uses(promises_[index].allocation.parts)) continue;
        const JobId job = promises_[index].job;
        void_promise(static_cast<std::int64_t>(index));
        if (state_[as_index(job)] == JobState::promised) enter_queue(job);
    }
    view_.state.take_offline(node);
    view_.nodes_changed = true;
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
        throw std::runtime_error("job " + std::to_string(job) + " was hit by " + std::to_string(kMostFailures) +
                                 " node failures and may never finish: checkpoint more often or let nodes fail less");
    enter_queue(job);
}

void FullSimulator::repair_node(std::int32_t node) {
    view_.state.bring_online(node);
    view_.nodes_changed = true;
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
