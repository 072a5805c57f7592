#include "observation/snapshot_view.hpp"

#include <algorithm>

#include "base/index.hpp"
#include "simulator/native_policy.hpp"

namespace gpuyard {

namespace {

std::vector<WindowJob> first_in_order(const Snapshot& snapshot, const EnvSpec& spec, const ClusterScale& scale) {
    NativePolicy native(spec.base, snapshot);
    for (const QueuedJob& job : snapshot.queue) native.entered(job);
    auto ranked = native.scored_jobs();
    const auto last = ranked.begin() + static_cast<std::ptrdiff_t>(std::min(spec.sizes.rows, ranked.size()));
    std::partial_sort(ranked.begin(), last, ranked.end());
    std::vector<WindowJob> rows;
    for (auto it = ranked.begin(); it != last; ++it) {
        const auto job = std::lower_bound(snapshot.queue.begin(), snapshot.queue.end(), it->second,
                                          [](const QueuedJob& queued, JobId id) { return queued.job < id; });
        rows.push_back(
            make_window_job(*job, snapshot.demand(job->demand), spec.base.placement, snapshot.state.spec(), scale));
    }
    return rows;
}

std::vector<float> shares(std::size_t count, double gpus, const std::function<std::int64_t(std::size_t)>& milli) {
    std::vector<float> out;
    for (std::size_t i = 0; i < count; ++i)
        out.push_back(static_cast<float>(quotient(static_cast<double>(milli(i)) / 1000.0, gpus)));
    return out;
}

}  // namespace

SnapshotView::SnapshotView(const Snapshot& snapshot, const EnvSpec& spec, std::span<const JobId> held)
    : snapshot_(snapshot),
      spec_(spec),
      scale_(snapshot.state.spec()),
      jobs_(first_in_order(snapshot, spec, scale_)),
      occupancy_(spec.tokens, spec.lookahead),
      prospects_(spec.base, *snapshot.settings, spec.asks_for_starts() || spec.asks_for_drain()) {
    std::vector<std::uint8_t> row_held;
    for (const WindowJob& job : jobs_) {
        rows_.push_back(&job);
        if (!held.empty()) row_held.push_back(std::find(held.begin(), held.end(), job.job) != held.end() ? 1 : 0);
    }
    std::vector<RunningJobs> running(as_index(snapshot.state.spec().queues));
    occupancy_.reset(snapshot.state, scale_);
    for (const ActiveJob& job : snapshot.active) {
        const Demand& demand = snapshot.demand(job.demand);
        running[as_index(demand.queue)].insert({.expected_end_us = job.expected_end_us,
                                                .job = job.job,
                                                .demand = job.demand,
                                                .part_count = job.part_count,
                                                .first_part = job.first_part});
        occupancy_.started(job.job, demand, snapshot.parts_of(job), job.first_part, job.expected_end_us);
    }
    prospects_.placer().set_mix(&snapshot.mix);
    prospects_.reset(snapshot.state, *snapshot.demands, scale_);
    prospects_.try_rows(snapshot.state, rows_);
    prospects_.look(snapshot.now_us, snapshot.state, rows_, row_held, [&](std::int32_t queue) {
        return Running{running[as_index(queue)], snapshot.parts, *snapshot.demands};
    });
}

Observation SnapshotView::observation() const {
    const Snapshot& snapshot = snapshot_;
    const std::int32_t choice = prospects_.base_choice();
    std::int64_t waiting_milli = 0;
    for (const QueuedJob& job : snapshot.queue) waiting_milli += snapshot.demand(job.demand).total_milli();
    const auto user = shares(snapshot.user_holdings.size(), scale_.gpus,
                             [&](std::size_t i) { return snapshot.user_holdings[i].milli; });
    const auto group =
        shares(snapshot.group_milli.size(), scale_.gpus, [&](std::size_t i) { return snapshot.group_milli[i]; });
    Observer observer(spec_);
    Observation out{std::vector<float>(observer.jobs_length()), std::vector<float>(observer.nodes_length()),
                    std::vector<float>(observer.globals_length())};
    observer.write({snapshot.now_us, snapshot.epoch_us, snapshot.state, rows_, std::ssize(snapshot.queue),
                    waiting_milli, std::ssize(snapshot.active), snapshot.arrivals.at(snapshot.now_us), user, group,
                    prospects_, occupancy_, choice >= 0 ? &prospects_.fit(as_index(choice)).allocation : nullptr},
                   {out.jobs.data(), out.nodes.data(), out.globals.data()});
    return out;
}

Observation observe(const Snapshot& snapshot, const EnvSpec& spec) {
    return SnapshotView(snapshot, spec, {}).observation();
}

}  // namespace gpuyard
