#include <algorithm>
#include <numeric>

#include "order.hpp"
#include "scan_pass.hpp"
#include "snapshot.hpp"

namespace gpuyard {

namespace {

std::vector<double> scores_of(const Snapshot& snapshot, const Policy& policy, const std::vector<const QueuedJob*>& queue) {
    const std::vector<Demand>& demands = *snapshot.demands;
    const Moment moment{snapshot.now_us, snapshot.instant, snapshot.settings.seed, snapshot.origin_s};
    std::vector<double> scores(queue.size());
    QueueColumns columns;
    columns.now_us = snapshot.now_us;
    for (std::size_t i = 0; i < queue.size(); ++i) {
        const QueuedJob& q = *queue[i];
        const double usage = snapshot.user_usage[static_cast<std::size_t>(q.user)];
        const Scored job{q.submit_us, q.estimate_us, demands[static_cast<std::size_t>(q.demand)].size_gpus, q.priority,
                         q.deadline_us, q.row, usage};
        if (policy.order == Order::scored)
            append(columns, job, q.user, q.job);
        else
            scores[i] = score(policy.order, job, moment);
    }
    if (policy.order == Order::scored) policy.scores(columns, scores);
    return scores;
}

// The pass of one queue over a snapshot: the Host of ScanPass.
class SnapshotPass {
public:
    SnapshotPass(const Snapshot& snapshot, const Policy& policy, std::int32_t queue)
        : snapshot_(snapshot), state_(snapshot.state), shadow_(snapshot.state.shared_spec()), placer_(policy.placement, snapshot.settings.seed) {
        for (const QueuedJob& job : snapshot.queue)
            if (demand(job.demand).queue == queue) jobs_.push_back(&job);
        for (const RunningJob& job : snapshot.running)
            if (demand(job.demand).queue == queue) running_.insert(job);
        parts_ = snapshot.parts;
        const std::vector<double> scores = scores_of(snapshot, policy, jobs_);
        order_.resize(jobs_.size());
        std::iota(order_.begin(), order_.end(), std::size_t{0});
        std::stable_sort(order_.begin(), order_.end(), [&](std::size_t a, std::size_t b) { return scores[a] < scores[b]; });
    }

    void run(const Policy& policy, Decision& decision) {
        decision_ = &decision;
        std::vector<std::uint8_t> misfits(snapshot_.demands->size(), 0);
        std::vector<std::int32_t> marked;
        Allocation allocation;
        ScanPass(*this, policy, snapshot_.settings, placer_, state_, snapshot_.now_us).run(misfits, marked, allocation);
    }

    bool next(Candidate& out) {
        if (at_ == order_.size()) return false;
        const QueuedJob& job = *jobs_[order_[at_++]];
        out = {job.job, job.demand, job.estimate_us, job.row};
        return true;
    }

    const Demand& demand_of(const Candidate& candidate) const { return demand(candidate.demand); }

    Shadow& shadow_of(const Candidate& head) {
        shadow_.compute(snapshot_.now_us, demand_of(head), placer_, state_, {running_, parts_, *snapshot_.demands});
        return shadow_;
    }

    bool all_misfit(std::size_t) const { return false; }

    void start(const Candidate& candidate, const Allocation& allocation, bool backfilled) {
        const Time run = allocation.run_time(candidate.estimate_us, snapshot_.settings.locality_penalty);
        running_.insert({expected_end(snapshot_.now_us, run), candidate.job, candidate.demand,
                         static_cast<std::uint32_t>(allocation.parts.size()), parts_.size()});
        parts_.insert(parts_.end(), allocation.parts.begin(), allocation.parts.end());
        state_.hold(demand_of(candidate), allocation.parts);
        decision_->starts.push_back({candidate.job, allocation.parts, backfilled});
    }

private:
    const Demand& demand(std::int32_t i) const { return (*snapshot_.demands)[static_cast<std::size_t>(i)]; }

    const Snapshot& snapshot_;
    ClusterState state_;
    Shadow shadow_;
    Placer placer_;
    std::vector<const QueuedJob*> jobs_;
    std::vector<std::size_t> order_;
    std::size_t at_ = 0;
    RunningJobs running_;
    std::vector<Part> parts_;
    Decision* decision_ = nullptr;
};

}  // namespace

Decision decide(const Snapshot& snapshot, const Policy& policy) {
    Decision decision;
    std::vector<std::uint8_t> waiting(static_cast<std::size_t>(snapshot.state.spec().queues), 0);
    for (const QueuedJob& job : snapshot.queue)
        waiting[static_cast<std::size_t>((*snapshot.demands)[static_cast<std::size_t>(job.demand)].queue)] = 1;
    for (std::size_t queue = 0; queue < waiting.size(); ++queue)
        if (waiting[queue]) SnapshotPass(snapshot, policy, static_cast<std::int32_t>(queue)).run(policy, decision);
    return decision;
}

}  // namespace gpuyard
