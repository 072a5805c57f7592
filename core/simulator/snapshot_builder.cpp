#include "simulator/snapshot_builder.hpp"

#include <algorithm>
#include <bit>
#include <functional>
#include <unordered_map>

#include "base/index.hpp"

namespace gpuyard {

namespace {

std::string text(std::int64_t number) { return std::to_string(number); }

class Builder {
public:
    Builder(std::shared_ptr<const ClusterSpec> cluster, std::shared_ptr<const Settings> settings,
            const SnapshotColumns& columns)
        : c_(columns),
          demands_(*cluster, columns.type_sets),
          made_(ClusterState(cluster)) {
        made_.settings = std::move(settings);
    }

    Snapshot build() {
        check_numbers();
        add_scalars();
        add_owners();
        add_running();
        add_nodes();
        add_queue();
        made_.demands = std::make_shared<const std::vector<Demand>>(demands_.take());
        add_plan();
        return std::move(made_);
    }

private:
    void add_scalars() {
        made_.now_us = c_.now_us;
        made_.calculated_us = c_.calculated_us;
        made_.instant = c_.instant;
        made_.origin_s = c_.origin_s;
        made_.epoch_us = c_.epoch_us;
        made_.arrivals = c_.arrivals;
        made_.nodes_changed = c_.nodes_changed;
        made_.backfill_due = c_.backfill_due;
        made_.finished_early.assign(c_.finished_early.begin(), c_.finished_early.end());
        for (std::size_t i = 0; i < c_.finished_gpu_s.size(); ++i)
            made_.gittins.add(c_.finished_gpu_s[i], c_.finished_jobs[i]);
        for (std::size_t i = 0; i < c_.mix_gpus.size(); ++i)
            made_.mix.add(c_.mix_gpus[i], c_.mix_gpu_milli[i], c_.mix_jobs[i]);
    }

    void add_owners() {
        made_.open(c_.users.usage.size(), c_.groups.usage.size(), *made_.settings);
        for (std::size_t i = 0; i < made_.user_usage.size(); ++i)
            made_.user_usage[i] = {c_.users.usage[i], c_.users.updated_us[i]};
        for (std::size_t i = 0; i < made_.group_usage.size(); ++i)
            made_.group_usage[i] = {c_.groups.usage[i], c_.groups.updated_us[i]};
    }

    // A row of a table, for people.
    static std::string row_of(const char* table, std::size_t row) {
        return std::string(table) + " row " + text(static_cast<std::int64_t>(row));
    }

    // A row that is about a job; its words are made only if something is wrong.
    struct Entry {
        const char* table;
        std::size_t row;
        JobId job;
        std::string operator+(const std::string& words) const {
            return row_of(table, row) + " (job " + text(job) + "): " + words;
        }
    };

    // Every job has its own number, which takes no search where numbers ascend.
    void check_numbers() const {
        const std::span queue = c_.queue.job, running = c_.running.job;
        const auto ascend = [](std::span<const JobId> jobs) {
            return std::adjacent_find(jobs.begin(), jobs.end(), std::greater_equal<>()) == jobs.end();
        };
        if (ascend(queue) && ascend(running) && (queue.empty() || running.empty() || queue.back() < running.front()))
            return;
        std::unordered_map<JobId, std::string> known;
        const auto know = [&](const char* table, std::span<const JobId> jobs) {
            for (std::size_t i = 0; i < jobs.size(); ++i) {
                const auto [other, fresh] = known.try_emplace(jobs[i], row_of(table, i));
                if (!fresh)
                    throw SnapshotError(row_of(table, i) + ", column job: " + text(jobs[i]) + " is also in " +
                                        other->second + "; give every job its own number");
            }
        };
        know("running", running);
        know("queue", queue);
    }

    void add_running() {
        const SnapshotColumns::Running& r = c_.running;
        const ClusterSpec& spec = made_.state.spec();
        made_.power = {std::vector<std::int32_t>(spec.node_count(), 0), {}, {}};
        for (std::size_t i = 0; i < r.job.size(); ++i) {
            const std::int32_t number = demands_.number(r.needs.key(i));
            const Demand& demand = demands_[number];
            ActiveJob job{.job = r.job[i],
                          .estimate_us = r.estimate_us[i],
                          .demand = number,
                          .user = r.user[i],
                          .group = r.group[i],
                          .qos = r.qos[i],
                          .row = r.row[i],
                          .state = static_cast<RunState>(r.state[i]),
                          .begin_us = r.begin_us[i],
                          .restore_us = r.restore_us[i],
                          .done_us = r.done_us[i],
                          .attained_us = r.attained_us[i],
                          .promoted_us = r.promoted_us[i],
                          .stop_us = r.stop_us[i]};
            const std::vector<Part> parts = held_parts(i, demand);
            job.run_on(allocation_of(spec, demand, parts), made_.settings->locality_penalty);
            if (!r.expected_end_us.empty()) job.expected_end_us = r.expected_end_us[i];
            made_.state.hold(demand, parts);
            for (const Part& part : parts) ++made_.power.users[as_index(part.node)];
            made_.add_active(job, parts);
            // What is held is as of now; usage is as of the time that its own column states.
            made_.enter(made_.now_us, *made_.settings, demand, job.holder(), +1, {.holdings = true});
        }
        for (std::size_t i = 0; i < made_.user_usage.size(); ++i)
            made_.user_usage[i].set_held(made_.user_holdings[i].milli);
        for (std::size_t i = 0; i < made_.group_usage.size(); ++i) made_.group_usage[i].set_held(made_.group_milli[i]);
        std::sort(made_.active.begin(), made_.active.end(), [](const ActiveJob& a, const ActiveJob& b) {
            return a.expected_end_us != b.expected_end_us ? a.expected_end_us < b.expected_end_us : a.job < b.job;
        });
    }

    // The parts of a running job, if there is room for them beside the jobs before it.
    std::vector<Part> held_parts(std::size_t row, const Demand& demand) const {
        const Entry here{"running", row, c_.running.job[row]};
        std::vector<Part> parts = c_.running.parts.of(row);
        check_parts(here, parts, demand);
        for (Part& part : parts) hold_one(here, part, demand);
        return parts;
    }

    void check_parts(const Entry& here, std::span<const Part> parts, const Demand& demand) const {
        const ClusterSpec& spec = made_.state.spec();
        std::int32_t gpus = 0, last = -1;
        for (const Part& part : parts) {
            if (part.node < 0 || as_index(part.node) >= spec.node_count())
                throw SnapshotError(here + "node " + text(part.node) + " is not one of the cluster's " +
                                    text(static_cast<std::int64_t>(spec.node_count())) + " nodes, which count from 0");
            if (part.node <= last) throw SnapshotError(here + "its nodes do not ascend; list each once, by number");
            last = part.node;
            const bool right = demand.gpus == 0 ? part.gpus == 0 : part.gpus > 0;
            if (!right)
                throw SnapshotError(here + "node_gpus is " + text(part.gpus) + " on node " + text(part.node) +
                                    "; expected " + (demand.gpus == 0 ? "0 for a job without GPUs" : "at least 1"));
            gpus += part.gpus;
        }
        if (gpus != demand.gpus || parts.empty())
            throw SnapshotError(here + "it holds " + text(gpus) + " GPUs on " + text(std::ssize(parts)) +
                                " nodes, but column gpus says " + text(demand.gpus) +
                                "; a running job holds its whole gang");
        if (demand.nodes > 0 && std::ssize(parts) != demand.nodes)
            throw SnapshotError(here + "it sits on " + text(std::ssize(parts)) + " nodes, but column nodes says " +
                                text(demand.nodes) + "; say how many nodes it has, or leave nodes 0");
    }

    void hold_one(const Entry& here, Part& part, const Demand& demand) const {
        const ClusterState& state = made_.state;
        const auto node = [&] { return "node " + text(part.node); };
        constexpr const char* remedy = "; check which jobs run on that node and how much each holds";
        const std::int32_t share = std::max(part.gpus, 1);
        if (demand.limited && (state.free_cpus(part.node) < demand.cpus_for(share) ||
                               state.free_memory(part.node) < demand.memory_for(share)))
            throw SnapshotError(
                here + node() +
                " is over-committed: it lacks the CPUs or memory that the job holds beside the jobs before it" +
                remedy);
        if (part.gpus == 0) return;
        if (!state.spec().track_gpus) {
            if (state.empty(part.node) < part.gpus)
                throw SnapshotError(here + node() + " is over-committed: the job holds " + text(part.gpus) +
                                    " GPUs there, and the jobs before it leave " + text(state.empty(part.node)) +
                                    remedy);
            return;
        }
        if (part.gpu_mask == 0) choose(here, part, demand, remedy);
        if (std::popcount(part.gpu_mask) != part.gpus ||
            as_index(state.spec().size[as_index(part.node)]) < as_index(std::bit_width(part.gpu_mask)))
            throw SnapshotError(here + "gpu_mask names " + text(std::popcount(part.gpu_mask)) + " GPUs of " + node() +
                                ", or such as it does not have; expected " + text(part.gpus) + " of its " +
                                text(state.spec().size[as_index(part.node)]));
        for (std::uint64_t rest = part.gpu_mask; rest != 0; rest &= rest - 1)
            if (state.gpu_free(part.node, std::countr_zero(rest)) < demand.gpu_milli)
                throw SnapshotError(here + "GPU " + text(std::countr_zero(rest)) + " of " + node() +
                                    " is over-committed" + remedy);
    }

    // Which GPUs of the node it holds, if nobody says.
    void choose(const Entry& here, Part& part, const Demand& demand, const char* remedy) const {
        const bool shared = demand.kind == DemandKind::shared;
        const std::int32_t gpu = shared ? made_.state.fullest_gpu(part.node, demand.gpu_milli) : -1;
        if (shared ? gpu < 0 : made_.state.empty(part.node) < part.gpus)
            throw SnapshotError(
                here + "node " + text(part.node) +
                " is over-committed: it has no room for the GPUs that the job holds beside the jobs before it" +
                remedy);
        part.gpu_mask = shared ? std::uint64_t{1} << gpu : made_.state.lowest_empty(part.node, part.gpus);
    }

    void add_nodes() {
        const SnapshotColumns::Nodes& n = c_.nodes;
        made_.power.idle_since_us.assign(n.idle_since_us.begin(), n.idle_since_us.end());
        made_.power.awake_at_us.assign(n.awake_at_us.begin(), n.awake_at_us.end());
        for (std::size_t node = 0; node < n.down.size(); ++node) {
            const auto id = static_cast<std::int32_t>(node);
            if (n.down[node] != 0 && made_.power.users[node] > 0)
                throw SnapshotError(
                    "nodes row " + text(id) +
                    ": down, but a job of table running holds it; leave that job out, or queue it again");
            for (std::int32_t reasons = n.promised[node] + (n.down[node] != 0 ? 1 : 0); reasons > 0; --reasons)
                made_.state.take_offline(id);
            made_.power.users[node] += n.promised[node];
        }
    }

    void add_queue() {
        const SnapshotColumns::Queue& q = c_.queue;
        made_.fair_factor.assign(q.fair_factor.begin(), q.fair_factor.end());  // each job has its own association
        for (std::size_t i = 0; i < q.job.size(); ++i) {
            made_.queue.push_back({.job = q.job[i],
                                   .submit_us = q.submit_us[i],
                                   .estimate_us = q.estimate_us[i],
                                   .demand = demands_.number(q.needs.key(i)),
                                   .user = q.user[i],
                                   .group = q.group[i],
                                   .association = static_cast<std::int32_t>(i),
                                   .qos = q.qos[i],
                                   .priority = q.priority[i],
                                   .deadline_us = q.deadline_us[i],
                                   .row = q.row[i],
                                   .queued_us = q.queued_us[i],
                                   .prediction_us = q.prediction_us[i],
                                   .done_us = q.done_us[i],
                                   .attained_us = q.attained_us[i],
                                   .promoted_us = q.promoted_us[i]});
        }
        std::sort(made_.queue.begin(), made_.queue.end(),
                  [](const QueuedJob& a, const QueuedJob& b) { return a.job < b.job; });
        for (std::size_t i = 1; i < made_.queue.size(); ++i)
            if (made_.queue[i].submit_us < made_.queue[i - 1].submit_us)
                throw SnapshotError(queue_row(made_.queue[i].job) + ", column submit_s: job " +
                                    text(made_.queue[i].job) + " was submitted before job " +
                                    text(made_.queue[i - 1].job) +
                                    "; number jobs in the order in which they were submitted: ties go by it");
    }

    std::string queue_row(JobId job) const {
        const auto found = std::find(c_.queue.job.begin(), c_.queue.job.end(), job);
        return row_of("queue", as_index(found - c_.queue.job.begin()));
    }

    void add_plan() {
        const SnapshotColumns::Plan& p = c_.plan;
        for (std::size_t i = 0; i < p.job.size(); ++i) {
            const Entry here{"reservations", i, p.job[i]};
            const auto job = std::lower_bound(made_.queue.begin(), made_.queue.end(), p.job[i],
                                              [](const QueuedJob& q, JobId id) { return q.job < id; });
            if (job == made_.queue.end() || job->job != p.job[i])
                throw SnapshotError(here + "no such job is in table queue; leave the row out");
            Reservation entry{p.job[i], job->demand, p.begin_us[i], p.end_us[i], p.parts.of(i)};
            if (entry.begin_us != kEndless) check_parts(here, entry.parts, made_.demand(job->demand));
            made_.reservations.push_back(std::move(entry));
        }
    }

    const SnapshotColumns& c_;
    DemandTable demands_;
    Snapshot made_;
};

}  // namespace

std::vector<Part> PartColumns::of(std::size_t entry) const {
    std::vector<Part> parts;
    for (std::int64_t i = offset[entry]; i < offset[entry + 1]; ++i)
        parts.push_back({node[as_index(i)], gpus[as_index(i)], gpu_mask.empty() ? 0 : gpu_mask[as_index(i)]});
    return parts;
}

Snapshot build_snapshot(std::shared_ptr<const ClusterSpec> cluster, std::shared_ptr<const Settings> settings,
                        const SnapshotColumns& columns) {
    return Builder(std::move(cluster), std::move(settings), columns).build();
}

}  // namespace gpuyard
