// Passes of a NativePolicy that do not look at the whole queue.
#include <algorithm>

#include "base/index.hpp"
#include "simulator/native_policy.hpp"

namespace gpuyard {

// Whether jobs of one demand fit or do not fit together, begin at once, and nothing else decides who starts.
bool NativePolicy::indexes() const {
    return may_index(policy_) && !makes_room() && placer_.needs_only_room() && settings_.quota_milli.empty() &&
           settings_.limits.empty() && snapshot_.state.spec().partitions.empty() && settings_.mtbf_us == 0 &&
           settings_.sleep_after_us < 0;
}

void NativePolicy::make_indexes() {
    const std::size_t lanes =
        order_traits_.remembers == Memory::group_usage ? snapshot_.group_usage.size() : snapshot_.user_usage.size();
    for (Queue& queue : queues_)
        queue.index =
            make_rank_index(policy_.order, *snapshot_.demands, lanes,
                            [this](std::int32_t lane, const Holdings& asked) { return lane_score(lane, asked); });
}

// Whether scores change for all jobs together and nothing else moves a job in the order. A plan asks for the whole of
// it, for which there is nothing to gain.
bool NativePolicy::orders_by_period() const {
    return order_traits_.changes_by_period() && !policy_.ages() && policy_.backfill != Backfill::conservative;
}

void NativePolicy::make_period_indexes() {
    for (Queue& queue : queues_)
        queue.period = std::make_unique<PeriodIndex>(*snapshot_.demands,
                                                     [this](const IndexedJob& job) { return period_score(job); });
}

double NativePolicy::period_score(const IndexedJob& job) const {
    const Multifactor& multifactor = settings_.multifactor;
    const Scored s{.priority = job.priority,
                   .age_us = std::max(calculated_us_ - job.queued_us, Time{0}),
                   .fair_factor = snapshot_.fair_factor[as_index(job.association)],
                   .qos_factor = job.qos >= 0 ? multifactor.qos_factor[as_index(job.qos)] : 0.0,
                   .factors = &factors_[as_index(job.demand)]};
    return multifactor_score(s, multifactor);
}

// Whether scores are no longer those of the last calculation; then nobody's is known until somebody asks.
void NativePolicy::notice_period() {
    if (snapshot_.calculated_us == calculated_us_) return;
    calculated_us_ = snapshot_.calculated_us;
    for (Queue& queue : queues_) queue.period->forget();
}

// Whether many jobs share one score and nothing else moves a job in the order. Plans ask for the whole of it.
bool NativePolicy::orders_by_level() const {
    return (policy_.order == Order::tiresias || policy_.order == Order::gittins) && !policy_.ages() &&
           policy_.backfill != Backfill::conservative && policy_.backfill != Backfill::slurm &&
           snapshot_.state.spec().partitions.empty();
}

void NativePolicy::make_level_indexes() {
    const std::size_t levels = policy_.order == Order::gittins ? as_index(GittinsHistory::kBuckets)
                                                               : settings_.tiresias_levels_gpu_s.size() + 1;
    for (Queue& queue : queues_) queue.levels = std::make_unique<LevelIndex>(levels);
}

std::size_t NativePolicy::level_of(const QueuedJob& job) {
    const Scored s = scored(job);
    if (policy_.order == Order::gittins)
        return as_index(GittinsHistory::bucket(GittinsHistory::gpu_seconds(s.attained_us, s.total_milli)));
    return static_cast<std::size_t>(score(policy_.order, s, moment()));
}

double NativePolicy::level_score(std::size_t level) const {
    if (policy_.order == Order::gittins) return -snapshot_.gittins.index_of(static_cast<std::int32_t>(level));
    return static_cast<double>(level);
}

// Moves jobs that have waited for too long since the last decision to the first level.
void NativePolicy::notice_starving() {
    while (!fed_.empty() && snapshot_.now_us - fed_.begin()->first >= settings_.starvation_us) {
        const Entry& entry = entry_of_.at(fed_.begin()->second);
        queues_[as_index(snapshot_.demand(job_of(entry).demand).queue)].levels->move(entry.job, entry.slot, 0);
        fed_.erase(fed_.begin());
    }
}

IndexedJob NativePolicy::indexed(const QueuedJob& job, std::size_t slot) const {
    const std::int32_t lane = order_traits_.remembers == Memory::group_usage ? job.group : job.user;
    return {.job = job.job,
            .demand = job.demand,
            .lane = lane,
            .submit_us = job.submit_us,
            .estimate_us = job.estimate_us,
            .queued_us = job.queued_us,
            .association = job.association,
            .qos = job.qos,
            .priority = job.priority,
            .slot = slot};
}

double NativePolicy::lane_score(std::int32_t lane, const Holdings& asked) {
    if (order_traits_.remembers == Memory::group_usage) return group_share(lane);
    if (order_traits_.remembers == Memory::user_usage) return usage_of(lane) / settings_.weight_of_user(lane);
    Holdings held = snapshot_.user_holdings[as_index(lane)];
    held.add(asked);
    return dominant_share(held);
}

Candidate NativePolicy::candidate_of(const RankedJob& ranked) const {
    const std::size_t slot = entry_of_.at(ranked.key.job).slot;
    const QueuedJob& job = slots_[slot];
    return {.job = job.job, .demand = job.demand, .estimate_us = job.estimate_us, .row = job.row, .place = slot};
}

void NativePolicy::pass_indexed() {
    fitting_.clear();
    for (const std::int32_t d : current_->demands)
        if (waiting_of_[as_index(d)] > 0 && placer_.placeable(state_, snapshot_.demand(d)))
            fitting_.push_back({.demand = d});
    if (fitting_.empty()) return;
    started_running_.clear();
    running_parts_.clear();
    if (current_->period) notice_period();
    RankIndex& index = *current_->any_index();
    index.begin(moment());
    IndexedPass(*this, policy_, placer_, state_, index).run(fitting_, allocation_);
}

}  // namespace gpuyard
