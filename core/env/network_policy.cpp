#include "env/network_policy.hpp"

#include <algorithm>
#include <chrono>
#include <stdexcept>

#include "base/index.hpp"
#include "env/environment.hpp"
#include "env/rollout.hpp"
#include "observation/mask.hpp"
#include "observation/snapshot_view.hpp"

namespace gpuyard {

namespace {

constexpr std::int64_t kStepsBetweenReports = 1024;

// A pass of decisions over a snapshot that it changes as it goes.
class Pass {
public:
    Pass(const Snapshot& snapshot, const EnvSpec& spec, const Network& network)
        : spec_(spec),
          network_(network),
          now_(snapshot),
          placer_(spec.base.placement, snapshot.settings->seed),
          mask_(spec.actions(), 0) {
        placer_.set_mix(&now_.mix);
        decision_.instant = snapshot.instant;
    }

    Decision decide() {
        while (!now_.queue.empty() && step()) {}
        return std::move(decision_);
    }

private:
    // Whether there may be more to decide.
    bool step() {
        const SnapshotView view(now_, spec_, held_);
        if (fill_mask(spec_, MaskView{*this, view}, mask_) == 0) return false;
        const Observation seen = view.observation();
        const std::int64_t action =
            network_.choose({seen.jobs.data(), seen.nodes.data(), seen.globals.data(), mask_.data()}, scratch_);
        if (spec_.kind == EnvKind::accept_or_skip) {
            const std::size_t row = as_index(view.prospects().base_choice());
            if (action == 1)
                start(view.rows()[row]->job, view.prospects().fit(row).allocation);
            else
                held_.push_back(view.rows()[row]->job);
            return true;
        }
        if (as_index(action) == spec_.noop()) return false;
        const std::size_t choices = choices_per_row();
        const WindowJob& job = *view.rows()[as_index(action) / choices];
        if (!place(job, as_index(action) % choices)) throw std::logic_error("a legal action cannot be executed");
        start(job.job, allocation_);
        return true;
    }

    std::size_t choices_per_row() const { return spec_.kind == EnvKind::select_job_and_pool ? spec_.sizes.pools : 1; }

    bool place(const WindowJob& job, std::size_t pool) {
        const Demand& demand = now_.demand(job.demand);
        if (spec_.kind == EnvKind::select_job) return placer_.place(now_.state, demand, job.row, allocation_);
        const Demand inside = confined(demand, now_.state.spec(), pool);
        return !inside.pools.empty() && placer_.place(now_.state, inside, job.row, allocation_);
    }

    // What fill_mask asks.
    struct MaskView {
        Pass& pass;
        const SnapshotView& view;

        std::size_t rows() const { return view.rows().size(); }
        std::size_t pools() const { return pass.now_.state.spec().pools.size(); }
        bool startable(std::size_t row) const { return view.prospects().fit(row).fits; }
        bool startable_in(std::size_t row, std::size_t pool) const { return pass.place(*view.rows()[row], pool); }
        bool base_starts() const { return view.prospects().base_choice() >= 0; }
        bool anything_runs() const { return !pass.now_.active.empty(); }
    };

    void start(JobId id, const Allocation& allocation) {
        const auto job = std::lower_bound(now_.queue.begin(), now_.queue.end(), id,
                                          [](const QueuedJob& q, JobId j) { return q.job < j; });
        const Demand& demand = now_.demand(job->demand);
        ActiveJob active = begun(*job, now_.now_us);
        active.restore_us = job->done_us > 0 ? now_.settings->restore_of(demand) : 0;
        active.run_on(allocation, now_.settings->locality_penalty);
        now_.add_active(active, allocation.parts);
        now_.state.hold(demand, allocation.parts);
        now_.enter(now_.now_us, *now_.settings, demand, job->holder(), +1);
        decision_.starts.push_back({id, allocation.parts, false, {}});
        now_.queue.erase(job);
    }

    const EnvSpec& spec_;
    const Network& network_;
    Snapshot now_;
    Placer placer_;
    Allocation allocation_;
    std::vector<std::int8_t> mask_;
    std::vector<JobId> held_;
    Scratch scratch_;
    Decision decision_;
};

}  // namespace

ScheduleArrays replay(std::shared_ptr<const EnvSpec> spec, const Episode& episode, const Network& network,
                      const Progress& progress) {
    check_suits(network, *spec);
    Environment environment(spec);
    ObservationRoom room(*spec);
    Scratch scratch;
    environment.begin(episode);
    for (StepResult result; !result.done();) {
        if (environment.steps() % kStepsBetweenReports == 0) progress(environment.simulator().finished());
        const std::int64_t action = environment.ended() ? 0 : network.choose(room.look(environment, network), scratch);
        result = environment.step(action);
    }
    progress(environment.simulator().finished());
    ScheduleArrays schedule = schedule_of(environment.simulator());
    const Time begin = episode.table->jobs->submit_us[as_index(episode.first)];  // where the episode's clock begins
    for (Time& time : schedule.start_us) time += begin;
    for (Time& time : schedule.end_us) time += begin;
    return schedule;
}

DecisionTimes time_decisions(std::shared_ptr<const EnvSpec> spec, const Episode& episode, const Network& network,
                             std::size_t count) {
    using Clock = std::chrono::steady_clock;
    const auto microseconds = [](Clock::duration time) {
        return std::chrono::duration<double, std::micro>(time).count();
    };
    check_suits(network, *spec);
    Environment environment(spec);
    ObservationRoom room(*spec);
    Scratch scratch;
    DecisionTimes times;
    environment.begin(episode);
    while (!environment.ended() && times.decide_us.size() < count) {
        times.waiting.push_back(environment.waiting());
        const auto began = Clock::now();
        const std::int64_t action = network.choose(room.look(environment, network), scratch);
        const auto chosen = Clock::now();
        environment.step(action);
        times.decide_us.push_back(microseconds(chosen - began));
        times.step_us.push_back(microseconds(Clock::now() - chosen));
    }
    return times;
}

Decision decide(const Snapshot& snapshot, const EnvSpec& spec, const Network& network) {
    if (spec.chooses_host() || spec.step_mode != StepMode::instant)
        throw std::invalid_argument("only networks that select jobs in instant mode decide by themselves");
    check_suits(network, spec);
    EnvSpec here = spec;
    here.settings = snapshot.settings;
    return Pass(snapshot, here, network).decide();
}

}  // namespace gpuyard
