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

std::vector<Part> CheckedSimulator::checked_parts(const Start& start) const {
    const auto& waiting = simulator_.waiting();
    if (!std::binary_search(waiting.begin(), waiting.end(), start.job)) fail(start, "it is not queued");
    const ClusterState state = room_for(start);
    const Demand& demand = simulator_.jobs().demand_of(as_index(start.job));
    std::vector<Part> parts = start.parts;
    if (const std::string why = misfit(state, demand, parts); !why.empty()) fail(start, why);
    const std::int64_t cap = simulator_.settings().power_cap_mw;
    if (cap != INT64_MAX && state.spec().idle_mw + state.busy_mw() + state.extra_mw(demand, parts) > cap)
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
    Decision rest;  // each start above has forgotten when to decide again
    rest.wake_us = decision.wake_us;
    simulator_.apply(rest);
}

}  // namespace gpuyard
