// The tiers of docs/contract/simulator.md, section 9: the ways in which a gang can sit in one pool on the fewest nodes,
// or on one more, and the best of them.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "base/index.hpp"
#include "cluster/cluster.hpp"

namespace gpuyard {

// What ways are compared by: the keys of `tier`, `tier-balance`, `tier-lex` and `tier-cost`.
enum class TierKey : std::uint8_t { fragments, balance, ids, cost };

// A node of z GPUs that gives k of them *falls short* by z - k. On n nodes a gang of G falls short by n * z - G, which
// is less than z in tier 1 and less than 2 z in tier 2 however large the gang is: all but a few nodes give all they
// have. Nodes with the same number of empty GPUs, of which they can give equally many, are interchangeable: the lowest
// ids are used, and those give more. What is left to choose is found by dynamic programming over nodes in order of id,
// since all that ways are compared by is a sum over nodes. Buffers are reused.
class TierSearch {
public:
    static constexpr std::int32_t kLargestNode = 16;  // GPUs

    // Throws unless all the pools that a job may use have nodes that tiers are made for.
    static void check(const ClusterSpec& spec, const Demand& demand);

    // The best way in a pool in tier 1, or in tier 2, by ascending node id. False if there is none. Not for
    // TierKey::cost.
    bool best(const ClusterState& state, const Demand& demand, const PoolOption& option, TierKey key, bool second_tier,
              std::vector<Part>& out);
    // The best of both tiers together by TierKey::cost.
    bool cheapest(const ClusterState& state, const Demand& demand, const PoolOption& option, std::vector<Part>& out);
    // Whether there is a way of either tier for a job that needs neither CPUs nor memory.
    static bool any(const ClusterState& state, const Demand& demand, const PoolOption& option);

private:
    struct Slot {  // a node that may be used
        std::int32_t node;
        std::int32_t empty;
        std::int32_t most;  // GPUs that it can give
    };
    struct Shorts {  // from, to: what a slot may fall short by
        std::int32_t from, to;
    };

    bool gather(const ClusterState& state, const Demand& demand, const Pool& pool, std::int32_t nodes);
    void gather_bucket(const ClusterState& state, const Demand& demand, const Pool& pool, std::int32_t empty,
                       std::int32_t nodes);
    bool slots_suffice() const;
    void weigh(TierKey key);
    Shorts shorts_of(const Slot& slot) const;
    std::int32_t solve();
    void solve_slot(std::size_t i);
    void write_way(const ClusterState& state, std::int32_t bound, std::vector<Part>& out);
    void choose_slots(std::int32_t bound);
    bool take_slot(std::size_t i, std::size_t after, std::int32_t bound);
    void choose_gpus(const ClusterState& state, std::int32_t bound, std::vector<Part>& out);
    bool try_leaving(const ClusterState& state, std::int32_t nodes, std::int32_t least, std::int32_t most, bool found,
                     std::vector<Part>& out);
    std::int32_t gathered_above(std::int32_t empty) const;

    // Weights of the ways to complete a choice: slots from `i` on, of which `picks` are used.
    std::int32_t* row(std::size_t i, std::size_t picks) {
        return table_.data() + (i * (picks_ + 1) + picks) * row_size_;
    }
    std::size_t width() const { return as_index(short_) + 1; }

    std::int32_t size_ = 0;           // of a node
    std::int32_t short_ = 0;          // by which all nodes together fall short
    std::size_t picks_ = 0;           // nodes to choose, beside those in full_
    std::vector<std::int32_t> full_;  // nodes that give all they have in every best way
    std::vector<Slot> slots_;         // by id
    std::vector<Slot> all_slots_;     // while slots_ is narrowed down
    std::int32_t least_left_ = 0;     // empty GPUs that a node that is used must keep
    std::int32_t most_left_ = 0;      // that any node may keep
    std::size_t budgets_ = 1;         // 1: the number of fragmented nodes may grow; else it may not, and is counted
    std::size_t row_size_ = 0;        // of the table: budgets_ times width()
    std::array<std::array<std::int32_t, kLargestNode>, kLargestNode + 1> weight_{};  // by empty, short by
    std::array<std::array<std::uint8_t, kLargestNode>, kLargestNode + 1> growth_{};  // of fragmented nodes, + 1
    std::vector<std::int32_t> table_;
    std::vector<std::int32_t> reached_;  // the least weight of the slots chosen so far, by what is left to choose
    std::vector<std::int32_t> next_;
    std::vector<Part> way_;
    std::int32_t least_cost_ = 0;  // of the way found
};

}  // namespace gpuyard
