// One environment: states that are offered, actions that can be executed in them, and how time moves.
// docs/contract/mdp.md.
#pragma once

#include <cstdint>
#include <limits>
#include <memory>
#include <span>
#include <vector>

#include "base/index.hpp"
#include "env/episode.hpp"
#include "env/reward.hpp"
#include "metrics/episode_metrics.hpp"
#include "observation/env_spec.hpp"
#include "observation/observation.hpp"
#include "observation/occupancy.hpp"
#include "observation/prospects.hpp"
#include "simulator/fair_shares.hpp"
#include "simulator/history.hpp"
#include "simulator/lean_simulator.hpp"
#include "simulator/snapshot.hpp"
#include "simulator/waiting_jobs.hpp"

namespace gpuyard {

struct StepResult {
    double reward = 0.0;
    bool terminated = false;
    bool truncated = false;
    bool done() const { return terminated || truncated; }
};

class Environment {
public:
    explicit Environment(std::shared_ptr<const EnvSpec> spec);
    Environment(const Environment&) = delete;
    Environment& operator=(const Environment&) = delete;

    void begin(const Episode& episode);

    // For every kind but RankHosts. Whether the action may be taken now.
    bool legal(std::int64_t action) const {
        return action >= 0 && action < std::ssize(mask_) && mask_[as_index(action)] != 0;
    }
    StepResult step(std::int64_t action);
    // For RankHosts.
    StepResult step_ranked(std::span<const float> priorities);

    void observe(const ObservationBuffers& out);
    std::span<const std::int8_t> mask() const { return mask_; }
    std::int64_t expert_action(const Policy& policy);

    // What a scheduler could know now.
    Snapshot snapshot();

    const LeanSimulator& simulator() const { return simulator_; }
    Time clock() const { return simulator_.now() - begin_us_; }  // since the episode began
    // The jobs of the window itself: behind warm-up, before cool-down.
    std::int64_t own_from() const { return warmup_; }
    std::int64_t own_to() const { return own_to_; }
    std::int64_t steps() const { return steps_; }
    std::int64_t waiting() const { return waiting_.count(); }  // jobs, in the window or not
    double total_reward() const { return total_reward_; }
    // Whether nothing is left to decide: the next step, whatever it is, only says so.
    bool ended() const { return all_finished() || past_horizon(); }
    void write_metrics(double* out) { metrics_.compute(simulator_, warmup_, own_to_, begin_us_, out); }
    std::vector<JobId> window() const;

    // Handler of LeanSimulator::next_instant.
    void finished(JobId job, Time expected_end_us);
    void arrived(JobId job);

private:
    void load(const Episode& episode);
    void warm_up(Time until_us);
    bool keeps_history() const { return spec_->settings->predict || traits_of(spec_->base.order).predicts(); }
    RunTimeHistory earlier_history() const;
    Time counted_run(std::size_t job) const;
    void find_predictions();
    void find_fair_factors();
    void find_what_is_remembered_for(Order order);
    Time calculated_us() const;
    bool all_finished() const { return finished_ == own_to_; }
    bool past_horizon() const { return seconds(clock()) > horizon_s_; }
    bool event_pending() const { return simulator_.next_time() != kEndless; }

    void account(JobId job, std::int64_t sign);

    // Time.
    void let_go();
    void advance();
    void advance_to(Time time_us);
    void advance_by_mode();
    void settle();
    bool offered() const;
    StepResult finish_step(double penalty);

    // Offers.
    void glance();
    void look();
    void gather(std::size_t count);
    void take_out_of_window(JobId job);
    // Whether waiting jobs rank as they did when the episode began: no score changes, and nobody has become aged.
    bool has_static_ranks() const { return traits_of(spec_->base.order).is_static() && !spec_->settings->predict; }
    bool ranks_for_good() { return has_static_ranks() && !anyone_aged(); }
    bool anyone_aged();
    void gather_dynamic(std::size_t count);
    void put_current_job_first();
    void ask_base_policy();
    std::int64_t mark_hosts(const Demand& demand);
    bool host_can_hold(const Demand& demand, std::int32_t node) const;
    bool any_host_can_hold(std::int32_t demand);
    struct MaskView;
    void make_mask();
    void try_pools();
    std::int64_t host_of(Placement rule) const;
    std::int64_t row_of(JobId job) const;

    // Actions.
    std::int64_t legal_instead(std::int64_t action) const;
    void act(std::int64_t action);
    void start(JobId job, const Allocation& allocation);
    void start_on_host(std::int32_t node);
    void start_blocking(JobId job, std::int32_t pool);
    bool place(JobId job, std::int32_t pool, Allocation& out);
    void backfill(JobId head, const Demand& demand);
    std::int64_t noop() const { return static_cast<std::int64_t>(spec_->noop()); }
    bool is_noop(std::int64_t action) const { return !spec_->chooses_host() && action == noop(); }
    double backlog() const;
    double baseline_value() const;
    const Demand& demand_of(JobId job) const { return jobs_->demand_of(as_index(job)); }
    QueuedJob queued(JobId job) const;
    // With these jobs as the queue. The caller has found what the policy goes by that is not kept up to date.
    Snapshot snapshot(std::span<const JobId> jobs) const;
    std::vector<JobId> waiting_jobs() const;

    std::shared_ptr<const EnvSpec> spec_;
    std::shared_ptr<const EpisodeTable> table_;
    std::shared_ptr<JobTable> jobs_;  // of the episode
    std::int64_t first_row_ = 0;      // of the episode in its table
    LeanSimulator simulator_;
    WaitingJobs waiting_;
    Prospects prospects_;
    Occupancy occupancy_;
    Rewards rewards_;
    EpisodeMetrics metrics_;
    Observer observer_;
    Placer placer_;                    // for pools and hosts
    RunTimeHistory history_;           // if predictions are asked for all the time
    std::vector<Time> prediction_us_;  // by job
    JobMix mix_;
    ArrivalRate arrivals_;
    Accounts accounts_;
    AssociationUsage association_usage_;
    Time fair_factors_us_ = 0;  // as of when the accounts have them
    std::vector<float> user_share_, group_share_;
    std::vector<WindowJob> window_jobs_;  // by job
    std::vector<double> scores_;
    std::int64_t warmup_ = 0, own_to_ = 0;
    std::int64_t finished_ = 0;  // jobs, but those of cool-down
    std::size_t oldest_ = 0;     // no job before it waits
    static constexpr double kNoHorizon = std::numeric_limits<double>::infinity();
    Time begin_us_ = 0, step_began_us_ = 0;
    double horizon_s_ = kNoHorizon;
    std::int64_t waiting_milli_ = 0, running_ = 0, steps_ = 0;
    double total_reward_ = 0.0;

    // The state that is offered.
    std::vector<const WindowJob*> rows_;
    bool rows_are_window_ = false;  // as long as they need not be gathered anew
    std::vector<std::uint8_t> row_held_;
    std::vector<std::uint8_t> held_;  // by job
    std::vector<JobId> held_jobs_;
    std::vector<std::int8_t> mask_;
    bool has_current_ = false;            // row 0 is the job whose host is asked for
    std::int64_t real_legal_ = 0;         // legal actions other than the no-op or skip
    std::uint64_t releases_ = 1;          // finishes so far
    std::vector<std::uint64_t> no_host_;  // by demand: as of which release no host could hold it
    std::vector<std::uint8_t> queue_seen_;
    std::vector<std::int8_t> pool_fits_;    // by demand and pool, if the demand was looked at
    std::vector<std::uint64_t> looked_at_;  // by demand: in which look
    std::uint64_t looks_ = 0;
    Allocation allocation_, base_allocation_;
    bool has_base_allocation_ = false;
    std::vector<std::pair<double, JobId>> ranked_;
    std::vector<JobId> candidates_;
};

}  // namespace gpuyard
