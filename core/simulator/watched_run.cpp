#include "simulator/watched_run.hpp"

#include <algorithm>
#include <utility>

#include "simulator/full_run.hpp"

namespace gpuyard {

WatchedRun::WatchedRun(std::shared_ptr<const ClusterSpec> cluster, std::shared_ptr<const JobTable> jobs, Policy policy,
                       std::shared_ptr<const Settings> settings, const Past& past, JobId job, std::int64_t every)
    : policy_(std::move(policy)),
      simulator_(std::move(cluster), std::move(jobs), settings, needs_of(policy_, *settings), past),
      // The whole plan of `conservative` has to lie in snapshots, because why a job waits is asked of them.
      native_(policy_, simulator_.view(), policy_.backfill != Backfill::conservative),
      job_(job),
      every_(every) {
    simulator_.set_listener(&native_);
}

bool WatchedRun::advance() {
    if (pending_) simulator_.apply(decision_);
    pending_ = false;
    while (!simulator_.has_finished(job_) && simulator_.next_instant()) {
        if (simulator_.waiting().empty()) continue;
        if (decide()) return pending_ = true;
        simulator_.apply(decision_);
    }
    return false;
}

// Whether to halt here.
bool WatchedRun::decide() {
    decision_ = native_.decide(true);
    note_stop();
    const auto& waiting = simulator_.waiting();
    if (!std::binary_search(waiting.begin(), waiting.end(), job_)) return false;
    const auto starts = [&](const Start& start) { return start.job == job_; };
    const bool asked = decisions_++ % every_ == 0;
    return asked || std::any_of(decision_.starts.begin(), decision_.starts.end(), starts);
}

void WatchedRun::note_stop() {
    for (const Start& start : decision_.starts)
        if (std::find(start.stops.begin(), start.stops.end(), job_) != start.stops.end())
            stops_.emplace_back(simulator_.view().now_us, start.job);
}

}  // namespace gpuyard
