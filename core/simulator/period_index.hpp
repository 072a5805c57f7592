// Orders whose scores change for all jobs together, at multiples of a time (`multifactor`): of jobs that differ in
// nothing but when they came, the order never changes, so that only the first of each such strand are ranked.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "base/index.hpp"
#include "base/summed_blocks.hpp"
#include "simulator/rank_index.hpp"

namespace gpuyard {

class PeriodIndex : public RankIndex {
public:
    // A job's score in this period. Of jobs that differ in nothing else, one that entered the queue earlier must not
    // score worse: every operation of the formula rounds monotonically.
    using Score = std::function<double(const IndexedJob&)>;

    // `demands` must outlive it.
    PeriodIndex(std::span<const Demand> demands, Score score)
        : demands_(demands),
          score_(std::move(score)),
          of_demand_(demands.size()) {}

    void insert(const IndexedJob& job) override;
    void erase(const IndexedJob& job) override;
    // Scores are no longer those that were: nobody is ranked until somebody asks.
    void forget() { is_ranked_ = false; }

    void begin(const Moment& moment) override;
    RankedJob first(const RankKey& behind) override;
    RankedJob first_of(std::int32_t demand, const RankKey& behind, const ShortEnough& is_short) override;

    // The first jobs in order: as many as were asked for at some time since scores changed.
    const std::vector<QueueEntry>& drawn() const { return drawn_; }
    void draw(std::size_t count);

private:
    struct Waiting {
        JobId job;
        Time queued_us;
        Time estimate_us;
        std::size_t slot;
        bool operator<(const Waiting& other) const { return job < other.job; }
    };
    struct Shortest {
        Time estimate_us = kEndless;
        void add(const Waiting& job) { estimate_us = std::min(estimate_us, job.estimate_us); }
    };
    using Jobs = SummedBlocks<Waiting, Shortest>;
    // Jobs that have all in common but the time at which they entered the queue, which grows with their numbers.
    struct Strand {
        IndexedJob like;
        Jobs jobs;
        JobId drawn = -1;  // its jobs up to this one are in `drawn_`
        double first_score = 0.0;
        bool is_scored = false;
    };
    struct Head {
        QueueEntry entry;
        std::int32_t strand;
        // The first in order is on top of a heap.
        bool operator<(const Head& other) const { return other.entry < entry; }
    };

    std::int32_t strand_for(const IndexedJob& job);
    void drop_strand(std::int32_t number);
    QueueEntry entry_of(const Strand& strand, const Waiting& job) const;
    const Waiting* first_undrawn(const Strand& strand) const;
    void push_head(std::int32_t number);
    double first_score(Strand& strand);
    void rank();
    RankedJob first_in(Strand& strand, const RankKey& behind, const ShortEnough& is_short, const RankedJob& best);

    std::span<const Demand> demands_;
    Score score_;
    std::vector<Strand> strands_;
    std::vector<std::int32_t> waiting_, spare_;         // strands of which some jobs wait, and the others
    std::vector<std::vector<std::int32_t>> of_demand_;  // of those that wait
    std::vector<std::int32_t> strand_of_slot_;
    // Of this period.
    bool is_ranked_ = false;
    std::vector<QueueEntry> drawn_;
    QueueEntry last_drawn_{};  // also if it has left since: who ranks before it is among those drawn
    bool any_drawn_ = false;
    std::vector<Head> heads_;  // a heap of the first undrawn job of each strand, and of some that no longer are
    std::size_t at_ = 0;       // the place in `drawn_` up to which `first` has looked
};

}  // namespace gpuyard
