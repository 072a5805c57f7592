// What a scheduler may know at a decision point, and what it decides. True durations are not in it.
#pragma once

#include <algorithm>
#include <cmath>
#include <memory>
#include <span>
#include <vector>

#include "cluster/cluster.hpp"
#include "policy/backfill.hpp"
#include "policy/order.hpp"
#include "policy/policy.hpp"
#include "simulator/accounts.hpp"
#include "simulator/history.hpp"

namespace gpuyard {

struct QueuedJob {
    JobId job;
    Time submit_us;
    Time estimate_us;  // kEndless = unknown
    std::int32_t demand;
    std::int32_t user;
    std::int32_t group;
    std::int32_t association = 0;  // the user in the group
    std::int32_t qos = -1;         // -1 = none
    double priority;
    Time deadline_us;  // kEndless = none
    std::int64_t row;
    Time queued_us;        // when it entered the queue
    Time prediction_us;    // from finished jobs
    Time done_us = 0;      // work done in earlier runs, at speed 1
    Time attained_us = 0;  // service in earlier runs
    Time promoted_us = 0;  // service that no longer counts for the level of `tiresias`

    Holder holder() const { return {user, group, association, qos}; }
};

enum class RunState : std::uint8_t { starting, running, stopping };

// A job that holds GPUs. Its allocation is `part_count` parts from `first_part` on in an array kept elsewhere.
struct ActiveJob {
    JobId job;
    Time estimate_us;
    std::int32_t demand;
    std::int32_t user;
    std::int32_t group;
    std::int32_t association = 0;
    std::int32_t qos = -1;
    std::int64_t row;
    RunState state = RunState::running;
    Time begin_us;  // of this run; when it will be, while it is starting
    Time restore_us = 0;
    double slowdown = 1.0;            // µs of run time per µs of work
    Time expected_end_us = kEndless;  // kEndless = unknown
    Time done_us = 0;                 // before this run
    Time attained_us = 0;
    Time promoted_us = 0;
    std::size_t first_part = 0;
    std::uint32_t part_count = 0;
    Time stop_us = kEndless;  // since when it makes no progress, if it is being stopped

    Holder holder() const { return {user, group, association, qos}; }
    // The work that is left of its estimate when this run begins.
    Time left_us() const { return estimate_us == kEndless ? kEndless : std::max(Time{1}, estimate_us - done_us); }
    // How fast it runs there, and when it is expected to end.
    void run_on(const Allocation& allocation, double locality_penalty);

    // Whether it may make room for another: it has begun, before now, and long enough ago.
    bool may_stop(Time now_us, Time min_run_us) const {
        return state == RunState::running && begin_us < now_us && now_us - begin_us >= min_run_us;
    }
    // Service in this run so far.
    Time progress_us(Time now_us) const {
        return state == RunState::starting ? 0 : std::max(Time{0}, std::min(now_us, stop_us) - (begin_us + restore_us));
    }
};

// A waiting job that begins to run.
ActiveJob begun(const QueuedJob& job, Time begin_us);

// The allocation that these parts are, however they were chosen.
Allocation allocation_of(const ClusterSpec& spec, const Demand& demand, std::span<const Part> parts);

// Work at speed 1 that so much service does: docs/contract/simulator.md, section 14.
inline Time work_done(Time progress_us, double slowdown) {
    return slowdown == 1.0 ? progress_us : static_cast<Time>(std::floor(static_cast<double>(progress_us) / slowdown));
}

// How many jobs arrived lately, each counting for half as much after an hour: docs/contract/observation.md, `arrivals`.
struct ArrivalRate {
    double count = 0.0;
    Time updated_us = 0;

    double at(Time now_us) const { return count * std::exp2(-(seconds(now_us - updated_us) / 3600.0)); }
    void add(Time now_us) {
        count = at(now_us) + 1.0;
        updated_us = now_us;
    }
};

// A job's place in the plan of `conservative`. Begin kEndless: it has none.
struct Reservation {
    JobId job;
    std::int32_t demand;
    Time begin_us = kEndless;
    Time end_us = kEndless;
    std::vector<Part> parts;

    // Demands are numbered anew in every snapshot.
    bool operator==(const Reservation& o) const {
        return job == o.job && begin_us == o.begin_us && end_us == o.end_us && parts == o.parts;
    }
};

// A job that finished before its expected end, and what it held.
struct EarlyEnd {
    std::int32_t demand;
    Time expected_end_us;
    std::vector<Part> parts;
};

// Which nodes sleep, and since when or until when.
struct NodePower {
    std::vector<std::int32_t> users;  // jobs that hold the node or were promised it
    std::vector<Time> idle_since_us;
    std::vector<Time> awake_at_us;  // when it was or will be awake after its last sleep

    bool asleep(std::size_t node, Time now_us, Time sleep_after_us) const {
        return sleep_after_us >= 0 && users[node] == 0 && now_us - idle_since_us[node] >= sleep_after_us;
    }
};

// What a snapshot holds beside its jobs' rows, which a simulator keeps in another form.
struct SnapshotState : Accounts {
    Time now_us = 0;
    Time calculated_us = 0;  // when priorities were last calculated: `multifactor` stays as it was then
    std::uint64_t instant = 0;
    double origin_s = 0.0;
    Time epoch_us = 0;  // what the log's clock showed at time 0
    ArrivalRate arrivals;
    std::shared_ptr<const Settings> settings;
    std::shared_ptr<const std::vector<Demand>> demands;
    std::vector<ActiveJob> active;  // in any order
    GittinsHistory gittins;
    JobMix mix;  // what has arrived so far
    NodePower power;
    std::vector<Reservation> reservations;     // in the order in which they were planned
    std::vector<std::uint8_t> finished_early;  // by queue: a job finished now, before its expected end
    std::vector<EarlyEnd> early_ends;          // which these were; only a simulator says
    bool nodes_changed = false;                // a node failed or was repaired now
    bool backfill_due = false;                 // `slurm` makes a backfill pass now
    ClusterState state;
    bool from_simulator = false;  // taken of a simulator, so that its decisions need no check there

    explicit SnapshotState(ClusterState free) : state(std::move(free)) {}
};

// Filled by the simulator, or by an adapter of a live cluster.
struct Snapshot : SnapshotState {
    std::vector<QueuedJob> queue;  // in order of arrival
    std::vector<Part> parts;       // of the active jobs

    using SnapshotState::SnapshotState;
    explicit Snapshot(const SnapshotState& state) : SnapshotState(state) {}

    const Demand& demand(std::int32_t i) const { return (*demands)[static_cast<std::size_t>(i)]; }
    // A job that holds these parts, in the books elsewhere.
    void add_active(ActiveJob job, std::span<const Part> held) {
        job.first_part = parts.size();
        job.part_count = static_cast<std::uint32_t>(held.size());
        parts.insert(parts.end(), held.begin(), held.end());
        active.push_back(job);
    }
    std::span<const Part> parts_of(const ActiveJob& job) const {
        return std::span(parts).subspan(job.first_part, job.part_count);
    }
};

struct Start {
    JobId job;
    std::vector<Part> parts;
    bool backfilled = false;
    std::vector<JobId> stops;  // running jobs that make room for it

    bool operator==(const Start&) const = default;
};

struct Decision {
    std::vector<Start> starts;  // in the order in which they are made
    std::vector<Reservation> reservations;
    Time wake_us = kEndless;  // when to decide again at the latest, because a reservation begins
    bool native = false;      // made by `decide` of the instant below, so that it needs no check there
    std::uint64_t instant = 0;
};

// The native policies as a function of a snapshot: one pass over each queue.
Decision decide(const Snapshot& snapshot, const Policy& policy);

// What became of one waiting job in a pass, and why.
enum class Verdict : std::uint8_t {
    starts,
    does_not_fit,
    behind_head,
    would_delay_head,
    not_admitted,
    over_quota,
    reserved,
    no_reservation
};
struct Explanation {
    Verdict verdict = Verdict::does_not_fit;
    std::int64_t rank = 0;        // jobs before it in its queue
    JobId head = -1;              // the first job that did not fit, if there is one before it
    Time until_us = kEndless;     // the head's shadow time, or its own reservation's begin
    std::int64_t free_milli = 0;  // in its pools, when it was tried
    std::int32_t most_empty = 0;  // the most empty GPUs on one of its nodes
    std::vector<JobId> stops;     // who makes room for it
};

Explanation explain(const Snapshot& snapshot, const Policy& policy, JobId job);

// The waiting jobs in the policy's order with their scores, one queue after another.
std::vector<std::pair<double, JobId>> ranking(const Snapshot& snapshot, const Policy& policy);

}  // namespace gpuyard
