#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>

#include <memory>
#include <stdexcept>
#include <string>

#include "env/vector_env.hpp"
#include "observation/snapshot_view.hpp"
#include "python/bindings_shared.hpp"

namespace gpuyard {

using namespace nb::literals;

namespace {

using Columns = std::vector<std::tuple<std::string, double, double>>;

template <std::size_t N>
Columns columns(const std::array<Column, N>& table) {
    Columns out;
    for (const Column& column : table) out.emplace_back(std::string(column.name), column.low, column.high);
    return out;
}

template <class T>
T* buffer(const nb::dict& arrays, const char* name, std::size_t size) {
    const auto array = nb::cast<nb::ndarray<T, nb::c_contig, nb::device::cpu>>(arrays[name]);
    if (array.size() != size)
        throw std::invalid_argument(std::string("the buffer ") + name + " has " + std::to_string(array.size()) +
                                    " entries; expected " + std::to_string(size));
    return array.data();
}

ObservationArrays observation_arrays(const nb::dict& arrays, const std::string& prefix, std::size_t count,
                                     const EnvSpec& spec) {
    const ObservationLengths lengths(spec);
    const auto floats = [&](const char* name, std::size_t length) {
        return buffer<float>(arrays, (prefix + name).c_str(), count * length);
    };
    auto* const mask = buffer<std::int8_t>(arrays, (prefix + "mask").c_str(), count * lengths.actions);
    if (arrays.contains((prefix + "flat").c_str()))
        return ObservationArrays(lengths, floats("flat", lengths.flat()), mask);
    return ObservationArrays(lengths, floats("jobs", lengths.jobs), floats("nodes", lengths.nodes),
                             floats("globals", lengths.globals), mask);
}

// A vector of environments and the arrays it writes into, which must not go away before it.
struct BoundVectorEnv {
    BoundVectorEnv(std::shared_ptr<const EnvSpec> spec, std::size_t count, std::size_t threads, Autoreset autoreset)
        : env(std::move(spec), count, threads, autoreset) {}

    VectorEnv env;
    nb::dict arrays;
};

void attach(BoundVectorEnv& self, const nb::dict& arrays) {
    const std::size_t count = self.env.count();
    const StepArrays step{buffer<double>(arrays, "reward", count),
                          buffer<std::uint8_t>(arrays, "terminated", count),
                          buffer<std::uint8_t>(arrays, "truncated", count),
                          buffer<std::uint8_t>(arrays, "ended", count),
                          buffer<double>(arrays, "episode_return", count),
                          buffer<std::int64_t>(arrays, "episode_length", count),
                          buffer<double>(arrays, "metrics", count * kEpisodeMetrics.size())};
    self.env.attach(observation_arrays(arrays, "", count, self.env.spec()),
                    observation_arrays(arrays, "last_", count, self.env.spec()), step);
    self.arrays = arrays;
}

nb::dict record_of(const Environment& env) {
    const LeanSimulator& simulator = env.simulator();
    ScheduleArrays schedule = schedule_of(simulator);
    nb::dict dict;
    dict["submit_us"] = to_numpy(simulator.jobs().submit_us);
    dict["start_us"] = to_numpy(std::move(schedule.start_us));
    dict["end_us"] = to_numpy(std::move(schedule.end_us));  // also those to come
    dict["row"] = to_numpy(simulator.jobs().row);
    dict["node_offset"] = to_numpy(std::move(schedule.node_offset));
    dict["node"] = to_numpy(std::move(schedule.node));
    dict["node_gpus"] = to_numpy(std::move(schedule.node_gpus));
    dict["now_us"] = simulator.now();
    dict["warmup"] = env.own_from();
    dict["cooldown"] = simulator.jobs().size() - env.own_to();
    return dict;
}

void bind_spec(nb::module_& m) {
    nb::class_<EnvSpec>(m, "EnvSpec")
        .def(
            "__init__",
            [](EnvSpec* self, const std::string& kind, const std::string& step_mode, const std::string& tokens,
               const std::string& lookahead, const BoundPolicy& base, std::shared_ptr<const Settings> settings,
               const std::vector<std::pair<std::string, double>>& rewards, const BoundPolicy* baseline,
               const std::string& metric) {
                new (self) EnvSpec();
                self->kind = from_name(kEnvKinds, kind, "kind of environment");
                self->step_mode = from_name(kStepModes, step_mode, "step mode");
                self->tokens = from_name(kTokens, tokens, "kind of tokens");
                self->lookahead = from_name(kLookaheads, lookahead, "lookahead");
                self->base = base.policy;
                self->settings = std::move(settings);
                for (const auto& [name, weight] : rewards)
                    self->weights[static_cast<std::size_t>(from_name(kTermNames, name, "reward"))] = weight;
                if (baseline != nullptr) self->baseline = baseline->policy;
                self->baseline_metric = episode_metric_from_name(metric);
            },
            "kind"_a, "step_mode"_a, "tokens"_a, "lookahead"_a, "base"_a, "settings"_a, "rewards"_a,
            "baseline"_a.none(), "baseline_metric"_a)
        .def_rw("tick_us", &EnvSpec::tick_us)
        .def_rw("blocking_backfill", &EnvSpec::blocking_backfill)
        .def_rw("backfill_before_shadow", &EnvSpec::backfill_before_shadow)
        .def_rw("lookahead_horizon_us", &EnvSpec::lookahead_horizon_us)
        .def_rw("per_job", &EnvSpec::per_job)
        .def_rw("horizon_factor", &EnvSpec::horizon_factor)
        .def_rw("max_steps", &EnvSpec::max_steps)
        .def_rw("invalid_is_noop", &EnvSpec::invalid_is_noop)
        .def_rw("invalid_penalty", &EnvSpec::invalid_penalty)
        .def_rw("job_columns", &EnvSpec::job_columns)
        .def_rw("node_columns", &EnvSpec::node_columns)
        .def_rw("global_columns", &EnvSpec::global_columns)
        .def(
            "set_sizes",
            [](EnvSpec& s, std::size_t rows, std::size_t tokens, std::size_t pools, std::size_t lookahead,
               std::size_t hosts) {
                s.sizes = {.rows = rows, .tokens = tokens, .pools = pools, .lookahead = lookahead, .hosts = hosts};
            },
            "rows"_a, "tokens"_a, "pools"_a, "lookahead"_a, "hosts"_a)
        .def_prop_ro("actions", &EnvSpec::actions);
    m.def(
        "token_rows",
        [](const ClusterSpec& cluster, const std::string& tokens) {
            return Occupancy::rows_for(cluster, from_name(kTokens, tokens, "kind of tokens"));
        },
        "cluster"_a, "tokens"_a);
    m.attr("OBSERVATION_VERSION") = kObservationVersion;
    m.attr("JOB_COLUMNS") = columns(kJobColumns);
    m.attr("ASKED_JOB_COLUMNS") = columns(kAskedJobColumns);
    m.attr("ASKED_GLOBAL_COLUMNS") = columns(kAskedGlobalColumns);
    m.attr("NODE_COLUMNS") = columns(kNodeColumns);
    m.attr("GLOBAL_COLUMNS") = columns(kGlobalColumns);
    m.attr("REWARD_TERMS") = names_of(kTermNames);
    m.attr("EPISODE_METRICS") = std::vector<std::string>(kEpisodeMetrics.begin(), kEpisodeMetrics.end());
    nb::class_<EpisodeTable>(m, "EpisodeTable")
        .def(nb::init<std::shared_ptr<const ClusterSpec>, std::shared_ptr<const JobTable>,
                      std::shared_ptr<const Settings>, const EnvSpec&>(),
             "cluster"_a, "jobs"_a, "settings"_a, "spec"_a)
        .def("__len__", [](const EpisodeTable& t) { return t.jobs->size(); });
}

}  // namespace

void bind_env(nb::module_& m) {
    bind_spec(m);
    nb::exception<InvalidAction>(m, "InvalidActionError", PyExc_ValueError);
    nb::class_<BoundVectorEnv>(m, "VectorEnv")
        .def(
            "__init__",
            [](BoundVectorEnv* self, std::shared_ptr<const EnvSpec> spec, std::size_t count, std::size_t threads,
               const std::string& autoreset) {
                new (self) BoundVectorEnv(std::move(spec), count, threads,
                                          from_name(kAutoresets, autoreset, "autoreset mode"));
            },
            "spec"_a, "count"_a, "threads"_a, "autoreset"_a)
        .def(
            "set_windows",
            [](BoundVectorEnv& self, std::shared_ptr<const EpisodeTable> table, std::int64_t begin, std::int64_t end,
               std::int64_t jobs, std::int64_t warmup,
               std::int64_t cooldown) { self.env.set_source({std::move(table), begin, end, jobs, warmup, cooldown}); },
            "table"_a, "begin"_a, "end"_a, "jobs"_a, "warmup"_a, "cooldown"_a)
        .def(
            "give",
            [](BoundVectorEnv& self, std::size_t i, std::shared_ptr<const EpisodeTable> table, std::int64_t row,
               std::int64_t jobs, std::int64_t warmup, std::int64_t cooldown) {
                const WindowSource source{table, 0, table->jobs->size(), jobs, warmup, cooldown};
                self.env.give(i, source.at(row));
            },
            "i"_a, "table"_a, "row"_a, "jobs"_a, "warmup"_a, "cooldown"_a)
        .def("attach", &attach, "arrays"_a)
        .def(
            "reset",
            [](BoundVectorEnv& self, const std::optional<In<std::uint64_t>>& seeds,
               const std::optional<In<std::uint8_t>>& which) {
                const auto s = view(seeds);
                const auto w = view(which);
                if ((!s.empty() && s.size() != self.env.count()) || (!w.empty() && w.size() != self.env.count()))
                    throw std::invalid_argument("one seed and one mark an environment");
                nb::gil_scoped_release release;
                self.env.reset(s, w);
            },
            "seeds"_a.none(), "which"_a.none())
        .def(
            "resume",
            [](BoundVectorEnv& self, std::size_t i, std::uint64_t seed, std::uint64_t drawn,
               const std::optional<In<std::int64_t>>& actions, const std::optional<In<float>>& priorities) {
                const auto chosen = view(actions);
                const auto ranked = view(priorities);
                if (ranked.size() % self.env.spec().actions() != 0)
                    throw std::invalid_argument("one priority a host and step");
                nb::gil_scoped_release release;
                self.env.resume(i, seed, drawn, chosen, ranked);
            },
            "i"_a, "seed"_a, "drawn"_a, "actions"_a.none(), "priorities"_a.none())
        .def(
            "step",
            [](BoundVectorEnv& self, const In<std::int64_t>& actions) {
                if (actions.size() != self.env.count()) throw std::invalid_argument("one action an environment");
                const auto span = view(actions);
                nb::gil_scoped_release release;
                self.env.step(span);
            },
            "actions"_a)
        .def(
            "step_ranked",
            [](BoundVectorEnv& self, const In<float>& priorities) {
                if (priorities.size() != self.env.count() * self.env.spec().actions())
                    throw std::invalid_argument("one priority a host and environment");
                const auto span = view(priorities);
                nb::gil_scoped_release release;
                self.env.step_ranked(span);
            },
            "priorities"_a)
        .def(
            "expert_actions",
            [](BoundVectorEnv& self, const BoundPolicy& policy) {
                std::vector<std::int64_t> actions(self.env.count());
                {
                    nb::gil_scoped_release release;
                    self.env.expert_actions(policy.policy, actions);
                }
                return to_numpy(std::move(actions));
            },
            "policy"_a)
        .def("random_actions",
             [](BoundVectorEnv& self) {
                 std::vector<std::int64_t> actions(self.env.count());
                 self.env.random_actions(actions);
                 return to_numpy(std::move(actions));
             })
        .def(
            "snapshot", [](BoundVectorEnv& self, std::size_t i) { return self.env.begun(i).snapshot(); }, "i"_a)
        .def(
            "window", [](BoundVectorEnv& self, std::size_t i) { return self.env.begun(i).window(); }, "i"_a)
        .def(
            "record", [](BoundVectorEnv& self, std::size_t i) { return record_of(self.env.begun(i)); }, "i"_a)
        .def("clock_s", [](BoundVectorEnv& self, std::size_t i) { return seconds(self.env.begun(i).clock()); }, "i"_a);
}

}  // namespace gpuyard
