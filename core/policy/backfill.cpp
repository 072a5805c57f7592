#include "policy/backfill.hpp"

#include <algorithm>
#include <cmath>

#include "base/index.hpp"

namespace gpuyard {

Gate::Gate(const Express& express, const ClusterState& state, const Demand& demand, const Allocation& allocation)
    : express_(express) {
    if (express.k == 0.0 || demand.kind == DemandKind::cpu_only) return;
    std::int64_t free_milli = 0;
    std::int64_t running = 0;
    std::int64_t gpus = demand.allowed_gpus;
    if (allocation.pool >= 0) {
        const Pool& pool = state.spec().pools[as_index(allocation.pool)];
        free_milli = state.pool_free_milli(allocation.pool);
        running = state.pool_running(allocation.pool);
        gpus = static_cast<std::int64_t>(pool.nodes.size()) * pool.size;
    } else {
        for (const PoolOption& option : demand.pools) {
            free_milli += state.pool_free_milli(option.pool);
            running += state.pool_running(option.pool);
        }
    }
    open_ = running == 0;
    const double free = static_cast<double>(free_milli) / 1000.0;
    room_ = (free - demand.size_gpus) / static_cast<double>(gpus);
}

bool Gate::admits(Time estimate_us) const {
    if (open_) return true;
    if (estimate_us == kEndless) return false;
    const double r = seconds(estimate_us);
    return room_ >= express_.k * std::log(std::max(r, express_.t0_s) / express_.t0_s);
}

void Shadow::compute(Time now_us, const Demand& head, Placer& placer, const ClusterState& state,
                     const Running& running) {
    state_ = state;
    time_us_ = kEndless;
    Time released_us = kEndless;  // the expected end up to which jobs are released; kEndless = none is
    const auto settle = [&] {
        if (released_us == kEndless || !placer.placeable(state_, head)) return false;
        time_us_ = released_us;
        return true;
    };
    bool settled = false;
    running.jobs.visit_in_order([&](const RunningJob& job) {
        const Time end = std::max(job.expected_end_us, now_us);
        settled = end != released_us && settle();
        if (settled || end == kEndless) return false;
        state_.release(running.demands[as_index(job.demand)], running.parts_of(job));
        released_us = end;
        return true;
    });
    if (!settled) settle();
}

bool Shadow::leaves_room(const Demand& head, Placer& placer, const Demand& demand, std::span<const Part> parts) {
    // What it holds elsewhere does not matter to the head, unless both count for a power cap.
    if (parts.size() == 1 && !placer.has_power_cap() && !state_.spec().may_use(head, parts.front().node)) return true;
    state_.hold(demand, parts);
    const bool placeable = placer.placeable(state_, head);
    state_.release(demand, parts);
    return placeable;
}

}  // namespace gpuyard
