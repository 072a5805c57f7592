// The Python module gpuyard._core.testing.
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>

#include <optional>
#include <stdexcept>

#include "base/index.hpp"
#include "network/kernels.hpp"
#include "policy/order.hpp"
#include "policy/placement.hpp"
#include "policy/policy.hpp"
#include "python/bindings_shared.hpp"

namespace gpuyard {

using namespace nb::literals;

namespace {

using Held = std::vector<std::pair<JobId, Parts>>;
using Mix = std::vector<std::tuple<std::int32_t, std::int32_t, std::int64_t>>;

const Demand& demand_of(const JobTable& jobs, JobId job) {
    if (job < 0 || job >= jobs.size()) throw std::invalid_argument("there is no job " + std::to_string(job));
    return jobs.demand_of(as_index(job));
}

void hold(ClusterState& state, const Demand& demand, const Parts& parts) {
    for (const auto& [node, gpus] : parts) {
        if (node < 0 || as_index(node) >= state.spec().node_count())
            throw std::invalid_argument("there is no such node");
        Part part{node, gpus, 0};
        if (demand.kind == DemandKind::shared) {
            const std::int32_t gpu = state.fullest_gpu(node, demand.gpu_milli);
            if (gpu < 0) throw std::invalid_argument("what is held is not free");
            part.gpu_mask = std::uint64_t{1} << gpu;
        } else {
            if (gpus < 0 || state.empty(node) < gpus) throw std::invalid_argument("what is held is not free");
            part.gpu_mask = state.lowest_empty(node, gpus);
        }
        state.hold(demand, std::span(&part, 1));
    }
}

// A rule, and a cluster of which other jobs hold a part.
struct Scene {
    ClusterState state;
    JobMix mix;
    Placer placer;
    const Demand& demand;
    std::int64_t row;

    Scene(std::shared_ptr<const ClusterSpec> cluster, const JobTable& jobs, const std::string& placement,
          const Held& held, JobId job, const Mix& arrived, std::uint64_t seed)
        : state(std::move(cluster)),
          placer(placement_from_name(placement), seed),
          demand(demand_of(jobs, job)),
          row(jobs.row_of(as_index(job))) {
        for (const auto& [other, parts] : held) hold(state, demand_of(jobs, other), parts);
        for (const auto& [gpus, gpu_milli, count] : arrived) mix.add(gpus, gpu_milli, count);
        placer.set_mix(&mix);
    }
};

void bind_formulas(nb::module_& m) {
    m.def(
        "score",
        [](const std::string& order, Time submit_us, Time estimate_us, double size_gpus, double priority,
           Time deadline_us, std::int64_t row, double user_usage, Time now_us, std::uint64_t instant,
           std::uint64_t seed, double origin_s, double order_parameter) {
            return score(order_from_name(order),
                         {.submit_us = submit_us,
                          .estimate_us = estimate_us,
                          .size_gpus = size_gpus,
                          .priority = priority,
                          .deadline_us = deadline_us,
                          .row = row,
                          .user_usage = user_usage},
                         {.now_us = now_us,
                          .instant = instant,
                          .seed = seed,
                          .origin_s = origin_s,
                          .order_parameter = order_parameter});
        },
        "order"_a, "submit_us"_a, "estimate_us"_a, "size_gpus"_a, "priority"_a, "deadline_us"_a, "row"_a,
        "user_usage"_a, "now_us"_a, "instant"_a, "seed"_a, "origin_s"_a, "order_parameter"_a = 1.0);
    m.def(
        "run_time",
        [](Time duration_us, double speed, std::int32_t nodes_used, std::int32_t fewest_nodes,
           double locality_penalty) {
            return run_time(duration_us, speed, nodes_used, fewest_nodes, locality_penalty);
        },
        "duration_us"_a, "speed"_a, "nodes_used"_a, "fewest_nodes"_a, "locality_penalty"_a);
    m.def(
        "decayed_usage",
        [](const std::vector<std::pair<Time, std::int64_t>>& changes, Time now_us, double half_life_s) {
            DecayedUsage usage;
            for (const auto& [time, milli] : changes) usage.change(time, half_life_s, milli);
            return usage.at(now_us, half_life_s);
        },
        "changes"_a, "now_us"_a, "half_life_s"_a);
}

void bind_placements(nb::module_& m) {
    m.def(
        "place",
        [](std::shared_ptr<const ClusterSpec> cluster, const JobTable& jobs, const std::string& placement,
           const Held& held, JobId job, const Mix& mix, std::uint64_t seed) -> std::optional<Parts> {
            Scene scene(std::move(cluster), jobs, placement, held, job, mix, seed);
            Allocation allocation;
            if (!scene.placer.place(scene.state, scene.demand, scene.row, allocation)) return std::nullopt;
            return node_pairs(allocation.parts);
        },
        "cluster"_a, "jobs"_a, "placement"_a, "held"_a, "job"_a, "mix"_a = Mix(), "seed"_a = 0);
    m.def(
        "placeable",
        [](std::shared_ptr<const ClusterSpec> cluster, const JobTable& jobs, const std::string& placement,
           const Held& held, JobId job) {
            Scene scene(std::move(cluster), jobs, placement, held, job, {}, 0);
            return scene.placer.placeable(scene.state, scene.demand);
        },
        "cluster"_a, "jobs"_a, "placement"_a, "held"_a, "job"_a);
}

}  // namespace

void bind_testing(nb::module_& m) {
    bind_formulas(m);
    bind_placements(m);
    const auto names_of = [](const auto& table) {
        std::vector<std::string> names;
        for (const auto& entry : table) names.emplace_back(entry.name);
        return names;
    };
    m.attr("BACKFILLS") = names_of(kBackfills);
    m.attr("PLACEMENTS") = names_of(kPlacements);
    std::vector<std::string> kernels;
    for (const Kernels* form : available_kernels()) kernels.emplace_back(form->name);
    m.attr("NETWORK_KERNELS") = kernels;
}

}  // namespace gpuyard
