#include "observation/prospects.hpp"

#include <algorithm>
#include <bit>

#include "base/index.hpp"

namespace gpuyard {

namespace {

std::int32_t fragment(std::int32_t empty, std::int32_t size) { return empty < size ? empty : 0; }

// How many more empty GPUs lie on partly used nodes once the allocation is held.
std::int32_t growth(const ClusterState& state, const Demand& demand, const Allocation& allocation) {
    std::int32_t sum = 0;
    for (const Part& part : allocation.parts) {
        const std::int32_t size = state.spec().size[as_index(part.node)];
        const std::int32_t before = state.empty(part.node);
        std::int32_t taken = part.gpus;
        if (demand.kind == DemandKind::shared && state.gpu_free(part.node, std::countr_zero(part.gpu_mask)) != 1000)
            taken = 0;
        sum += fragment(before - taken, size) - fragment(before, size);
    }
    return sum;
}

bool is_easy(Backfill backfill) { return backfill == Backfill::easy || backfill == Backfill::easy_sjf; }

}  // namespace

std::int64_t fragmented_gpus(const ClusterState& state) {
    std::int64_t sum = 0;
    for (const Pool& pool : state.spec().pools)
        for (std::int32_t empty = 1; empty < pool.size; ++empty)
            sum += std::int64_t{empty} * state.bucket_count(pool, empty);
    return sum;
}

Prospects::Prospects(const Policy& base, const Settings& settings, bool wants_starts)
    : base_(base),
      settings_(settings),
      placer_(base.placement, settings.seed),
      wants_starts_(wants_starts) {}

void Prospects::reset(const ClusterState& state, std::span<const Demand> demands, const ClusterScale& scale) {
    if (demands.data() != demands_.data() || demands.size() != demands_.size()) {
        by_demand_.assign(demands.size(), Fit{});
        if (wants_starts_) start_of_demand_.assign(demands.size(), KnownStart{});
    }
    demands_ = demands;
    spec_ = &state.spec();
    scale_ = &scale;
    ++version_;
    starts_make_room_ = std::any_of(demands.begin(), demands.end(),
                                    [&](const Demand& d) { return starts_may_make_room(base_.placement, d); });
    shadows_.resize(as_index(state.spec().queues), QueueShadow(state.shared_spec()));
    for (QueueShadow& shadow : shadows_) shadow.head = -1;
}

void Prospects::finished(std::int32_t queue, Time expected_end_us, Time now_us) {
    ++version_;
    // A job that ends when it was expected to, and not after the shadow time, leaves the state at that time as it was.
    QueueShadow& known = shadows_[as_index(queue)];
    if (expected_end_us > now_us || known.shadow.time() < now_us) known.head = -1;
}

void Prospects::started(const WindowJob& job, const Allocation& allocation, Time expected_end_us) {
    ++version_;
    const Demand& demand = demands_[as_index(job.demand)];
    QueueShadow& known = shadow_of(demand);
    if (known.head < 0) return;
    if (known.head == job.job || starts_make_room_) {
        known.head = -1;
        return;
    }
    if (expected_end_us <= known.shadow.time()) return;
    if (known.shadow.leaves_room(demands_[as_index(known.demand)], placer_, demand, allocation.parts))
        known.shadow.started(expected_end_us, demand, allocation.parts);
    else
        known.head = -1;
}

void Prospects::fill(Fit& fit, const ClusterState& state, const Demand& demand, std::int64_t row) {
    fit.version = version_;
    fit.fits = placer_.place(state, demand, row, fit.allocation);
    const ClusterSpec& spec = state.spec();
    double speed = demand.gpus > 0 ? spec.pools[as_index(first_pool(demand).pool)].speed : 1.0;
    fit.free_after = 0.0F;
    fit.fragmentation = 0.0F;
    if (fit.fits) {
        speed = fit.allocation.speed;
        std::int64_t free_milli = 0;
        std::int64_t gpus = demand.allowed_gpus;
        if (fit.allocation.pool >= 0) {
            const Pool& pool = spec.pools[as_index(fit.allocation.pool)];
            free_milli = state.pool_free_milli(fit.allocation.pool);
            gpus = static_cast<std::int64_t>(pool.nodes.size()) * pool.size;
        } else {
            for (const PoolOption& option : demand.pools) free_milli += state.pool_free_milli(option.pool);
        }
        const double free = static_cast<double>(free_milli) / 1000.0;
        fit.free_after = static_cast<float>(quotient(free - demand.size_gpus, static_cast<double>(gpus)));
        fit.fragmentation =
            static_cast<float>(quotient(static_cast<double>(growth(state, demand, fit.allocation)), scale_->gpus));
    }
    fit.speed = static_cast<float>(speed / scale_->top_speed);
    fit.takes_estimate = speed == 1.0 && (!fit.fits || std::ssize(fit.allocation.parts) == fit.allocation.fewest_nodes);
}

Time Prospects::expected_run(const WindowJob& job, const Fit& fit) const {
    if (fit.fits) return fit.allocation.run_time(job.estimate_us, settings_.locality_penalty);
    const Demand& demand = demands_[as_index(job.demand)];
    const std::int32_t nodes = first_pool(demand).fewest_nodes;
    const double speed = demand.gpus > 0 ? spec_->pools[as_index(first_pool(demand).pool)].speed : 1.0;
    return run_time(job.estimate_us, speed, nodes, nodes, settings_.locality_penalty);
}

void Prospects::try_rows(const ClusterState& state, std::span<const WindowJob* const> rows) {
    if (by_row_.size() < rows.size()) by_row_.resize(rows.size());
    fits_.resize(rows.size());
    before_shadow_.resize(rows.size());
    if (base_.placement == Placement::random) {  // which differs from job to job
        for (std::size_t i = 0; i < rows.size(); ++i)
            fill(by_row_[i], state, demands_[as_index(rows[i]->demand)], rows[i]->row);
        for (std::size_t i = 0; i < rows.size(); ++i) fits_[i] = &by_row_[i];
        return;
    }
    for (std::size_t i = 0; i < rows.size(); ++i) {
        Fit& fit = by_demand_[as_index(rows[i]->demand)];
        if (fit.version != version_) fill(fit, state, demands_[as_index(rows[i]->demand)], rows[i]->row);
        fits_[i] = &fit;
    }
}

void Prospects::look(Time now_us, const ClusterState& state, std::span<const WindowJob* const> rows,
                     std::span<const std::uint8_t> held, const RunningOf& running) {
    find_heads(now_us, state, rows, running);
    find_base_choice(now_us, state, rows, held);
    if (wants_starts_) find_starts(now_us, state, rows, running);
}

void Prospects::find_starts(Time now_us, const ClusterState& state, std::span<const WindowJob* const> rows,
                            const RunningOf& running) {
    unknown_.resize(as_index(state.spec().queues));
    for (std::size_t i = 0; i < rows.size(); ++i) {
        KnownStart& known = start_of_demand_[as_index(rows[i]->demand)];
        // Behind that time jobs that were expected to end one after another count as ending together: look again.
        if (fits_[i]->fits || (known.version == version_ && known.time_us >= now_us)) continue;
        known = {version_, kEndless};
        unknown_[as_index(demands_[as_index(rows[i]->demand)].queue)].push_back(rows[i]->demand);
    }
    last_end_us_ = 0;
    for (std::int32_t queue = 0; queue < state.spec().queues; ++queue) {
        const Running now = running(queue);
        if (const RunningJob* const last = now.jobs.last())
            last_end_us_ = std::max(last_end_us_, last->expected_end_us);
        if (!unknown_[as_index(queue)].empty()) sweep(now_us, state, now, unknown_[as_index(queue)]);
        unknown_[as_index(queue)].clear();
    }
    starts_.resize(rows.size());
    sizes_.resize(rows.size());
    for (std::size_t i = 0; i < rows.size(); ++i) {
        starts_[i] = fits_[i]->fits ? now_us : start_of_demand_[as_index(rows[i]->demand)].time_us;
        sizes_[i] = demands_[as_index(rows[i]->demand)].size_gpus;
    }
}

// One walk through the ends of running jobs for all demands: at each the smaller ones that have room are tried.
void Prospects::sweep(Time now_us, const ClusterState& state, const Running& running,
                      std::vector<std::int32_t>& wanted) {
    const auto milli = [&](std::int32_t demand) { return demands_[as_index(demand)].total_milli(); };
    std::sort(wanted.begin(), wanted.end(),
              [&](std::int32_t a, std::int32_t b) { return milli(a) != milli(b) ? milli(a) < milli(b) : a < b; });
    later_ = state;
    std::int64_t free_milli = 0;
    for (std::size_t pool = 0; pool < state.spec().pools.size(); ++pool)
        free_milli += state.pool_free_milli(static_cast<std::int32_t>(pool));
    const auto try_all = [&](Time end_us) {
        std::size_t kept = 0;
        for (std::size_t i = 0; i < wanted.size(); ++i) {
            const bool has_room = milli(wanted[i]) <= free_milli;
            if (has_room && placer_.placeable(*later_, demands_[as_index(wanted[i])]))
                start_of_demand_[as_index(wanted[i])].time_us = end_us;
            else
                wanted[kept++] = wanted[i];
            if (!has_room) {
                while (++i < wanted.size()) wanted[kept++] = wanted[i];
            }
        }
        wanted.resize(kept);
    };
    Time released_us = kEndless;  // the expected end up to which jobs are released; kEndless = none is
    running.jobs.visit_in_order([&](const RunningJob& job) {
        const Time end = std::max(job.expected_end_us, now_us);
        if (end != released_us && released_us != kEndless) try_all(released_us);
        if (wanted.empty() || end == kEndless) {
            released_us = kEndless;
            return false;
        }
        const Demand& demand = demands_[as_index(job.demand)];
        later_->release(demand, running.parts_of(job));
        free_milli += demand.total_milli();
        released_us = end;
        return true;
    });
    if (released_us != kEndless) try_all(released_us);
}

void Prospects::find_heads(Time now_us, const ClusterState& state, std::span<const WindowJob* const> rows,
                           const RunningOf& running) {
    for (QueueShadow& shadow : shadows_) shadow.row = -1;
    has_head_ = false;
    for (std::size_t i = 0; i < rows.size(); ++i) {
        if (fits_[i]->fits) continue;
        const Demand& demand = demands_[as_index(rows[i]->demand)];
        QueueShadow& known = shadow_of(demand);
        if (known.row >= 0) continue;
        known.row = static_cast<std::int32_t>(i);
        if (known.head != rows[i]->job || known.shadow.time() < now_us) {
            known.shadow.compute(now_us, demand, placer_, state, running(demand.queue));
            known.head = rows[i]->job;
            known.demand = rows[i]->demand;
        }
        if (!has_head_) shadow_us_ = known.shadow.time();
        has_head_ = true;
        if (shadows_.size() == 1) break;
    }
    if (!has_head_) {
        std::fill(before_shadow_.begin(), before_shadow_.end(), std::uint8_t{1});
        return;
    }
    const bool one_queue = shadows_.size() == 1;
    for (std::size_t i = 0; i < rows.size(); ++i) {
        const QueueShadow& known = one_queue ? shadows_.front() : shadow_of(demands_[as_index(rows[i]->demand)]);
        const Time run = fits_[i]->takes_estimate ? rows[i]->estimate_us : expected_run(*rows[i], *fits_[i]);
        before_shadow_[i] = known.row < 0 || expected_end(now_us, run) <= known.shadow.time() ? 1 : 0;
    }
}

bool Prospects::may_start(std::size_t row, const WindowJob& job, Time now_us, const ClusterState& state,
                          bool behind_head) {
    const Demand& demand = demands_[as_index(job.demand)];
    const Fit& fit = *fits_[row];
    if (!base_.is_aged(now_us, job.submit_us) &&
        !Gate(base_.express, state, demand, fit.allocation).admits(job.estimate_us))
        return false;
    if (!behind_head || !is_easy(base_.backfill)) return true;
    QueueShadow& known = shadow_of(demand);
    const Time end = expected_end(now_us, expected_run(job, fit));
    return end <= known.shadow.time() ||
           known.shadow.leaves_room(demands_[as_index(known.demand)], placer_, demand, fit.allocation.parts);
}

bool Prospects::nobody_passes(const WindowJob& head, Time now_us) const {
    return base_.backfill == Backfill::strict ||
           (base_.backfill == Backfill::greedy && base_.is_aged(now_us, head.submit_us));
}

void Prospects::find_base_choice(Time now_us, const ClusterState& state, std::span<const WindowJob* const> rows,
                                 std::span<const std::uint8_t> held) {
    // Each queue's own next start; of these, the one that comes first in the window.
    for (QueueShadow& queue : shadows_) queue.choice = -1;
    for (std::size_t i = 0; i < rows.size(); ++i) {
        QueueShadow& queue = shadow_of(demands_[as_index(rows[i]->demand)]);
        const bool behind_head = queue.row >= 0 && queue.row < static_cast<std::int32_t>(i);
        if (!fits_[i]->fits || (behind_head && nobody_passes(*rows[as_index(queue.row)], now_us))) continue;
        if (!held.empty() && held[i]) continue;
        if (queue.choice >= 0) {
            const bool by_estimate = behind_head && base_.backfill == Backfill::easy_sjf && queue.choice > queue.row &&
                                     !base_.is_aged(now_us, rows[as_index(queue.choice)]->submit_us);
            if (!by_estimate || rows[i]->estimate_us >= rows[as_index(queue.choice)]->estimate_us) continue;
        }
        if (may_start(i, *rows[i], now_us, state, behind_head)) queue.choice = static_cast<std::int32_t>(i);
        if (queue.choice >= 0 && shadows_.size() == 1 && base_.backfill != Backfill::easy_sjf) break;
    }
    base_choice_ = -1;
    for (const QueueShadow& queue : shadows_)
        if (queue.choice >= 0 && (base_choice_ < 0 || queue.choice < base_choice_)) base_choice_ = queue.choice;
}

}  // namespace gpuyard
