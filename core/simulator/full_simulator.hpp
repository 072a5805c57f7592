// The simulator with everything: jobs that stop and resume, nodes that fail and sleep. docs/contract/simulator.md,
// sections 7 and 14 to 19. Plain policies on plain clusters are run by the LeanSimulator (lean_simulator.hpp).
#pragma once

#include <cstdint>
#include <memory>
#include <queue>
#include <span>
#include <stdexcept>
#include <vector>

#include "base/index.hpp"
#include "base/job.hpp"
#include "simulator/beginning.hpp"
#include "simulator/fair_shares.hpp"
#include "simulator/history.hpp"
#include "simulator/snapshot.hpp"

namespace gpuyard {

enum class RunEnding : std::uint8_t { completed = 0, timeout = 1, stopped = 2, failed = 3 };

struct Run {
    JobId job = -1;
    Time taken_us = -1, begin_us = -1, stop_us = -1,
         released_us = -1;  // -1: not yet; begin -1 at the end: it never began
    Time restore_us = 0, lost_us = 0;
    RunEnding ending = RunEnding::completed;
    std::size_t first_part = 0;
    std::uint32_t part_count = 0;
};

struct Downtime {
    std::int32_t node;
    Time from_us, to_us;
};

// Nodes fail so often that the jobs may never finish: the settings are at fault.
struct EndlessFailures : std::runtime_error {
    using std::runtime_error::runtime_error;
};

// Who wants to know which jobs wait.
class QueueListener {
public:
    virtual ~QueueListener() = default;
    virtual void entered(const QueuedJob& job) = 0;
    virtual void left(JobId job) = 0;
};

class FullSimulator {
public:
    FullSimulator(std::shared_ptr<const ClusterSpec> cluster, std::shared_ptr<const JobTable> jobs,
                  std::shared_ptr<const Settings> settings, Needs needs, const Past& past);
    FullSimulator& operator=(const FullSimulator&) = delete;

    // As it is now, with nobody listening.
    std::unique_ptr<FullSimulator> copy() const;
    void set_listener(QueueListener* listener) { listener_ = listener; }

    // Moves to the next instant. False when nothing is left to happen, or nothing that could help the jobs that wait.
    bool next_instant();
    // Before the first instant: lets pass what is given, up to the moment from which on there are decisions.
    void play(const Beginning& beginning);
    // Makes the starts of a decision, which must be possible.
    void apply(const Decision& decision);

    // Everything but the queue and, unless it is asked for, holding the parts of finished runs too.
    const Snapshot& view() const { return view_; }
    // A copy to keep, with the queue.
    Snapshot snapshot() const;

    const JobTable& jobs() const { return *jobs_; }
    const Settings& settings() const { return *settings_; }
    std::int64_t finished() const { return finished_; }
    bool has_finished(JobId job) const { return state_[as_index(job)] == JobState::finished; }
    // Whether nothing happens at this instant but what the policy wanted to be woken for.
    bool only_woken() const { return only_woken_; }
    const std::vector<JobId>& waiting() const { return waiting_; }  // by id
    QueuedJob queued(JobId job) const;

    const std::vector<Run>& runs() const { return runs_; }
    const std::vector<std::uint8_t>& backfilled() const { return backfilled_; }
    std::span<const Part> parts_of(const Run& run) const {
        return std::span(view_.parts).subspan(run.first_part, run.part_count);
    }
    // Until `end_us`, which must not be before now.
    std::vector<Downtime> downtime(Time end_us) const;

private:
    FullSimulator(const FullSimulator&) = default;

    enum class JobState : std::uint8_t { unborn, waiting, promised, starting, running, stopping, finished };
    enum class EventKind : std::uint8_t { finish, repair, failure, stop, begin };
    struct Event {
        Time time;
        EventKind kind;
        std::int64_t id;      // of a job or node
        std::int64_t serial;  // a run, or ~i for promise i
        bool operator>(const Event& other) const {
            if (time != other.time) return time > other.time;
            if (kind != other.kind) return kind > other.kind;
            return id > other.id;
        }
    };
    struct Promise {
        JobId job;
        Allocation allocation;
        bool valid;
    };
    static constexpr std::int64_t kNone = -1;

    bool stale(const Event& event) const;
    Time next_time();
    Time next_happening() const;
    bool stuck() const;
    void handle(const Event& event);
    void submit(JobId job);
    void arrive(JobId job);
    void link_successors();
    void release_successors(JobId job);
    Time next_backfill() const;
    void enter_books(JobId job, std::int64_t sign);
    void enter_queue(JobId job);
    void leave_queue(JobId job);

    Time awake_time(std::span<const Part> parts);
    void start_now(JobId job, const Allocation& allocation);
    void promise(JobId job, Allocation allocation, Time begin_us);
    void void_promise(std::int64_t index);
    void take(JobId job, const Allocation& allocation, Time begin_us);
    void begin(JobId job);
    void stop(JobId job, Time effect_us);
    void release(JobId job);
    void finish(JobId job);
    void stop_takes_effect(JobId job);
    void keep_work(JobId job, Time progress_us, Time kept_us);
    void fail_node(std::int32_t node);
    void fail_run(JobId job);
    void repair_node(std::int32_t node);
    void use_node(std::int32_t node, std::int32_t change);
    ActiveJob& active_of(JobId job) { return view_.active[as_index(active_at_[as_index(job)])]; }
    Run& run_of(JobId job) { return runs_[as_index(run_at_[as_index(job)])]; }
    Time draw_time(std::uint64_t stream, std::int32_t node, Time mean_us) const;
    Holder holder_of(std::size_t i) const {
        return {jobs_->user_of(i), jobs_->group_of(i), jobs_->association_of(i), jobs_->qos_of(i)};
    }
    Time estimate_of(std::size_t i) const { return settings_->predict ? prediction_us_[i] : jobs_->estimate_us[i]; }

    std::shared_ptr<const JobTable> jobs_;
    std::shared_ptr<const Settings> settings_;
    Needs needs_;
    QueueListener* listener_ = nullptr;
    Snapshot view_;
    AssociationUsage association_usage_;
    std::priority_queue<Event, std::vector<Event>, std::greater<>> events_;
    std::size_t next_arrival_ = 0;
    std::int64_t finished_ = 0;
    std::vector<JobId> waiting_;
    RunTimeHistory history_;
    // By job.
    std::vector<JobState> state_;
    std::vector<Time> done_us_, attained_us_, promoted_us_, queued_us_, left_queue_us_, prediction_us_;
    std::vector<std::int64_t> active_at_, run_at_, promise_at_;
    std::vector<std::uint8_t> backfilled_, began_;
    std::vector<std::int32_t> failures_of_job_;
    // By node.
    std::vector<std::uint64_t> failures_of_node_;
    std::vector<Run> runs_;
    std::vector<Promise> promises_;
    std::vector<std::int64_t> live_promises_;  // those that are valid, ascending
    std::int64_t idle_failures_ = 0;           // of nodes, since a job last started or finished
    std::vector<Downtime> down_;               // to_us -1 while down
    std::int32_t nodes_down_ = 0;
    std::int64_t promised_ = 0;  // jobs
    Time wake_us_ = kEndless;    // when the policy wants to decide again
    bool only_woken_ = false;
    Time decides_from_us_ = 0;
    bool changed_ = false;          // since the last backfill pass of `slurm`
    Time calc_at_backfill_us_ = 0;  // what `multifactor` was as of then
    // Of jobs that come after others: who comes after each, how many each still waits for, who is free now.
    std::vector<std::int64_t> successor_offset_;
    std::vector<JobId> successors_;
    std::vector<std::int32_t> waits_for_;
    std::vector<JobId> freed_;
};

}  // namespace gpuyard
