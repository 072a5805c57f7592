// Why a job that waits does not start: what NativePolicy saw of it in a pass.
#include <algorithm>

#include "base/index.hpp"
#include "simulator/native_policy.hpp"

namespace gpuyard {

void NativePolicy::watch(const Candidate& candidate) {
    watch_ = {watch_.job, true, false, false, false, watch_.head, watch_.head_aged, 0, 0, watch_.partition};
    const ClusterSpec& spec = state_.spec();
    for (const PoolOption& option : demand_of(candidate).pools) {
        watch_.free_milli += state_.pool_free_milli(option.pool);
        for (const std::int32_t node : spec.pools[as_index(option.pool)].nodes)
            watch_.most_empty = std::max(watch_.most_empty, state_.empty(node));
    }
}

Explanation NativePolicy::explain(JobId job) {
    watch_ = {};
    watch_.job = job;
    const auto found = std::find_if(slots_.begin(), slots_.end(), [&](const QueuedJob& q) { return q.job == job; });
    watch_.partition = partition_of(*found);
    const Decision decision = decide(true);
    Explanation why;
    const Queue& queue = queues_[as_index(snapshot_.demand(found->demand).queue)];
    rank(queue);
    sort_until(order_->size());
    while ((*order_)[as_index(why.rank)].job != job) ++why.rank;
    if (!watch_.tried) {
        watch(candidate_at(as_index(why.rank)));
        watch_.tried = false;
    }
    why.free_milli = watch_.free_milli;
    why.most_empty = watch_.most_empty;
    for (const Start& start : decision.starts) {
        if (start.job != job) continue;
        why.verdict = Verdict::starts;
        why.stops = start.stops;
        return why;
    }
    for (const Reservation& entry : decision.reservations) {
        if (entry.job != job) continue;
        why.verdict = entry.begin_us == kEndless ? Verdict::no_reservation : Verdict::reserved;
        why.until_us = entry.begin_us;
        return why;
    }
    if (watch_.head != job) why.head = watch_.head;
    if (why.head >= 0 && (policy_.backfill == Backfill::easy || policy_.backfill == Backfill::easy_sjf))
        why.until_us = shadow_.time();
    if (watch_.over_quota)
        why.verdict = Verdict::over_quota;
    else if (policy_.backfill == Backfill::slurm)
        why.verdict = why.head >= 0 ? Verdict::behind_head : Verdict::does_not_fit;
    else if (!watch_.tried)
        why.verdict = watch_.head >= 0 && (policy_.backfill == Backfill::strict ||
                                           (policy_.backfill == Backfill::greedy && watch_.head_aged))
                          ? Verdict::behind_head
                          : Verdict::does_not_fit;
    else if (watch_.misfit || !placer_.placeable(state_, snapshot_.demand(found->demand)))
        why.verdict = Verdict::does_not_fit;
    else
        why.verdict = watch_.admitted ? Verdict::would_delay_head : Verdict::not_admitted;
    return why;
}

}  // namespace gpuyard
