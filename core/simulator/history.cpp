#include "simulator/history.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>

#include "base/index.hpp"
#include "base/rng.hpp"

namespace gpuyard {

namespace {

constexpr std::int32_t kAny = -1;
constexpr Time kNothingKnown = Time{3600} * 1'000'000;

}  // namespace

std::size_t RunTimeHistory::Hash::operator()(const Key& key) const {
    const auto u = [](std::int32_t v) { return static_cast<std::uint64_t>(static_cast<std::uint32_t>(v)); };
    return splitmix64(splitmix64(u(key.user) << 32 | u(key.group)) ^ u(key.gpus));
}

std::array<RunTimeHistory::Key, 5> RunTimeHistory::keys(std::int32_t user, std::int32_t group, std::int32_t gpus) {
    return {{{user, group, gpus}, {user, kAny, gpus}, {user, kAny, kAny}, {kAny, kAny, gpus}, {kAny, kAny, kAny}}};
}

void RunTimeHistory::add(std::int32_t user, std::int32_t group, std::int32_t gpus, Time run_us) {
    for (const Key& key : keys(user, group, gpus)) {
        Mean& mean = means_[key];
        mean.sum_us += run_us;
        ++mean.count;
    }
}

Time RunTimeHistory::predict(std::int32_t user, std::int32_t group, std::int32_t gpus) const {
    for (const Key& key : keys(user, group, gpus)) {
        const auto found = means_.find(key);
        if (found == means_.end()) continue;
        const double mean = static_cast<double>(found->second.sum_us) / static_cast<double>(found->second.count);
        return std::max(Time{1}, static_cast<Time>(std::nearbyint(mean)));
    }
    return kNothingKnown;
}

std::int64_t GittinsHistory::gpu_seconds(Time attained_us, std::int64_t milli) {
    // Dividing 128 bits takes several times as long, and orders ask for this of every job at every decision.
    if (std::int64_t product = 0; !__builtin_mul_overflow(attained_us, milli, &product)) return product / 1'000'000'000;
    return static_cast<std::int64_t>(static_cast<Wide>(attained_us) * milli / 1'000'000'000);
}

std::int32_t GittinsHistory::bucket(std::int64_t gpu_s) {
    if (gpu_s < 4) return static_cast<std::int32_t>(gpu_s);
    const auto x = static_cast<std::uint64_t>(gpu_s);
    const auto e = static_cast<std::int32_t>(std::bit_width(x)) - 1;
    return 4 * (e - 1) + static_cast<std::int32_t>((x >> (e - 2)) & 3);
}

GittinsHistory::Wide GittinsHistory::lower_edge(std::int32_t bucket) {
    if (bucket < 4) return bucket;
    return static_cast<Wide>(4 + bucket % 4) << (bucket / 4 - 1);
}

void GittinsHistory::add(std::int64_t total_gpu_s, std::int64_t jobs) {
    const std::int32_t at = bucket(total_gpu_s / jobs);  // the mean of a bucket's jobs is in it
    count_[as_index(at)] += jobs;
    sum_[as_index(at)] += total_gpu_s;
    last_ = std::max(last_, at);
    ++version_;
}

double GittinsHistory::index_of(std::int32_t bucket) const {
    const auto i = as_index(bucket);
    if (computed_[i] != version_) {
        index_[i] = compute(bucket);
        computed_[i] = version_;
    }
    return index_[i];
}

// The best ratio of finishing to cost over all amounts of further service that end with a bucket.
double GittinsHistory::compute(std::int32_t bucket) const {
    std::int64_t all = 0;
    for (std::int32_t i = bucket; i <= last_; ++i) all += count_[as_index(i)];
    // No sum below exceeds this; where it fits, 64 bits give the same ratios in a fraction of the time.
    const Wide most = last_ < 0 ? 0 : 2 * static_cast<Wide>(all) * lower_edge(last_ + 1);
    return most <= INT64_MAX ? best_ratio<std::int64_t>(bucket, all) : best_ratio<Wide>(bucket, all);
}

template <class Int>
double GittinsHistory::best_ratio(std::int32_t bucket, std::int64_t all) const {
    const auto from = static_cast<Int>(lower_edge(bucket));
    std::int64_t finishing = 0;
    Int served = 0;
    double best = 0.0;
    for (std::int32_t j = bucket; j <= last_; ++j) {
        const std::int64_t here = count_[as_index(j)];
        if (here == 0) continue;
        finishing += here;
        served += static_cast<Int>(sum_[as_index(j)]) - here * from;
        const Int cost = served + (all - finishing) * (static_cast<Int>(lower_edge(j + 1)) - from);
        best = std::max(best, static_cast<double>(finishing) / static_cast<double>(std::max<Int>(cost, 1)));
    }
    return best;
}

}  // namespace gpuyard
