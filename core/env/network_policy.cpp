#include "env/network_policy.hpp"

#include <algorithm>
#include <chrono>
#include <stdexcept>

#include "base/index.hpp"
#include "env/environment.hpp"
#include "observation/snapshot_view.hpp"
#include "env/rollout.hpp"

namespace gpuyard {

namespace {

constexpr std::int64_t kStepsBetweenReports = 1024;

// A pass of decisions over a snapshot that it changes as it goes.
class Pass {
public:
    Pass(const Snapshot& snapshot, const EnvSpec& spec, const Network& network)
        : spec_(spec), network_(network), now_(snapshot), placer_(spec.base.placement, snapshot.settings->seed), mask_(spec.actions(), 0) {
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
        if (!make_mask(view)) return false;
        const Observation seen = view.observation();
        const std::int64_t action = network_.choose({seen.jobs.data(), seen.nodes.data(), seen.globals.data(), mask_.data()}, scratch_);
        if (spec_.kind == EnvKind::accept_or_skip) {
            const std::size_t row = as_index(view.prospects().base_choice());
            if (action == 1)
                start(view.rows()[row]->job, view.prospects().fit(row).allocation);
            else
                held_.push_back(view.rows()[row]->job);
            return true;
        }
        if (action == std::ssize(mask_) - 1) return false;
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

    // Whether there is anything to do but to wait.
    bool make_mask(const SnapshotView& view) {
        std::fill(mask_.begin(), mask_.end(), std::int8_t{0});
        const std::int8_t may_wait = now_.active.empty() ? 0 : 1;
        if (spec_.kind == EnvKind::accept_or_skip) {
            mask_[0] = may_wait;
            mask_[1] = view.prospects().base_choice() >= 0 ? 1 : 0;
            return mask_[1] != 0;
        }
        bool any = false;
        const std::size_t choices = choices_per_row();
        for (std::size_t row = 0; row < view.rows().size(); ++row)
            for (std::size_t choice = 0; choice < choices; ++choice) {
                const bool fits = spec_.kind == EnvKind::select_job ? view.prospects().fit(row).fits : place(*view.rows()[row], choice);
                mask_[row * choices + choice] = fits ? 1 : 0;
                any = any || fits;
            }
        mask_.back() = may_wait;
        return any;
    }

    void start(JobId id, const Allocation& allocation) {
        const auto job = std::lower_bound(now_.queue.begin(), now_.queue.end(), id, [](const QueuedJob& q, JobId j) { return q.job < j; });
        const Demand& demand = now_.demand(job->demand);
        const Time run = allocation.run_time(job->estimate_us, now_.settings->locality_penalty);
        now_.active.push_back({id, job->estimate_us, job->demand, job->row, RunState::running, now_.now_us, 0, 1.0,
                               expected_end(now_.now_us, run), 0, 0, 0, now_.parts.size(), static_cast<std::uint32_t>(allocation.parts.size())});
        now_.parts.insert(now_.parts.end(), allocation.parts.begin(), allocation.parts.end());
        now_.state.hold(demand, allocation.parts);
        const double half_life = now_.settings->usage_half_life_s;
        const std::size_t user = as_index(job->user), group = as_index(job->group);
        if (user < now_.user_usage.size()) now_.user_usage[user].change(now_.now_us, half_life, demand.total_milli());
        if (group < now_.group_usage.size()) now_.group_usage[group].change(now_.now_us, half_life, demand.total_milli());
        if (user < now_.user_holdings.size()) now_.user_holdings[user].add(demand, 1);
        if (group < now_.group_milli.size()) now_.group_milli[group] += demand.total_milli();
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

ScheduleArrays replay(std::shared_ptr<const EnvSpec> spec, const Episode& episode, const Network& network, const Progress& progress) {
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

DecisionTimes time_decisions(std::shared_ptr<const EnvSpec> spec, const Episode& episode, const Network& network, std::size_t count) {
    using Clock = std::chrono::steady_clock;
    const auto microseconds = [](Clock::duration time) { return std::chrono::duration<double, std::micro>(time).count(); };
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
