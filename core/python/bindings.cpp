// The Python module gpuyard._core: conversions only, no logic.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <bit>
#include <memory>
#include <optional>

#include "base/index.hpp"
#include "base/rng.hpp"
#include "cluster/job_table.hpp"
#include "metrics/timeline.hpp"
#include "python/bindings_shared.hpp"
#include "simulator/checked_simulator.hpp"
#include "simulator/run.hpp"
#include "simulator/schedule.hpp"
#include "simulator/snapshot.hpp"
#include "simulator/watched_run.hpp"

namespace nb = nanobind;
using namespace nb::literals;

namespace gpuyard {
namespace {

nb::dict to_dict(const QueueColumns& columns) {
    nb::dict dict;
    dict["now_s"] = seconds(columns.now_us);
    dict["submit_s"] = to_numpy(columns.submit_s);
    dict["wait_s"] = to_numpy(columns.wait_s);
    dict["estimate_s"] = to_numpy(columns.estimate_s);
    dict["gpus"] = to_numpy(columns.gpus);
    dict["priority"] = to_numpy(columns.priority);
    dict["deadline_s"] = to_numpy(columns.deadline_s);
    dict["user_usage"] = to_numpy(columns.user_usage);
    dict["user"] = to_numpy(columns.user);
    dict["job"] = to_numpy(columns.job);
    return dict;
}

nb::dict to_dict(const OrderTraits& order) {
    nb::dict dict;
    dict["name"] = std::string(order.name);
    dict["preempts"] = order.preempts;
    dict["uses_estimates"] = order.uses_estimate;
    dict["needs_watts"] = order.needs_watts;
    dict["is_static"] = order.is_static();
    dict["fixed_while_waiting"] = order.fixed_while_waiting();
    dict["changes_by_period"] = order.changes_by_period();
    dict["predicts"] = order.predicts();
    dict["sees_names"] = order.sees_names();
    dict["runs_lean"] = order.runs_lean();
    return dict;
}

void call_scores(nb::handle function, const QueueColumns& columns, std::span<double> scores) {
    nb::gil_scoped_acquire acquire;
    const nb::object answer = function(to_dict(columns));
    const auto array = nb::cast<In<double>>(answer);
    if (array.size() != scores.size())
        throw std::invalid_argument("an order returned " + std::to_string(array.size()) + " scores for " +
                                    std::to_string(scores.size()) + " queued jobs");
    std::copy_n(array.data(), array.size(), scores.begin());
}

std::shared_ptr<BoundPolicy> make_policy(const std::string& order, const std::string& backfill,
                                         const std::string& placement, double express_t0_s, double express_k,
                                         nb::object scores, double order_parameter, Time max_wait_us) {
    auto bound = std::make_shared<BoundPolicy>();
    bound->policy.backfill = backfill_from_name(backfill);
    bound->policy.placement = placement_from_name(placement);
    bound->policy.express = {express_t0_s, express_k};
    bound->policy.order_parameter = order_parameter;
    bound->policy.max_wait_us = max_wait_us;
    bound->scores = scores;
    if (scores.is_none()) {
        bound->policy.order = order_from_name(order);
    } else {
        bound->policy.order = Order::scored;
        bound->policy.scores = [function = nb::handle(scores)](const QueueColumns& columns, std::span<double> out) {
            call_scores(function, columns, out);
        };
    }
    return bound;
}

void make_past(Past* self, const In<std::int32_t>& user, const In<std::int32_t>& group, const In<std::int32_t>& gpus,
               const In<std::int64_t>& milli, const In<std::int64_t>& run_us) {
    const std::size_t count = user.size();
    for (const std::size_t size : {group.size(), gpus.size(), milli.size(), run_us.size()})
        if (size != count) throw std::invalid_argument("columns of finished jobs differ in length");
    new (self) Past();
    for (std::size_t i = 0; i < count; ++i)
        self->add(user.data()[i], group.data()[i], gpus.data()[i], milli.data()[i], run_us.data()[i]);
}

using Given = std::vector<std::tuple<JobId, Time, std::vector<std::pair<std::int32_t, std::int32_t>>>>;

std::vector<GivenStart> given_starts(const Given& given) {
    std::vector<GivenStart> starts;
    for (const auto& [job, start_us, nodes] : given) {
        starts.push_back({job, start_us, {}});
        for (const auto& [node, gpus] : nodes)
            starts.back().parts.push_back({.node = node, .gpus = gpus, .gpu_mask = 0});
    }
    return starts;
}

nb::dict run(std::shared_ptr<const ClusterSpec> cluster, std::shared_ptr<const JobTable> jobs,
             const BoundPolicy& policy, std::shared_ptr<const Settings> settings, const nb::object& progress,
             const Past& past, const Beginning* beginning) {
    const Progress report = progress_to(progress);
    ScheduleArrays arrays;
    {
        nb::gil_scoped_release release;
        arrays = simulate(std::move(cluster), std::move(jobs), policy.policy, std::move(settings), past,
                          beginning != nullptr ? *beginning : Beginning(), report);
    }
    return to_dict(std::move(arrays));
}

template <class Draw>
Out<double> draws(std::int64_t count, Draw draw_one) {
    if (count < 0) throw std::invalid_argument("count is negative");
    std::vector<double> values(as_index(count));
    for (std::size_t i = 0; i < values.size(); ++i) values[i] = draw_one(static_cast<std::uint64_t>(i));
    return to_numpy(std::move(values));
}

void bind_random(nb::module_& m) {
    m.def("draw", &draw, "seed"_a, "stream"_a, "a"_a, "b"_a);
    m.def(
        "uniforms",
        [](std::uint64_t seed, std::uint64_t stream, std::int64_t count) {
            return draws(count, [=](std::uint64_t i) { return uniform(seed, stream, i, 0); });
        },
        "seed"_a, "stream"_a, "count"_a);
    m.def(
        "normals",
        [](std::uint64_t seed, std::uint64_t stream, std::int64_t count) {
            return draws(count, [=](std::uint64_t i) { return normal(seed, stream, i, 0); });
        },
        "seed"_a, "stream"_a, "count"_a);
    m.def(
        "exponentials",
        [](std::uint64_t seed, std::uint64_t stream, std::int64_t count) {
            return draws(count, [=](std::uint64_t i) { return exponential(seed, stream, i, 0); });
        },
        "seed"_a, "stream"_a, "count"_a);
    m.def(
        "lognormals",
        [](std::uint64_t seed, std::uint64_t stream, std::int64_t count, double mu, double sigma) {
            return draws(count, [=](std::uint64_t i) { return std::exp(mu + sigma * normal(seed, stream, i, 0)); });
        },
        "seed"_a, "stream"_a, "count"_a, "mu"_a, "sigma"_a);
    m.def(
        "noisy_estimates",
        [](const In<Time>& duration_us, const In<std::int64_t>& row, std::uint64_t seed, double sigma) {
            return to_numpy(noisy_estimates(view(duration_us), view(row), seed, sigma));
        },
        "duration_us"_a, "row"_a, "seed"_a, "sigma"_a);
}

using GivenPartitions = std::vector<std::tuple<std::vector<std::int32_t>, std::int32_t, std::int32_t>>;

std::vector<Partition> given_partitions(const GivenPartitions& given) {
    std::vector<Partition> partitions;
    for (const auto& [nodes, tier, job_factor] : given)
        partitions.push_back({.nodes = nodes, .tier = tier, .job_factor = job_factor});
    return partitions;
}

void bind_slurm_settings(nb::module_& m) {
    nb::class_<Multifactor>(m, "Multifactor")
        .def_rw("age", &Multifactor::age)
        .def_rw("fair_share", &Multifactor::fair_share)
        .def_rw("size", &Multifactor::size)
        .def_rw("partition", &Multifactor::partition)
        .def_rw("qos", &Multifactor::qos)
        .def_rw("gpus", &Multifactor::gpus)
        .def_rw("cpus", &Multifactor::cpus)
        .def_rw("memory", &Multifactor::memory)
        .def_rw("priority", &Multifactor::priority)
        .def_rw("max_age_s", &Multifactor::max_age_s)
        .def_rw("favor_small", &Multifactor::favor_small)
        .def_prop_rw(
            "classic", [](const Multifactor& f) { return f.shares == FairShare::classic; },
            [](Multifactor& f, bool classic) { f.shares = classic ? FairShare::classic : FairShare::tree; })
        .def_rw("calc_us", &Multifactor::calc_us)
        .def("calculated_us", &Multifactor::calculated_us, "now_us"_a)
        .def_rw("association_group", &Multifactor::association_group)
        .def_rw("association_share", &Multifactor::association_share)
        .def_rw("group_share", &Multifactor::group_share)
        .def_rw("qos_factor", &Multifactor::qos_factor);
    nb::class_<SlurmBackfill>(m, "SlurmBackfill")
        .def_rw("interval_us", &SlurmBackfill::interval_us)
        .def_rw("max_jobs", &SlurmBackfill::max_jobs)
        .def_rw("max_jobs_of_partition", &SlurmBackfill::max_jobs_of_partition)
        .def_rw("max_jobs_of_user", &SlurmBackfill::max_jobs_of_user)
        .def_rw("window_us", &SlurmBackfill::window_us)
        .def_rw("resolution_us", &SlurmBackfill::resolution_us)
        .def_rw("always_changed", &SlurmBackfill::always_changed)
        .def_rw("goes_by_calc", &SlurmBackfill::goes_by_calc);
}

void bind_inputs(nb::module_& m) {
    nb::class_<ClusterSpec>(m, "ClusterSpec")
        .def(
            "__init__",
            [](ClusterSpec* self, const In<std::int32_t>& type, const In<std::int32_t>& gpus,
               const In<std::int64_t>& cpus, const In<std::int64_t>& memory_mib, const In<std::int32_t>& owner,
               const In<double>& type_speed, bool track_gpus, const std::optional<In<double>>& node_idle_w,
               const std::optional<In<double>>& type_idle_w, const std::optional<In<double>>& type_peak_w,
               const GivenPartitions& partitions) {
                new (self) ClusterSpec({.type = view(type),
                                        .gpus = view(gpus),
                                        .cpus = view(cpus),
                                        .memory_mib = view(memory_mib),
                                        .owner = view(owner)},
                                       view(type_speed), track_gpus,
                                       {.node_idle_w = view(node_idle_w),
                                        .type_idle_w = view(type_idle_w),
                                        .type_peak_w = view(type_peak_w)},
                                       given_partitions(partitions));
            },
            "type"_a, "gpus"_a, "cpus"_a, "memory_mib"_a, "owner"_a, "type_speed"_a, "track_gpus"_a,
            "node_idle_w"_a = nb::none(), "type_idle_w"_a = nb::none(), "type_peak_w"_a = nb::none(),
            "partitions"_a = GivenPartitions())
        .def_prop_ro(
            "pool", [](const ClusterSpec& s) { return to_numpy(s.pool); }, nb::rv_policy::automatic)
        .def_prop_ro("idle_w", [](const ClusterSpec& s) { return static_cast<double>(s.idle_mw) / 1000.0; })
        .def_prop_ro("queues", [](const ClusterSpec& s) { return s.queues; });

    nb::class_<JobTable>(m, "JobTable")
        .def(
            "__init__",
            [](JobTable* self, const ClusterSpec& cluster, const In<Time>& submit_us, const In<Time>& duration_us,
               const In<Time>& estimate_us, const In<std::int32_t>& gpus,
               const std::optional<In<std::int32_t>>& gpu_milli, const std::optional<In<std::int64_t>>& cpus,
               const std::optional<In<std::int64_t>>& memory_mib, const std::optional<In<std::int32_t>>& queue,
               const std::optional<In<std::int32_t>>& type_set, const std::optional<In<double>>& priority,
               const std::optional<In<Time>>& deadline_us, const std::optional<In<std::int32_t>>& user,
               const std::optional<In<std::int32_t>>& group, const std::optional<In<std::int64_t>>& row,
               const std::optional<In<std::int32_t>>& nodes, const std::optional<In<std::int32_t>>& partition,
               const std::optional<In<std::int32_t>>& qos, const std::optional<In<std::int32_t>>& association,
               const std::optional<In<std::int64_t>>& after_offset, const std::optional<In<JobId>>& after,
               std::vector<std::vector<std::int32_t>> type_sets, std::int32_t users, std::int32_t groups,
               double origin_s, Time epoch_us) {
                new (self) JobTable(make_jobs(cluster, {.submit_us = view(submit_us),
                                                        .duration_us = view(duration_us),
                                                        .estimate_us = view(estimate_us),
                                                        .gpus = view(gpus),
                                                        .gpu_milli = view(gpu_milli),
                                                        .cpus = view(cpus),
                                                        .memory_mib = view(memory_mib),
                                                        .nodes = view(nodes),
                                                        .queue = view(queue),
                                                        .type_set = view(type_set),
                                                        .priority = view(priority),
                                                        .deadline_us = view(deadline_us),
                                                        .user = view(user),
                                                        .group = view(group),
                                                        .row = view(row),
                                                        .partition = view(partition),
                                                        .qos = view(qos),
                                                        .association = view(association),
                                                        .after_offset = view(after_offset),
                                                        .after = view(after),
                                                        .type_sets = std::move(type_sets),
                                                        .users = users,
                                                        .groups = groups,
                                                        .origin_s = origin_s,
                                                        .epoch_us = epoch_us}));
            },
            "cluster"_a, "submit_us"_a, "duration_us"_a, "estimate_us"_a, "gpus"_a, "gpu_milli"_a = nb::none(),
            "cpus"_a = nb::none(), "memory_mib"_a = nb::none(), "queue"_a = nb::none(), "type_set"_a = nb::none(),
            "priority"_a = nb::none(), "deadline_us"_a = nb::none(), "user"_a = nb::none(), "group"_a = nb::none(),
            "row"_a = nb::none(), "nodes"_a = nb::none(), "partition"_a = nb::none(), "qos"_a = nb::none(),
            "association"_a = nb::none(), "after_offset"_a = nb::none(), "after"_a = nb::none(),
            "type_sets"_a = std::vector<std::vector<std::int32_t>>(), "users"_a = 1, "groups"_a = 1, "origin_s"_a = 0.0,
            "epoch_us"_a = 0)
        .def("__len__", &JobTable::size);

    bind_slurm_settings(m);
    nb::class_<Settings>(m, "Settings")
        .def(nb::init<>())
        .def_rw("seed", &Settings::seed)
        .def_rw("kill_at_estimate", &Settings::kill_at_estimate)
        .def_rw("locality_penalty", &Settings::locality_penalty)
        .def_rw("usage_half_life_s", &Settings::usage_half_life_s)
        .def_rw("predict", &Settings::predict)
        .def_rw("user_weight", &Settings::user_weight)
        .def_rw("group_weight", &Settings::group_weight)
        .def_rw("multifactor", &Settings::multifactor)
        .def_rw("slurm", &Settings::slurm)
        .def(
            "add_limit",
            [](Settings& s, bool of_qos, std::int32_t number, const std::string& per, std::int64_t milli,
               std::int64_t jobs) {
                const LimitPer whose = per == "user"    ? LimitPer::user
                                       : per == "group" ? LimitPer::group
                                                        : LimitPer::all;
                s.limits.push_back({.of_qos = of_qos, .number = number, .per = whose, .milli = milli, .jobs = jobs});
            },
            "of_qos"_a, "number"_a, "per"_a, "milli"_a = INT64_MAX, "jobs"_a = INT64_MAX)
        .def_rw("quota_milli", &Settings::quota_milli)
        .def_rw("quota_of_group", &Settings::quota_of_group)
        .def_rw("quota_borrowing", &Settings::quota_borrowing)
        .def_rw("ticks", &Settings::ticks)
        .def_rw("reschedule_us", &Settings::reschedule_us)
        .def_rw("min_run_us", &Settings::min_run_us)
        .def_rw("checkpoint_us", &Settings::checkpoint_us)
        .def_rw("restore_us", &Settings::restore_us)
        .def_rw("defragment", &Settings::defragment)
        .def_rw("tiresias_levels_gpu_s", &Settings::tiresias_levels_gpu_s)
        .def_rw("starvation_us", &Settings::starvation_us)
        .def_rw("mtbf_us", &Settings::mtbf_us)
        .def_rw("mttr_us", &Settings::mttr_us)
        .def_rw("checkpoint_every_us", &Settings::checkpoint_every_us)
        .def_rw("sleep_after_us", &Settings::sleep_after_us)
        .def_rw("wake_us", &Settings::wake_us)
        .def_rw("power_cap_mw", &Settings::power_cap_mw);

    nb::class_<BoundPolicy>(m, "Policy")
        .def(nb::new_(&make_policy), "order"_a, "backfill"_a, "placement"_a, "express_t0_s"_a = 1.0,
             "express_k"_a = 0.0, "scores"_a = nb::none(), "order_parameter"_a = 1.0, "max_wait_us"_a = kEndless);
}

void bind_simulation(nb::module_& m) {
    const nb::object input_error = nb::module_::import_("gpuyard.errors").attr("InputError");
    nb::exception<EndlessFailures>(m, "EndlessFailuresError", input_error);
    nb::class_<Past>(m, "Past")
        .def(nb::init<>())
        .def("__init__", &make_past, "user"_a, "group"_a, "gpus"_a, "milli"_a, "run_us"_a);
    nb::exception<ImpossibleBeginning>(m, "ImpossibleBeginningError", input_error);
    nb::class_<Beginning>(m, "Beginning")
        .def(
            "__init__",
            [](Beginning* self, const JobTable& jobs, Time decides_from_us, const Given& starts) {
                new (self) Beginning(make_beginning(jobs, decides_from_us, given_starts(starts)));
            },
            "jobs"_a, "decides_from_us"_a, "starts"_a);
    nb::class_<CheckedSimulator>(m, "CheckedSimulator")
        .def(
            "__init__",
            [](CheckedSimulator* self, std::shared_ptr<const ClusterSpec> cluster, std::shared_ptr<const JobTable> jobs,
               std::shared_ptr<const Settings> settings, const Past& past, const Beginning* beginning) {
                new (self) CheckedSimulator(std::move(cluster), std::move(jobs), std::move(settings), past,
                                            beginning != nullptr ? *beginning : Beginning());
            },
            "cluster"_a, "jobs"_a, "settings"_a, "past"_a = Past(), "beginning"_a = nb::none())
        .def("advance", &CheckedSimulator::advance)
        .def_prop_ro("now_s", [](const CheckedSimulator& s) { return seconds(s.simulator().view().now_us); })
        .def_prop_ro("finished", [](const CheckedSimulator& s) { return s.simulator().finished(); })
        .def_prop_ro(
            "waiting", [](const CheckedSimulator& s) { return to_numpy(s.simulator().waiting()); },
            nb::rv_policy::automatic)
        .def(
            "has_finished", [](const CheckedSimulator& s, JobId job) { return s.simulator().has_finished(job); },
            "job"_a)
        .def("snapshot", &CheckedSimulator::snapshot)
        .def("apply", &CheckedSimulator::apply, "decision"_a)
        .def("schedule", [](const CheckedSimulator& s) { return to_dict(schedule_of(s.simulator())); });
    nb::class_<WatchedRun>(m, "WatchedRun")
        .def(
            "__init__",
            [](WatchedRun* self, std::shared_ptr<const ClusterSpec> cluster, std::shared_ptr<const JobTable> jobs,
               const BoundPolicy& policy, std::shared_ptr<const Settings> settings, const Past& past, JobId job,
               bool keeps_plan) {
                new (self) WatchedRun(std::move(cluster), std::move(jobs), policy.policy, std::move(settings), past,
                                      job, keeps_plan);
            },
            nb::keep_alive<1, 4>(), "cluster"_a, "jobs"_a, "policy"_a, "settings"_a, "past"_a, "job"_a,
            "keeps_plan"_a = false)
        .def(
            "run",
            [](WatchedRun& run, const nb::object& progress) {
                const Progress report = progress_to(progress);
                nb::gil_scoped_release release;
                run.run(report);
            },
            "progress"_a = nb::none())
        .def("schedule", [](const WatchedRun& run) { return to_dict(schedule_of(run.simulator())); })
        .def_prop_ro("started_as_planned", &WatchedRun::started_as_planned)
        .def("look", &WatchedRun::look, "every"_a)
        .def("advance", &WatchedRun::advance)
        .def_prop_ro("finished", [](const WatchedRun& run) { return run.simulator().finished(); })
        .def_prop_ro("decision", &WatchedRun::decision, nb::rv_policy::copy)
        .def_prop_ro("stops",
                     [](const WatchedRun& run) {
                         std::vector<std::pair<double, JobId>> stops;
                         for (const auto& [at_us, other] : run.stops()) stops.emplace_back(seconds(at_us), other);
                         return stops;
                     })
        .def("snapshot", &WatchedRun::snapshot);

    m.def(
        "needs_full_simulator",
        [](const ClusterSpec& cluster, const JobTable& jobs, const BoundPolicy& policy, const Settings& settings) {
            return needs_full_simulator(cluster, jobs, policy.policy, settings);
        },
        "cluster"_a, "jobs"_a, "policy"_a, "settings"_a);
    m.def("simulate", &run, "cluster"_a, "jobs"_a, "policy"_a, "settings"_a, "progress"_a = nb::none(),
          "past"_a = Past(), "beginning"_a = nb::none());
    m.def(
        "never_placeable",
        [](std::shared_ptr<const ClusterSpec> cluster, const JobTable& jobs, const std::string& placement,
           std::int64_t power_cap_mw) {
            return to_numpy(never_placeable(std::move(cluster), jobs, placement_from_name(placement), power_cap_mw));
        },
        "cluster"_a, "jobs"_a, "placement"_a, "power_cap_mw"_a = INT64_MAX);
    m.def("orders", [] {
        nb::list orders;
        for (const OrderTraits& order : kOrders) orders.append(to_dict(order));
        return orders;
    });
}

void bind_timeline(nb::module_& m) {
    m.def(
        "time_means",
        [](const In<Time>& start_us, const In<Time>& end_us, const In<std::int64_t>& node_offset,
           const In<std::int32_t>& node, const In<std::int32_t>& node_gpus, const In<std::int32_t>& gpu_index,
           const In<std::int32_t>& gpu_milli, const In<std::int32_t>& node_size, Time from_us, Time to_us) {
            TimeMeans means;
            {
                nb::gil_scoped_release release;
                means = time_means({.start_us = view(start_us),
                                    .end_us = view(end_us),
                                    .node_offset = view(node_offset),
                                    .node = view(node),
                                    .node_gpus = view(node_gpus),
                                    .gpu_index = view(gpu_index),
                                    .gpu_milli = view(gpu_milli)},
                                   view(node_size), from_us, to_us);
            }
            return nb::make_tuple(means.load_imbalance, means.fragmentation, to_numpy(std::move(means.shared_busy_us)));
        },
        "start_us"_a, "end_us"_a, "node_offset"_a, "node"_a, "node_gpus"_a, "gpu_index"_a, "gpu_milli"_a, "node_size"_a,
        "from_us"_a, "to_us"_a);
    m.def(
        "users_active",
        [](const In<std::int32_t>& user, const In<Time>& submit_us, const In<Time>& end_us) {
            std::vector<std::int32_t> active;
            {
                nb::gil_scoped_release release;
                active = users_active(view(user), view(submit_us), view(end_us));
            }
            return to_numpy(std::move(active));
        },
        "user"_a, "submit_us"_a, "end_us"_a);
}

}  // namespace
}  // namespace gpuyard

NB_MODULE(_core, m) {
    // A thread that still waits for a decision when the interpreter ends is no leak.
    nanobind::set_leak_warnings(false);
    m.doc() = "The native core of gpuyard. Use it through the gpuyard package.";
    m.attr("ENDLESS") = gpuyard::kEndless;
    m.attr("UNLIMITED") = gpuyard::kUnlimited;
    gpuyard::bind_random(m);
    gpuyard::bind_inputs(m);
    gpuyard::bind_snapshot(m);
    gpuyard::bind_snapshot_columns(m);
    gpuyard::bind_simulation(m);
    gpuyard::bind_timeline(m);
    gpuyard::bind_env(m);
    gpuyard::bind_learn(m);
    gpuyard::bind_replay(m);
    nanobind::module_ testing = m.def_submodule(
        "testing", "Parts of the core by themselves, for tests that compare them with another implementation.");
    gpuyard::bind_testing(testing);
}
