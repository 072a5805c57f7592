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

IndexedJob NativePolicy::indexed(const QueuedJob& job) const {
    const std::int32_t lane = order_traits_.remembers == Memory::group_usage ? job.group : job.user;
    return {job.job, job.demand, lane, job.submit_us, job.estimate_us};
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
    current_->index->begin(moment());
    IndexedPass(*this, policy_, placer_, state_, *current_->index).run(fitting_, allocation_);
}

}  // namespace gpuyard
