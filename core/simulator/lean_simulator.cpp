#include "simulator/lean_simulator.hpp"

#include <algorithm>
#include <stdexcept>
#include <string>

#include "base/index.hpp"

namespace gpuyard {

LeanSimulator::LeanSimulator(std::shared_ptr<const ClusterSpec> cluster, std::shared_ptr<const JobTable> jobs,
                             const Settings& settings, Tracking tracking)
    : jobs_(std::move(jobs)),
      settings_(settings),
      tracking_(tracking),
      state_(cluster) {
    clear_record();
}

void LeanSimulator::reset(const ClusterState& empty, std::shared_ptr<const JobTable> jobs) {
    jobs_ = std::move(jobs);
    state_ = empty;
    events_.clear();
    next_arrival_ = 0;
    now_us_ = 0;
    instant_ = ~std::uint64_t{0};
    finished_ = 0;
    parts_.clear();
    usage_.clear();
    for (RunningJobs& running : running_) running.clear();
    clear_record();
}

void LeanSimulator::clear_record() {
    const std::size_t count = jobs_->submit_us.size();
    record_.start_us.assign(count, -1);
    record_.end_us.assign(count, -1);
    record_.ending.assign(count, 0);
    record_.backfilled.assign(count, 0);
    record_.first_part.assign(count, 0);
    record_.part_count.assign(count, 0);
    parts_.reserve(count);
    if (tracking_.running) {
        running_.resize(as_index(state_.spec().queues));
        expected_end_us_.assign(count, 0);
    }
    if (tracking_.usage) usage_.resize(as_index(jobs_->users));
}

Scored LeanSimulator::scored(JobId job, double user_usage) const {
    const std::size_t i = as_index(job);
    const Demand& demand = jobs_->demand_of(i);
    return {.submit_us = jobs_->submit_us[i],
            .estimate_us = jobs_->estimate_us[i],
            .size_gpus = demand.size_gpus,
            .priority = jobs_->priority_of(i),
            .deadline_us = jobs_->deadline_of(i),
            .row = jobs_->row_of(i),
            .user_usage = user_usage,
            .energy_rate = demand.energy_rate};
}

void LeanSimulator::start(JobId job, const Allocation& allocation, bool backfilled) {
    const std::size_t i = as_index(job);
    const Demand& demand = jobs_->demand_of(i);
    Time run = allocation.run_time(jobs_->duration_us[i], settings_.locality_penalty);
    if (settings_.kill_at_estimate) {
        const Time allowed = allocation.run_time(jobs_->estimate_us[i], settings_.locality_penalty);
        if (allowed < run) {
            run = allowed;
            record_.ending[i] = static_cast<std::uint8_t>(Ending::timeout);
        }
    }
    if (now_us_ > kLatest - run)
        throw std::overflow_error("the simulated time exceeds the simulator's clock (2^62 microseconds)");
    record_.start_us[i] = now_us_;
    record_.end_us[i] = now_us_ + run;
    record_.backfilled[i] = backfilled ? 1 : 0;
    record_.first_part[i] = parts_.size();
    record_.part_count[i] = static_cast<std::uint32_t>(allocation.parts.size());
    state_.hold(demand, allocation.parts);
    events_.push({now_us_ + run, job});
    if (!running_.empty()) {
        const Time expected = allocation.run_time(jobs_->estimate_us[i], settings_.locality_penalty);
        expected_end_us_[i] = expected_end(now_us_, expected);
        running_[as_index(demand.queue)].insert({.expected_end_us = expected_end_us_[i],
                                                 .job = job,
                                                 .demand = jobs_->demand[i],
                                                 .part_count = record_.part_count[i],
                                                 .first_part = parts_.size()});
    }
    if (!usage_.empty())
        usage_[as_index(jobs_->user_of(i))].change(now_us_, settings_.usage_half_life_s, demand.total_milli());
    parts_.insert(parts_.end(), allocation.parts.begin(), allocation.parts.end());
}

Time LeanSimulator::finish(JobId job) {
    const std::size_t i = as_index(job);
    const Demand& demand = jobs_->demand_of(i);
    ++finished_;
    state_.release(demand, parts_of(job));
    if (!usage_.empty())
        usage_[as_index(jobs_->user_of(i))].change(now_us_, settings_.usage_half_life_s, -demand.total_milli());
    if (running_.empty()) return 0;
    running_[as_index(demand.queue)].erase(RunningJob::key(expected_end_us_[i], job));
    return expected_end_us_[i];
}

}  // namespace gpuyard
