// Waiting jobs in order of rank, in groups, for scores that do not change: the first of a group, or the first that is
// short enough, is found without scanning the queue.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <span>
#include <vector>

#include "base/bit_tree.hpp"
#include "base/index.hpp"
#include "base/job.hpp"

namespace gpuyard {

using Rank = std::int32_t;
inline constexpr Rank kNoRank = INT32_MAX;

// A waiting job and its place in the order of all jobs. Rank kNoRank: there is none.
struct Ranked {
    Rank rank = kNoRank;
    std::int32_t job = -1;
    explicit operator bool() const { return rank != kNoRank; }
};

class PendingQueue {
public:
    // `order` lists all jobs in order (empty: their own order); `group_of[job]` is below `groups`. With `estimates`,
    // queries by estimate are possible.
    PendingQueue(std::span<const std::int32_t> group_of, std::size_t groups, const std::vector<std::int32_t>& order,
                 std::span<const Time> estimates);

    void insert(JobId job) { set(job, true); }
    void erase(JobId job) { set(job, false); }

    bool contains(JobId job) const {
        const auto index = as_index(job);
        const Group& g = groups_[as_index(group_of_[index])];
        return g.shape.contains(words_.data() + g.first_word, as_index(place_of_[index].position));
    }
    Rank rank_of(JobId job) const { return place_of_[as_index(job)].rank; }

    Ranked first(std::size_t group) const { return groups_[group].first; }
    // The first that ranks behind a job of the group, which need not wait itself.
    Ranked behind(std::size_t group, JobId job) const {
        const Group& g = groups_[group];
        const auto position = as_index(place_of_[as_index(job)].position);
        return ranked_at(g, g.shape.next(words_.data() + g.first_word, position + 1));
    }
    // The first that ranks behind `above`.
    Ranked next(std::size_t group, Rank above) const {
        const Group& g = groups_[group];
        return ranked_at(g, g.shape.next(words_.data() + g.first_word, position_after(g, above)));
    }
    // The same among jobs whose estimate satisfies `is_short`, which must hold for every estimate below one for which
    // it holds, and not for kEndless.
    template <class IsShort>
    Ranked next_short(std::size_t group, Rank above, IsShort is_short) const {
        const Group& g = groups_[group];
        const Time* tree = shortest_.data() + g.first_leaf;
        std::size_t at = g.leaves + position_after(g, above);
        if (at >= 2 * g.leaves) return {};
        while (!is_short(tree[at])) {
            while (at & 1) at >>= 1;
            if (at == 0) return {};
            ++at;
        }
        while (at < g.leaves) {
            at *= 2;
            if (!is_short(tree[at])) ++at;
        }
        return ranked_at(g, at - g.leaves);
    }

private:
    struct Group {
        std::size_t first_member = 0;  // in members_
        std::size_t count = 0;
        BitTreeShape shape;
        std::size_t first_word = 0;
        std::size_t leaves = 0;      // of the tree of shortest estimates
        std::size_t first_leaf = 0;  // the tree's place in shortest_
        Ranked first;                // that waits
    };
    struct Place {
        std::int32_t position;  // in its group
        Rank rank;
    };

    Ranked ranked_at(const Group& g, std::size_t position) const {
        return position == BitTreeShape::npos ? Ranked{} : members_[g.first_member + position];
    }
    std::size_t position_after(const Group& g, Rank above) const {
        if (above < 0) return 0;
        const auto begin = members_.begin() + static_cast<std::ptrdiff_t>(g.first_member);
        const auto end = begin + static_cast<std::ptrdiff_t>(g.count);
        const auto found =
            std::upper_bound(begin, end, above, [](Rank rank, const Ranked& member) { return rank < member.rank; });
        return as_index(found - begin);
    }
    void set(JobId job, bool waits);

    std::span<const std::int32_t> group_of_;
    std::span<const Time> estimates_;
    std::vector<Place> place_of_;  // by job
    std::vector<Ranked> members_;  // of each group, by rank
    std::vector<Group> groups_;
    std::vector<std::uint64_t> words_;
    std::vector<Time> shortest_;
};

}  // namespace gpuyard
