#include "simulator/checked_simulator.hpp"

#include <algorithm>
#include <stdexcept>
#include <string>

#include "base/index.hpp"

namespace gpuyard {

namespace {

[[noreturn]] void fail(const Start& start, const std::string& why) {
    throw std::invalid_argument("cannot start job " + std::to_string(start.job) + ": " + why);
}

}  // namespace

// What is free once those that the start stops are gone.
ClusterState CheckedSimulator::room_for(const Start& start) const {
    const Snapshot& view = simulator_.view();
    const std::int32_t queue = simulator_.jobs().demand_of(as_index(start.job)).queue;
    ClusterState room = view.state;
    for (auto victim = start.stops.begin(); victim != start.stops.end(); ++victim) {
        const std::string name = "job " + std::to_string(*victim);
        if (std::find(start.stops.begin(), victim, *victim) != victim) fail(start, name + " is to be stopped twice");
        const auto found = std::find_if(view.active.begin(), view.active.end(),
                                        [&](const ActiveJob& job) { return job.job == *victim; });
        if (found == view.active.end() || found->state != RunState::running)
            fail(start, name + " does not run and cannot be stopped");
        if (!found->may_stop(view.now_us, simulator_.settings().min_run_us))
            fail(start, name + " has run for less than min_run_s and cannot be stopped");
        const Demand& demand = view.demand(found->demand);
        if (demand.queue != queue) fail(start, name + " is of another queue");
        room.release(demand, view.parts_of(*found));
    }
    return room;
}

void CheckedSimulator::check_asked(const Start& start, const Demand& demand, std::span<const Part> parts) const {
    const ClusterSpec& spec = simulator_.view().state.spec();
    const auto odd = [&](const Part& part) {
        const std::int32_t more = part.gpus - demand.least_share();
        return more < 0 || more > 1 || spec.pool[as_index(part.node)] != spec.pool[as_index(parts.front().node)];
    };
    if (std::ssize(parts) != demand.nodes || std::any_of(parts.begin(), parts.end(), odd))
        fail(start,
             "it asks for " + std::to_string(demand.nodes) + " nodes of one pool with its GPUs split evenly over them");
}

std::vector<Part> CheckedSimulator::checked_parts(const Start& start) const {
    const auto& waiting = simulator_.waiting();
    if (!std::binary_search(waiting.begin(), waiting.end(), start.job)) fail(start, "it is not queued");
    const ClusterState state = room_for(start);
    const ClusterSpec& spec = state.spec();
    const Demand& demand = simulator_.jobs().demand_of(as_index(start.job));
    std::vector<Part> parts = start.parts;
    std::int32_t gpus = 0, last = -1;
    for (Part& part : parts) {
        if (part.node <= last || as_index(part.node) >= spec.node_count()) fail(start, "nodes must exist and ascend");
        last = part.node;
        const std::string node = "node " + std::to_string(part.node);
        if (!demand.allows[as_index(spec.pool[as_index(part.node)])]) fail(start, "it may not use " + node);
        if (!state.available(part.node)) fail(start, node + " is down or promised to another job");
        const bool cpu_only = demand.kind == DemandKind::cpu_only;
        if (cpu_only ? part.gpus != 0 : part.gpus < 1) fail(start, "a bad number of GPUs on " + node);
        const std::int32_t share = cpu_only ? 1 : part.gpus;
        if (state.free_cpus(part.node) < demand.cpus_for(share) ||
            state.free_memory(part.node) < demand.memory_for(share))
            fail(start, node + " lacks CPUs or memory");
        if (demand.kind == DemandKind::shared) {
            const std::int32_t gpu = state.fullest_gpu(part.node, demand.gpu_milli);
            if (gpu < 0) fail(start, node + " has no GPU with room");
            part.gpu_mask = std::uint64_t{1} << gpu;
        } else if (!cpu_only) {
            if (state.empty(part.node) < part.gpus) fail(start, node + " has too few empty GPUs");
            part.gpu_mask = state.lowest_empty(part.node, part.gpus);
        }
        gpus += part.gpus;
    }
    if (gpus != demand.gpus || (demand.gpus == 0 && demand.nodes == 0 && parts.size() != 1))
        fail(start, "a gang starts whole or not at all");
    if (demand.nodes > 0) check_asked(start, demand, parts);
    const std::int64_t cap = simulator_.settings().power_cap_mw;
    if (cap != INT64_MAX && spec.idle_mw + state.busy_mw() + state.extra_mw(demand, parts) > cap)
        fail(start, "it exceeds the power cap");
    return parts;
}

void CheckedSimulator::apply(const Decision& decision) {
    const bool first = !applied_any_ || applied_ != simulator_.view().instant;
    applied_any_ = true;
    applied_ = simulator_.view().instant;
    if (decision.native && first && decision.instant == applied_) return simulator_.apply(decision);
    for (const Start& start : decision.starts) {
        Start checked = start;
        checked.parts = checked_parts(start);
        Decision one;
        one.starts.push_back(std::move(checked));
        simulator_.apply(one);
    }
}

}  // namespace gpuyard
