#include "env/environment.hpp"

#include <algorithm>
#include <stdexcept>

#include "base/index.hpp"

namespace gpuyard {

namespace {

// A cluster that stands for that of the first episode until it is known.
std::shared_ptr<const ClusterSpec> some_cluster() {
    static const auto cluster = std::make_shared<const ClusterSpec>(NodeColumns{}, std::span<const double>{}, false);
    return cluster;
}

template <class T>
void copy_slice(const std::vector<T>& from, std::int64_t first, std::int64_t count, std::vector<T>& to) {
    if (from.empty()) {
        to.clear();
        return;
    }
    const auto begin = from.begin() + first;
    to.assign(begin, begin + count);
}

}  // namespace

Environment::Environment(std::shared_ptr<const EnvSpec> spec)
    : spec_(std::move(spec)),
      jobs_(std::make_shared<JobTable>()),
      simulator_(some_cluster(), jobs_, *spec_->settings, {.running = true, .usage = false}),
      prospects_(spec_->base, *spec_->settings, spec_->asks_for_starts() || spec_->asks_for_drain()),
      occupancy_(spec_->tokens, spec_->lookahead),
      rewards_(*spec_),
      observer_(*spec_),
      placer_(spec_->base.placement, spec_->settings->seed),
      mask_(spec_->actions(), 0) {
    prospects_.placer().set_mix(&mix_);
    placer_.set_mix(&mix_);
}

// --- Episodes ---------------------------------------------------------------------------------------------

void Environment::load(const Episode& episode) {
    const JobTable& from = *episode.table->jobs;
    const std::int64_t first = episode.first, count = episode.count;
    const Time shift = from.submit_us[as_index(first)];
    if (episode.table != table_) jobs_->demands = from.demands;
    table_ = episode.table;
    copy_slice(from.submit_us, first, count, jobs_->submit_us);
    copy_slice(from.duration_us, first, count, jobs_->duration_us);
    copy_slice(from.estimate_us, first, count, jobs_->estimate_us);
    copy_slice(from.demand, first, count, jobs_->demand);
    copy_slice(from.priority, first, count, jobs_->priority);
    copy_slice(from.deadline_us, first, count, jobs_->deadline_us);
    copy_slice(from.user, first, count, jobs_->user);
    copy_slice(from.group, first, count, jobs_->group);
    copy_slice(from.association, first, count, jobs_->association);
    jobs_->row.resize(as_index(count));
    window_jobs_.assign(table_->window_jobs.begin() + first, table_->window_jobs.begin() + first + count);
    for (std::size_t i = 0; i < as_index(count); ++i) {
        jobs_->row[i] = from.row_of(as_index(first) + i);
        jobs_->submit_us[i] -= shift;
        if (!jobs_->deadline_us.empty() && jobs_->deadline_us[i] != kEndless) jobs_->deadline_us[i] -= shift;
        window_jobs_[i].job = static_cast<JobId>(i);
        window_jobs_[i].submit_us = jobs_->submit_us[i];
        window_jobs_[i].deadline_us = jobs_->deadline_of(i);
    }
    jobs_->users = from.users;
    jobs_->groups = from.groups;
    jobs_->origin_s = from.origin_s + seconds(shift);
    jobs_->epoch_us = from.epoch_us + shift;
    first_row_ = first;
    prediction_us_.assign(as_index(count), 0);
    if (keeps_history()) history_ = earlier_history();
}

// What the jobs before the episode tell, those that had ended by its beginning had they started at once.
RunTimeHistory Environment::earlier_history() const {
    RunTimeHistory history;
    const JobTable& from = *table_->jobs;
    const Time begin = from.submit_us[as_index(first_row_)];
    for (std::size_t i = 0; i < as_index(first_row_); ++i)
        if (from.submit_us[i] + from.duration_us[i] <= begin)
            history.add(from.user_of(i), from.group_of(i), from.demand_of(i).gpus, from.duration_us[i]);
    return history;
}

// The run time of a finished job that predictions go by.
Time Environment::counted_run(std::size_t job) const {
    const bool timed_out = simulator_.record().ending[job] == static_cast<std::uint8_t>(Ending::timeout);
    return timed_out ? std::min(jobs_->duration_us[job], jobs_->estimate_us[job]) : jobs_->duration_us[job];
}

// The predictions of all jobs that have arrived, where they are not kept up to date.
void Environment::find_predictions() {
    if (keeps_history()) return;
    RunTimeHistory history = earlier_history();
    const LeanSimulator::Record& record = simulator_.record();
    std::vector<std::pair<Time, JobId>> finished;
    for (std::size_t i = 0; i < jobs_->submit_us.size(); ++i)
        if (record.start_us[i] >= 0 && record.end_us[i] <= simulator_.now())
            finished.emplace_back(record.end_us[i], static_cast<JobId>(i));
    std::sort(finished.begin(), finished.end());
    auto next = finished.begin();
    for (std::size_t i = 0; i < jobs_->submit_us.size() && jobs_->submit_us[i] <= simulator_.now(); ++i) {
        for (; next != finished.end() && next->first <= jobs_->submit_us[i]; ++next) {
            const std::size_t done = as_index(next->second);
            history.add(jobs_->user_of(done), jobs_->group_of(done), jobs_->demand_of(done).gpus, counted_run(done));
        }
        prediction_us_[i] = history.predict(jobs_->user_of(i), jobs_->group_of(i), jobs_->demand_of(i).gpus);
    }
}

// Of the clock of the episode, which began at 0 with its first own job.
Time Environment::calculated_us() const { return begin_us_ + table_->settings->multifactor.calculated_us(clock()); }

void Environment::find_fair_factors() {
    const Time as_of = calculated_us();
    if (as_of == fair_factors_us_) return;
    fair_factors_us_ = as_of;
    accounts_.fair_factor = association_usage_.factors(as_of, *table_->settings);
}

void Environment::find_what_is_remembered_for(Order order) {
    if (traits_of(order).predicts()) find_predictions();
    if (traits_of(order).remembers == Memory::fair_factor) find_fair_factors();
}

void Environment::begin(const Episode& episode) {
    load(episode);
    const std::size_t count = as_index(episode.count);
    warmup_ = episode.warmup;
    own_to_ = episode.count - episode.cooldown;
    finished_ = 0;
    oldest_ = 0;
    begin_us_ = jobs_->submit_us[as_index(warmup_)];
    simulator_.reset(table_->empty, jobs_);
    const Order order = spec_->base.order;
    scores_.clear();
    if (has_static_ranks() && order != Order::fifo) {
        const Moment moment{.now_us = 0,
                            .instant = 0,
                            .seed = 0,
                            .origin_s = jobs_->origin_s,
                            .order_parameter = spec_->base.order_parameter};
        for (std::size_t i = 0; i < count; ++i)
            scores_.push_back(score(order, simulator_.scored(static_cast<JobId>(i), 0.0), moment));
    }
    waiting_.reset(count, scores_);
    const std::size_t users = as_index(jobs_->users), groups = as_index(jobs_->groups);
    accounts_.open(users, groups, *table_->settings);
    association_usage_.open(accounts_.fair_factor.size());
    fair_factors_us_ = 0;
    user_share_.assign(users, 0.0F);
    group_share_.assign(groups, 0.0F);
    rows_are_window_ = false;
    held_.assign(count, 0);
    held_jobs_.clear();
    no_host_.assign(jobs_->demands.size(), 0);
    queue_seen_.assign(as_index(table_->cluster->queues), 0);
    mix_.classes.clear();
    arrivals_ = {};
    prospects_.reset(simulator_.state(), jobs_->demands, table_->scale);
    occupancy_.reset(simulator_.state(), table_->scale);
    rewards_.reset(*jobs_, simulator_.state(), warmup_, own_to_);
    metrics_.reset();
    waiting_milli_ = running_ = steps_ = 0;
    step_began_us_ = begin_us_;
    total_reward_ = 0.0;
    horizon_s_ = kNoHorizon;
    if (spec_->horizon_factor > 0.0) {
        const ClusterSpec& cluster = *table_->cluster;
        const auto capacity = static_cast<double>(rewards_.counts_gpus() ? static_cast<std::int64_t>(cluster.total_gpus)
                                                                         : cluster.given_cpus);
        horizon_s_ = seconds(jobs_->submit_us[as_index(own_to_ - 1)] - begin_us_) +
                     quotient(spec_->horizon_factor * rewards_.own_work(), capacity);
    }
    warm_up(begin_us_);
    advance();
    rewards_.forget();
    metrics_.reset();
    settle();
}

void Environment::warm_up(Time until_us) {
    while (warmup_ > 0 && simulator_.next_time() < until_us) {
        advance();
        for (;;) {
            gather(window_jobs_.size());
            prospects_.try_rows(simulator_.state(), rows_);
            prospects_.look(simulator_.now(), simulator_.state(), rows_, {},
                            [this](std::int32_t q) { return simulator_.running(q); });
            const std::int32_t row = prospects_.base_choice();
            if (row < 0) break;
            allocation_ = prospects_.fit(as_index(row)).allocation;
            start(rows_[as_index(row)]->job, allocation_);
        }
    }
}

// --- Events -----------------------------------------------------------------------------------------------

// A job begins (+1) or ceases (-1) to hold what it asked for.
void Environment::account(JobId job, std::int64_t sign) {
    const std::size_t i = as_index(job);
    const auto user = as_index(jobs_->user_of(i)), group = as_index(jobs_->group_of(i));
    running_ += sign;
    accounts_.enter(simulator_.now(), *table_->settings, demand_of(job),
                    {.user = jobs_->user_of(i), .group = jobs_->group_of(i)}, sign);
    association_usage_.change(simulator_.now(), jobs_->association_of(i), sign * demand_of(job).total_milli());
    const auto share = [&](std::int64_t held) {
        return static_cast<float>(quotient(static_cast<double>(held) / 1000.0, table_->scale.gpus));
    };
    user_share_[user] = share(accounts_.user_holdings[user].milli);
    group_share_[group] = share(accounts_.group_milli[group]);
}

void Environment::finished(JobId job, Time expected_end_us) {
    const std::size_t i = as_index(job);
    const Demand& demand = demand_of(job);
    const auto parts = simulator_.parts_of(job);
    ++releases_;
    if (job < own_to_) ++finished_;
    account(job, -1);
    prospects_.finished(demand.queue, expected_end_us, simulator_.now());
    occupancy_.finished(job, demand, parts, simulator_.record().first_part[i], expected_end_us);
    rewards_.finished(job, parts, simulator_.record().ending[i] == static_cast<std::uint8_t>(Ending::completed));
    if (keeps_history()) history_.add(jobs_->user_of(i), jobs_->group_of(i), demand.gpus, counted_run(i));
}

void Environment::arrived(JobId job) {
    const std::size_t i = as_index(job);
    const Demand& demand = demand_of(job);
    if (keeps_history()) prediction_us_[i] = history_.predict(jobs_->user_of(i), jobs_->group_of(i), demand.gpus);
    if (spec_->settings->predict) {
        jobs_->estimate_us[i] = prediction_us_[i];
        window_jobs_[i] = make_window_job(queued(job), demand, spec_->base.placement, *table_->cluster, table_->scale);
    }
    waiting_.insert(job);
    rows_are_window_ = false;
    waiting_milli_ += demand.total_milli();
    arrivals_.add(simulator_.now());
    mix_.add(demand);
    if (spec_->base.placement == Placement::fgd) prospects_.resources_changed();
    rewards_.arrived(job);
}

void Environment::start(JobId job, const Allocation& allocation) {
    const std::size_t i = as_index(job);
    const Demand& demand = demand_of(job);
    simulator_.start(job, allocation, false);
    const Time expected = simulator_.expected_end_of(job);
    waiting_.erase(job);
    take_out_of_window(job);
    waiting_milli_ -= demand.total_milli();
    account(job, +1);
    prospects_.started(window_jobs_[i], allocation, expected);
    occupancy_.started(job, demand, simulator_.parts_of(job), simulator_.record().first_part[i], expected);
    rewards_.started(job, simulator_.parts_of(job));
}

// --- Time -------------------------------------------------------------------------------------------------

// Time moves: nothing is held back any more.
void Environment::let_go() {
    for (const JobId job : held_jobs_) held_[as_index(job)] = 0;
    held_jobs_.clear();
}

void Environment::advance() {
    const Time next = simulator_.next_time();
    if (next > simulator_.now()) {
        rewards_.pass(simulator_.now(), next);
        metrics_.pass(simulator_.state(), seconds(next - simulator_.now()));
    }
    simulator_.next_instant(*this);
    let_go();
}

void Environment::advance_to(Time time_us) {
    while (!ended() && simulator_.next_time() <= time_us) advance();
    if (ended() || simulator_.now() >= time_us) return;
    rewards_.pass(simulator_.now(), time_us);
    metrics_.pass(simulator_.state(), seconds(time_us - simulator_.now()));
    simulator_.wait_until(time_us);
    let_go();
}

void Environment::advance_by_mode() {
    if (spec_->step_mode != StepMode::tick) return advance();
    const Time tick = spec_->tick_us;
    advance_to(begin_us_ + ((simulator_.now() - begin_us_) / tick + 1) * tick);
}

bool Environment::offered() const {
    if (spec_->step_mode == StepMode::blocking) return !rows_.empty();
    const bool may_only_wait = spec_->kind == EnvKind::select_job || spec_->kind == EnvKind::select_job_and_pool;
    return real_legal_ > 0 || (may_only_wait && spec_->step_mode != StepMode::instant);
}

// Moves on until a state is offered or the episode is over.
void Environment::settle() {
    for (;;) {
        glance();
        if (ended() || offered()) return look();
        if (!event_pending()) throw std::logic_error("jobs are left waiting on an idle cluster");
        advance_by_mode();
    }
}

}  // namespace gpuyard
