// Which states an Environment offers, what is legal in them, and what policies would do.
#include <algorithm>

#include "base/index.hpp"
#include "cluster/node_fit.hpp"
#include "env/environment.hpp"
#include "observation/mask.hpp"
#include "simulator/native_policy.hpp"

namespace gpuyard {

namespace {

constexpr std::size_t kHostSearch = 64;  // waiting jobs among which the current job of SelectHost is looked for

bool same(const Policy& a, const Policy& b) {
    return a.order == b.order && a.order_parameter == b.order_parameter && a.backfill == b.backfill &&
           a.express.t0_s == b.express.t0_s && a.express.k == b.express.k && a.max_wait_us == b.max_wait_us;
}

}  // namespace

// --- The window -------------------------------------------------------------------------------------------

// The first `count` waiting jobs in the base policy's order.
void Environment::gather(std::size_t count) {
    rows_.clear();
    rows_are_window_ = false;
    if (!ranks_for_good()) return gather_dynamic(count);
    waiting_.visit([&](JobId job) {
        rows_.push_back(&window_jobs_[as_index(job)]);
        rows_.back()->fetch();
        return rows_.size() < count;
    });
}

// A job has left the queue: the next one moves up.
void Environment::take_out_of_window(JobId job) {
    const auto row = std::find(rows_.begin(), rows_.end(), &window_jobs_[as_index(job)]);
    rows_are_window_ = rows_are_window_ && row != rows_.end();
    if (!rows_are_window_) return;
    const JobId next = rows_.size() == spec_->sizes.rows ? waiting_.behind(rows_.back()->job) : -1;
    rows_.erase(row);
    if (next >= 0) rows_.push_back(&window_jobs_[as_index(next)]);
}

bool Environment::anyone_aged() {
    if (!spec_->base.ages()) return false;
    const auto& start_us = simulator_.record().start_us;
    while (oldest_ < start_us.size() && start_us[oldest_] >= 0) ++oldest_;
    return oldest_ < start_us.size() && spec_->base.is_aged(simulator_.now(), jobs_->submit_us[oldest_]);
}

void Environment::gather_dynamic(std::size_t count) {
    if (waiting_.count() == 0) return;
    find_what_is_remembered_for(spec_->base.order);
    const Snapshot now = snapshot(waiting_jobs());
    NativePolicy native(spec_->base, now);
    for (const QueuedJob& job : now.queue) native.entered(job);
    ranked_ = native.scored_jobs();
    const auto last = ranked_.begin() + static_cast<std::ptrdiff_t>(std::min(count, ranked_.size()));
    std::partial_sort(ranked_.begin(), last, ranked_.end());
    for (auto it = ranked_.begin(); it != last; ++it) rows_.push_back(&window_jobs_[as_index(it->second)]);
}

std::vector<JobId> Environment::window() const {
    std::vector<JobId> jobs;
    for (const WindowJob* row : rows_) jobs.push_back(row->job);
    return jobs;
}

// Finds out what is legal.
void Environment::glance() {
    const bool host = spec_->chooses_host();
    if (!rows_are_window_ || anyone_aged()) {
        gather(host ? std::max(spec_->sizes.rows, kHostSearch) : spec_->sizes.rows);
        rows_are_window_ = !host && ranks_for_good();
        if (host) put_current_job_first();
    }
    prospects_.try_rows(simulator_.state(), rows_);
    if (spec_->kind == EnvKind::accept_or_skip) ask_base_policy();
    make_mask();
}

void Environment::ask_base_policy() {
    row_held_.clear();
    if (!held_jobs_.empty())
        for (const WindowJob* row : rows_) row_held_.push_back(held_[as_index(row->job)]);
    prospects_.look(simulator_.now(), simulator_.state(), rows_, row_held_,
                    [this](std::int32_t q) { return simulator_.running(q); });
}

// After a glance, finds out the rest of what an observation shows.
void Environment::look() {
    for (const WindowJob* row : rows_) row->fetch_columns();
    if (spec_->kind != EnvKind::accept_or_skip) ask_base_policy();
    if (spec_->chooses_host()) prospects_.set_base_choice(has_current_ ? 0 : -1);
    has_base_allocation_ = false;
    const std::int32_t choice = prospects_.base_choice();
    if (choice < 0) return;
    has_base_allocation_ = prospects_.fit(as_index(choice)).fits;
    base_allocation_ = prospects_.fit(as_index(choice)).allocation;
}

// --- Hosts ------------------------------------------------------------------------------------------------

bool Environment::host_can_hold(const Demand& demand, std::int32_t node) const {
    const ClusterState& state = simulator_.state();
    if (!demand.allows[as_index(table_->cluster->pool[as_index(node)])]) return false;
    if (!has_cpus_and_memory(state, demand, node, std::max(demand.gpus, 1))) return false;
    switch (demand.kind) {
        case DemandKind::whole: return state.empty(node) >= demand.gpus;
        case DemandKind::shared: return state.fullest_gpu(node, demand.gpu_milli) >= 0;
        case DemandKind::cpu_only: break;
    }
    return true;
}

bool Environment::any_host_can_hold(std::int32_t demand) {
    if (no_host_[as_index(demand)] == releases_) return false;
    const Demand& d = jobs_->demands[as_index(demand)];
    for (const PoolOption& option : d.pools)
        for (const std::int32_t node : table_->cluster->pools[as_index(option.pool)].nodes)
            if (host_can_hold(d, node)) return true;
    no_host_[as_index(demand)] = releases_;  // and none can until something finishes
    return false;
}

// The first row that some host can hold becomes row 0.
void Environment::put_current_job_first() {
    std::fill(queue_seen_.begin(), queue_seen_.end(), std::uint8_t{0});
    auto current = rows_.end();
    for (auto row = rows_.begin(); row != rows_.end(); ++row) {
        std::uint8_t& blocked = queue_seen_[as_index(demand_of((*row)->job).queue)];
        if (blocked) continue;
        if (!any_host_can_hold((*row)->demand)) {
            blocked =
                spec_->base.backfill == Backfill::strict || spec_->base.is_aged(simulator_.now(), (*row)->submit_us);
            continue;
        }
        current = row;
        break;
    }
    has_current_ = current != rows_.end();
    if (has_current_) std::rotate(rows_.begin(), current, current + 1);
    if (rows_.size() > spec_->sizes.rows) rows_.resize(spec_->sizes.rows);
}

// Where a rule puts the current job: if it would split it, the first of these nodes that can hold all of it.
std::int64_t Environment::host_of(Placement rule) const {
    Placer placer(rule, spec_->settings->seed);
    placer.set_mix(&mix_);
    Allocation allocation;
    if (has_current_ && placer.place(simulator_.state(), demand_of(rows_.front()->job), rows_.front()->row, allocation))
        for (const Part& part : allocation.parts)
            if (legal(part.node)) return part.node;
    return std::find(mask_.begin(), mask_.end(), std::int8_t{1}) - mask_.begin();
}

// Legal are the hosts that can hold the current job. Their number.
std::int64_t Environment::mark_hosts(const Demand& demand) {
    const ClusterState& state = simulator_.state();
    std::int8_t* const mask = mask_.data();
    std::int64_t legal = 0;
    const auto mark = [&](auto holds) {
        for (const PoolOption& option : demand.pools)
            for (const std::int32_t node : table_->cluster->pools[as_index(option.pool)].nodes) {
                const int fits = holds(node);
                mask[node] = static_cast<std::int8_t>(fits);
                legal += fits;
            }
    };
    const std::int64_t cpus = demand.cpus, memory_mib = demand.memory_mib;
    if (demand.kind == DemandKind::cpu_only)  // without branches, which nobody could foresee
        mark([&](std::int32_t node) {
            return static_cast<int>(state.free_cpus(node) >= cpus) &
                   static_cast<int>(state.free_memory(node) >= memory_mib);
        });
    else
        mark([&](std::int32_t node) { return host_can_hold(demand, node) ? 1 : 0; });
    return legal;
}

// --- Masks ------------------------------------------------------------------------------------------------

// What fill_mask asks.
struct Environment::MaskView {
    Environment& env;
    bool blocking = env.spec_->step_mode == StepMode::blocking;

    std::size_t rows() const { return env.rows_.size(); }
    std::size_t pools() const { return env.table_->cluster->pools.size(); }
    bool startable(std::size_t row) const { return blocking || env.prospects_.fit(row).fits; }
    bool startable_in(std::size_t row, std::size_t pool) const {
        return env.pool_fits_[as_index(env.rows_[row]->demand) * pools() + pool] != 0;
    }
    bool base_starts() const { return env.prospects_.base_choice() >= 0; }
    bool anything_runs() const { return env.running_ > 0; }
};

void Environment::make_mask() {
    if (spec_->chooses_host()) {
        std::fill(mask_.begin(), mask_.end(), std::int8_t{0});
        real_legal_ = has_current_ ? mark_hosts(demand_of(rows_.front()->job)) : 0;
        return;
    }
    if (spec_->kind == EnvKind::select_job_and_pool) try_pools();
    real_legal_ = fill_mask(*spec_, MaskView{*this}, mask_);
}

// Which pools the demands of the window fit into, or in `blocking` mode could ever fit into.
void Environment::try_pools() {
    ++looks_;
    const std::size_t pools = table_->cluster->pools.size();
    pool_fits_.resize(jobs_->demands.size() * pools);
    looked_at_.resize(jobs_->demands.size(), 0);
    for (const WindowJob* row : rows_) {
        const std::size_t demand = as_index(row->demand);
        if (looked_at_[demand] == looks_) continue;
        looked_at_[demand] = looks_;
        for (std::size_t p = 0; p < pools; ++p) {
            const bool fits = spec_->step_mode == StepMode::blocking
                                  ? table_->ever_in_pool[demand * pools + p] != 0
                                  : place(row->job, static_cast<std::int32_t>(p), allocation_);
            pool_fits_[demand * pools + p] = fits ? 1 : 0;
        }
    }
}

// --- Observations and snapshots ---------------------------------------------------------------------------

void Environment::observe(const ObservationBuffers& out) {
    const Scene scene{simulator_.now(),
                      jobs_->epoch_us,
                      simulator_.state(),
                      rows_,
                      waiting_.count(),
                      waiting_milli_,
                      running_,
                      arrivals_.at(simulator_.now()),
                      user_share_,
                      group_share_,
                      prospects_,
                      occupancy_,
                      has_base_allocation_ ? &base_allocation_ : nullptr};
    observer_.write(scene, out);
}

QueuedJob Environment::queued(JobId job) const {
    const std::size_t i = as_index(job);
    return {.job = job,
            .submit_us = jobs_->submit_us[i],
            .estimate_us = jobs_->estimate_us[i],
            .demand = jobs_->demand[i],
            .user = jobs_->user_of(i),
            .group = jobs_->group_of(i),
            .association = jobs_->association_of(i),
            .priority = jobs_->priority_of(i),
            .deadline_us = jobs_->deadline_of(i),
            .row = jobs_->row[i],
            .queued_us = jobs_->submit_us[i],
            .prediction_us = prediction_us_[i]};
}

Snapshot Environment::snapshot() {
    find_predictions();
    find_fair_factors();
    return snapshot(waiting_jobs());
}

std::vector<JobId> Environment::waiting_jobs() const {
    std::vector<JobId> jobs;
    waiting_.visit([&](JobId job) {
        jobs.push_back(job);
        return true;
    });
    return jobs;
}

Snapshot Environment::snapshot(std::span<const JobId> jobs) const {
    Snapshot s(simulator_.state());
    const ClusterSpec& cluster = *table_->cluster;
    s.now_us = simulator_.now();
    s.calculated_us = calculated_us();
    s.instant = simulator_.instant();
    s.origin_s = jobs_->origin_s;
    s.epoch_us = jobs_->epoch_us;
    s.arrivals = arrivals_;
    s.settings = table_->settings;
    s.demands = std::shared_ptr<const std::vector<Demand>>(jobs_, &jobs_->demands);
    for (const JobId job : jobs) s.queue.push_back(queued(job));
    std::sort(s.queue.begin(), s.queue.end(), [](const QueuedJob& a, const QueuedJob& b) { return a.job < b.job; });
    for (std::int32_t queue = 0; queue < cluster.queues; ++queue) {
        simulator_.running(queue).jobs.visit_in_order([&](const RunningJob& job) {
            const std::size_t i = as_index(job.job);
            const auto parts = simulator_.parts_of(job.job);
            ActiveJob active = begun(queued(job.job), simulator_.record().start_us[i]);
            active.expected_end_us = job.expected_end_us;
            s.add_active(active, parts);
            return true;
        });
    }
    static_cast<Accounts&>(s) = accounts_;
    s.mix = mix_;
    const std::size_t nodes = cluster.node_count();
    s.power = {std::vector<std::int32_t>(nodes, 0), std::vector<Time>(nodes, 0), std::vector<Time>(nodes, 0)};
    s.finished_early.assign(as_index(cluster.queues), 0);
    return s;
}

// --- Policies that act ------------------------------------------------------------------------------------

std::int64_t Environment::row_of(JobId job) const {
    const auto found = std::find_if(rows_.begin(), rows_.end(), [&](const WindowJob* row) { return row->job == job; });
    return found == rows_.end() ? -1 : found - rows_.begin();
}

std::int64_t Environment::expert_action(const Policy& policy) {
    if (spec_->chooses_host()) return host_of(policy.placement);
    const bool by_pool = spec_->kind == EnvKind::select_job_and_pool;
    const auto pools = static_cast<std::int64_t>(spec_->sizes.pools);
    if (!by_pool && spec_->step_mode != StepMode::blocking && held_jobs_.empty() && same(policy, spec_->base)) {
        const std::int32_t choice = prospects_.base_choice();
        if (spec_->kind == EnvKind::accept_or_skip) return legal_instead(choice >= 0 ? 1 : 0);
        return legal_instead(choice >= 0 ? choice : noop());
    }
    find_what_is_remembered_for(policy.order);
    Policy acting = policy;
    if (!by_pool) acting.placement = spec_->base.placement;
    const Snapshot now = snapshot(window());
    if (spec_->step_mode == StepMode::blocking) {
        NativePolicy native(acting, now);
        for (const QueuedJob& job : now.queue) native.entered(job);
        const auto scores = native.scored_jobs();
        if (scores.empty()) return legal_instead(noop());
        const std::int64_t row = row_of(std::min_element(scores.begin(), scores.end())->second);
        if (!by_pool) return legal_instead(row);
        const WindowJob& job = *rows_[as_index(row)];
        Placer placer(policy.placement, spec_->settings->seed);
        placer.set_mix(&mix_);
        if (placer.place(simulator_.state(), demand_of(job.job), job.row, allocation_))
            return legal_instead(row * pools + table_->cluster->pool[as_index(allocation_.parts.front().node)]);
        for (const PoolOption& option : pools_of(demand_of(job.job), policy.placement))
            if (legal(row * pools + option.pool)) return row * pools + option.pool;
        return legal_instead(noop());
    }
    const Decision decision = decide(now, acting);
    if (spec_->kind == EnvKind::accept_or_skip) {
        const std::int32_t choice = prospects_.base_choice();
        const bool accepts =
            choice >= 0 && std::any_of(decision.starts.begin(), decision.starts.end(),
                                       [&](const Start& start) { return start.job == rows_[as_index(choice)]->job; });
        return legal_instead(accepts ? 1 : 0);
    }
    if (decision.starts.empty()) return legal_instead(noop());
    // Of the queues' first starts the one that comes first in the window.
    std::fill(queue_seen_.begin(), queue_seen_.end(), std::uint8_t{0});
    const Start* first = nullptr;
    for (const Start& start : decision.starts) {
        std::uint8_t& seen = queue_seen_[as_index(demand_of(start.job).queue)];
        if (!seen && (first == nullptr || row_of(start.job) < row_of(first->job))) first = &start;
        seen = 1;
    }
    const std::int64_t row = row_of(first->job);
    if (!by_pool) return legal_instead(row);
    return legal_instead(row * pools + table_->cluster->pool[as_index(first->parts.front().node)]);
}

}  // namespace gpuyard
