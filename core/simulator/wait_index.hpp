// Orders by a quotient of wait and estimate (`wfp3`, `unicep`): of two jobs of one demand, one that has waited no less
// and takes no longer does not score worse.
#pragma once

#include <algorithm>
#include <span>
#include <vector>

#include "base/summed_blocks.hpp"
#include "simulator/rank_index.hpp"

namespace gpuyard {

class WaitIndex : public RankIndex {
public:
    // Of one of the orders above. `demands` must outlive it.
    WaitIndex(Order order, std::span<const Demand> demands) : order_(order), demands_(demands), of_(demands.size()) {}

    void insert(const IndexedJob& job) override;
    void erase(const IndexedJob& job) override;
    void begin(const Moment& moment) override { moment_ = moment; }
    RankedJob first(const RankKey& behind) override;
    RankedJob first_of(std::int32_t demand, const RankKey& behind, const ShortEnough& is_short) override;

private:
    struct Entry {
        Time estimate_us;
        JobId job;
        Time submit_us;
        bool operator<(const Entry& other) const {
            return estimate_us != other.estimate_us ? estimate_us < other.estimate_us : job < other.job;
        }
    };
    // A job that would go before all of the block.
    struct Ideal {
        Time estimate_us = kEndless;
        Time submit_us = kEndless;
        void add(const Entry& entry) {
            estimate_us = std::min(estimate_us, entry.estimate_us);
            submit_us = std::min(submit_us, entry.submit_us);
        }
    };
    using Jobs = SummedBlocks<Entry, Ideal>;
    struct Bounded {
        double bound;
        std::int32_t demand;
        const Jobs::Block* block;
    };

    double score_of(std::int32_t demand, Time submit_us, Time estimate_us) const;
    void collect(std::int32_t demand, const ShortEnough& is_short);
    RankedJob best_collected(const RankKey& behind, const ShortEnough& is_short);
    void look_through(const Bounded& in, const RankKey& behind, const ShortEnough& is_short, RankedJob& best) const;

    Order order_;
    std::span<const Demand> demands_;
    std::vector<Jobs> of_;               // by demand
    std::vector<std::int32_t> waiting_;  // demands of which some jobs wait
    std::vector<Bounded> collected_;
    Moment moment_{};
};

}  // namespace gpuyard
