// What finished jobs tell about those to come: docs/contract/simulator.md, section 19 (predictions) and section 8
// (Gittins index).
#pragma once

#include <array>
#include <cstdint>
#include <unordered_map>

#include "base/job.hpp"

namespace gpuyard {

// Mean run times of finished jobs, by how much a job has in common with them.
class RunTimeHistory {
public:
    void add(std::int32_t user, std::int32_t group, std::int32_t gpus, Time run_us);
    Time predict(std::int32_t user, std::int32_t group, std::int32_t gpus) const;

private:
    __extension__ using Wide = __int128;
    struct Key {
        std::int32_t user, group, gpus;  // -1 = any
        bool operator==(const Key&) const = default;
    };
    struct Hash {
        std::size_t operator()(const Key& key) const;
    };
    struct Mean {
        Wide sum_us = 0;
        std::int64_t count = 0;
    };
    static std::array<Key, 5> keys(std::int32_t user, std::int32_t group, std::int32_t gpus);
    std::unordered_map<Key, Mean, Hash> means_;
};

// GPU time of finished jobs in buckets, four to a doubling.
class GittinsHistory {
public:
    static constexpr std::int32_t kBuckets = 248;

    // Whole GPU-seconds of so many µs on so many thousandths of GPUs.
    static std::int64_t gpu_seconds(Time attained_us, std::int64_t milli);
    static std::int32_t bucket(std::int64_t gpu_s);

    void add(std::int64_t gpu_s) { add(gpu_s, 1); }
    // Several finished jobs of one bucket, their GPU time together.
    void add(std::int64_t total_gpu_s, std::int64_t jobs);
    std::int64_t count(std::int32_t bucket) const { return count_[static_cast<std::size_t>(bucket)]; }
    std::int64_t total_gpu_s(std::int32_t bucket) const {
        return static_cast<std::int64_t>(sum_[static_cast<std::size_t>(bucket)]);
    }
    // The index of a job that has attained this much.
    double index(std::int64_t gpu_s) const { return index_of(bucket(gpu_s)); }
    double index_of(std::int32_t bucket) const;

private:
    __extension__ using Wide = __int128;
    static Wide lower_edge(std::int32_t bucket);
    double compute(std::int32_t bucket) const;
    // `all`: finished jobs from this bucket on.
    template <class Int>
    double best_ratio(std::int32_t bucket, std::int64_t all) const;

    std::array<std::int64_t, kBuckets> count_{};
    std::array<Wide, kBuckets> sum_{};
    std::int32_t last_ = -1;  // the highest bucket that is not empty
    std::uint64_t version_ = 1;
    mutable std::array<double, kBuckets> index_{};  // as of the version in computed_
    mutable std::array<std::uint64_t, kBuckets> computed_{};
};

// What had finished before a simulation begins.
struct Past {
    RunTimeHistory run_times;
    GittinsHistory gittins;

    // `milli`: thousandths of GPUs.
    void add(std::int32_t user, std::int32_t group, std::int32_t gpus, std::int64_t milli, Time run_us) {
        run_times.add(user, group, gpus, run_us);
        gittins.add(GittinsHistory::gpu_seconds(run_us, milli));
    }
};

}  // namespace gpuyard
