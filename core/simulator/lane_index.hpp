// Orders by what users or groups have used or hold (`fair-share`, `group-fair-share`, `drf`): the jobs of one of them,
// its lane, keep the order in which they arrived, so that only lanes are ranked.
#pragma once

#include <algorithm>
#include <span>
#include <vector>

#include "base/summed_blocks.hpp"
#include "simulator/accounts.hpp"
#include "simulator/rank_index.hpp"

namespace gpuyard {

class LaneIndex : public RankIndex {
public:
    // If the index sums up what is asked for, scores must not fall with it; else all jobs of a lane have one score.
    LaneIndex(std::span<const Demand> demands, std::size_t lanes, bool sums, LaneScore score)
        : demands_(demands),
          sums_(sums),
          score_(std::move(score)),
          lanes_(lanes),
          parts_(demands.size()) {}

    void insert(const IndexedJob& job) override;
    void erase(const IndexedJob& job) override;
    void begin(const Moment& moment) override;
    RankedJob first(const RankKey& behind) override;
    RankedJob first_of(std::int32_t demand, const RankKey& behind, const ShortEnough& is_short) override;

private:
    struct Asking {  // a job of a lane
        JobId job;
        std::int32_t demand;
        Time estimate_us;
        Holdings asked;
        bool operator<(const Asking& other) const { return job < other.job; }
    };
    struct Asked {
        Holdings sum;
        void add(const Asking& job) { sum.add(job.asked); }
    };
    struct Lasting {  // a job of one lane and one demand
        JobId job;
        Time estimate_us;
        bool operator<(const Lasting& other) const { return job < other.job; }
    };
    struct Shortest {
        Time estimate_us = kEndless;
        void add(const Lasting& job) { estimate_us = std::min(estimate_us, job.estimate_us); }
    };
    struct Lane {
        SummedBlocks<Asking, Asked> jobs;
        // Of the moment that was begun.
        double score = 0.0;
        bool scored = false;
        RankedJob next;   // behind the last place that was asked for
        Holdings before;  // what the jobs up to `next` ask for
        bool over = false;
    };
    struct Part {  // of a lane's jobs, those of one demand
        std::int32_t lane;
        SummedBlocks<Lasting, Shortest> jobs;
    };

    double score_of(std::int32_t lane);
    double score_in(std::int32_t lane, JobId job);
    void advance(std::int32_t lane, const RankKey& behind);
    Part& part_of(std::int32_t demand, std::int32_t lane);
    RankedJob first_in(const Part& part, std::int32_t demand, const RankKey& behind, const ShortEnough& is_short);

    std::span<const Demand> demands_;
    bool sums_;
    LaneScore score_;
    std::vector<Lane> lanes_;
    std::vector<std::int32_t> waiting_;     // lanes of which some jobs wait
    std::vector<std::vector<Part>> parts_;  // by demand, by lane
};

}  // namespace gpuyard
