#include "simulator/watched_run.hpp"

#include <algorithm>
#include <stdexcept>
#include <utility>

#include "simulator/full_run.hpp"

namespace gpuyard {

WatchedRun::WatchedRun(std::shared_ptr<const ClusterSpec> cluster, std::shared_ptr<const JobTable> jobs, Policy policy,
                       std::shared_ptr<const Settings> settings, const Past& past, JobId job, bool keeps_plan)
    : policy_(std::move(policy)),
      simulator_(std::move(cluster), std::move(jobs), settings, needs_of(policy_, *settings), past),
      native_(policy_, simulator_.view(), !keeps_plan),
      job_(job),
      keeps_plan_(keeps_plan) {
    simulator_.set_listener(&native_);
}

bool WatchedRun::waits(const FullSimulator& simulator) const {
    const auto& waiting = simulator.waiting();
    return std::binary_search(waiting.begin(), waiting.end(), job_);
}

void WatchedRun::run(const Progress& progress) {
    ProgressClock clock(progress);
    // A plan of the policy's own has to follow what happens also while nobody waits.
    const bool always = policy_.backfill == Backfill::conservative && !keeps_plan_;
    while (!simulator_.has_finished(job_)) {
        if (!simulator_.next_instant()) throw std::logic_error("jobs are left waiting on an idle cluster");
        clock.instant(simulator_.finished());
        if (simulator_.waiting().empty() && !always) continue;
        const bool waiting = waits(simulator_);
        if (again_ == nullptr && waiting) again_ = simulator_.copy();
        Decision decision = native_.decide(keeps_plan_);
        if (simulator_.only_woken() && !decision.starts.empty() && (again_ == nullptr || waiting))
            started_as_planned_ = true;
        simulator_.apply(decision);
        if (again_ != nullptr) keep(std::move(decision));
    }
    clock.end(simulator_.finished());
}

void WatchedRun::keep(Decision decision) {
    for (const Start& start : decision.starts)
        if (std::find(start.stops.begin(), start.stops.end(), job_) != start.stops.end())
            stops_.emplace_back(simulator_.view().now_us, start.job);
    decision.instant = simulator_.view().instant;
    decided_.push_back(std::move(decision));
}

void WatchedRun::look(std::int64_t every) {
    if (again_ == nullptr || every_ != 0) throw std::logic_error("a run is looked at once, after it was made");
    every_ = every;
}

bool WatchedRun::advance() {
    if (pending_) carry_out();
    for (; at_ < decided_.size(); carry_out()) {
        while (again_->view().instant != decided_[at_].instant) again_->next_instant();
        if (halts()) return pending_ = true;
    }
    return false;
}

bool WatchedRun::halts() {
    if (!waits(*again_) || (again_->only_woken() && !keeps_plan_)) return false;
    const auto starts = [&](const Start& start) { return start.job == job_; };
    const bool asked = decisions_++ % every_ == 0;
    return asked || std::any_of(decided_[at_].starts.begin(), decided_[at_].starts.end(), starts);
}

void WatchedRun::carry_out() {
    again_->apply(decided_[at_++]);
    pending_ = false;
}

}  // namespace gpuyard
