// Orders under which many jobs share one score (`tiresias`: the level of their service, `gittins`: the bucket of their
// GPU time): which level a job is of changes rarely while it waits, so that only levels are ranked.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <vector>

#include "base/job.hpp"
#include "simulator/rank_index.hpp"

namespace gpuyard {

class LevelIndex {
public:
    explicit LevelIndex(std::size_t levels) : levels_(levels) {}

    // `slot` is where its keeper has it, smaller than the most jobs that ever waited.
    void insert(JobId job, std::size_t slot, std::size_t level);
    void erase(JobId job, std::size_t slot);
    // To another level.
    void move(JobId job, std::size_t slot, std::size_t level);

    // The order of this moment, by `score(level)`. Nobody may enter or leave while it lasts.
    template <class Score>
    void begin(const Score& score) {
        drawn_.clear();
        heads_.clear();
        for (const std::size_t level : waiting_) push_head(score(level), levels_[level], levels_[level].begin());
    }
    // The first jobs in order: as many as were asked for since `begin`.
    const std::vector<QueueEntry>& drawn() const { return drawn_; }
    void draw(std::size_t count);

private:
    using Level = std::map<JobId, std::size_t>;  // the slots of its jobs
    struct Head {
        QueueEntry entry;
        const Level* level;
        Level::const_iterator at;
        // The first in order is on top of a heap.
        bool operator<(const Head& other) const { return other.entry < entry; }
    };
    void push_head(double score, const Level& level, Level::const_iterator at);

    std::vector<Level> levels_;
    std::vector<std::size_t> waiting_;  // levels of which some jobs wait
    std::vector<std::size_t> level_of_slot_;
    std::vector<QueueEntry> drawn_;
    std::vector<Head> heads_;  // a heap
};

}  // namespace gpuyard
