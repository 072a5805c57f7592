#include "cluster/node_score.hpp"

#include "base/index.hpp"

namespace gpuyard {

namespace {

// (taken / capacity) * (free / capacity). Nothing for what was not given.
double term(std::int64_t taken, std::int64_t free, std::int64_t capacity) {
    if (capacity == kUnlimited || capacity == 0) return 0.0;
    const auto whole = static_cast<double>(capacity);
    return (static_cast<double>(taken) / whole) * (static_cast<double>(free) / whole);
}

// Thousandths in empty GPUs that are no use to jobs that want more empty GPUs than there are, summed over jobs.
std::int64_t useless_empty(const JobMix& mix, std::int32_t size, std::int32_t empty) {
    // A job that wants more GPUs than the node has wants all of them.
    return empty < size ? 1000 * static_cast<std::int64_t>(empty) * mix.whole_above(empty) : 0;
}

// The same for a GPU that others share: it is no use to jobs that want whole GPUs or more of this one than is left.
std::int64_t useless_shared(const JobMix& mix, std::int32_t free_milli) {
    return free_milli * (mix.whole_above(0) + mix.shared_above(free_milli));
}

}  // namespace

double alignment(const ClusterState& state, const Demand& demand, std::int32_t node, std::int32_t gpus) {
    const ClusterSpec& spec = state.spec();
    const auto i = as_index(node);
    double dot = 0.0;
    if (spec.size[i] > 0 && demand.kind != DemandKind::cpu_only) {
        const bool shared = demand.kind == DemandKind::shared;
        const auto size = static_cast<double>(spec.size[i]);
        const double taken = shared ? demand.size_gpus : static_cast<double>(gpus);
        const double free =
            shared ? static_cast<double>(state.free_milli(node)) / 1000.0 : static_cast<double>(state.empty(node));
        dot += (taken / size) * (free / size);
    }
    dot += term(demand.cpus_for(gpus), state.free_cpus(node), spec.cpus[i]);
    dot += term(demand.memory_for(gpus), state.free_memory(node), spec.memory_mib[i]);
    return dot;
}

std::int64_t growth_of_whole(const JobMix& mix, std::int32_t size, std::int32_t empty, std::int32_t gpus) {
    return useless_empty(mix, size, empty - gpus) - useless_empty(mix, size, empty);
}

std::int64_t growth_of_shared(const JobMix& mix, const ClusterState& state, std::int32_t node, std::int32_t milli) {
    const std::int32_t before = state.gpu_free(node, state.fullest_gpu(node, milli));
    const std::int64_t after = useless_shared(mix, before - milli);
    if (before < 1000) return after - useless_shared(mix, before);
    return after + growth_of_whole(mix, state.spec().size[as_index(node)], state.empty(node), 1);
}

}  // namespace gpuyard
