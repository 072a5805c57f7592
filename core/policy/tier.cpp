#include "policy/tier.hpp"

#include <algorithm>
#include <stdexcept>
#include <string>

#include "base/index.hpp"
#include "cluster/node_fit.hpp"

namespace gpuyard {

namespace {

// Weights are sums over at most 31 nodes, with the parts of a key one above another. A node adds -1, 0 or 1 to the
// number of fragmented nodes, 0 or 1 to that of whole nodes used, and at most 16^2 to the sum of squares.
constexpr std::int32_t kSquares = 1 << 13;   // `tier`: a whole node outweighs all squares
constexpr std::int32_t kFragment = 1 << 19;  // and a fragmented node all whole ones
constexpr std::int32_t kWholes = 1 << 6;     // `tier-balance`: a fragmented node outweighs all whole ones
constexpr std::int32_t kSquare = 1 << 12;    // and a square both
constexpr std::int32_t kNever = 1 << 29;     // there is no way
constexpr std::int32_t kAnything =
    kNever / 2;  // more than any way weighs; less than kNever and whatever is added to it

// Ids, then GPUs, of which more on an earlier node come first.
bool before(const std::vector<Part>& a, const std::vector<Part>& b) {
    const auto differ = std::mismatch(a.begin(), a.end(), b.begin(), b.end(),
                                      [](const Part& p, const Part& q) { return p.node == q.node; });
    if (differ.second == b.end() && differ.first != a.end()) return false;
    if (differ.first == a.end() && differ.second != b.end()) return true;
    if (differ.first != a.end()) return differ.first->node < differ.second->node;
    return std::lexicographical_compare(a.begin(), a.end(), b.begin(), b.end(),
                                        [](const Part& p, const Part& q) { return p.gpus > q.gpus; });
}

}  // namespace

void TierSearch::check(const ClusterSpec& spec, const Demand& demand) {
    for (const PoolOption& option : demand.pools) {
        const std::int32_t size = spec.pools[as_index(option.pool)].size;
        if (size > kLargestNode)
            throw std::invalid_argument("tier placements are for nodes of at most " + std::to_string(kLargestNode) +
                                        " GPUs, but the cluster has nodes of " + std::to_string(size));
    }
}

bool TierSearch::any(const ClusterState& state, const Demand& demand, const PoolOption& option) {
    // If the emptiest n_min nodes do not suffice, let them give all they have, and one more the rest: no node becomes
    // fragmented that was not before. (If that one were a whole node, so would be the others, and suffice.)
    const Pool& pool = state.spec().pools[as_index(option.pool)];
    std::int64_t missing = demand.gpus;
    std::int64_t nodes = std::int64_t{option.fewest_nodes} + 1;
    for (std::int32_t empty = pool.size; empty > 0 && nodes > 0 && missing > 0; --empty) {
        const std::int64_t used = std::min<std::int64_t>(nodes, state.bucket_count(pool, empty));
        nodes -= used;
        missing -= used * empty;
    }
    return missing <= 0;
}

bool TierSearch::best(const ClusterState& state, const Demand& demand, const PoolOption& option, TierKey key,
                      bool second_tier, std::vector<Part>& out) {
    if (!gather(state, demand, state.spec().pools[as_index(option.pool)], option.fewest_nodes + (second_tier ? 1 : 0)))
        return false;
    weigh(key);
    least_left_ = 0;
    most_left_ = size_;
    // Where fragmented nodes do not come first in the key, tier 2 has to count them; only whole nodes can become
    // fragmented.
    const bool count = second_tier && key == TierKey::balance &&
                       std::any_of(slots_.begin(), slots_.end(), [&](const Slot& slot) { return slot.empty == size_; });
    budgets_ = count ? picks_ + 1 : 1;
    const std::int32_t weight = solve();
    if (weight >= kAnything) return false;
    if (second_tier && key != TierKey::balance && weight >= (key == TierKey::fragments ? kFragment : 1)) return false;
    write_way(state, key != TierKey::ids ? weight : second_tier ? 0 : kAnything, out);
    return true;
}

bool TierSearch::cheapest(const ClusterState& state, const Demand& demand, const PoolOption& option,
                          std::vector<Part>& out) {
    const Pool& pool = state.spec().pools[as_index(option.pool)];
    bool found = false;
    for (const std::int32_t nodes : {option.fewest_nodes, option.fewest_nodes + 1}) {
        if (!gather(state, demand, pool, nodes)) continue;
        weigh(TierKey::cost);
        budgets_ = 1;
        all_slots_ = slots_;
        std::int32_t lowest = 0, highest = size_;
        while (state.bucket_count(pool, lowest) == 0) ++lowest;
        while (state.bucket_count(pool, highest) == 0) --highest;
        // All that is not a sum is the span from the least to the most that a node keeps. So let each span be given in
        // turn: every way is then weighed with its own span, and never with a smaller one.
        std::int32_t above = 0;  // nodes that keep more unless they are used
        for (std::int32_t most = highest; most >= 0; above += state.bucket_count(pool, most--)) {
            if (above > nodes || above > gathered_above(most)) break;
            for (std::int32_t least = full_.empty() ? std::min(lowest, most) : 0; least >= 0; --least)
                found |= try_leaving(state, nodes, least, most, found, out);
        }
    }
    return found;
}

// Writes the best way that leaves nodes with no more than `most`, and those it uses with no less than `least`, if there
// is one and it is better than the one found before.
bool TierSearch::try_leaving(const ClusterState& state, std::int32_t nodes, std::int32_t least, std::int32_t most,
                             bool found, std::vector<Part>& out) {
    slots_ = all_slots_;
    least_left_ = least;
    most_left_ = most;
    const std::int32_t growth = solve();
    const bool second_tier = short_ >= size_;
    if (growth >= kAnything || (second_tier && growth > 0)) return false;
    const std::int32_t cost = 10 * growth + (most - least) + nodes;
    if (found && cost > least_cost_) return false;
    write_way(state, growth, way_);
    if (found && cost == least_cost_ && !before(way_, out)) return false;
    std::swap(out, way_);
    least_cost_ = cost;
    return true;
}

std::int32_t TierSearch::gathered_above(std::int32_t empty) const {
    const auto count =
        std::count_if(all_slots_.begin(), all_slots_.end(), [&](const Slot& slot) { return slot.empty > empty; });
    return static_cast<std::int32_t>(count) + (empty < size_ ? static_cast<std::int32_t>(full_.size()) : 0);
}

// The nodes that a way on so many nodes can consist of. False if there is no such way; true does not say that there is
// one.
bool TierSearch::gather(const ClusterState& state, const Demand& demand, const Pool& pool, std::int32_t nodes) {
    full_.clear();
    slots_.clear();
    if (nodes > demand.gpus || as_index(nodes) > pool.nodes.size()) return false;
    size_ = pool.size;
    short_ = static_cast<std::int32_t>(std::int64_t{nodes} * size_ - demand.gpus);
    picks_ = as_index(std::min(nodes, short_));
    for (std::int32_t empty = std::max(1, size_ - short_); empty <= size_; ++empty)
        gather_bucket(state, demand, pool, empty, nodes);
    if (full_.size() + picks_ != as_index(nodes) || !slots_suffice()) return false;
    std::sort(slots_.begin(), slots_.end(), [](const Slot& a, const Slot& b) { return a.node < b.node; });
    return true;
}

// Of nodes that are interchangeable, the lowest ids, and no more than can take part.
void TierSearch::gather_bucket(const ClusterState& state, const Demand& demand, const Pool& pool, std::int32_t empty,
                               std::int32_t nodes) {
    const std::int32_t picks = static_cast<std::int32_t>(picks_);
    std::array<std::int32_t, kLargestNode + 1> used{};  // by what they can give
    visit_bucket(state, pool, empty, [&](std::int32_t node) {
        const std::int32_t most = demand.limited ? most_gpus(state, demand, node, empty) : empty;
        if (most < std::max(1, size_ - short_)) return true;
        const std::int32_t useful = most == size_ ? nodes : std::min(picks, short_ / (size_ - most));
        if (used[as_index(most)] == useful) return demand.limited;
        ++used[as_index(most)];
        if (most == size_ && used[as_index(most)] <= nodes - picks)
            full_.push_back(node);
        else
            slots_.push_back({node, empty, most});
        return true;
    });
}

// Whether the slots that can give most give enough together.
bool TierSearch::slots_suffice() const {
    std::array<std::int32_t, kLargestNode + 1> count{};
    for (const Slot& slot : slots_) ++count[as_index(slot.most)];
    auto left = static_cast<std::int32_t>(picks_);
    std::int32_t missing = left * size_ - short_;
    for (std::int32_t most = size_; most > 0 && left > 0; --most) {
        const std::int32_t used = std::min(left, count[as_index(most)]);
        left -= used;
        missing -= used * most;
    }
    return left == 0 && missing <= 0;
}

void TierSearch::weigh(TierKey key) {
    for (std::int32_t empty = 1; empty <= size_; ++empty) {
        const std::int32_t whole = empty == size_ ? 1 : 0;
        for (std::int32_t gpus = 1; gpus <= empty; ++gpus) {
            const std::int32_t fragments = whole - (gpus == empty ? 1 : 0);
            const std::int32_t squares = gpus * gpus + 2 * gpus * (size_ - empty);
            std::int32_t& weight = weight_[as_index(empty)][as_index(size_ - gpus)];
            // The growth of what is free on fragmented nodes is z for each whole node used, minus G.
            if (key == TierKey::fragments)
                weight = fragments * kFragment + whole * kSquares + squares;
            else if (key == TierKey::balance)
                weight = squares * kSquare + fragments * kWholes + whole;
            else
                weight = fragments;
            growth_[as_index(empty)][as_index(size_ - gpus)] = static_cast<std::uint8_t>(fragments + 1);
        }
    }
}

TierSearch::Shorts TierSearch::shorts_of(const Slot& slot) const {
    const std::int32_t taken = size_ - slot.empty;
    return {std::max(size_ - slot.most, taken + least_left_), std::min({size_ - 1, short_, taken + most_left_})};
}

// The least weight of a way; kAnything or more if there is none. Fills the table.
std::int32_t TierSearch::solve() {
    row_size_ = budgets_ * width();
    if (slots_.size() < picks_) return kNever;
    table_.resize(std::max(table_.size(), (slots_.size() + 1) * (picks_ + 1) * row_size_));
    std::int32_t* end = row(slots_.size(), 0);
    std::fill_n(end, row_size_, kNever);
    for (std::size_t budget = 0; budget < budgets_; ++budget) end[budget * width()] = 0;
    for (std::size_t i = slots_.size(); i-- > 0;) solve_slot(i);
    return row(0, picks_)[row_size_ - 1];
}

void TierSearch::solve_slot(std::size_t i) {
    const Slot& slot = slots_[i];
    const std::size_t behind = slots_.size() - i - 1;
    const bool may_skip = slot.empty <= most_left_;
    const Shorts shorts = shorts_of(slot);
    for (std::size_t picks = picks_ > i ? picks_ - i : 0; picks <= std::min(picks_, behind + 1); ++picks) {
        std::int32_t* to = row(i, picks);
        if (may_skip && picks <= behind)
            std::copy_n(row(i + 1, picks), row_size_, to);
        else
            std::fill_n(to, row_size_, kNever);
        if (picks == 0) continue;
        const std::int32_t* from = row(i + 1, picks - 1);
        for (std::int32_t s = shorts.from; s <= shorts.to; ++s) {
            const std::int32_t weight = weight_[as_index(slot.empty)][as_index(s)];
            const std::size_t growth = budgets_ > 1 ? growth_[as_index(slot.empty)][as_index(s)] : 0;
            for (std::size_t budget = growth; budget < budgets_; ++budget) {
                std::int32_t* at = to + budget * width() + s;
                const std::int32_t* rest = from + (budget - growth) * width();
                for (std::int32_t d = 0; d <= short_ - s; ++d) at[d] = std::min(at[d], rest[d] + weight);
            }
        }
    }
}

// The first way in order of (ids, GPUs) that weighs at most `bound`, the table being filled.
void TierSearch::write_way(const ClusterState& state, std::int32_t bound, std::vector<Part>& out) {
    out.clear();
    for (const std::int32_t node : full_) out.push_back({node, size_, state.lowest_empty(node, size_)});
    if (picks_ > 0) {
        choose_slots(bound);
        solve();
        choose_gpus(state, bound, out);
    }
    std::sort(out.begin(), out.end(), [](const Part& a, const Part& b) { return a.node < b.node; });
}

// Narrows the slots down to the first list of ids for which some way is light enough.
void TierSearch::choose_slots(std::int32_t bound) {
    reached_.assign(row_size_, kNever);
    reached_.back() = 0;
    std::size_t chosen = 0;
    for (std::size_t i = 0; chosen < picks_; ++i)
        if (take_slot(i, picks_ - chosen - 1, bound)) slots_[chosen++] = slots_[i];
    slots_.resize(picks_);
}

// Whether a way that goes on with this slot, and with so many after it, is light enough; if so it is taken.
bool TierSearch::take_slot(std::size_t i, std::size_t after, std::int32_t bound) {
    const Slot& slot = slots_[i];
    const Shorts shorts = shorts_of(slot);
    const std::int32_t* rest = row(i + 1, after);
    bool possible = false;
    next_.assign(row_size_, kNever);
    for (std::int32_t s = shorts.from; s <= shorts.to; ++s) {
        const std::size_t growth = budgets_ > 1 ? growth_[as_index(slot.empty)][as_index(s)] : 0;
        const std::size_t step = growth * width() + as_index(s);
        for (std::size_t at = step; at < row_size_; ++at) {
            if (at % width() < as_index(s)) continue;
            const std::int32_t weight = reached_[at] + weight_[as_index(slot.empty)][as_index(s)];
            if (weight + rest[at - step] > bound) continue;
            next_[at - step] = std::min(next_[at - step], weight);
            possible = true;
        }
    }
    if (possible) std::swap(reached_, next_);
    return possible;
}

// All slots are used: each gives as much as the later ones allow, the first ones first.
void TierSearch::choose_gpus(const ClusterState& state, std::int32_t bound, std::vector<Part>& out) {
    std::size_t at = row_size_ - 1;
    for (std::size_t i = 0; i < picks_; ++i) {
        const Slot& slot = slots_[i];
        const std::int32_t* rest = row(i + 1, picks_ - i - 1);
        const Shorts shorts = shorts_of(slot);
        for (std::int32_t s = shorts.from; s <= shorts.to; ++s) {
            const std::size_t growth = budgets_ > 1 ? growth_[as_index(slot.empty)][as_index(s)] : 0;
            const std::size_t step = growth * width() + as_index(s);
            if (at < step || at % width() < as_index(s)) continue;
            const std::int32_t left = bound - weight_[as_index(slot.empty)][as_index(s)];
            if (rest[at - step] > left) continue;
            out.push_back({slot.node, size_ - s, state.lowest_empty(slot.node, size_ - s)});
            bound = left;
            at -= step;
            break;
        }
    }
}

}  // namespace gpuyard
