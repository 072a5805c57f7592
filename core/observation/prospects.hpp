// What each job of a window would get now, who is held up until when, and what the base policy does next:
// docs/contract/observation.md, "Jobs".
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/index.hpp"
#include "observation/window_job.hpp"
#include "policy/backfill.hpp"
#include "policy/placement.hpp"
#include "policy/policy.hpp"

namespace gpuyard {

// Where a job would go now.
struct Fit {
    std::uint64_t version = 0;
    bool fits = false;
    bool takes_estimate = false;  // the expected run time is the estimate itself
    Allocation allocation;        // if it fits
    float free_after = 0.0F, fragmentation = 0.0F, speed = 0.0F;
};

// Empty GPUs on partly used nodes.
std::int64_t fragmented_gpus(const ClusterState& state);

class Prospects {
public:
    // Keeps references to both. `wants_starts`: whether anybody asks when rows could start, and when all that runs has
    // ended.
    Prospects(const Policy& base, const Settings& settings, bool wants_starts);

    void reset(const ClusterState& state, std::span<const Demand> demands, const ClusterScale& scale);

    // What has happened since the last look.
    void resources_changed() { ++version_; }
    void finished(std::int32_t queue, Time expected_end_us, Time now_us);
    void started(const WindowJob& job, const Allocation& allocation, Time expected_end_us);
    Placer& placer() { return placer_; }

    // Finds out which rows fit. The rest of a look costs more, and matters only if the state is offered.
    void try_rows(const ClusterState& state, std::span<const WindowJob* const> rows);
    // `running(queue)` is a Running. `held` marks rows that the base policy passes over; it may be empty. `rows` as
    // just tried.
    using RunningOf = std::function<Running(std::int32_t)>;
    void look(Time now_us, const ClusterState& state, std::span<const WindowJob* const> rows,
              std::span<const std::uint8_t> held, const RunningOf& running);

    // By row, as of the last look.
    const Fit& fit(std::size_t row) const { return *fits_[row]; }
    bool before_shadow(std::size_t row) const { return before_shadow_[row] != 0; }
    std::int32_t base_choice() const { return base_choice_; }  // a row, or -1
    void set_base_choice(std::int32_t row) { base_choice_ = row; }
    // The shadow time of the first head. False if no row is one.
    bool shadow(Time& time_us) const {
        time_us = shadow_us_;
        return has_head_;
    }

    // When a row could start if running jobs end as expected and nothing else starts; kEndless if never.
    Time starts_at(std::size_t row) const { return starts_[row]; }
    double size_gpus(std::size_t row) const { return sizes_[row]; }
    // When all running jobs are expected to have ended; 0 if nothing runs, kEndless if that is unknown.
    Time last_end() const { return last_end_us_; }

    // The run time expression of section 6 with the estimate for the duration; kEndless if unknown.
    Time expected_run(const WindowJob& job, const Fit& fit) const;

private:
    struct QueueShadow {
        explicit QueueShadow(const std::shared_ptr<const ClusterSpec>& spec) : shadow(spec) {}
        Shadow shadow;
        JobId head = -1;           // for which it is valid; -1 = it is not
        std::int32_t demand = -1;  // of the head
        std::int32_t row = -1;     // of the head, as of the last look
        std::int32_t choice = -1;  // the row that the base policy starts next in this queue
    };

    void fill(Fit& fit, const ClusterState& state, const Demand& demand, std::int64_t row);
    void find_heads(Time now_us, const ClusterState& state, std::span<const WindowJob* const> rows,
                    const RunningOf& running);
    void find_base_choice(Time now_us, const ClusterState& state, std::span<const WindowJob* const> rows,
                          std::span<const std::uint8_t> held);
    void find_starts(Time now_us, const ClusterState& state, std::span<const WindowJob* const> rows,
                     const RunningOf& running);
    void sweep(Time now_us, const ClusterState& state, const Running& running, std::vector<std::int32_t>& wanted);
    bool nobody_passes(const WindowJob& head, Time now_us) const;
    bool may_start(std::size_t row, const WindowJob& job, Time now_us, const ClusterState& state, bool behind_head);
    const PoolOption& first_pool(const Demand& demand) const { return pools_of(demand, base_.placement).front(); }
    QueueShadow& shadow_of(const Demand& demand) { return shadows_[as_index(demand.queue)]; }

    const Policy& base_;
    const Settings& settings_;
    Placer placer_;
    std::span<const Demand> demands_;
    const ClusterSpec* spec_ = nullptr;
    const ClusterScale* scale_ = nullptr;
    std::uint64_t version_ = 1;
    bool starts_make_room_ = false;
    std::vector<Fit> by_demand_;
    std::vector<Fit> by_row_;  // where a placement differs from job to job
    std::vector<const Fit*> fits_;
    std::vector<std::uint8_t> before_shadow_;
    std::vector<QueueShadow> shadows_;  // by queue
    std::int32_t base_choice_ = -1;
    bool has_head_ = false;
    Time shadow_us_ = kEndless;

    // When jobs of a demand could start; valid in one version, until that time.
    struct KnownStart {
        std::uint64_t version = 0;
        Time time_us = kEndless;
    };
    bool wants_starts_;
    std::vector<KnownStart> start_of_demand_;
    std::vector<std::vector<std::int32_t>> unknown_;  // demands by queue, for one look
    std::vector<Time> starts_;
    std::vector<double> sizes_;
    std::optional<ClusterState> later_;
    Time last_end_us_ = 0;
};

}  // namespace gpuyard
