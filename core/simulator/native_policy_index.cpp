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
    const Time as_of = settings_.multifactor.calculated_us(snapshot_.now_us);
    if (as_of == calculated_us_) return;
    calculated_us_ = as_of;
    for (Queue& queue : queues_) queue.period->forget();
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
