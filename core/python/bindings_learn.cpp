// Networks and what they drive.
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>

#include <stdexcept>
#include <string>

#include "base/index.hpp"
#include "env/network_policy.hpp"
#include "env/rollout.hpp"
#include "network/network.hpp"
#include "observation/snapshot_view.hpp"
#include "python/bindings_shared.hpp"

namespace gpuyard {

using namespace nb::literals;

namespace {

using FloatArray = nb::ndarray<const float, nb::c_contig, nb::device::cpu>;
using MaskArray = nb::ndarray<const std::int8_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using MaskBatch = nb::ndarray<const std::int8_t, nb::ndim<2>, nb::c_contig, nb::device::cpu>;

NetworkSettings settings_of(const nb::dict& config) {
    NetworkSettings settings;
    settings.kind = from_name(kNetworkKinds, nb::cast<std::string>(config["kind"]), "kind of network");
    settings.width = nb::cast<std::size_t>(config["width"]);
    settings.depth = nb::cast<std::size_t>(config["depth"]);
    settings.heads = nb::cast<std::size_t>(config["heads"]);
    settings.residual = from_name(kResiduals, nb::cast<std::string>(config["residual"]), "residual");
    settings.strength = static_cast<float>(nb::cast<double>(config["strength"]));
    return settings;
}

NetworkSizes sizes_of(const nb::dict& document) {
    const auto number = [&](const char* name) { return nb::cast<std::size_t>(document[name]); };
    const auto place = [&](const char* name) { return nb::cast<std::int64_t>(document[name]); };
    return {.kind = from_name(kEnvKinds, nb::cast<std::string>(document["kind"]), "kind of environment"),
            .rows = number("rows"),
            .job_columns = number("job_columns"),
            .tokens = number("tokens"),
            .node_columns = number("node_columns"),
            .global_columns = number("global_columns"),
            .pools = number("pools"),
            .actions = number("actions"),
            .job_present = place("job_present"),
            .job_base_choice = place("job_base_choice"),
            .node_present = place("node_present"),
            .node_base_choice = place("node_base_choice"),
            .base_pool = place("base_pool"),
            .base_waits = place("base_waits"),
            .running = place("running")};
}

Tensors tensors_of(const nb::dict& arrays) {
    Tensors tensors;
    for (const auto& [name, value] : arrays) {
        const auto array = nb::cast<FloatArray>(value);
        Tensor tensor;
        for (std::size_t i = 0; i < array.ndim(); ++i) tensor.shape.push_back(array.shape(i));
        tensor.values.assign(array.data(), array.data() + array.size());
        tensors.emplace(nb::cast<std::string>(name), std::move(tensor));
    }
    return tensors;
}

// A network and the scratch of callers who hold the interpreter's lock.
struct BoundNetwork {
    std::shared_ptr<const Network> network;
    Scratch scratch;

    // The first of `count` environments.
    template <class Mask>
    NetworkInput input(const FloatArray& jobs, const FloatArray& nodes, const FloatArray& globals, const Mask& mask,
                       std::size_t count = 1) const {
        const NetworkSizes& sizes = network->sizes();
        const auto check = [&](std::size_t has, std::size_t expected, const char* name) {
            if (has != count * expected)
                throw std::invalid_argument(std::string(name) + " has " + std::to_string(has) + " entries; expected " +
                                            std::to_string(count * expected));
        };
        check(jobs.size(), sizes.rows * sizes.job_columns, "jobs");
        check(nodes.size(), sizes.tokens * sizes.node_columns, "nodes");
        check(globals.size(), sizes.global_columns, "globals");
        check(mask.size(), sizes.actions, "mask");
        return {jobs.data(), nodes.data(), globals.data(), mask.data()};
    }
};

template <class T>
nb::object shaped(std::vector<T> values, std::initializer_list<std::size_t> shape) {
    auto* owned = new std::vector<T>(std::move(values));
    nb::capsule owner(owned, [](void* p) noexcept { delete static_cast<std::vector<T>*>(p); });
    return nb::cast(nb::ndarray<nb::numpy, T>(owned->data(), shape, owner));
}

nb::tuple forward_batch(BoundNetwork& self, const FloatArray& jobs, const FloatArray& nodes, const FloatArray& globals,
                        const MaskBatch& masks) {
    const std::size_t count = masks.shape(0);
    const NetworkSizes& sizes = self.network->sizes();
    std::vector<float> logits(count * sizes.actions), values(count);
    self.network->forward_batch(self.input(jobs, nodes, globals, masks, count), count, logits.data(), values.data(),
                                self.scratch);
    return nb::make_tuple(shaped(std::move(logits), {count, sizes.actions}), to_numpy(std::move(values)));
}

void bind_network(nb::module_& m) {
    nb::class_<BoundNetwork>(m, "Network")
        .def(
            "__init__",
            [](BoundNetwork* self, const nb::dict& config, const nb::dict& sizes, const nb::dict& tensors,
               const std::string& kernels) {
                auto network = Network::make(settings_of(config), sizes_of(sizes), tensors_of(tensors), kernels);
                new (self) BoundNetwork{std::move(network), {}};
            },
            "config"_a, "sizes"_a, "tensors"_a, "kernels"_a = "auto")
        .def(
            "forward",
            [](BoundNetwork& self, const FloatArray& jobs, const FloatArray& nodes, const FloatArray& globals,
               const MaskArray& mask) {
                std::vector<float> logits(self.network->sizes().actions);
                float value = 0.0F;
                self.network->forward(self.input(jobs, nodes, globals, mask), logits.data(), &value, self.scratch);
                return nb::make_tuple(to_numpy(std::move(logits)), value);
            },
            "jobs"_a, "nodes"_a, "globals"_a, "mask"_a)
        .def(
            "forward_batch",
            [](BoundNetwork& self, const FloatArray& jobs, const FloatArray& nodes, const FloatArray& globals,
               const MaskBatch& masks) { return forward_batch(self, jobs, nodes, globals, masks); },
            "jobs"_a, "nodes"_a, "globals"_a, "masks"_a)
        .def(
            "choose",
            [](BoundNetwork& self, const FloatArray& jobs, const FloatArray& nodes, const FloatArray& globals,
               const MaskArray& mask) {
                return self.network->choose(self.input(jobs, nodes, globals, mask), self.scratch);
            },
            "jobs"_a, "nodes"_a, "globals"_a, "mask"_a);
}

// --- Episodes -----------------------------------------------------------------------------------------------

using GivenEpisode =
    std::tuple<std::shared_ptr<const EpisodeTable>, std::int64_t, std::int64_t, std::int64_t, std::int64_t>;

std::vector<Episode> episodes_of(const std::vector<GivenEpisode>& given) {
    std::vector<Episode> episodes;
    for (const auto& [table, row, jobs, warmup, cooldown] : given) {
        const WindowSource source{table, 0, table->jobs->size(), jobs, warmup, cooldown};
        episodes.push_back(source.at(row));
    }
    return episodes;
}

bool interrupted_by_user() {
    const nb::gil_scoped_acquire acquire;
    return PyErr_CheckSignals() != 0;
}

// Metrics [choosers, episodes, names], returns and lengths [choosers, episodes]; without the first axis if there is but
// one by itself.
nb::tuple run_all(Rollouts& rollouts, const std::vector<GivenEpisode>& given, const std::vector<Chooser>& choosers,
                  bool alone) {
    const std::vector<Episode> episodes = episodes_of(given);
    for (const Chooser& chooser : choosers)
        if (chooser.network != nullptr) check_suits(*chooser.network, rollouts.spec());
    const std::size_t runs = episodes.size() * choosers.size();
    std::vector<double> metrics(runs * kEpisodeMetrics.size()), returns(runs);
    std::vector<std::int64_t> lengths(runs);
    bool finished = false;
    {
        nb::gil_scoped_release release;
        finished =
            rollouts.run(episodes, choosers, {metrics.data(), returns.data(), lengths.data()}, interrupted_by_user);
    }
    if (!finished) throw nb::python_error();
    const std::size_t c = choosers.size(), n = episodes.size();
    if (alone)
        return nb::make_tuple(shaped(std::move(metrics), {n, kEpisodeMetrics.size()}), shaped(std::move(returns), {n}),
                              shaped(std::move(lengths), {n}));
    return nb::make_tuple(shaped(std::move(metrics), {c, n, kEpisodeMetrics.size()}),
                          shaped(std::move(returns), {c, n}), shaped(std::move(lengths), {c, n}));
}

void bind_rollouts(nb::module_& m) {
    nb::class_<Rollouts>(m, "Rollouts")
        .def(nb::init<std::shared_ptr<const EnvSpec>, std::size_t>(), "spec"_a, "threads"_a)
        .def(
            "run",
            [](Rollouts& self, const std::vector<GivenEpisode>& episodes, const BoundNetwork& network) {
                return run_all(self, episodes, {{network.network.get(), nullptr}}, true);
            },
            "episodes"_a, "chooser"_a)
        .def(
            "run",
            [](Rollouts& self, const std::vector<GivenEpisode>& episodes, const BoundPolicy& policy) {
                return run_all(self, episodes, {{nullptr, &policy.policy}}, true);
            },
            "episodes"_a, "chooser"_a)
        .def(
            "run_many",
            [](Rollouts& self, const std::vector<GivenEpisode>& episodes,
               const std::vector<const BoundNetwork*>& networks) {
                std::vector<Chooser> choosers;
                for (const BoundNetwork* network : networks) choosers.push_back({network->network.get(), nullptr});
                return run_all(self, episodes, choosers, false);
            },
            "episodes"_a, "networks"_a);
}

// --- Networks as policies -----------------------------------------------------------------------------------

nb::dict replay_from(std::shared_ptr<const EnvSpec> spec, std::shared_ptr<const EpisodeTable> table,
                     const BoundNetwork& network, const nb::object& progress, std::int64_t first) {
    if (first < 0 || first >= table->jobs->size()) throw std::invalid_argument("there is no such first job");
    const Progress report = progress_to(progress);
    ScheduleArrays arrays;
    {
        nb::gil_scoped_release release;
        arrays = replay(std::move(spec), {table, first, table->jobs->size() - first, 0}, *network.network, report);
    }
    return to_dict(std::move(arrays));
}

void bind_policies(nb::module_& m) {
    m.def("replay", &replay_from, "spec"_a, "table"_a, "network"_a, "progress"_a = nb::none(), "first"_a = 0);
    m.def(
        "decide_by_network",
        [](const Snapshot& snapshot, const EnvSpec& spec, const BoundNetwork& network) {
            return decide(snapshot, spec, *network.network);
        },
        "snapshot"_a, "spec"_a, "network"_a, nb::call_guard<nb::gil_scoped_release>());
    m.def(
        "time_decisions",
        [](std::shared_ptr<const EnvSpec> spec, std::shared_ptr<const EpisodeTable> table, const BoundNetwork& network,
           std::size_t count) {
            DecisionTimes times;
            {
                nb::gil_scoped_release release;
                times = time_decisions(std::move(spec), {table, 0, table->jobs->size(), 0}, *network.network, count);
            }
            return nb::make_tuple(to_numpy(std::move(times.decide_us)), to_numpy(std::move(times.step_us)),
                                  to_numpy(std::move(times.waiting)));
        },
        "spec"_a, "table"_a, "network"_a, "count"_a);
    m.def(
        "observe",
        [](const Snapshot& snapshot, const EnvSpec& spec) {
            Observation o = observe(snapshot, spec);
            return nb::make_tuple(to_numpy(std::move(o.jobs)), to_numpy(std::move(o.nodes)),
                                  to_numpy(std::move(o.globals)));
        },
        "snapshot"_a, "spec"_a);
    m.def(
        "observed_sizes",
        [](const Snapshot& snapshot, const std::string& tokens) {
            const ClusterSpec& cluster = snapshot.state.spec();
            return std::tuple(Occupancy::rows_for(cluster, from_name(kTokens, tokens, "kind of tokens")),
                              cluster.pools.size(), as_index(cluster.total_gpus), cluster.node_count());
        },
        "snapshot"_a, "tokens"_a);
}

}  // namespace

void bind_learn(nb::module_& m) {
    bind_network(m);
    bind_rollouts(m);
    bind_policies(m);
}

}  // namespace gpuyard
