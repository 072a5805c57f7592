// Placement rules: which nodes a job gets, given what is free. docs/simulator.md, section 9.
#pragma once

#include <cstdint>
#include <vector>

#include "cluster.hpp"

namespace gpuyard {

enum class Placement : std::uint8_t { consolidate, best_fit, first_fit, worst_fit, first_available, anywhere, spread, random };

// Whether a rule may split a gang over any nodes of any pools; the others stay inside one pool.
inline bool splits_freely(Placement rule) {
    return rule == Placement::anywhere || rule == Placement::spread || rule == Placement::random;
}

// docs/simulator.md, section 6. Endless stays endless; throws if the result is no representable time.
Time run_time(Time duration_us, double speed, std::int32_t nodes_used, std::int32_t fewest_nodes, double locality_penalty);

struct Allocation {
    std::vector<Part> parts;     // by ascending node id
    std::int32_t pool = -1;      // the pool it sits in, for rules that stay inside one
    double speed = 1.0;          // lowest among its GPUs
    std::int32_t fewest_nodes = 1;

    Time run_time(Time duration_us, double locality_penalty) const {
        return gpuyard::run_time(duration_us, speed, static_cast<std::int32_t>(parts.size()), fewest_nodes, locality_penalty);
    }
};

// Chooses nodes for one job after another; reuses its buffers.
class Placer {
public:
    Placer(Placement rule, std::uint64_t seed) : rule_(rule), seed_(seed) {}

    Placement rule() const { return rule_; }

    // Whether the job fits; if so `out` says where. `row` is the job's original row (for `random`).
    bool place(const ClusterState& state, const Demand& demand, std::int64_t row, Allocation& out);
    // Whether the job fits.
    bool placeable(const ClusterState& state, const Demand& demand);

private:
    bool place_in_pools(const ClusterState& state, const Demand& demand, Allocation& out);
    bool place_first_available(const ClusterState& state, const Demand& demand, Allocation& out);
    bool place_in_pool(const ClusterState& state, const Demand& demand, const PoolOption& option, Allocation& out);
    bool place_gang(const ClusterState& state, const Demand& demand, const PoolOption& option, Allocation& out);
    bool place_single(const ClusterState& state, const Demand& demand, const PoolOption& option, Allocation& out);
    bool place_freely(const ClusterState& state, const Demand& demand, std::int64_t row, Allocation& out);
    bool split_gang(const ClusterState& state, const Demand& demand, Allocation& out);
    void order_nodes(const ClusterState& state, const Demand& demand, std::int64_t row);
    std::int32_t remainder_node(const ClusterState& state, const Demand& demand, const PoolOption& option,
                                const std::vector<Part>& taken) const;

    struct Ranked {
        std::uint64_t key;
        std::int32_t node;
    };
    Placement rule_;
    std::uint64_t seed_;
    std::vector<Ranked> nodes_;
    Allocation other_;  // a second way to compare with
    Allocation probe_;  // where `placeable` leaves its answer
};

}  // namespace gpuyard
