// The waiting jobs of a queue under an order whose scores change while jobs wait, so that the next job in order, or the
// next of a demand that is short enough, is found without scoring the whole queue.
#pragma once

#include <functional>
#include <limits>
#include <memory>
#include <span>

#include "policy/order.hpp"
#include "policy/placement.hpp"
#include "simulator/accounts.hpp"

namespace gpuyard {

// A job's place in the order of this moment: smaller goes first.
struct RankKey {
    double score = -std::numeric_limits<double>::infinity();
    JobId job = -1;                                                // the default is before all jobs
    std::int32_t tier = std::numeric_limits<std::int32_t>::max();  // of its partition; higher goes first

    bool operator<(const RankKey& other) const {
        if (tier != other.tier) return tier > other.tier;
        return score != other.score ? score < other.score : job < other.job;
    }
};

struct RankedJob {
    RankKey key;
    std::int32_t demand = 0;
    Time estimate_us = kEndless;

    explicit operator bool() const { return key.job >= 0; }
    // Whether it goes before another, which need not be there.
    bool before(const RankedJob& other) const { return !other || key < other.key; }
};

// A waiting job's place in the order of its queue.
struct QueueEntry {
    double score;
    JobId job;
    std::size_t slot;
    std::int32_t tier = 0;  // of its partition; 0 where entries are kept by job

    bool operator<(const QueueEntry& other) const {
        if (tier != other.tier) return tier > other.tier;
        return score != other.score ? score < other.score : job < other.job;
    }
};

// Which estimates end by the shadow time. If one does, all shorter ones do.
struct ShortEnough {
    const Allocation* allocation = nullptr;  // null: any length will do
    double locality_penalty = 0.0;
    Time room_us = kEndless;

    bool operator()(Time estimate_us) const {
        if (allocation == nullptr) return true;
        return estimate_us != kEndless && allocation->run_time(estimate_us, locality_penalty) <= room_us;
    }
};

// A job as an index sees it. `lane` is whose jobs it goes with: its user or its group.
struct IndexedJob {
    JobId job;
    std::int32_t demand;
    std::int32_t lane;
    Time submit_us;
    Time estimate_us;
    // For orders that change by period.
    Time queued_us = 0;
    std::int32_t association = 0, qos = -1;
    double priority = 0.0;
    std::size_t slot = 0;  // where its keeper has it, smaller than the most jobs that ever waited
};

class RankIndex {
public:
    virtual ~RankIndex() = default;

    virtual void insert(const IndexedJob& job) = 0;
    virtual void erase(const IndexedJob& job) = 0;

    // Scores are those of this moment from now on. Jobs may be erased while it lasts, none inserted.
    virtual void begin(const Moment& moment) = 0;
    // The first job behind a place; the places asked for must not go back until `begin`.
    virtual RankedJob first(const RankKey& behind) = 0;
    // The first of a demand that is short enough.
    virtual RankedJob first_of(std::int32_t demand, const RankKey& behind, const ShortEnough& is_short) = 0;
};

// The score of a job of a lane, now. `asked` is what it and the jobs of its lane that came before it ask for, which
// only `drf` goes by.
using LaneScore = std::function<double(std::int32_t lane, const Holdings& asked)>;

// Whether passes of this policy can be made with an index: by order, backfill, admission and placement.
bool may_index(const Policy& policy);
// For such a policy. `score` for orders that go by lanes, of which there are so many.
std::unique_ptr<RankIndex> make_rank_index(Order order, std::span<const Demand> demands, std::size_t lanes,
                                           LaneScore score);

}  // namespace gpuyard
