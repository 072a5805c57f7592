// Room for a job by stopping others: docs/contract/simulator.md, section 15.
#pragma once

#include <functional>
#include <vector>

#include "simulator/snapshot.hpp"

namespace gpuyard {

class RoomMaker {
public:
    explicit RoomMaker(const Snapshot& snapshot) : snapshot_(snapshot), room_(snapshot.state) {}

    // Forgets the last decision. `score` is that of a running job.
    void begin(std::int32_t queue, bool may_preempt, std::function<double(const ActiveJob&)> score);

    // Room for a job with this score in `state`, by preemption or by moving one job. On success its allocation, who
    // stops for it, and, if that one is moved, where to.
    struct Room {
        Allocation allocation;
        std::vector<JobId> stops;
        bool moves = false;
        Allocation moved_to;
    };
    bool make(const ClusterState& state, const Demand& demand, std::int64_t row, double score, Placer& placer,
              const std::vector<std::uint8_t>& asleep, Room& out);

private:
    struct Victim {
        double score;
        JobId job;
        std::size_t active;  // its place in the snapshot
        bool operator<(const Victim& other) const {
            return score != other.score ? score < other.score : job < other.job;
        }
    };

    bool may_stop(const ActiveJob& job) const;
    void collect();
    const Victim* victim(std::size_t k);
    bool preempt(const ClusterState& state, const Demand& demand, std::int64_t row, double score, Placer& placer,
                 Room& out);
    bool move_one(const ClusterState& state, const Demand& demand, std::int64_t row, Placer& placer,
                  const std::vector<std::uint8_t>& asleep, Room& out);
    const ActiveJob& active(std::size_t i) const { return snapshot_.active[i]; }
    const Demand& demand_of(std::size_t i) const { return snapshot_.demand(active(i).demand); }

    const Snapshot& snapshot_;
    std::int32_t queue_ = 0;
    bool may_preempt_ = false;
    bool collected_ = false;
    bool collected_movable_ = false;
    std::function<double(const ActiveJob&)> score_;
    std::vector<Victim> heap_;           // those not yet in worst_
    std::vector<Victim> worst_;          // the worst first
    std::vector<std::uint8_t> stopped_;  // by place in the snapshot
    std::vector<std::size_t> movable_;
    std::vector<std::size_t> released_;
    ClusterState room_;
};

}  // namespace gpuyard
