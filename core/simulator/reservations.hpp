// The plan of `conservative`: who starts when and where if everything goes as expected. docs/contract/simulator.md,
// section 10.
#pragma once

#include <span>
#include <vector>

#include "policy/placement.hpp"
#include "simulator/snapshot.hpp"

namespace gpuyard {

// What is free on every node from now on, as a step function of time.
class Profile {
public:
    Profile(std::shared_ptr<const ClusterSpec> spec, bool limited);

    // What is free now, and what running jobs of the queue release.
    void build(const Snapshot& snapshot, std::int32_t queue);
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
    std::vector<const ActiveJob*> by_end_;
    ClusterState window_;
};

// The reservations of one queue.
class Reservations {
public:
    Reservations(const Snapshot& snapshot, std::int32_t queue, bool limited)
        : snapshot_(snapshot),
          queue_(queue),
          profile_(snapshot.state.shared_spec(), limited),
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
    void forget() { followed_ = false; }

private:
    bool anyone_overdue() const;
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

    const Snapshot& snapshot_;
    std::int32_t queue_;
    Profile profile_;
    bool followed_ = false;  // the profile is that of the last instant
    bool built_ = false;     // the profile is that of now
    ClusterState now_;       // what is free now, until the profile is needed
    std::vector<Reservation> plan_;
    Allocation allocation_;
};

}  // namespace gpuyard
