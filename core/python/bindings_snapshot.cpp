#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>

#include <algorithm>
#include <array>
#include <stdexcept>
#include <string>

#include "python/bindings_shared.hpp"
#include "simulator/snapshot.hpp"

namespace gpuyard {

using namespace nb::literals;

void bind_snapshot(nb::module_& m) {
    nb::class_<Snapshot>(m, "Snapshot")
        .def_prop_ro("now_s", [](const Snapshot& s) { return seconds(s.now_us); })
        .def_prop_ro(
            "queue",
            [](const Snapshot& s) {
                const std::vector<Demand>& demands = *s.demands;
                const auto demand = [&](const QueuedJob& j) -> const Demand& {
                    return demands[static_cast<std::size_t>(j.demand)];
                };
                nb::dict d;
                d["job"] = column(s.queue, [](const QueuedJob& j) { return j.job; });
                d["submit_s"] = column(s.queue, [](const QueuedJob& j) { return seconds(j.submit_us); });
                d["wait_s"] = column(s.queue, [&](const QueuedJob& j) { return seconds(s.now_us - j.submit_us); });
                d["estimate_s"] = column(s.queue, [](const QueuedJob& j) { return seconds_or_nan(j.estimate_us); });
                d["queue"] = column(s.queue, [&](const QueuedJob& j) { return demand(j).queue; });
                d["gpus"] = column(s.queue, [&](const QueuedJob& j) { return demand(j).gpus; });
                d["gpu_milli"] = column(s.queue, [&](const QueuedJob& j) { return demand(j).gpu_milli; });
                d["cpus"] = column(s.queue, [&](const QueuedJob& j) { return demand(j).cpus; });
                d["memory_mib"] = column(s.queue, [&](const QueuedJob& j) { return demand(j).memory_mib; });
                d["nodes"] = column(s.queue, [&](const QueuedJob& j) { return demand(j).nodes; });
                d["priority"] = column(s.queue, [](const QueuedJob& j) { return j.priority; });
                d["deadline_s"] = column(s.queue, [](const QueuedJob& j) { return seconds_or_nan(j.deadline_us); });
                d["user"] = column(s.queue, [](const QueuedJob& j) { return j.user; });
                d["user_usage"] = column(s.queue, [&](const QueuedJob& j) {
                    return s.user_usage[static_cast<std::size_t>(j.user)].at(s.now_us, s.settings->usage_half_life_s);
                });
                d["attained_s"] = column(s.queue, [](const QueuedJob& j) { return seconds(j.attained_us); });
                return d;
            })
        .def_prop_ro("running",
                     [](const Snapshot& s) {
                         nb::dict d;
                         d["job"] = column(s.active, [](const ActiveJob& j) { return j.job; });
                         d["expected_end_s"] =
                             column(s.active, [](const ActiveJob& j) { return seconds_or_nan(j.expected_end_us); });
                         d["attained_s"] = column(s.active, [&](const ActiveJob& j) {
                             return seconds(j.attained_us + j.progress_us(s.now_us));
                         });
                         d["may_stop"] = column(s.active, [&](const ActiveJob& j) {
                             return static_cast<std::uint8_t>(j.may_stop(s.now_us, s.settings->min_run_us) ? 1 : 0);
                         });
                         return d;
                     })
        .def(
            "allowed_pools",
            [](const Snapshot& s, JobId job) {
                std::vector<std::int32_t> pools;
                const auto found = std::lower_bound(s.queue.begin(), s.queue.end(), job,
                                                    [](const QueuedJob& j, JobId id) { return j.job < id; });
                if (found == s.queue.end() || found->job != job)
                    throw std::invalid_argument("job " + std::to_string(job) + " is not queued");
                for (const PoolOption& option : s.demand(found->demand).pools) pools.push_back(option.pool);
                return pools;
            },
            "job"_a)
        .def(
            "nodes_of",
            [](const Snapshot& s, JobId job) {
                for (const ActiveJob& j : s.active)
                    if (j.job == job) return node_pairs(s.parts_of(j));
                throw std::invalid_argument("job " + std::to_string(job) + " is not running");
            },
            "job"_a)
        .def_prop_ro("nodes", [](const Snapshot& s) {
            std::vector<std::int32_t> gpus, empty, pool;
            std::vector<std::uint8_t> available;
            std::vector<std::int64_t> free_milli, free_cpus, free_memory, cpus, memory;
            for (std::size_t i = 0; i < s.state.spec().node_count(); ++i) {
                const auto node = static_cast<std::int32_t>(i);
                gpus.push_back(s.state.spec().size[i]);
                empty.push_back(s.state.empty(node));
                pool.push_back(s.state.spec().pool[i]);
                available.push_back(s.state.available(node) ? 1 : 0);
                free_milli.push_back(s.state.available(node) ? s.state.free_milli(node) : 0);
                free_cpus.push_back(s.state.free_cpus(node));
                free_memory.push_back(s.state.free_memory(node));
                cpus.push_back(s.state.spec().cpus[i]);
                memory.push_back(s.state.spec().memory_mib[i]);
            }
            nb::dict d;
            d["gpus"] = to_numpy(std::move(gpus));
            d["empty_gpus"] = to_numpy(std::move(empty));
            d["pool"] = to_numpy(std::move(pool));
            d["available"] = to_numpy(std::move(available));
            d["free_milli"] = to_numpy(std::move(free_milli));
            d["free_cpus"] = to_numpy(std::move(free_cpus));
            d["free_memory_mib"] = to_numpy(std::move(free_memory));
            d["cpus"] = to_numpy(std::move(cpus));
            d["memory_mib"] = to_numpy(std::move(memory));
            return d;
        });

    nb::class_<Decision>(m, "Decision")
        .def(nb::init<>())
        .def(
            "start",
            [](Decision& d, JobId job, const Parts& nodes, std::vector<JobId> stop, bool backfilled) {
                Start start{job, {}, backfilled, std::move(stop)};
                for (const auto& [node, gpus] : nodes) start.parts.push_back({node, gpus, 0});
                d.starts.push_back(std::move(start));
                d.native = false;
            },
            "job"_a, "nodes"_a, "stop"_a = std::vector<JobId>(), "backfilled"_a = false)
        .def(
            "wake_at", [](Decision& d, Time wake_us) { d.wake_us = std::min(d.wake_us, wake_us); }, "wake_us"_a)
        .def("__len__", [](const Decision& d) { return d.starts.size(); })
        .def_prop_ro("stops",
                     [](const Decision& d) {
                         std::vector<std::pair<JobId, std::vector<JobId>>> stops;
                         for (const Start& s : d.starts)
                             if (!s.stops.empty()) stops.emplace_back(s.job, s.stops);
                         return stops;
                     })
        .def_prop_ro("backfilled",
                     [](const Decision& d) {
                         std::vector<JobId> jobs;
                         for (const Start& s : d.starts)
                             if (s.backfilled) jobs.push_back(s.job);
                         return jobs;
                     })
        .def_prop_ro("reservations",
                     [](const Decision& d) {
                         std::vector<std::tuple<JobId, double, double, Parts>> plan;
                         for (const Reservation& r : d.reservations)
                             plan.emplace_back(r.job, seconds_or_nan(r.begin_us), seconds_or_nan(r.end_us),
                                               node_pairs(r.parts));
                         return plan;
                     })
        .def_prop_ro("wake_s", [](const Decision& d) { return seconds_or_nan(d.wake_us); })
        .def(
            "__eq__",
            [](const Decision& a, const Decision& b) {
                return a.starts == b.starts && a.reservations == b.reservations && a.wake_us == b.wake_us;
            },
            nb::is_operator())
        .def_prop_ro("starts", [](const Decision& d) {
            std::vector<std::pair<JobId, Parts>> starts;
            for (const Start& s : d.starts) starts.emplace_back(s.job, node_pairs(s.parts));
            return starts;
        });

    // Whoever waits for a decision only so long must be able to go on meanwhile.
    m.def(
        "decide", [](const Snapshot& snapshot, const BoundPolicy& policy) { return decide(snapshot, policy.policy); },
        "snapshot"_a, "policy"_a, nb::call_guard<nb::gil_scoped_release>());
    m.def(
        "explain",
        [](const Snapshot& snapshot, const BoundPolicy& policy, JobId job) {
            const auto queued = [&](const QueuedJob& j) { return j.job == job; };
            if (std::none_of(snapshot.queue.begin(), snapshot.queue.end(), queued))
                throw std::invalid_argument("job " + std::to_string(job) + " is not queued");
            const Explanation why = explain(snapshot, policy.policy, job);
            constexpr std::array names{"starts",       "does-not-fit", "behind-head", "would-delay-head",
                                       "not-admitted", "over-quota",   "reserved",    "no-reservation"};
            nb::dict d;
            d["verdict"] = names[static_cast<std::size_t>(why.verdict)];
            d["rank"] = why.rank;
            d["head"] = why.head;
            d["until_s"] = seconds_or_nan(why.until_us);
            d["free_gpus"] = static_cast<double>(why.free_milli) / 1000.0;
            d["most_empty"] = why.most_empty;
            d["stops"] = why.stops;
            return d;
        },
        "snapshot"_a, "policy"_a, "job"_a);
    m.def(
        "ranking",
        [](const Snapshot& snapshot, const BoundPolicy& policy) {
            std::vector<std::pair<double, JobId>> found;
            {
                nb::gil_scoped_release release;
                found = ranking(snapshot, policy.policy);
            }
            return nb::make_tuple(column(found, [](const auto& one) { return one.second; }),
                                  column(found, [](const auto& one) { return one.first; }));
        },
        "snapshot"_a, "policy"_a);
}

}  // namespace gpuyard
