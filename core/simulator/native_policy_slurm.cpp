// The main and the backfill pass of the backfill rule `slurm`: docs/contract/slurm.md, section 5.
#include <algorithm>

#include "base/index.hpp"
#include "simulator/native_policy.hpp"

namespace gpuyard {

// Starts jobs in order. The first of a partition that does not fit closes the partition, and its nodes for others.
void NativePolicy::make_main_pass() {
    current_->started.clear();
    if (!anything_fits(*current_)) return;
    rank(*current_);
    started_.assign(current_->waiting, 0);
    started_running_.clear();
    running_parts_.clear();
    const auto& partitions = state_.spec().partitions;
    closed_.assign(waiting_in_.size(), 0);
    auto open = std::count_if(current_->partitions.begin(), current_->partitions.end(),
                              [&](std::int32_t p) { return waiting_in_[as_index(p)] > 0; });
    at_ = 0;
    std::vector<std::int32_t> closed_nodes;
    for (Candidate candidate; open > 0 && next(candidate);) {
        const std::size_t partition = partition_of(job_of((*order_)[candidate.place]));
        if (closed_[partition] || !may_run_more(candidate)) continue;
        if (placer_.place(state_, demand_of(candidate), candidate.row, allocation_)) {
            start(candidate, allocation_, false);
            continue;
        }
        closed_[partition] = 1;
        --open;
        if (watch_.job >= 0 && partition == watch_.partition) watch_.head = candidate.job;
        if (partitions.empty()) break;
        for (const std::int32_t node : partitions[partition].nodes) {
            state_.take_offline(node);
            closed_nodes.push_back(node);
        }
    }
    for (const std::int32_t node : closed_nodes) state_.bring_online(node);
    if (!snapshot_.backfill_due) return;
    current_->started.swap(started_);
    current_->started_running.swap(started_running_);
    current_->running_parts.swap(running_parts_);
}

void NativePolicy::make_backfill_passes() {
    for (std::size_t q = 0; q < queues_.size(); ++q) {
        current_ = &queues_[q];
        current_queue_ = static_cast<std::int32_t>(q);
        if (current_->waiting == 0 || current_->started.empty()) continue;
        current_->started.swap(started_);
        current_->started_running.swap(started_running_);
        current_->running_parts.swap(running_parts_);
        rank(*current_);
        make_backfill_pass();
    }
}

// The place of the last waiting job that fits now, were it not for reservations: what comes behind it is of no
// consequence.
std::size_t NativePolicy::last_that_fits() {
    const SlurmBackfill& slurm = settings_.slurm;
    std::size_t most = current_->waiting;
    if (slurm.max_jobs > 0 && settings_.limits.empty() && slurm.max_jobs_of_user == 0 &&
        slurm.max_jobs_of_partition == 0) {
        std::int64_t tested = 0;
        for (most = 0; most < current_->waiting && tested < slurm.max_jobs; ++most) tested += started_[most] ? 0 : 1;
    }
    sort_until(most);
    if (!placer_.needs_only_room()) return most;
    hopes_.resize(snapshot_.demands->size());
    for (Hope& hope : hopes_) {
        hope.fits = -1;
        hope.shortest_us.clear();
    }
    hopeful_.clear();
    std::size_t last = 0;
    for (std::size_t place = most; place-- > 0;) {
        if (started_[place]) continue;
        const QueuedJob& job = job_of((*order_)[place]);
        Hope& hope = hopes_[as_index(job.demand)];
        if (hope.fits < 0) {
            hope.fits = placer_.placeable(state_, snapshot_.demand(job.demand)) ? 1 : 0;
            if (hope.fits == 1) hopeful_.push_back(job.demand);
        }
        if (hope.fits == 0) continue;
        last = std::max(last, place + 1);
        const Time run = longest_run(job);
        if (hope.shortest_us.empty() || run < hope.shortest_us.back().second) hope.shortest_us.emplace_back(place, run);
    }
    return last;
}

// Whether any job behind a place can start in this pass, given what is reserved so far. Reservations and starts only
// take room away: a demand of which the shortest cannot start is out of question from then on.
bool NativePolicy::may_start_behind(std::size_t place) {
    if (!placer_.needs_only_room()) return true;
    for (; !hopeful_.empty(); hopeful_.pop_back()) {
        const std::int32_t demand = hopeful_.back();
        auto& shortest_us = hopes_[as_index(demand)].shortest_us;
        while (!shortest_us.empty() && shortest_us.back().first <= place) shortest_us.pop_back();
        if (!shortest_us.empty() && node_plan_->may_start(demand, shortest_us.back().second)) return true;
    }
    return false;
}

// Whether one more job may be looked at; it counts if so.
bool NativePolicy::counts_among_tested(const QueuedJob& job) {
    const SlurmBackfill& slurm = settings_.slurm;
    std::int64_t& of_user = tested_of_user_[as_index(job.user)];
    std::int64_t& of_partition = tested_of_partition_[partition_of(job)];
    if (slurm.max_jobs_of_user > 0 && of_user >= slurm.max_jobs_of_user) return false;
    if (slurm.max_jobs_of_partition > 0 && of_partition >= slurm.max_jobs_of_partition) return false;
    ++of_user;
    ++of_partition;
    ++tested_;
    return true;
}

// Plans jobs in order on whole nodes, and starts those that can begin now.
void NativePolicy::make_backfill_pass() {
    const SlurmBackfill& slurm = settings_.slurm;
    const std::size_t end = last_that_fits();
    if (end == 0) return;
    const Time now = snapshot_.now_us;
    node_plan_->begin({now, now + slurm.window_us, snapshot_.epoch_us, slurm.resolution_us});
    for (const ActiveJob& job : snapshot_.active)
        if (snapshot_.demand(job.demand).queue == current_queue_)
            node_plan_->add_running(job.expected_end_us, job.demand, snapshot_.parts_of(job));
    for (const RunningJob& job : started_running_)
        node_plan_->add_running(job.expected_end_us, job.demand,
                                std::span(running_parts_).subspan(job.first_part, job.part_count));
    tested_of_user_.assign(snapshot_.user_usage.size(), 0);
    tested_of_partition_.assign(waiting_in_.size(), 0);
    tested_ = 0;
    at_ = 0;
    for (Candidate candidate; at_ < end && next(candidate) && candidate.place < end;) {
        const QueuedJob& job = job_of((*order_)[candidate.place]);
        if (!may_run_more(candidate)) continue;
        if (slurm.max_jobs > 0 && tested_ >= slurm.max_jobs) break;
        if (!counts_among_tested(job)) continue;
        const Time run = longest_run(job);
        const Time begin = node_plan_->find(job.demand, job.row, run, allocation_);
        if (begin == now) {
            start(candidate, allocation_, true);
            node_plan_->add_started(expected_end_at(candidate, allocation_), job.demand, allocation_.parts);
        } else if (begin != kEndless) {
            node_plan_->reserve(begin, run, allocation_.parts);
        } else {
            continue;
        }
        if (!may_start_behind(candidate.place)) break;
    }
}

// Expected, on the slowest GPUs that it may use.
Time NativePolicy::longest_run(const QueuedJob& job) const {
    if (job.estimate_us == kEndless) return kEndless;
    const Demand& demand = snapshot_.demand(job.demand);
    const Time left = std::max(Time{1}, job.estimate_us - job.done_us);
    Time most = 0;
    for (const PoolOption& option : demand.pools) {
        const double speed = demand.gpus > 0 ? snapshot_.state.spec().pools[as_index(option.pool)].speed : 1.0;
        most = std::max(most, run_time(left, speed, 1, 1, 0.0));
    }
    return most + (job.done_us > 0 ? settings_.restore_of(demand) : 0);
}

}  // namespace gpuyard
