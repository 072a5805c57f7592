// Placement rules: which nodes a job gets, given what is free. docs/contract/simulator.md, section 9.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "base/index.hpp"
#include "cluster/cluster.hpp"
#include "cluster/job_mix.hpp"
#include "policy/tier.hpp"

namespace gpuyard {

enum class Placement : std::uint8_t {
    consolidate,
    best_fit,
    first_fit,
    worst_fit,
    first_available,
    anywhere,
    spread,
    random,
    power_aware,
    tetris,
    fgd,
    tier,
    tier_balance,
    tier_lex,
    tier_cost,
};

// Whether a rule may split a gang over any nodes of any pools; the others stay inside one pool.
inline bool splits_freely(Placement rule) {
    return rule == Placement::anywhere || rule == Placement::spread || rule == Placement::random;
}

inline bool is_tier(Placement rule) { return rule >= Placement::tier && rule <= Placement::tier_cost; }

// The allowed pools in the order in which a rule tries them.
inline const std::vector<PoolOption>& pools_of(const Demand& demand, Placement rule) {
    return rule == Placement::power_aware && demand.kind != DemandKind::cpu_only ? demand.pools_by_energy
                                                                                 : demand.pools;
}

// Whether a job that does not fit may fit because others start. Tier 2 must not break up whole nodes; if a node lacks
// the CPUs or the memory to give all its GPUs, it can take part only after another job has broken it up.
inline bool starts_may_make_room(Placement rule, const Demand& demand) {
    return is_tier(rule) && demand.kind == DemandKind::whole && demand.limited && demand.nodes == 0;
}

// docs/contract/simulator.md, section 6. Endless stays endless; throws if the result is no representable time.
Time run_time(Time duration_us, double speed, std::int32_t nodes_used, std::int32_t fewest_nodes,
              double locality_penalty);

struct Allocation {
    std::vector<Part> parts;  // by ascending node id
    std::int32_t pool = -1;   // the pool it sits in, for rules that stay inside one
    double speed = 1.0;       // lowest among its GPUs
    std::int32_t fewest_nodes = 1;

    Time run_time(Time duration_us, double locality_penalty) const {
        return gpuyard::run_time(duration_us, speed, static_cast<std::int32_t>(parts.size()), fewest_nodes,
                                 locality_penalty);
    }
};

// Jobs that do not fit even on the empty cluster, under a cap on what it draws (milliwatts; INT64_MAX: none).
std::vector<JobId> never_placeable(std::shared_ptr<const ClusterSpec> cluster, const JobTable& jobs, Placement rule,
                                   std::int64_t power_cap_mw);

// Chooses nodes for one job after another; reuses its buffers.
class Placer {
public:
    Placer(Placement rule, std::uint64_t seed) : rule_(rule), seed_(seed) {}

    Placement rule() const { return rule_; }

    // The jobs that have arrived, which `fgd` goes by. None have until this is called.
    void set_mix(const JobMix* mix) { mix_ = mix; }

    // Whether a job that fits would fit all the more if more were free. Not so for tier 2, which must not break up
    // whole nodes, nor if the draw of the nodes that the rule happens to choose counts.
    bool needs_only_room() const { return cap_mw_ == kNoCap && !is_tier(rule_); }

    // By node: whether it sleeps now, which `power-aware` avoids. None sleeps until this is called.
    void set_asleep(const std::vector<std::uint8_t>* asleep) { asleep_ = asleep; }
    // The most that the cluster may draw, milliwatts.
    void set_power_cap(std::int64_t cap_mw) { cap_mw_ = cap_mw; }
    bool has_power_cap() const { return cap_mw_ != kNoCap; }

    // Whether the job fits; if so `out` says where. `row` is the job's original row (for `random`).
    bool place(const ClusterState& state, const Demand& demand, std::int64_t row, Allocation& out);
    // Whether the job fits.
    bool placeable(const ClusterState& state, const Demand& demand);

private:
    // By what nodes come first for a job that asks for some; the smaller the better.
    struct AskedRank {
        bool asleep = false;
        double misalignment = 0.0;
        std::int64_t key = 0;
        std::int32_t node = 0;

        auto operator<=>(const AskedRank&) const = default;
    };

    bool within_cap(const ClusterState& state, const Demand& demand, const Allocation& allocation) const {
        return cap_mw_ == kNoCap ||
               state.spec().idle_mw + state.busy_mw() + state.extra_mw(demand, allocation.parts) <= cap_mw_;
    }
    bool sleeps(std::int32_t node) const { return asleep_ != nullptr && (*asleep_)[as_index(node)] != 0; }
    const std::vector<PoolOption>& pools_of(const Demand& demand) const { return gpuyard::pools_of(demand, rule_); }
    void take_full_nodes(const ClusterState& state, const Demand& demand, const PoolOption& option, bool sleeping,
                         Allocation& out);
    bool place_in_pools(const ClusterState& state, const Demand& demand, Allocation& out);
    bool place_first_available(const ClusterState& state, const Demand& demand, Allocation& out);
    bool place_in_pool(const ClusterState& state, const Demand& demand, const PoolOption& option, Allocation& out);
    bool place_gang(const ClusterState& state, const Demand& demand, const PoolOption& option, Allocation& out);
    std::int32_t cpu_node(const ClusterState& state, const Demand& demand, const PoolOption& option) const;
    bool place_single(const ClusterState& state, const Demand& demand, const PoolOption& option, Allocation& out);
    bool place_freely(const ClusterState& state, const Demand& demand, std::int64_t row, Allocation& out);
    bool split_gang(const ClusterState& state, const Demand& demand, Allocation& out);
    void order_nodes(const ClusterState& state, const Demand& demand, std::int64_t row);
    std::int32_t remainder_node(const ClusterState& state, const Demand& demand, const PoolOption& option,
                                const std::vector<Part>& taken) const;

    bool place_on_asked_nodes(const ClusterState& state, const Demand& demand, std::int64_t row, Allocation& out);
    bool take_asked_nodes(const ClusterState& state, const Demand& demand, const PoolOption& option, std::int64_t row,
                          Allocation& out);
    bool take_best_nodes(const ClusterState& state, const Demand& demand, const Pool& pool, std::int32_t gpus,
                         std::int32_t count, std::int64_t row, std::vector<Part>& taken);
    AskedRank asked_rank(const ClusterState& state, const Demand& demand, std::int32_t node, std::int32_t gpus,
                         std::int64_t row) const;
    bool place_in_tiers(const ClusterState& state, const Demand& demand, Allocation& out);
    bool goes_by_score() const { return rule_ == Placement::tetris || rule_ == Placement::fgd; }
    std::int32_t scored_remainder_node(const ClusterState& state, const Demand& demand, const PoolOption& option,
                                       const std::vector<Part>& taken) const;
    bool place_single_by_score(const ClusterState& state, const Demand& demand, const PoolOption& option,
                               Allocation& out) const;
    const JobMix& mix() const;

    struct Ranked {
        std::uint64_t key;
        std::int32_t node;
    };
    Placement rule_;
    std::uint64_t seed_;
    static constexpr std::int64_t kNoCap = INT64_MAX;
    std::int64_t cap_mw_ = kNoCap;
    const std::vector<std::uint8_t>* asleep_ = nullptr;
    std::vector<Ranked> nodes_;
    std::vector<AskedRank> asked_;
    Allocation other_;  // a second way to compare with
    Allocation probe_;  // where `placeable` leaves its answer
    const JobMix* mix_ = nullptr;
    TierSearch tiers_;
};

}  // namespace gpuyard
