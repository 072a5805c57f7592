// Who sits where until when, and what that makes of nodes: the node tokens and the lookahead of
// docs/contract/observation.md.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/index.hpp"
#include "base/sorted_blocks.hpp"
#include "cluster/cluster.hpp"
#include "observation/env_spec.hpp"
#include "observation/window_job.hpp"

namespace gpuyard {

class Occupancy {
public:
    Occupancy(Tokens tokens, Lookahead lookahead) : tokens_(tokens), lookahead_(lookahead) {}

    // With nothing running on `state`, which it keeps a reference to and which must be up to date at each call.
    void reset(const ClusterState& state, const ClusterScale& scale);

    // Parts are numbered from `first_part` on; numbers are reused only after `reset`.
    void started(JobId job, const Demand& demand, std::span<const Part> parts, std::size_t first_part,
                 Time expected_end_us);
    void finished(JobId job, const Demand& demand, std::span<const Part> parts, std::size_t first_part,
                  Time expected_end_us);

    // Rows of the token table, kNodeColumnCount wide; `release` and `base_choice` are left 0.
    std::span<const float> rows() const { return table_; }
    std::size_t row_count() const { return row_count_; }
    std::size_t row_of(std::int32_t node) const { return row_of_[as_index(node)]; }
    // Writes the column `release` at every `stride`-th float.
    void write_release(Time now_us, double horizon_s, float* out, std::size_t stride) const;
    // Free CPUs over CPUs of a pool without GPUs.
    double free_cpu_share(std::size_t pool) const;
    void write_lookahead(Time now_us, double horizon_s, float* out, std::size_t length);

    // How many rows a cluster takes.
    static std::size_t rows_for(const ClusterSpec& spec, Tokens tokens);

private:
    static constexpr Time kUnknownEnd = kEndless - 1;
    static constexpr Time kNoJob = kEndless;  // on a node, or among the members of a class
    static constexpr std::int32_t kNone = -1;
    static constexpr std::size_t kMostSamples = 64;  // of the lookahead

    struct Release {
        Time end_us;
        std::int32_t job;
        std::int32_t gpus;
        bool operator<(const Release& other) const {
            return end_us != other.end_us ? end_us < other.end_us : job < other.job;
        }
        std::int64_t weight() const { return gpus; }
    };
    struct Seat {  // a part of a running job, in the list of its node
        std::int32_t previous, next;
        Time end_us;
        std::uint64_t gpu_mask;
    };
    struct ClassSums {
        std::int32_t pool = 0;
        std::int64_t members = 0, free_milli = 0, gpus = 0, free_cpus = 0, cpus = 0, free_memory = 0, memory = 0;
        std::size_t tree = 0;  // where its tournament begins
    };

    std::int32_t class_of(std::int32_t node) const;
    void change_class_sums(std::int32_t node, std::size_t row, std::int64_t sign);
    void refresh(std::int32_t node);
    void write_row(std::size_t row, const ClassSums& sums);
    static void write_use(float* row, const ClassSums& sums);
    ClassSums sums_of_node(std::int32_t node) const;
    void set_leaf(std::size_t row, std::int32_t node, Time end_us);
    Time earliest_of_class(std::size_t row) const { return tournament_[classes_[row].tree + 1]; }
    void update_gpus(std::int32_t node, std::uint64_t gpu_mask);
    void count_samples();
    std::int64_t sampled_gpu(std::int64_t j) const;
    void write_sorted(Time now_us, double horizon_s, float* out, std::size_t length) const;
    void write_cdf(Time now_us, double horizon_s, float* out, std::size_t length) const;
    void write_by_gpu(Time now_us, double horizon_s, float* out, std::size_t length);

    Tokens tokens_;
    Lookahead lookahead_;
    const ClusterState* state_ = nullptr;
    const ClusterScale* scale_ = nullptr;
    std::size_t row_count_ = 0;
    std::vector<float> table_;
    std::vector<std::size_t> row_of_;       // by node
    std::vector<std::size_t> pool_offset_;  // first row of a pool, if rows are classes
    std::vector<ClassSums> classes_;
    std::vector<std::size_t> leaves_;  // of a tournament, by pool
    std::vector<Time> tournament_;
    std::vector<std::int32_t> first_seat_;  // by node
    std::vector<Time> earliest_;            // by node
    std::vector<Seat> seats_;
    std::vector<Time> gpu_end_;  // by GPU, if GPUs are tracked; kNoJob if idle
    std::vector<float> remaining_;
    std::vector<std::int64_t> pool_free_cpus_, pool_cpus_;
    std::vector<std::int64_t> node_free_cpus_;  // as counted in pool_free_cpus_ and the classes
    std::vector<std::int64_t> node_free_milli_, node_free_memory_;
    SortedBlocks<Release> releases_;
    std::vector<std::uint8_t> samples_before_;  // by number of GPUs, in order of rem: samples among that many
    std::int64_t held_gpus_ = 0;                // whole ones
};

}  // namespace gpuyard
