// Snapshots to and from plain columns. Units are the core's; gpuyard.native.snapshot makes them those of people.
#include <algorithm>
#include <string>

#include <nanobind/stl/shared_ptr.h>

#include "base/index.hpp"
#include "python/bindings_shared.hpp"
#include "simulator/snapshot_builder.hpp"

namespace gpuyard {

using namespace nb::literals;

namespace {

// A table of columns that outlive the call.
struct Table {
    nb::dict columns;

    template <class T>
    std::span<const T> get(const char* name) const {
        return view(nb::cast<In<T>>(columns[name], false));
    }
    template <class T>
    std::span<const T> get_if(const char* name) const {
        return columns.contains(name) ? get<T>(name) : std::span<const T>();
    }
    NeedColumns needs() const {
        return {get<std::int32_t>("gpus"),     get<std::int32_t>("gpu_milli"), get<std::int32_t>("queue"),
                get<std::int32_t>("type_set"), get<std::int64_t>("cpus"),      get<std::int64_t>("memory_mib"),
                get<std::int32_t>("nodes"),    get<std::int32_t>("partition")};
    }
    PartColumns parts() const {
        return {get<std::int64_t>("node_offset"), get<std::int32_t>("node"), get<std::int32_t>("node_gpus"),
                get_if<std::uint64_t>("gpu_mask")};
    }
};

SnapshotColumns::Queue queue_of(const Table& t) {
    return {.needs = t.needs(),
            .job = t.get<JobId>("job"),
            .submit_us = t.get<Time>("submit_us"),
            .estimate_us = t.get<Time>("estimate_us"),
            .deadline_us = t.get<Time>("deadline_us"),
            .queued_us = t.get<Time>("queued_us"),
            .prediction_us = t.get<Time>("prediction_us"),
            .done_us = t.get<Time>("done_us"),
            .attained_us = t.get<Time>("attained_us"),
            .promoted_us = t.get<Time>("promoted_us"),
            .user = t.get<std::int32_t>("user"),
            .group = t.get<std::int32_t>("group"),
            .qos = t.get<std::int32_t>("qos"),
            .priority = t.get<double>("priority"),
            .fair_factor = t.get<double>("fair_factor"),
            .row = t.get<std::int64_t>("row")};
}

SnapshotColumns::Running running_of(const Table& t) {
    return {.needs = t.needs(),
            .job = t.get<JobId>("job"),
            .begin_us = t.get<Time>("begin_us"),
            .estimate_us = t.get<Time>("estimate_us"),
            .restore_us = t.get<Time>("restore_us"),
            .done_us = t.get<Time>("done_us"),
            .attained_us = t.get<Time>("attained_us"),
            .promoted_us = t.get<Time>("promoted_us"),
            .stop_us = t.get<Time>("stop_us"),
            .expected_end_us = t.get_if<Time>("expected_end_us"),
            .user = t.get<std::int32_t>("user"),
            .group = t.get<std::int32_t>("group"),
            .qos = t.get<std::int32_t>("qos"),
            .state = t.get<std::uint8_t>("state"),
            .row = t.get<std::int64_t>("row"),
            .parts = t.parts()};
}

Snapshot make_snapshot(std::shared_ptr<const ClusterSpec> cluster, std::shared_ptr<const Settings> settings,
                       const nb::dict& tables, std::vector<std::vector<std::int32_t>> type_sets) {
    const auto table = [&](const char* name) { return Table{nb::cast<nb::dict>(tables[name])}; };
    const nb::dict moment = nb::cast<nb::dict>(tables["moment"]);
    const Table nodes = table("nodes"), users = table("users"), groups = table("groups"), plan = table("reservations");
    const Table finished = table("finished"), mix = table("mix"), queues = table("queues");
    SnapshotColumns columns{
        .queue = queue_of(table("queue")),
        .running = running_of(table("running")),
        .nodes = {nodes.get<std::uint8_t>("down"), nodes.get<std::int32_t>("promised"),
                  nodes.get<Time>("idle_since_us"), nodes.get<Time>("awake_at_us")},
        .users = {users.get<double>("usage"), users.get<Time>("updated_us")},
        .groups = {groups.get<double>("usage"), groups.get<Time>("updated_us")},
        .plan = {plan.get<JobId>("job"), plan.get<Time>("begin_us"), plan.get<Time>("end_us"), plan.parts()},
        .type_sets = std::move(type_sets),
        .finished_gpu_s = finished.get<std::int64_t>("gpu_s"),
        .finished_jobs = finished.get<std::int64_t>("jobs"),
        .mix_gpus = mix.get<std::int32_t>("gpus"),
        .mix_gpu_milli = mix.get<std::int32_t>("gpu_milli"),
        .mix_jobs = mix.get<std::int64_t>("jobs"),
        .finished_early = queues.get<std::uint8_t>("finished_early"),
        .now_us = nb::cast<Time>(moment["now_us"]),
        .calculated_us = nb::cast<Time>(moment["calculated_us"]),
        .instant = nb::cast<std::uint64_t>(moment["instant"]),
        .origin_s = nb::cast<double>(moment["origin_s"]),
        .epoch_us = nb::cast<Time>(moment["epoch_us"]),
        .arrivals = {nb::cast<double>(moment["arrivals"]), nb::cast<Time>(moment["arrivals_us"])},
        .nodes_changed = nb::cast<bool>(moment["nodes_changed"]),
        .backfill_due = nb::cast<bool>(moment["backfill_due"]),
    };
    return build_snapshot(std::move(cluster), std::move(settings), columns);
}

// --- And back ---------------------------------------------------------------------------------------------

// The types that a demand is limited to, as numbers; none if it may use any.
std::vector<std::int32_t> types_of(const Demand& demand, const ClusterSpec& spec) {
    std::vector<std::int32_t> types;
    bool limited = false;
    for (std::size_t id = 0; id < spec.pools.size(); ++id) {
        const Pool& pool = spec.pools[id];
        if (pool.queue != demand.queue || pool.partition != demand.partition || (demand.gpus > 0 && pool.size == 0))
            continue;
        if (demand.allows[id] == 0)
            limited = true;
        else if (std::find(types.begin(), types.end(), pool.type) == types.end())
            types.push_back(pool.type);
    }
    if (!limited) return {};
    return types.empty() ? std::vector<std::int32_t>{-1} : types;
}

template <class Job>
void put_needs(nb::dict& d, const Snapshot& s, const std::vector<Job>& jobs) {
    const auto put = [&](const char* name, auto field) {
        d[name] = column(jobs, [&](const Job& j) { return field(s.demand(j.demand)); });
    };
    put("gpus", [](const Demand& demand) { return demand.gpus; });
    put("gpu_milli", [](const Demand& demand) { return demand.gpu_milli; });
    put("cpus", [](const Demand& demand) { return demand.cpus; });
    put("memory_mib", [](const Demand& demand) { return demand.memory_mib; });
    put("nodes", [](const Demand& demand) { return demand.nodes; });
    put("queue", [](const Demand& demand) { return demand.queue; });
    put("partition", [](const Demand& demand) { return demand.partition; });
    d["qos"] = column(jobs, [](const Job& j) { return j.qos; });
    d["type_set"] = column(jobs, [](const Job& j) { return j.demand; });
}

template <class Rows, class PartsOf>
void put_parts(nb::dict& d, const Rows& rows, bool with_masks, PartsOf parts_of) {
    std::vector<std::int64_t> offset{0};
    std::vector<std::int32_t> node, gpus;
    std::vector<std::uint64_t> mask;
    for (const auto& row : rows) {
        for (const Part& part : parts_of(row)) {
            node.push_back(part.node);
            gpus.push_back(part.gpus);
            mask.push_back(part.gpu_mask);
        }
        offset.push_back(std::ssize(node));
    }
    d["node_offset"] = to_numpy(std::move(offset));
    d["node"] = to_numpy(std::move(node));
    d["node_gpus"] = to_numpy(std::move(gpus));
    if (with_masks) d["gpu_mask"] = to_numpy(std::move(mask));
}

nb::dict queue_columns(const Snapshot& s) {
    nb::dict d;
    d["job"] = column(s.queue, [](const QueuedJob& j) { return j.job; });
    d["submit_us"] = column(s.queue, [](const QueuedJob& j) { return j.submit_us; });
    d["estimate_us"] = column(s.queue, [](const QueuedJob& j) { return j.estimate_us; });
    d["deadline_us"] = column(s.queue, [](const QueuedJob& j) { return j.deadline_us; });
    d["queued_us"] = column(s.queue, [](const QueuedJob& j) { return j.queued_us; });
    d["prediction_us"] = column(s.queue, [](const QueuedJob& j) { return j.prediction_us; });
    d["done_us"] = column(s.queue, [](const QueuedJob& j) { return j.done_us; });
    d["attained_us"] = column(s.queue, [](const QueuedJob& j) { return j.attained_us; });
    d["promoted_us"] = column(s.queue, [](const QueuedJob& j) { return j.promoted_us; });
    d["user"] = column(s.queue, [](const QueuedJob& j) { return j.user; });
    d["group"] = column(s.queue, [](const QueuedJob& j) { return j.group; });
    d["priority"] = column(s.queue, [](const QueuedJob& j) { return j.priority; });
    d["row"] = column(s.queue, [](const QueuedJob& j) { return j.row; });
    d["fair_factor"] = column(s.queue, [&](const QueuedJob& j) {
        return s.fair_factor.empty() ? 1.0 : s.fair_factor[as_index(j.association)];
    });
    put_needs(d, s, s.queue);
    return d;
}

nb::dict running_columns(const Snapshot& s) {
    nb::dict d;
    d["job"] = column(s.active, [](const ActiveJob& j) { return j.job; });
    d["begin_us"] = column(s.active, [](const ActiveJob& j) { return j.begin_us; });
    d["estimate_us"] = column(s.active, [](const ActiveJob& j) { return j.estimate_us; });
    d["expected_end_us"] = column(s.active, [](const ActiveJob& j) { return j.expected_end_us; });
    d["restore_us"] = column(s.active, [](const ActiveJob& j) { return j.restore_us; });
    d["done_us"] = column(s.active, [](const ActiveJob& j) { return j.done_us; });
    d["attained_us"] = column(s.active, [](const ActiveJob& j) { return j.attained_us; });
    d["promoted_us"] = column(s.active, [](const ActiveJob& j) { return j.promoted_us; });
    d["stop_us"] = column(s.active, [](const ActiveJob& j) { return j.stop_us; });
    d["user"] = column(s.active, [](const ActiveJob& j) { return j.user; });
    d["group"] = column(s.active, [](const ActiveJob& j) { return j.group; });
    d["state"] = column(s.active, [](const ActiveJob& j) { return static_cast<std::uint8_t>(j.state); });
    d["row"] = column(s.active, [](const ActiveJob& j) { return j.row; });
    put_needs(d, s, s.active);
    put_parts(d, s.active, s.state.spec().track_gpus, [&](const ActiveJob& j) { return s.parts_of(j); });
    return d;
}

nb::dict node_columns(const Snapshot& s) {
    const std::size_t count = s.state.spec().node_count();
    std::vector<std::int32_t> promised = s.power.users;
    for (const Part& part : s.parts) --promised[as_index(part.node)];
    std::vector<std::uint8_t> down(count, 0);
    for (std::size_t node = 0; node < count; ++node) {
        promised[node] = std::max(promised[node], 0);  // environments, where no node sleeps, do not count who uses them
        down[node] = s.state.offline(static_cast<std::int32_t>(node)) > promised[node] ? 1 : 0;
    }
    nb::dict d;
    d["down"] = to_numpy(std::move(down));
    d["promised"] = to_numpy(std::move(promised));
    d["idle_since_us"] = to_numpy(s.power.idle_since_us);
    d["awake_at_us"] = to_numpy(s.power.awake_at_us);
    return d;
}

nb::dict usage_columns(const std::vector<DecayedUsage>& owners) {
    nb::dict d;
    d["usage"] = column(owners, [](const DecayedUsage& u) { return u.usage(); });
    d["updated_us"] = column(owners, [](const DecayedUsage& u) { return u.updated_us(); });
    return d;
}

nb::dict finished_columns(const GittinsHistory& history) {
    std::vector<std::int64_t> gpu_s, jobs;
    for (std::int32_t bucket = 0; bucket < GittinsHistory::kBuckets; ++bucket) {
        if (history.count(bucket) == 0) continue;
        gpu_s.push_back(history.total_gpu_s(bucket));
        jobs.push_back(history.count(bucket));
    }
    nb::dict d;
    d["gpu_s"] = to_numpy(std::move(gpu_s));
    d["jobs"] = to_numpy(std::move(jobs));
    return d;
}

nb::dict columns_of(const Snapshot& s) {
    nb::dict tables, mix, plan, queues, moment;
    tables["queue"] = queue_columns(s);
    tables["running"] = running_columns(s);
    tables["nodes"] = node_columns(s);
    tables["users"] = usage_columns(s.user_usage);
    tables["groups"] = usage_columns(s.group_usage);
    tables["finished"] = finished_columns(s.gittins);
    mix["gpus"] = column(s.mix.classes, [](const JobMix::Class& c) { return c.gpus; });
    mix["gpu_milli"] = column(s.mix.classes, [](const JobMix::Class& c) { return c.gpu_milli; });
    mix["jobs"] = column(s.mix.classes, [](const JobMix::Class& c) { return c.count; });
    tables["mix"] = mix;
    plan["job"] = column(s.reservations, [](const Reservation& r) { return r.job; });
    plan["begin_us"] = column(s.reservations, [](const Reservation& r) { return r.begin_us; });
    plan["end_us"] = column(s.reservations, [](const Reservation& r) { return r.end_us; });
    put_parts(plan, s.reservations, s.state.spec().track_gpus,
              [](const Reservation& r) { return std::span<const Part>(r.parts); });
    tables["reservations"] = plan;
    queues["finished_early"] = to_numpy(s.finished_early);
    tables["queues"] = queues;
    moment["now_us"] = s.now_us;
    moment["calculated_us"] = s.calculated_us;
    moment["instant"] = s.instant;
    moment["origin_s"] = s.origin_s;
    moment["epoch_us"] = s.epoch_us;
    moment["arrivals"] = s.arrivals.count;
    moment["arrivals_us"] = s.arrivals.updated_us;
    moment["nodes_changed"] = s.nodes_changed;
    moment["backfill_due"] = s.backfill_due;
    tables["moment"] = moment;
    std::vector<std::vector<std::int32_t>> type_sets;  // one per demand; empty: any type
    for (const Demand& demand : *s.demands) type_sets.push_back(types_of(demand, s.state.spec()));
    tables["type_sets"] = type_sets;
    return tables;
}

}  // namespace

void bind_snapshot_columns(nb::module_& m) {
    nb::exception<SnapshotError>(m, "SnapshotError", PyExc_ValueError);
    m.def("make_snapshot", &make_snapshot, "cluster"_a, "settings"_a, "tables"_a, "type_sets"_a);
    m.def("snapshot_columns", &columns_of, "snapshot"_a);
}

}  // namespace gpuyard
