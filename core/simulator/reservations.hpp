// The plan of `conservative`: who starts when and where if everything goes as expected. docs/contract/simulator.md,
// section 10.
#pragma once

#include <span>
#include <vector>

#include "policy/placement.hpp"
#include "simulator/snapshot.hpp"

namespace gpuyard {

// What a plan begins with: what is free at a moment, and what runs in the queue.
struct PlanSource {
    struct Held {
        Time expected_end_us;
        std::int32_t demand;
        std::uint32_t part_count;
        std::size_t first_part;  // in the snapshot, where they stay
    };

    explicit PlanSource(const ClusterState& free) : state(free) {}
    void take(const Snapshot& snapshot, std::int32_t queue);

    Time now_us = 0;
    ClusterState state;
    std::vector<Held> running;  // without those of unknown end
};

// What is free on every node from now on, as a step function of time.
class Profile {
public:
    Profile(std::shared_ptr<const ClusterSpec> spec, bool limited);

    // What is free at a moment, and what running jobs of the queue release.
    void build(const PlanSource& source, const Snapshot& snapshot);
    // Forgets what is before now.
    void advance(Time now_us);

    void hold(Time begin_us, Time end_us, const Demand& demand, std::span<const Part> parts) {
        change(begin_us, end_us, demand, parts, -1);
    }
    void release(Time begin_us, Time end_us, const Demand& demand, std::span<const Part> parts) {
        change(begin_us, end_us, demand, parts, +1);
    }

    // The first time at which the job can be placed for `length_us` (kEndless: for good); kEndless if there is none.
    Time find(Time length_us, const Demand& demand, std::int64_t row, Placer& placer, Allocation& out);
    // Whether it can be placed for so long from the first moment on.
    bool fits_at_once(Time length_us, const Demand& demand, std::int64_t row, Placer& placer, Allocation& out);

private:
    struct Row {
        Time time_us;
        std::int32_t ends = 0;            // jobs and reservations that end here
        std::int32_t begins = 0;          // reservations that begin here
        std::vector<std::int32_t> empty;  // by node
        std::vector<std::int32_t> bucket_count;
        std::vector<std::int64_t> pool_empty;
        std::vector<std::int64_t> cpus, memory_mib;  // if any job asks for them
    };

    enum class Fit : std::uint8_t { fits, blocked, misfit };
    Fit fit_from(std::size_t from, std::size_t& to, Time length_us, const Demand& demand, std::int64_t row,
                 Placer& placer, Allocation& out);
    std::size_t row_at(Time time_us);
    void drop_if_idle(std::size_t at);
    void change(Time begin_us, Time end_us, const Demand& demand, std::span<const Part> parts, std::int32_t sign);
    void change_row(Row& row, const Demand& demand, std::span<const Part> parts, std::int32_t sign) const;
    bool may_fit(const Row& row, const Demand& demand, const Placer& placer) const;
    void least_free(std::size_t from, std::size_t to);

    std::shared_ptr<const ClusterSpec> spec_;
    bool limited_;
    std::vector<Row> rows_;  // ascending
    std::vector<Row> spare_;
    Row least_;
    std::vector<PlanSource::Held> by_end_;
    ClusterState window_;
};

// The reservations of one queue.
class Reservations {
public:
    // `may_postpone`: plans may be left unfinished where what is missing of them does not matter. Then the order of
    // jobs must not change while they wait, and `placer` must need only room.
    Reservations(const Snapshot& snapshot, std::int32_t queue, bool limited, bool may_postpone)
        : snapshot_(snapshot),
          queue_(queue),
          may_postpone_(may_postpone),
          profile_(snapshot.state.shared_spec(), limited),
          source_(snapshot.state),
          hope_(snapshot.demands->size()),
          now_(snapshot.state) {}

    // Takes over a plan made elsewhere.
    void load(std::span<const Reservation> plan);

    // Brings the plan up to date for the queue in this order, and returns it. Entries that begin now are to start.
    const std::vector<Reservation>& update(std::span<const QueuedJob* const> order, Placer& placer);
    // The next begin of a reservation, unless the plan waits for someone overdue.
    Time next_begin() const;
    // To be called when these have started.
    void drop_started();
    // To be called at an instant at which nobody waits: what happens meanwhile is not followed.
    void forget() { followed_ = postponed_ = false; }

private:
    bool anyone_overdue() const;
    // Postponed plans, in postponed_plans.cpp.
    void hope_for(std::span<const QueuedJob* const> order, Placer& placer);
    void lower_hopes(std::size_t at, const Reservation& entry, const QueuedJob& job, Placer& placer);
    void postpone();
    void finish_postponed(std::span<const QueuedJob* const> order, Placer& placer);
    void keep_common_beginning(std::span<const QueuedJob* const> order);
    bool start_at_once(Reservation& entry, const QueuedJob& job, Placer& placer);
    void build();
    void make(Reservation& entry, const QueuedJob& job, Placer& placer);
    void enter(const Reservation& entry);
    void give_up(const Reservation& entry);
    void improve(Reservation& entry, const QueuedJob& job, Placer& placer);
    const Demand& demand_of(const QueuedJob& job) const { return snapshot_.demand(job.demand); }
    Time restore_of(const QueuedJob& job) const {
        return job.done_us > 0 ? snapshot_.settings->restore_of(demand_of(job)) : 0;
    }
    Time left_of(const QueuedJob& job) const {
        return job.estimate_us == kEndless ? kEndless : std::max(Time{1}, job.estimate_us - job.done_us);
    }
    Time longest(const QueuedJob& job) const;

    // The jobs of one demand that are not planned yet, the last first, and how long the shortest of them and those
    // behind it takes.
    struct Hope {
        bool placeable = false;
        std::vector<std::pair<std::size_t, Time>> shortest_us;  // by place in the order
    };

    const Snapshot& snapshot_;
    std::int32_t queue_;
    bool may_postpone_;
    Profile profile_;
    PlanSource source_;
    bool postponed_ = false;             // the plan of the last instant is unfinished
    std::vector<Reservation> started_;   // by it
    std::vector<Hope> hope_;             // by demand
    std::vector<std::int32_t> hopeful_;  // demands of which jobs that are not planned yet may begin now
    std::vector<std::uint8_t> asked_;
    std::vector<std::int32_t> waiting_;
    bool followed_ = false;  // the profile is that of the last instant
    bool built_ = false;     // the profile is that of now
    ClusterState now_;       // what is free now, until the profile is needed
    std::vector<Reservation> plan_;
    Allocation allocation_;
};

}  // namespace gpuyard
