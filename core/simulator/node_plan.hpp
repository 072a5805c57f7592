// The plan of a backfill pass of `slurm`: whole nodes reserved for jobs that have to wait. docs/contract/slurm.md,
// section 5.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "base/index.hpp"
#include "policy/placement.hpp"
#include "simulator/room_times.hpp"

namespace gpuyard {

class NodePlan {
public:
    // What is free now is `state`, which changes with starts: `add_started` comes after that.
    NodePlan(const ClusterState& state, const std::vector<Demand>& demands, Placer& placer)
        : now_(state),
          masked_now_(state),
          masked_later_(state),
          demands_(demands),
          placer_(placer),
          with_cpu_jobs_(std::any_of(demands.begin(), demands.end(),
                                     [](const Demand& demand) { return demand.kind == DemandKind::cpu_only; })),
          known_(demands.size()) {}

    struct Clock {
        Time now_us = 0, latest_us = 0;  // latest: of begins
        Time epoch_us = 0, resolution_us = 1;
    };
    void begin(const Clock& clock);
    // A job that runs, before the first question.
    void add_running(Time expected_end_us, std::int32_t demand, std::span<const Part> parts);
    // A job that starts now.
    void add_started(Time expected_end_us, std::int32_t demand, std::span<const Part> parts);
    // The first time at which the job can run for `run_us` on nodes that are not reserved then; kEndless if there is
    // none up to the latest. `out` says where.
    Time find(std::int32_t demand, std::int64_t row, Time run_us, Allocation& out);
    // Keeps these nodes for a job that begins then.
    void reserve(Time begin_us, Time run_us, std::span<const Part> parts);
    // Whether such a job can run now for so long on nodes that are not reserved.
    bool may_start(std::int32_t demand, Time run_us);

private:
    struct Release {
        Time end_us;
        std::int32_t demand;
        std::size_t first_part;
        std::uint32_t part_count;
    };
    struct Reserved {
        Time begin_us, end_us;
        std::size_t first_part;
        std::uint32_t part_count;
        std::uint32_t open_count;  // behind its parts: those again on whose nodes something is free now
    };
    // What was found for a demand in this pass. Jobs that run no shorter cannot begin before.
    struct Known {
        std::uint64_t pass = 0;
        Time run_us = 0;
        Time begin_us = 0;
        Time room_us = 0;      // before that there is no room even without reservations
        bool counted = false;  // by nodes, for the time after now
        Time first_us = 0;     // the first time after now that was tried
    };

    template <class Entry>
    std::span<const Part> parts_of(const Entry& entry) const {
        return std::span(parts_).subspan(entry.first_part, entry.part_count);
    }
    Time round_down(Time time) const;
    void prepare_later();
    void move_to(Time time);
    // A state in which nodes of the reservations of a time span are closed. From span to span only those are looked at
    // that begin or end in between.
    struct Masked {
        explicit Masked(const ClusterState& free) : state(free) {}
        void reset(const ClusterState& free, std::size_t reservations);

        ClusterState state;
        std::vector<std::uint8_t> closed;  // by reservation
        Time from_us = kNever, to_us = kNever;
        std::size_t begun = 0, ended = 0;  // of those in order of begin that begin by `to`, of end that end by `from`
    };
    static constexpr Time kNever = INT64_MIN;
    void close_reserved(Masked& masked, Time from_us, Time to_us);
    void close_or_open(Masked& masked, std::size_t reservation);
    void take_in(Masked& masked, std::size_t reservation);
    void take_in_order(std::vector<std::uint32_t>& order, Time Reserved::* time);
    Time find_later(Known& known, Time from_us, Time until_us, std::int32_t demand, std::int64_t row, Time run_us,
                    Allocation& out);
    bool place_at(Time time, std::int32_t demand, std::int64_t row, Time run_us, Allocation& out);
    void add_time(Time time);

    const ClusterState& now_;
    Masked masked_now_;
    Masked masked_later_;  // with the first `released_` releases made
    const std::vector<Demand>& demands_;
    Placer& placer_;
    bool with_cpu_jobs_;
    Clock clock_;
    bool ready_ = false;             // `masked_later_`, `times_` and `room_times_` are
    std::vector<Release> releases_;  // by end
    std::size_t released_ = 0;
    RoomTimes room_times_;
    std::vector<Time> times_;  // candidates after now, ascending
    std::vector<Reserved> reserved_;
    std::vector<std::uint32_t> by_begin_, by_end_;  // reservations
    std::vector<Part> parts_;
    std::vector<Known> known_;  // by demand
    std::uint64_t pass_ = 0;
};

}  // namespace gpuyard
