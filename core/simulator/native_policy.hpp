// The native policies on a full simulator or on a snapshot: which waiting jobs start now, where, and who makes room for
// them. docs/contract/simulator.md, sections 8 to 11, 15, 17 and 18.
#pragma once

#include <memory>
#include <set>
#include <span>
#include <unordered_map>
#include <vector>

#include "policy/indexed_pass.hpp"
#include "policy/scan_pass.hpp"
#include "simulator/full_simulator.hpp"
#include "simulator/level_index.hpp"
#include "simulator/node_plan.hpp"
#include "simulator/period_index.hpp"
#include "simulator/preemption.hpp"
#include "simulator/rank_index.hpp"
#include "simulator/reservations.hpp"
#include "simulator/snapshot.hpp"

namespace gpuyard {

// Remembers who waits between decisions; told by the simulator, or filled from a snapshot.
class NativePolicy : public QueueListener {
public:
    // `for_run`: it makes decisions only, one after another, and may keep the queue in an index.
    NativePolicy(const Policy& policy, const Snapshot& snapshot, bool for_run = false);
    NativePolicy(const NativePolicy&) = delete;
    NativePolicy& operator=(const NativePolicy&) = delete;

    void entered(const QueuedJob& job) override;
    void left(JobId job) override;
    // Many jobs that enter a policy without an index at once: their order is made once, not job by job.
    void all_entered(std::span<const QueuedJob> jobs);

    // `snapshot` must be the one it was made for, brought up to date. The plan of `conservative` is its own from call
    // to call unless it is told to take the snapshot's.
    Decision decide(bool use_snapshots_plan);
    // The waiting jobs in order with their scores, one queue after another.
    std::vector<std::pair<double, JobId>> ranking();
    // Every waiting job with its score, smaller first.
    std::vector<std::pair<double, JobId>> scored_jobs();
    // Makes a decision and says what became of a job that waits.
    Explanation explain(JobId job);

    // Host of ScanPass.
    bool next(Candidate& out);
    const Demand& demand_of(const Candidate& candidate) const { return snapshot_.demand(candidate.demand); }
    bool may_run_more(const Candidate& candidate) const;
    bool make_room(const Candidate& candidate, bool blocked);
    Time expected_end_at(const Candidate& candidate, const Allocation& allocation) const;
    Shadow& shadow_of(const Candidate& head);
    void start(const Candidate& candidate, const Allocation& allocation, bool backfilled);
    // And nobody can make room for any of them; whom `explain` asks about is still to be tried.
    bool all_misfit(std::size_t misfits) const {
        const std::size_t demands = current_->waiting_demands;
        if (!makes_room()) return misfits >= demands;
        return misfits >= demands && marked_no_room_.size() >= demands && watch_.job < 0;
    }

    // Host of IndexedPass.
    Candidate candidate_of(const RankedJob& job) const;
    Time now_us() const { return snapshot_.now_us; }
    double locality_penalty() const { return settings_.locality_penalty; }

private:
    using Entry = QueueEntry;
    struct Queue {
        std::vector<Entry> entries;  // in order if scores are fixed while jobs wait, else by job
        std::size_t waiting_demands = 0;
        std::vector<std::int32_t> demands;  // all of the queue's
        std::unique_ptr<Reservations> plan;
        std::vector<std::int32_t> partitions;  // of this queue; those without any have one, number 0
        // What the main pass of `slurm` left for the backfill pass; `started` empty: nothing fits.
        std::vector<std::uint8_t> started;
        std::vector<RunningJob> started_running;
        std::vector<Part> running_parts;
        // One of these in place of the entries.
        std::unique_ptr<RankIndex> index;
        std::unique_ptr<PeriodIndex> period;
        std::unique_ptr<LevelIndex> levels;
        std::size_t waiting = 0;  // jobs

        RankIndex* any_index() const { return period ? period.get() : index.get(); }
    };

    Queue& know(const QueuedJob& job, Entry& entry);
    const QueuedJob& job_of(const Entry& entry) const { return slots_[entry.slot]; }
    const QueuedJob& job_at(const Candidate& candidate) const {
        return passes_indexed_ ? slots_[candidate.place] : job_of((*order_)[candidate.place]);
    }
    bool is_aged(const QueuedJob& job) const { return policy_.is_aged(snapshot_.now_us, job.submit_us); }
    bool indexes() const;
    bool orders_by_period() const;
    void make_indexes();
    void make_period_indexes();
    bool orders_by_level() const;
    void make_level_indexes();
    std::size_t level_of(const QueuedJob& job);
    double level_score(std::size_t level) const;
    void notice_starving();
    IndexedJob indexed(const QueuedJob& job, std::size_t slot) const;
    double period_score(const IndexedJob& job) const;
    double lane_score(std::int32_t lane, const Holdings& asked);
    void pass_indexed();
    double fixed_score(const QueuedJob& job);
    void age();
    void calculate_again();
    void notice_period();
    Moment moment() const;
    Scored scored(const QueuedJob& job);
    double usage_of(std::int32_t user);
    double group_share(std::int32_t group) const;
    double dominant_share(const Holdings& held) const;
    void score_all(const Queue& queue);
    void add_dominant_shares(const Queue& queue);
    void rank(const Queue& queue);
    void sort_until(std::size_t count);
    bool anything_fits(const Queue& queue);
    void prepare();
    void make_pass(std::int32_t queue);
    void scan();
    void forget_no_room();
    void follow_plan(std::int32_t queue, bool use_snapshots_plan);
    bool within_quota(const Candidate& candidate) const;
    bool anyone_within_quota();
    // The passes of `slurm`.
    void make_main_pass();
    void make_backfill_passes();
    void make_backfill_pass();
    std::size_t last_that_fits();
    bool may_start_behind(std::size_t place);
    bool counts_among_tested(const QueuedJob& job);
    Time longest_run(const QueuedJob& job) const;
    std::size_t partition_of(const QueuedJob& job) const {
        return as_index(std::max(snapshot_.demand(job.demand).partition, 0));
    }
    double score_of(const ActiveJob& job) const;
    Candidate candidate_at(std::size_t place) const;
    Time begin_at(const Allocation& allocation) const;
    void wake(const Allocation& allocation);
    void close(const Allocation& allocation);
    bool makes_room() const { return order_traits_.preempts || settings_.defragment; }

    // What a pass did with the job that `explain` asks about.
    struct Watch {
        JobId job = -1;
        bool tried = false, over_quota = false, misfit = false, admitted = false;
        JobId head = -1;
        bool head_aged = false;
        std::int64_t free_milli = 0;
        std::int32_t most_empty = 0;
        std::size_t partition = 0;  // of the job
    };
    void watch(const Candidate& candidate);

    const Policy& policy_;
    const OrderTraits& order_traits_;
    const Snapshot& snapshot_;
    const Settings& settings_;
    Placer placer_;
    bool fixed_;
    bool passes_indexed_ = false;  // passes go from start to start
    mutable Watch watch_;
    std::vector<Queue> queues_;
    std::vector<QueuedJob> slots_;
    std::vector<std::size_t> free_slots_;
    std::unordered_map<JobId, Entry> entry_of_;  // where to look for a job in its queue
    std::set<std::pair<Time, JobId>> young_;     // by submit: who may become aged; empty unless that moves entries
    std::set<std::pair<Time, JobId>> fed_;       // by when they entered: who may become starving; as above
    std::vector<std::int64_t> waiting_of_;       // by demand
    // Of the decision that is being made.
    Decision decision_;
    ClusterState state_;
    Queue* current_ = nullptr;
    std::int32_t current_queue_ = 0;
    bool borrowing_ = false;
    const std::vector<Entry>* order_ = nullptr;  // of the current queue
    std::vector<Entry> sorted_;
    std::size_t sorted_until_ = 0;  // so many of them are in order, the others behind them
    std::size_t at_ = 0;
    std::vector<std::uint8_t> started_;  // by place in order_
    std::vector<Scored> scored_;
    std::vector<double> scores_;
    std::vector<std::uint8_t> asleep_;
    std::vector<Time> awake_at_us_;
    std::vector<std::int64_t> quota_held_milli_;
    LimitBook limits_held_;
    std::vector<double> usage_;  // by user, as of the instant in usage_as_of_
    std::vector<std::uint64_t> usage_as_of_;
    std::vector<DemandFactors> factors_;  // by demand, for `multifactor`
    Time calculated_us_ = 0;              // as of when entries have their scores, for `multifactor`
    // For `slurm`.
    std::unique_ptr<NodePlan> node_plan_;
    std::vector<std::int64_t> waiting_in_;  // by partition
    std::vector<std::uint8_t> closed_;      // by partition
    std::vector<std::int64_t> tested_of_user_, tested_of_partition_;
    std::int64_t tested_ = 0;
    // By demand: whether it fits now (-1: not known) and if so the shortest of its runs from each place on, where that
    // is shorter than from the next; the last places first.
    struct Hope {
        std::int8_t fits = -1;
        std::vector<std::pair<std::size_t, Time>> shortest_us;
    };
    std::vector<Hope> hopes_;
    std::vector<std::int32_t> hopeful_;  // demands that fit now and of which a job may start in this pass
    Shadow shadow_;
    RunningJobs running_;  // of the current queue
    std::vector<RunningJob> started_running_;
    std::vector<Part> running_parts_;
    std::vector<const QueuedJob*> planned_;
    std::vector<std::uint8_t> misfits_;
    std::vector<std::uint8_t> no_room_;  // by demand, like misfits_
    std::vector<std::int32_t> marked_no_room_;
    std::vector<std::int32_t> marked_;
    Allocation allocation_;
    RoomMaker room_maker_;
    RoomMaker::Room room_;
    std::vector<IndexedPass<NativePolicy>::Fitting> fitting_;
};

}  // namespace gpuyard
