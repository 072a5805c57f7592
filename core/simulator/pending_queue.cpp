#include "simulator/pending_queue.hpp"

#include "base/index.hpp"

namespace gpuyard {

PendingQueue::PendingQueue(std::span<const std::int32_t> group_of, std::size_t groups,
                           const std::vector<std::int32_t>& order, std::span<const Time> estimates)
    : group_of_(group_of),
      estimates_(estimates),
      groups_(groups) {
    const std::size_t jobs = group_of.size();
    for (const std::int32_t group : group_of) ++groups_[as_index(group)].count;
    std::size_t words = 0, members = 0, leaves = 0;
    for (Group& g : groups_) {
        g.shape = BitTreeShape(g.count);
        g.first_word = words;
        g.first_member = members;
        words += g.shape.words();
        members += g.count;
        if (estimates.empty()) continue;
        g.leaves = std::bit_ceil(std::max<std::size_t>(g.count, 1));
        g.first_leaf = leaves;
        leaves += 2 * g.leaves;
    }
    words_.assign(words, 0);
    shortest_.assign(leaves, kEndless);
    members_.resize(jobs);
    place_of_.resize(jobs);
    std::vector<std::size_t> filled(groups, 0);
    for (std::size_t rank = 0; rank < jobs; ++rank) {
        const std::size_t job = order.empty() ? rank : as_index(order[rank]);
        const auto group = as_index(group_of[job]);
        const std::size_t position = filled[group]++;
        members_[groups_[group].first_member + position] = {static_cast<Rank>(rank), static_cast<std::int32_t>(job)};
        place_of_[job] = {static_cast<std::int32_t>(position), static_cast<Rank>(rank)};
    }
}

void PendingQueue::set(JobId job, bool waits) {
    const auto index = as_index(job);
    Group& g = groups_[as_index(group_of_[index])];
    const Place place = place_of_[index];
    const auto position = as_index(place.position);
    std::uint64_t* words = words_.data() + g.first_word;
    if (waits) {
        g.shape.insert(words, position);
        if (place.rank < g.first.rank) g.first = {place.rank, static_cast<std::int32_t>(job)};
    } else {
        g.shape.erase(words, position);
        if (place.rank == g.first.rank) g.first = ranked_at(g, g.shape.next(words, position + 1));
    }
    if (estimates_.empty()) return;
    Time* tree = shortest_.data() + g.first_leaf;
    std::size_t at = g.leaves + position;
    tree[at] = waits ? estimates_[index] : kEndless;
    while (at > 1) {
        at /= 2;
        const Time shortest = std::min(tree[2 * at], tree[2 * at + 1]);
        if (tree[at] == shortest) break;
        tree[at] = shortest;
    }
}

}  // namespace gpuyard
