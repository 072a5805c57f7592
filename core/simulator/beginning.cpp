#include "simulator/beginning.hpp"

#include <algorithm>

#include "base/index.hpp"

namespace gpuyard {

namespace {

[[noreturn]] void fail(const GivenStart& start, const std::string& why) {
    throw ImpossibleBeginning("job " + std::to_string(start.job) + " cannot have started at " +
                              std::to_string(static_cast<double>(start.start_us) / 1e6) + " s: " + why);
}

std::string misfit_of_asked(const ClusterSpec& spec, const Demand& demand, const std::vector<Part>& parts) {
    const auto odd = [&](const Part& part) {
        const std::int32_t more = part.gpus - demand.least_share();
        return more < 0 || more > 1 || spec.pool_for(demand, part.node) != spec.pool_for(demand, parts.front().node);
    };
    if (std::ssize(parts) == demand.nodes && std::none_of(parts.begin(), parts.end(), odd)) return "";
    return "it asks for " + std::to_string(demand.nodes) + " nodes of one pool with its GPUs split evenly over them";
}

// The same for one node.
std::string misfit_on(const ClusterState& state, const Demand& demand, Part& part) {
    const ClusterSpec& spec = state.spec();
    const std::string node = "node " + std::to_string(part.node);
    if (!spec.may_use(demand, part.node)) return "it may not use " + node;
    if (!state.available(part.node)) return node + " is down or promised to another job";
    const bool cpu_only = demand.kind == DemandKind::cpu_only;
    if (cpu_only ? part.gpus != 0 : part.gpus < 1) return "a bad number of GPUs on " + node;
    const std::int32_t share = cpu_only ? 1 : part.gpus;
    if (state.free_cpus(part.node) < demand.cpus_for(share) || state.free_memory(part.node) < demand.memory_for(share))
        return node + " lacks CPUs or memory";
    if (demand.kind == DemandKind::shared) {
        const std::int32_t gpu = state.fullest_gpu(part.node, demand.gpu_milli);
        if (gpu < 0) return node + " has no GPU with room";
        part.gpu_mask = std::uint64_t{1} << gpu;
    } else if (!cpu_only) {
        if (state.empty(part.node) < part.gpus) return node + " has too few empty GPUs";
        part.gpu_mask = state.lowest_empty(part.node, part.gpus);
    }
    return "";
}

}  // namespace

std::string misfit(const ClusterState& state, const Demand& demand, std::vector<Part>& parts) {
    std::int32_t gpus = 0, last = -1;
    for (Part& part : parts) {
        if (part.node <= last || as_index(part.node) >= state.spec().node_count()) return "nodes must exist and ascend";
        last = part.node;
        if (std::string why = misfit_on(state, demand, part); !why.empty()) return why;
        gpus += part.gpus;
    }
    if (gpus != demand.gpus || (demand.gpus == 0 && demand.nodes == 0 && parts.size() != 1))
        return "a gang starts whole or not at all";
    return demand.nodes > 0 ? misfit_of_asked(state.spec(), demand, parts) : "";
}

Beginning make_beginning(const JobTable& jobs, Time decides_from_us, std::vector<GivenStart> starts) {
    if (decides_from_us < 0) throw ImpossibleBeginning("a policy cannot decide from a moment before the first submit");
    std::sort(starts.begin(), starts.end(), [](const GivenStart& a, const GivenStart& b) {
        return a.start_us != b.start_us ? a.start_us < b.start_us : a.job < b.job;
    });
    std::vector<std::uint8_t> given(jobs.submit_us.size(), 0);
    for (const GivenStart& start : starts) {
        const std::size_t i = as_index(start.job);
        if (start.job < 0 || i >= given.size()) fail(start, "there is no such job");
        if (given[i]++ != 0) fail(start, "it is given twice");
        if (start.start_us < jobs.submit_us[i]) fail(start, "it is submitted later");
        if (start.start_us >= decides_from_us) fail(start, "by then the policy decides");
    }
    return {decides_from_us, std::move(starts)};
}

GivenStart GivenStarts::take(const ClusterState& state) {
    GivenStart start = beginning_.starts[at_++];
    const std::string why = misfit(state, jobs_.demand_of(as_index(start.job)), start.parts);
    if (!why.empty()) fail(start, why);
    return start;
}

}  // namespace gpuyard
