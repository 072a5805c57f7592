#include "simulator/period_index.hpp"

namespace gpuyard {

namespace {

bool differ_in_time_only(const IndexedJob& a, const IndexedJob& b) {
    return a.association == b.association && a.qos == b.qos && a.priority == b.priority;
}

RankKey key_of(const QueueEntry& entry) { return {entry.score, entry.job, entry.tier}; }

}  // namespace

// --- Who waits --------------------------------------------------------------------------------------------

// A job that came back after others of higher numbers goes to another strand.
std::int32_t PeriodIndex::strand_for(const IndexedJob& job) {
    auto& strands = of_demand_[as_index(job.demand)];
    for (const std::int32_t number : strands) {
        const Strand& strand = strands_[as_index(number)];
        const Waiting& last = strand.jobs.back();
        if (differ_in_time_only(strand.like, job) && last.job < job.job && last.queued_us <= job.queued_us)
            return number;
    }
    if (spare_.empty()) {
        spare_.push_back(static_cast<std::int32_t>(strands_.size()));
        strands_.emplace_back();
    }
    const std::int32_t number = spare_.back();
    spare_.pop_back();
    strands_[as_index(number)] = {.like = job, .jobs = {}};
    waiting_.push_back(number);
    strands.push_back(number);
    return number;
}

void PeriodIndex::drop_strand(std::int32_t number) {
    std::erase(waiting_, number);
    std::erase(of_demand_[as_index(strands_[as_index(number)].like.demand)], number);
    spare_.push_back(number);
}

void PeriodIndex::insert(const IndexedJob& job) {
    const std::int32_t number = strand_for(job);
    Strand& strand = strands_[as_index(number)];
    const Waiting waiting{job.job, job.queued_us, job.estimate_us, job.slot};
    // It may have been drawn and left since; those of its strand that wait were drawn before it.
    if (strand.drawn >= job.job) strand.drawn = strand.jobs.back().job;
    strand.jobs.insert(waiting);
    strand_of_slot_.resize(std::max(strand_of_slot_.size(), job.slot + 1));
    strand_of_slot_[job.slot] = number;
    if (!is_ranked_) return;
    const QueueEntry entry = entry_of(strand, waiting);
    if (any_drawn_ && entry < last_drawn_) {
        drawn_.insert(std::upper_bound(drawn_.begin(), drawn_.end(), entry), entry);
        strand.drawn = job.job;
    } else if (first_undrawn(strand)->job == job.job) {
        push_head(number);
    }
}

void PeriodIndex::erase(const IndexedJob& job) {
    const std::int32_t number = strand_of_slot_[job.slot];
    Strand& strand = strands_[as_index(number)];
    const Waiting waiting{job.job, job.queued_us, job.estimate_us, job.slot};
    const bool was_drawn = is_ranked_ && job.job <= strand.drawn;
    if (was_drawn) drawn_.erase(std::lower_bound(drawn_.begin(), drawn_.end(), entry_of(strand, waiting)));
    const bool was_head = is_ranked_ && !was_drawn && first_undrawn(strand)->job == job.job;
    strand.is_scored = strand.is_scored && strand.jobs.front().job != job.job;
    strand.jobs.erase(waiting);
    if (strand.jobs.empty()) return drop_strand(number);
    if (was_head) push_head(number);
}

// --- Their order ------------------------------------------------------------------------------------------

QueueEntry PeriodIndex::entry_of(const Strand& strand, const Waiting& job) const {
    IndexedJob scored = strand.like;
    scored.queued_us = job.queued_us;
    return {score_(scored), job.job, job.slot, demands_[as_index(strand.like.demand)].tier};
}

const PeriodIndex::Waiting* PeriodIndex::first_undrawn(const Strand& strand) const {
    return strand.jobs.behind({strand.drawn, 0, 0, 0});
}

void PeriodIndex::push_head(std::int32_t number) {
    const Strand& strand = strands_[as_index(number)];
    const Waiting* next = first_undrawn(strand);
    if (next == nullptr) return;
    heads_.push_back({entry_of(strand, *next), number});
    std::push_heap(heads_.begin(), heads_.end());
}

void PeriodIndex::rank() {
    if (is_ranked_) return;
    is_ranked_ = true;
    any_drawn_ = false;
    drawn_.clear();
    heads_.clear();
    for (const std::int32_t number : waiting_) {
        Strand& strand = strands_[as_index(number)];
        const QueueEntry first = entry_of(strand, strand.jobs.front());
        strand.drawn = -1;
        strand.first_score = first.score;
        strand.is_scored = true;
        heads_.push_back({first, number});
    }
    std::make_heap(heads_.begin(), heads_.end());
}

void PeriodIndex::draw(std::size_t count) {
    rank();
    while (drawn_.size() < count && !heads_.empty()) {
        const Head head = heads_.front();
        std::pop_heap(heads_.begin(), heads_.end());
        heads_.pop_back();
        Strand& strand = strands_[as_index(head.strand)];
        const Waiting* next = first_undrawn(strand);
        // It may have left, and even be back with another score.
        if (next == nullptr || next->job != head.entry.job || entry_of(strand, *next).score != head.entry.score)
            continue;
        drawn_.push_back(head.entry);
        last_drawn_ = head.entry;
        any_drawn_ = true;
        strand.drawn = head.entry.job;
        push_head(head.strand);
    }
}

void PeriodIndex::begin(const Moment&) {
    rank();
    at_ = 0;
}

RankedJob PeriodIndex::first(const RankKey& behind) {
    for (;; ++at_) {
        if (at_ == drawn_.size()) draw(at_ + 1);
        if (at_ == drawn_.size()) return {};
        if (behind < key_of(drawn_[at_])) return {key_of(drawn_[at_])};
    }
}

double PeriodIndex::first_score(Strand& strand) {
    if (!strand.is_scored) strand.first_score = entry_of(strand, strand.jobs.front()).score;
    strand.is_scored = true;
    return strand.first_score;
}

// The first of a strand that is short enough, if it goes before the best so far.
RankedJob PeriodIndex::first_in(Strand& strand, const RankKey& behind, const ShortEnough& is_short,
                                const RankedJob& best) {
    const std::int32_t tier = demands_[as_index(strand.like.demand)].tier;
    const RankKey first{first_score(strand), strand.jobs.front().job, tier};
    if (best && best.key < first) return {};
    const auto passed = [&](const Waiting& job) { return !(behind < key_of(entry_of(strand, job))); };
    const bool all_behind = behind < first;
    const auto& blocks = strand.jobs.blocks();
    auto block = all_behind ? blocks.begin() : std::partition_point(blocks.begin(), blocks.end(), [&](const auto& b) {
        return passed(b.entries.back());
    });
    for (bool from_start = all_behind; block != blocks.end(); ++block, from_start = true) {
        if (!is_short(block->summary.estimate_us)) continue;
        const auto& jobs = block->entries;
        auto job = from_start ? jobs.begin() : std::partition_point(jobs.begin(), jobs.end(), passed);
        for (; job != jobs.end(); ++job)
            if (is_short(job->estimate_us))
                return {key_of(entry_of(strand, *job)), strand.like.demand, job->estimate_us};
    }
    return {};
}

RankedJob PeriodIndex::first_of(std::int32_t demand, const RankKey& behind, const ShortEnough& is_short) {
    RankedJob best;
    for (const std::int32_t number : of_demand_[as_index(demand)])
        if (const RankedJob job = first_in(strands_[as_index(number)], behind, is_short, best); job && job.before(best))
            best = job;
    return best;
}

}  // namespace gpuyard
