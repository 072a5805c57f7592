// Waiting jobs in order of rank, in groups, for scores that do not change: the first of a group, or the first that is short
// enough, is found without scanning the queue.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <span>
#include <vector>

#include "bit_tree.hpp"
#include "job.hpp"

namespace gpuyard {

using Rank = std::int64_t;
inline constexpr Rank kNoRank = INT64_MAX;

class PendingQueue {
public:
    // `job_by_rank` is the order of all jobs (empty: their own order); `group_of[job]` below `groups`. With `estimates`, queries
    // by estimate are possible.
    PendingQueue(std::span<const std::int32_t> group_of, std::size_t groups, std::vector<std::int32_t> job_by_rank,
                 std::span<const Time> estimates);

    void insert(JobId job) { set(job, true); }
    void erase(JobId job) { set(job, false); }

    JobId job_at(Rank rank) const { return job_by_rank_.empty() ? rank : job_by_rank_[static_cast<std::size_t>(rank)]; }
    Rank rank_of(JobId job) const { return rank_of_.empty() ? job : rank_of_[static_cast<std::size_t>(job)]; }

    Rank first(std::size_t group) const {
        const Group& g = groups_[group];
        return rank_at(g, g.shape.first(words_.data() + g.first_word));
    }
    // The first rank above `above` that waits.
    Rank next(std::size_t group, Rank above) const {
        const Group& g = groups_[group];
        return rank_at(g, g.shape.next(words_.data() + g.first_word, position_after(g, above)));
    }
    // The same among jobs whose estimate satisfies `is_short`, which must hold for every estimate below one for which it
    // holds, and not for kEndless.
    template <class IsShort>
    Rank next_short(std::size_t group, Rank above, IsShort is_short) const {
        const Group& g = groups_[group];
        const Time* tree = shortest_.data() + g.first_leaf;
        std::size_t at = g.leaves + position_after(g, above);
        if (at >= 2 * g.leaves) return kNoRank;
        while (!is_short(tree[at])) {
            while (at & 1) at >>= 1;
            if (at == 0) return kNoRank;
            ++at;
        }
        while (at < g.leaves) {
            at *= 2;
            if (!is_short(tree[at])) ++at;
        }
        return rank_at(g, at - g.leaves);
    }

private:
    struct Group {
        std::size_t first_rank = 0;  // in ranks_
        std::size_t count = 0;
        BitTreeShape shape;
        std::size_t first_word = 0;
        std::size_t leaves = 0;      // of the tree of shortest estimates
        std::size_t first_leaf = 0;  // the tree's place in shortest_
    };

    Rank rank_at(const Group& g, std::size_t position) const {
        return position == BitTreeShape::npos ? kNoRank : ranks_[g.first_rank + position];
    }
    std::size_t position_after(const Group& g, Rank above) const {
        if (above < 0) return 0;
        const auto begin = ranks_.begin() + static_cast<std::ptrdiff_t>(g.first_rank);
        const auto end = begin + static_cast<std::ptrdiff_t>(g.count);
        return static_cast<std::size_t>(std::upper_bound(begin, end, above) - begin);
    }
    void set(JobId job, bool waits);

    std::span<const std::int32_t> group_of_;
    std::span<const Time> estimates_;
    std::vector<std::int32_t> job_by_rank_, rank_of_;
    std::vector<std::int32_t> position_;  // of a job in its group
    std::vector<std::int32_t> ranks_;     // of each group's jobs, ascending
    std::vector<Group> groups_;
    std::vector<std::uint64_t> words_;
    std::vector<Time> shortest_;
};

}  // namespace gpuyard
