// The plan of `conservative`: who starts when and where if everything goes as expected. docs/contract/simulator.md,
// section 10.
#pragma once

#include <algorithm>
#include <span>
#include <vector>

#include "policy/placement.hpp"
#include "simulator/chances.hpp"
#include "simulator/earliest_begins.hpp"
#include "simulator/profile.hpp"
#include "simulator/snapshot.hpp"

namespace gpuyard {

// By demand, the first of those that differ in nothing that a plan goes by: CPUs and memory count only if `limited`.
std::vector<std::int32_t> kinds_of(std::span<const Demand> demands, bool limited);

// The reservations of one queue.
class Reservations {
public:
    // `may_postpone`: plans may be left unfinished where what is missing of them does not matter. Then the order of
    // jobs must not change while they wait, and `placer` must need only room.
    Reservations(const Snapshot& snapshot, std::int32_t queue, bool limited, const Placer& placer, bool may_postpone)
        : snapshot_(snapshot),
          queue_(queue),
          may_postpone_(may_postpone),
          same_speed_(std::all_of(snapshot.state.spec().pools.begin(), snapshot.state.spec().pools.end(),
                                  [](const Pool& pool) { return pool.speed == 1.0; })),
          kind_(kinds_of(*snapshot.demands, limited)),
          profile_(snapshot.state.shared_spec(), limited, *snapshot.demands, placer),
          chances_(profile_, snapshot.state.spec().pools.front()),
          follows_chances_(may_follow_chances(placer)),
          source_(snapshot.state),
          earliest_(snapshot.demands->size()),
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
    // What is known of a reservation since it was last looked at.
    struct Checked {
        std::uint64_t epoch = 0, clock = 0;  // when, by the chances
        std::int32_t table = -1;
        Profile::Chance chance = {};  // of one on a single node
    };

    bool anyone_overdue() const;
    // Reservations that follow the chances, in moved_reservations.cpp.
    bool may_follow_chances(const Placer& placer) const;
    bool on_one_node(const Demand& demand) const { return demand.pools.front().fewest_nodes == 1; }
    void follow_early_ends();
    void improve_kept(std::span<const QueuedJob* const> order, std::size_t kept, Placer& placer);
    bool may_move(const Reservation& entry, const Checked& checked);
    void look_again(std::size_t at, const QueuedJob& job, Placer& placer);
    void look_again_on_one_node(Reservation& entry, Checked& checked, Time length_us);
    void look_again_for_gang(Reservation& entry, const QueuedJob& job, Time length_us, Placer& placer);
    void take_on_one_node(const Demand& demand, std::int32_t node);
    void touch(const Reservation& entry);
    void note_checked(Checked& checked) const {
        checked.epoch = chances_.epoch();
        checked.clock = chances_.clock();
    }
    // Postponed plans, in postponed_plans.cpp.
    void hope_for(std::span<const QueuedJob* const> order, Placer& placer);
    void lower_hopes(std::size_t at, const Reservation& entry, Placer& placer);
    bool keeps_hope(std::int32_t kind, const Reservation& entry, Placer& placer);
    void postpone();
    void finish_postponed(std::span<const QueuedJob* const> order, Placer& placer);
    void clear_plan();
    void keep_common_beginning(std::span<const QueuedJob* const> order);
    bool start_at_once(Reservation& entry, const QueuedJob& job, Placer& placer);
    void build();
    // After `latest_us` it need not be found a time.
    void make(Reservation& entry, const QueuedJob& job, Placer& placer, Time latest_us = kEndless);
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

    // The jobs of one kind that are not planned yet, the last first, and how long the shortest of them and those behind
    // it takes.
    struct Hope {
        bool placeable = false;
        std::vector<std::pair<std::size_t, Time>> shortest_us;  // by place in the order
        // Where a job that takes so long can begin now, as far as is known.
        Time length_us = -1;
        std::vector<Part> witness;
    };

    const Snapshot& snapshot_;
    std::int32_t queue_;
    bool may_postpone_;
    bool same_speed_;                 // of all pools, 1: a run takes as long as its work
    std::vector<std::int32_t> kind_;  // by demand: the first of those that are the same to a plan
    Profile profile_;
    Chances chances_;
    bool follows_chances_;
    PlanSource source_;
    EarliestBegins earliest_;
    bool postponed_ = false;             // the plan of the last instant is unfinished
    std::vector<Reservation> started_;   // by it
    std::vector<Hope> hope_;             // by kind
    std::vector<std::int32_t> hopeful_;  // kinds of which jobs that are not planned yet may begin now
    std::vector<std::uint8_t> asked_;
    std::vector<std::int32_t> waiting_;
    bool followed_ = false;  // the profile is that of the last instant
    bool built_ = false;     // the profile is that of now
    ClusterState now_;       // what is free now, until the profile is needed
    std::vector<Reservation> plan_;
    std::vector<Checked> checked_;  // by place in the plan
    Checked made_;                  // of the last reservation made
    Allocation allocation_;
};

}  // namespace gpuyard
