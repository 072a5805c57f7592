// What the actions of an Environment do, and what a step is worth.
#include <algorithm>
#include <cmath>
#include <stdexcept>

#include "base/index.hpp"
#include "env/environment.hpp"
#include "simulator/lean_run.hpp"

namespace gpuyard {

std::int64_t Environment::legal_instead(std::int64_t action) const {
    if (legal(action)) return action;
    if (!spec_->chooses_host() && legal(noop())) return noop();
    return std::find(mask_.begin(), mask_.end(), std::int8_t{1}) - mask_.begin();
}

StepResult Environment::step(std::int64_t action) {
    if (ended()) return finish_step(0.0);  // it was over before its first state could be offered
    double penalty = 0.0;
    if (!legal(action)) {
        action = legal_instead(action);
        penalty = spec_->invalid_penalty;
    }
    if (is_noop(action) && real_legal_ > 0) rewards_.add(Term::idle_while_feasible, -rewards_.waiting_share());
    act(action);
    settle();
    const Time passed = simulator_.now() - step_began_us_;
    step_began_us_ = simulator_.now();
    if (spec_->weight(Term::backlog) != 0.0)
        rewards_.add(Term::backlog, -(quotient(seconds(passed), horizon_s_) * backlog()));
    return finish_step(penalty);
}

// The share of the episode's work that waits or is left of what runs.
double Environment::backlog() const {
    double sum = rewards_.waiting_share();
    const LeanSimulator::Record& record = simulator_.record();
    const Time now = simulator_.now();
    for (std::size_t i = 0; i < jobs_->submit_us.size(); ++i) {
        if (record.start_us[i] < 0 || record.end_us[i] <= now) continue;
        sum += rewards_.share(static_cast<JobId>(i)) *
               (seconds(record.end_us[i] - now) / seconds(record.end_us[i] - record.start_us[i]));
    }
    return sum;
}

StepResult Environment::step_ranked(std::span<const float> priorities) {
    if (ended()) return step(0);
    std::int64_t best = -1;
    for (std::size_t host = 0; host < mask_.size(); ++host)
        if (mask_[host] && (best < 0 || priorities[host] > priorities[as_index(best)]))
            best = static_cast<std::int64_t>(host);
    return step(best);
}

StepResult Environment::finish_step(double penalty) {
    ++steps_;
    StepResult result;
    result.terminated = all_finished();
    result.truncated = !result.terminated && (past_horizon() || (spec_->max_steps > 0 && steps_ >= spec_->max_steps));
    if (result.done()) {
        if (spec_->weight(Term::finish_early) != 0.0)
            rewards_.add(Term::finish_early, result.terminated
                                                 ? std::max(0.0, quotient(horizon_s_ - seconds(clock()), horizon_s_))
                                                 : -rewards_.unfinished_share());
        if (spec_->weight(Term::versus_baseline) != 0.0)
            rewards_.add(Term::versus_baseline, result.terminated ? baseline_value() : -1.0);
    }
    result.reward = rewards_.take() - penalty;
    total_reward_ += result.reward;
    return result;
}

double Environment::baseline_value() const {
    std::vector<double> values(kEpisodeMetrics.size());
    EpisodeMetrics metrics;
    metrics.compute(simulator_, warmup_, own_to_, begin_us_, values.data());
    const double own = values[spec_->baseline_metric];
    LeanSimulator base(table_->cluster, jobs_, *table_->settings, tracking_for(*spec_->baseline));
    run_policy(base, *spec_->baseline, {}, {});
    metrics.compute(base, 0, own_to_, 0, values.data());
    const double theirs = values[spec_->baseline_metric];
    if (std::isnan(own) || std::isnan(theirs)) return 0.0;  // such as the use of GPUs that are not there
    const double gain = (theirs - own) / std::max({theirs, own, 1.0});
    return kEpisodeMetrics[spec_->baseline_metric] == "gpu_utilization" ? -gain : gain;
}

void Environment::act(std::int64_t action) {
    const bool moves =
        spec_->step_mode == StepMode::event || (spec_->step_mode == StepMode::tick && !spec_->chooses_host());
    if (is_noop(action)) {
        if (spec_->kind == EnvKind::accept_or_skip && spec_->step_mode == StepMode::instant) {
            const JobId job = rows_[as_index(prospects_.base_choice())]->job;
            held_[as_index(job)] = 1;
            held_jobs_.push_back(job);
            return;
        }
        return advance_by_mode();
    }
    switch (spec_->kind) {
        case EnvKind::select_job:
        case EnvKind::select_job_and_pool: {
            const bool by_pool = spec_->kind == EnvKind::select_job_and_pool;
            const auto pools = static_cast<std::int64_t>(by_pool ? spec_->sizes.pools : 1);
            const JobId job = rows_[as_index(action / pools)]->job;
            const auto pool = by_pool ? static_cast<std::int32_t>(action % pools) : -1;
            if (spec_->step_mode == StepMode::blocking) return start_blocking(job, pool);
            if (!place(job, pool, allocation_)) throw std::logic_error("a legal action cannot be executed");
            start(job, allocation_);
            break;
        }
        case EnvKind::accept_or_skip: {
            const std::size_t row = as_index(prospects_.base_choice());
            allocation_ = prospects_.fit(row).allocation;
            start(rows_[row]->job, allocation_);
            break;
        }
        default: start_on_host(static_cast<std::int32_t>(action));
    }
    if (moves && event_pending()) advance_by_mode();
}

bool Environment::place(JobId job, std::int32_t pool, Allocation& out) {
    const std::size_t i = as_index(job);
    const Demand& demand = pool < 0 ? demand_of(job) : table_->in_pool(jobs_->demand[i], as_index(pool));
    return !demand.pools.empty() && placer_.place(simulator_.state(), demand, jobs_->row[i], out);
}

void Environment::start_on_host(std::int32_t node) {
    const Demand& demand = demand_of(rows_.front()->job);
    const ClusterSpec& spec = *table_->cluster;
    const std::int32_t pool = spec.pool[as_index(node)];
    allocation_.parts.assign(1, Part{node, demand.gpus, 0});
    allocation_.pool = pool;
    allocation_.speed = demand.gpus > 0 ? spec.pools[as_index(pool)].speed : 1.0;
    allocation_.fewest_nodes = 1;
    simulator_.state().choose_gpus(demand, allocation_.parts);
    start(rows_.front()->job, allocation_);
}

void Environment::start_blocking(JobId job, std::int32_t pool) {
    const Demand& demand = pool < 0 ? demand_of(job) : table_->in_pool(jobs_->demand[as_index(job)], as_index(pool));
    while (!place(job, pool, allocation_)) {
        if (spec_->blocking_backfill) backfill(job, demand);
        advance();
        if (ended()) return;
    }
    start(job, allocation_);
}

// Starts what does not delay a job that waits for room.
void Environment::backfill(JobId head, const Demand& demand) {
    Shadow shadow(table_->cluster);
    shadow.compute(simulator_.now(), demand, placer_, simulator_.state(), simulator_.running(demand.queue));
    gather(window_jobs_.size());
    candidates_.clear();
    for (const WindowJob* row : rows_)
        if (row->job != head) candidates_.push_back(row->job);
    for (const JobId job : candidates_) {
        if (!place(job, -1, allocation_)) continue;
        const Time run = allocation_.run_time(jobs_->estimate_us[as_index(job)], spec_->settings->locality_penalty);
        const Time end = expected_end(simulator_.now(), run);
        if (end > shadow.time() && spec_->backfill_before_shadow) continue;
        if (end > shadow.time() && !shadow.leaves_room(demand, placer_, demand_of(job), allocation_.parts)) continue;
        shadow.started(end, demand_of(job), allocation_.parts);
        start(job, allocation_);
    }
}

}  // namespace gpuyard
