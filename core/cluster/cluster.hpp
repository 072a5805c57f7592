// The cluster: what it consists of (ClusterSpec) and what is free on it now (ClusterState).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/bit_tree.hpp"
#include "base/index.hpp"
#include "base/job.hpp"

namespace gpuyard {

// Nodes of one GPU type, owner or partition, and size: the unit in which gangs are placed. Only pools of different
// partitions may share nodes.
struct Pool {
    std::int32_t type = 0;
    std::int32_t queue = 0;
    std::int32_t partition = -1;  // -1: of none
    std::int32_t size = 0;        // GPUs of a node
    double speed = 1.0;
    double peak_w = 0.0;              // of a GPU
    double idle_w = 0.0;              // of its first node without its GPUs
    std::vector<std::int32_t> nodes;  // ascending
    BitTreeShape shape;               // of a set of its nodes, by position in `nodes`
    std::size_t first_word = 0;       // of its buckets in ClusterState
    std::size_t first_bucket = 0;     // of its bucket counts in ClusterState
};

// One node's part of an allocation. `gpu_mask` names the GPUs where GPUs are tracked one by one (shared GPUs).
struct Part {
    std::int32_t node;
    std::int32_t gpus;
    std::uint64_t gpu_mask;

    bool operator==(const Part&) const = default;
};

struct NodeColumns {
    std::span<const std::int32_t> type;
    std::span<const std::int32_t> gpus;
    std::span<const std::int64_t> cpus;
    std::span<const std::int64_t> memory_mib;
    std::span<const std::int32_t> owner;  // -1 = nobody's
};

// Watts of nodes without their GPUs, and of one GPU of each type. All empty: not known.
struct PowerColumns {
    std::span<const double> node_idle_w;
    std::span<const double> type_idle_w;
    std::span<const double> type_peak_w;
};

// Nodes that jobs ask for by one name: docs/contract/slurm.md, section 1.
struct Partition {
    std::vector<std::int32_t> nodes;  // ascending
    std::int32_t tier = 1;            // higher goes first
    std::int32_t job_factor = 1;      // for `multifactor`
    std::int32_t queue = 0;           // those that share nodes have one queue; found out
    std::int64_t gpus = 0;            // of its nodes; found out
    std::int64_t given_cpus = 0;      // of those that state them
    std::int64_t given_memory_mib = 0;
};

class ClusterSpec {
public:
    // `track_gpus` keeps the state of every single GPU, which shared GPUs need; it limits nodes to 64 GPUs.
    ClusterSpec(const NodeColumns& nodes, std::span<const double> type_speed, bool track_gpus,
                const PowerColumns& power = {}, std::vector<Partition> partitions = {});

    std::size_t node_count() const { return size.size(); }

    // A demand with its allowed pools filled in. `types` empty means any, `nodes` 0 that it does not ask for any.
    // `partition` -1: of a cluster without any.
    Demand make_demand(std::int32_t gpus, std::int32_t gpu_milli, std::int64_t cpus, std::int64_t memory_mib,
                       std::int32_t queue, std::span<const std::int32_t> types, std::int32_t nodes,
                       std::int32_t partition = -1) const;

    // Where a node sits in a pool.
    struct Membership {
        std::int32_t pool;
        std::int32_t position;  // in the pool's `nodes`
    };
    // Calls `visit` for every pool of a node.
    template <class Visit>
    void visit_pools(std::int32_t node, Visit visit) const {
        visit(Membership{pool[as_index(node)], position[as_index(node)]});
        if (more_pools.empty()) return;
        for (const Membership& more : more_pools[as_index(node)]) visit(more);
    }
    // The pool of a node that a job may use, or -1: at most one is of its partition.
    std::int32_t pool_for(const Demand& demand, std::int32_t node) const {
        std::int32_t found = -1;
        visit_pools(node, [&](const Membership& in) { found = demand.allows[as_index(in.pool)] ? in.pool : found; });
        return found;
    }
    bool may_use(const Demand& demand, std::int32_t node) const { return pool_for(demand, node) >= 0; }

    std::vector<std::int32_t> size;                   // by node
    std::vector<std::int32_t> pool;                   // its first
    std::vector<std::int32_t> position;               // in its first pool's `nodes`
    std::vector<std::vector<Membership>> more_pools;  // by node, if partitions overlap
    std::vector<Partition> partitions;
    std::vector<std::int64_t> cpus;
    std::vector<std::int64_t> memory_mib;
    std::vector<std::size_t> first_gpu;
    std::vector<Pool> pools;
    std::int32_t queues = 1;  // queue 0: nodes nobody owns; queue i + 1: owner i
    bool track_gpus = false;
    std::size_t bucket_words = 0;
    std::size_t buckets = 0;
    std::size_t total_gpus = 0;
    std::int64_t given_cpus = 0;  // over the nodes on which they are given
    std::int64_t given_memory_mib = 0;
    bool has_watts = false;
    std::int64_t idle_mw = 0;                // of all nodes and GPUs, milliwatts
    std::vector<std::int64_t> gpu_extra_mw;  // by node: what a busy GPU draws beyond an idle one

private:
    void add_power(const NodeColumns& nodes, const PowerColumns& power);
    void check_node(const NodeColumns& nodes, std::size_t node, std::size_t types) const;
    void add_to_pool(const NodeColumns& nodes, std::span<const double> type_speed, std::int32_t node,
                     std::int32_t queue, std::int32_t partition);
    void number_queues();
};

// Free resources of every node. Nodes of a pool are kept in buckets by their number of empty GPUs, so that placement
// does not scan. Copying into an existing state of the same cluster allocates nothing.
class ClusterState {
public:
    explicit ClusterState(std::shared_ptr<const ClusterSpec> spec);

    const ClusterSpec& spec() const { return *spec_; }
    const std::shared_ptr<const ClusterSpec>& shared_spec() const { return spec_; }

    // Whether jobs can be placed on it: not down, not closed for a job that was promised it.
    bool available(std::int32_t node) const { return offline_[as_index(node)] == 0; }
    // For how many reasons it is not.
    std::int32_t offline(std::int32_t node) const { return offline_[as_index(node)]; }
    std::int32_t empty(std::int32_t node) const { return available(node) ? empty_[as_index(node)] : 0; }
    std::int64_t free_cpus(std::int32_t node) const { return free_cpus_[as_index(node)]; }
    std::int64_t free_memory(std::int32_t node) const { return free_memory_[as_index(node)]; }
    std::int64_t free_milli(std::int32_t node) const;
    std::int64_t pool_empty(std::int32_t pool) const { return pool_empty_[as_index(pool)]; }
    std::int64_t pool_free_milli(std::int32_t pool) const { return pool_free_milli_[as_index(pool)]; }
    std::int64_t pool_running(std::int32_t pool) const { return pool_running_[as_index(pool)]; }
    std::int32_t gpu_free(std::int32_t node, std::int32_t gpu) const {
        return gpu_free_[spec_->first_gpu[as_index(node)] + as_index(gpu)];
    }

    // Nodes of a pool with exactly `empty` empty GPUs.
    std::int32_t bucket_count(const Pool& pool, std::int32_t empty) const {
        return bucket_count_[pool.first_bucket + as_index(empty)];
    }
    const std::uint64_t* bucket(const Pool& pool, std::int32_t empty) const {
        return words_.data() + pool.first_word + as_index(empty) * pool.shape.words();
    }

    // The fullest GPU of a node that has `milli` thousandths left, or -1.
    std::int32_t fullest_gpu(std::int32_t node, std::int32_t milli) const;
    // The lowest-numbered `count` empty GPUs of a node (0 unless GPUs are tracked).
    std::uint64_t lowest_empty(std::int32_t node, std::int32_t count) const;

    // What busy GPUs draw beyond idle ones, milliwatts.
    std::int64_t busy_mw() const { return busy_mw_; }
    // What the job's GPUs would add to that.
    std::int64_t extra_mw(const Demand& demand, std::span<const Part> parts) const;

    // Sets what every node has free; CPUs and memory only if given.
    void set_free(std::span<const std::int32_t> empty, std::span<const std::int64_t> cpus,
                  std::span<const std::int64_t> memory_mib);

    // These nest: a node is available again after as many calls of one as of the other.
    void take_offline(std::int32_t node);
    void bring_online(std::int32_t node);

    // Which GPUs of these nodes the job would take now: docs/contract/simulator.md, section 5.
    void choose_gpus(const Demand& demand, std::span<Part> parts) const;

    void hold(const Demand& demand, std::span<const Part> parts) { change(demand, parts, -1); }
    void release(const Demand& demand, std::span<const Part> parts) { change(demand, parts, +1); }

private:
    void change(const Demand& demand, std::span<const Part> parts, std::int32_t sign);
    void change_gpus(const Demand& demand, const Part& part, std::int32_t sign);
    void set_empty(std::int32_t node, std::int32_t empty);
    void move_in_pool(ClusterSpec::Membership in, std::int32_t before, std::int32_t empty);
    void show_in_pool(ClusterSpec::Membership in, std::int32_t node, bool in_buckets);
    void show(std::int32_t node, bool in_buckets);

    std::shared_ptr<const ClusterSpec> spec_;
    std::vector<std::int32_t> empty_;  // also of nodes that are offline
    std::vector<std::uint16_t> offline_;
    std::int64_t busy_mw_ = 0;
    std::vector<std::int64_t> free_cpus_;
    std::vector<std::int64_t> free_memory_;
    std::vector<std::uint64_t> words_;
    std::vector<std::int32_t> bucket_count_;
    std::vector<std::int64_t> pool_empty_;
    std::vector<std::int64_t> pool_free_milli_;
    std::vector<std::int64_t> pool_running_;  // parts of running jobs on its nodes
    std::vector<std::int32_t> gpu_free_;      // thousandths, if tracked
};

}  // namespace gpuyard
