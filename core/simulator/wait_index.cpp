#include "simulator/wait_index.hpp"

#include "base/index.hpp"

namespace gpuyard {

void WaitIndex::insert(const IndexedJob& job) {
    Jobs& jobs = of_[as_index(job.demand)];
    if (jobs.empty()) waiting_.push_back(job.demand);
    jobs.insert({job.estimate_us, job.job, job.submit_us});
}

void WaitIndex::erase(const IndexedJob& job) {
    Jobs& jobs = of_[as_index(job.demand)];
    jobs.erase({job.estimate_us, job.job, job.submit_us});
    if (jobs.empty()) std::erase(waiting_, job.demand);
}

// Every operation of the formulas rounds monotonically, so that what holds of the quotients holds of the scores to the
// last bit.
double WaitIndex::score_of(std::int32_t demand, Time submit_us, Time estimate_us) const {
    return score(
        order_, {.submit_us = submit_us, .estimate_us = estimate_us, .size_gpus = demands_[as_index(demand)].size_gpus},
        moment_);
}

// The blocks in which there may be jobs that are short enough.
void WaitIndex::collect(std::int32_t demand, const ShortEnough& is_short) {
    for (const Jobs::Block& block : of_[as_index(demand)].blocks()) {
        if (!is_short(block.summary.estimate_us)) return;  // nor are those of later blocks
        collected_.push_back({score_of(demand, block.summary.submit_us, block.summary.estimate_us), demand, &block});
    }
}

void WaitIndex::look_through(const Bounded& in, const RankKey& behind, const ShortEnough& is_short,
                             RankedJob& best) const {
    for (const Entry& entry : in.block->entries) {
        const RankedJob job{
            {score_of(in.demand, entry.submit_us, entry.estimate_us), entry.job}, in.demand, entry.estimate_us};
        if (behind < job.key && job.before(best) && is_short(entry.estimate_us)) best = job;
    }
}

RankedJob WaitIndex::best_collected(const RankKey& behind, const ShortEnough& is_short) {
    RankedJob best;
    if (collected_.empty()) return best;
    const auto likely = std::min_element(collected_.begin(), collected_.end(),
                                         [](const Bounded& a, const Bounded& b) { return a.bound < b.bound; });
    look_through(*likely, behind, is_short, best);
    for (auto at = collected_.begin(); at != collected_.end(); ++at)
        if (at != likely && (!best || at->bound <= best.key.score)) look_through(*at, behind, is_short, best);
    collected_.clear();
    return best;
}

RankedJob WaitIndex::first(const RankKey& behind) {
    for (const std::int32_t demand : waiting_) collect(demand, {});
    return best_collected(behind, {});
}

RankedJob WaitIndex::first_of(std::int32_t demand, const RankKey& behind, const ShortEnough& is_short) {
    collect(demand, is_short);
    return best_collected(behind, is_short);
}

}  // namespace gpuyard
