#include "simulator/profile.hpp"

#include <algorithm>
#include <utility>

#include "base/index.hpp"
#include "cluster/node_fit.hpp"

namespace gpuyard {

void PlanSource::take(const Snapshot& snapshot, std::int32_t queue) {
    now_us = snapshot.now_us;
    state = snapshot.state;
    running.clear();
    for (const ActiveJob& job : snapshot.active)
        if (snapshot.demand(job.demand).queue == queue && job.expected_end_us != kEndless)
            running.push_back({job.expected_end_us, job.demand, job.part_count, job.first_part});
}

bool counts_cpus_or_memory(const ClusterSpec& spec, std::span<const Demand> demands) {
    if (std::none_of(demands.begin(), demands.end(), [](const Demand& d) { return d.limited; })) return false;
    if (spec.given_cpus > 0 || spec.given_memory_mib > 0) return true;
    // Where nodes have no limits, jobs with GPUs meet none: a node holds no more of them than it has GPUs.
    const std::int64_t most = kUnlimited / (1 + *std::max_element(spec.size.begin(), spec.size.end()));
    return std::any_of(demands.begin(), demands.end(), [&](const Demand& d) {
        return d.kind == DemandKind::cpu_only || d.cpus >= most || d.memory_mib >= most;
    });
}

Profile::Profile(std::shared_ptr<const ClusterSpec> spec, bool limited, std::span<const Demand> demands,
                 const Placer& placer)
    : spec_(spec),
      limited_(limited),
      needs_only_room_(placer.needs_only_room()),
      splits_freely_(splits_freely(placer.rule())),
      rule_(placer.rule()),
      counts_(std::any_of(demands.begin(), demands.end(), [&](const Demand& d) { return !searches_nodes(d); })),
      notes_whole_(std::any_of(demands.begin(), demands.end(), [&](const Demand& d) { return takes_whole_nodes(d); })),
      steps_(spec->node_count()),
      least_empty_(spec->node_count()),
      least_cpus_(limited ? spec->node_count() : 0),
      least_memory_mib_(limited ? spec->node_count() : 0),
      window_(spec),
      whole_nodes_(spec->pools.size()) {}

void Profile::build(const PlanSource& source, const Snapshot& snapshot) {
    const ClusterState& state = source.state;
    window_ = state;
    time_us_.assign(1, source.now_us);
    ends_.assign(1, 0);
    begins_.assign(1, 0);
    count_.assign(spec_->buckets, 0);
    pool_empty_.assign(spec_->pools.size(), 0);
    for (std::size_t pool = 0; pool < spec_->pools.size(); ++pool)
        pool_empty_[pool] = state.pool_empty(static_cast<std::int32_t>(pool));
    for (std::size_t i = 0; i < spec_->node_count(); ++i) {
        const auto node = static_cast<std::int32_t>(i);
        const std::int32_t empty = state.empty(node);
        steps_[i].assign(1, {source.now_us, empty, state.free_cpus(node), state.free_memory(node)});
        if (state.available(node)) ++count_[spec_->pools[as_index(spec_->pool[i])].first_bucket + as_index(empty)];
    }
    for (std::size_t pool = 0; pool < spec_->pools.size() && notes_whole_; ++pool)
        whole_nodes_[pool].clear(spec_->pools[pool].nodes.size());
    for (std::size_t i = 0; i < spec_->node_count() && notes_whole_; ++i) note_whole(static_cast<std::int32_t>(i));
    by_end_.assign(source.running.begin(), source.running.end());
    std::sort(by_end_.begin(), by_end_.end(), [](const PlanSource::Held& a, const PlanSource::Held& b) {
        return a.expected_end_us < b.expected_end_us;
    });
    for (const PlanSource::Held& job : by_end_) {
        const Time end = std::max(job.expected_end_us, source.now_us + 1);
        // Released for good: as if a reservation began to hold less there.
        const std::size_t at = counts_ ? row_at(end) : 0;
        ++ends_[at];
        for (const Part& part : std::span(snapshot.parts).subspan(job.first_part, job.part_count)) {
            const Demand& demand = snapshot.demand(job.demand);
            const std::int32_t share = part.gpus > 0 ? part.gpus : 1;
            change_node(part.node, {end, kEndless, at, rows(), part.gpus, limited_ ? demand.cpus_for(share) : 0,
                                    limited_ ? demand.memory_for(share) : 0});
        }
    }
}

void Profile::erase_rows(std::size_t first, std::size_t count) {
    const auto erase = [&](auto& column, std::size_t width) {
        const auto begin = column.begin() + static_cast<std::ptrdiff_t>(first * width);
        column.erase(begin, begin + static_cast<std::ptrdiff_t>(count * width));
    };
    erase(time_us_, 1);
    erase(ends_, 1);
    erase(begins_, 1);
    erase(count_, spec_->buckets);
    erase(pool_empty_, spec_->pools.size());
}

void Profile::advance(Time now_us) {
    std::size_t gone = 0;
    while (gone + 1 < rows() && time_us_[gone + 1] <= now_us) ++gone;
    erase_rows(0, gone);
    time_us_.front() = now_us;
}

// The row that begins at this time, made if there is none.
std::size_t Profile::row_at(Time time_us) {
    const auto found = std::lower_bound(time_us_.begin(), time_us_.end(), time_us);
    const auto at = as_index(found - time_us_.begin());
    if (found != time_us_.end() && *found == time_us) return at;
    const auto repeat = [&](auto& column, std::size_t width) {
        const auto place = column.begin() + static_cast<std::ptrdiff_t>(at * width);
        const auto made = column.insert(place, width, {});
        std::copy_n(made - static_cast<std::ptrdiff_t>(width), width, made);
    };
    time_us_.insert(found, time_us);
    ends_.insert(ends_.begin() + static_cast<std::ptrdiff_t>(at), 0);
    begins_.insert(begins_.begin() + static_cast<std::ptrdiff_t>(at), 0);
    repeat(count_, spec_->buckets);
    repeat(pool_empty_, spec_->pools.size());
    return at;
}

// The step that begins at this time, made if there is none.
std::size_t Profile::step_at(std::vector<Step>& steps, Time time_us) {
    const auto behind = std::upper_bound(steps.begin(), steps.end(), time_us,
                                         [](Time time, const Step& step) { return time < step.time_us; });
    const auto at = as_index(behind - steps.begin());
    if (steps[at - 1].time_us == time_us) return at - 1;
    Step made = steps[at - 1];
    made.time_us = time_us;
    steps.insert(behind, made);
    return at;
}

void Profile::change_node(std::int32_t node, const Change& change) {
    std::vector<Step>& steps = steps_[as_index(node)];
    std::size_t gone = 0;
    while (gone + 1 < steps.size() && steps[gone + 1].time_us <= time_us_.front()) ++gone;
    steps.erase(steps.begin(), steps.begin() + static_cast<std::ptrdiff_t>(gone));
    const std::size_t first = step_at(steps, change.begin_us);
    const std::size_t last = change.end_us == kEndless ? steps.size() : step_at(steps, change.end_us);
    const auto pool = as_index(spec_->pool[as_index(node)]);
    std::size_t row = change.from;
    for (std::size_t i = first; i < last && counts_; ++i) {
        const Time until = i + 1 < last ? steps[i + 1].time_us : change.end_us;
        std::int32_t* count = count_.data() + row * spec_->buckets + spec_->pools[pool].first_bucket;
        for (; row < change.to && time_us_[row] < until; ++row, count += spec_->buckets) {
            --count[steps[i].empty];
            ++count[steps[i].empty + change.empty];
            pool_empty_[row * spec_->pools.size() + pool] += change.empty;
        }
    }
    for (std::size_t i = first; i < last; ++i) {
        steps[i].empty += change.empty;
        steps[i].cpus += change.cpus;
        steps[i].memory_mib += change.memory_mib;
    }
    // A step at which nothing changes any more says what the one before it says.
    const auto merge = [&](std::size_t i) {
        if (i > 0 && i < steps.size() && steps[i].same_free(steps[i - 1]))
            steps.erase(steps.begin() + static_cast<std::ptrdiff_t>(i));
    };
    merge(last);
    merge(first);
    if (notes_whole_) note_whole(node);
}

void Profile::note_whole(std::int32_t node) {
    const std::int32_t size = spec_->size[as_index(node)];
    Time from = kEndless;
    gaps_.clear();
    if (window_.available(node))
        for (const Step& step : steps_[as_index(node)]) {
            const bool whole = step.empty >= size;
            if (!whole && from != kEndless) gaps_.push_back({from, step.time_us});
            from = whole ? std::min(from, step.time_us) : kEndless;
        }
    spec_->visit_pools(node, [&](const ClusterSpec::Membership& in) {
        whole_nodes_[as_index(in.pool)].set(as_index(in.position), gaps_, from);
    });
}

void Profile::change(Time begin_us, Time end_us, const Demand& demand, std::span<const Part> parts, std::int32_t sign) {
    std::size_t from = 0, to = rows();
    if (counts_) {
        from = row_at(begin_us);
        begins_[from] -= sign;
        if (end_us != kEndless) {
            to = row_at(end_us);
            ends_[to] -= sign;
        }
    }
    for (const Part& part : parts) {
        const std::int32_t share = part.gpus > 0 ? part.gpus : 1;
        change_node(part.node,
                    {begin_us, end_us, from, to, sign * part.gpus, limited_ ? sign * demand.cpus_for(share) : 0,
                     limited_ ? sign * demand.memory_for(share) : 0});
    }
    if (!counts_) return;
    if (to < rows()) drop_if_idle(to);
    drop_if_idle(from);
}

// A row at which nothing begins or ends any more says what the one before it says. Were these kept, an order that
// changes with every arrival would leave more of them behind with each plan it gives up.
void Profile::drop_if_idle(std::size_t at) {
    if (at > 0 && begins_[at] <= 0 && ends_[at] <= 0) erase_rows(at, 1);
}

// False only if the job cannot be placed while no more than this is free.
bool Profile::may_fit(std::size_t row, const Demand& demand, const Placer& placer) const {
    if (demand.kind == DemandKind::cpu_only) return true;
    std::int64_t free = 0;
    for (const PoolOption& option : demand.pools) {
        const Pool& pool = spec_->pools[as_index(option.pool)];
        const std::int32_t* count = count_.data() + row * spec_->buckets + pool.first_bucket;
        const std::int64_t here = pool_empty_[row * spec_->pools.size() + as_index(option.pool)];
        free += here;
        if (demand.nodes > 0) {
            if (enough_nodes(demand, pool.size, [&](std::int32_t empty) { return count[empty]; })) return true;
            continue;
        }
        if (splits_freely(placer.rule()) || here < demand.gpus) continue;
        if (!placer.needs_only_room()) return true;
        const std::int32_t whole = count[pool.size];
        if (whole < option.full_nodes) continue;
        if (option.remainder == 0 || whole > option.full_nodes) return true;
        for (std::int32_t empty = option.remainder; empty < pool.size; ++empty)
            if (count[empty] > 0) return true;
    }
    return demand.nodes == 0 && splits_freely(placer.rule()) && free >= demand.gpus;
}

// Sets `window_` to the least that each node has free at any moment of a time span.
void Profile::least_free(Time begin_us, Time end_us) {
    for (std::size_t node = 0; node < steps_.size(); ++node) {
        const std::vector<Step>& steps = steps_[node];
        auto step = std::upper_bound(steps.begin(), steps.end(), begin_us,
                                     [](Time time, const Step& s) { return time < s.time_us; }) -
                    1;
        Step least = *step;
        for (++step; step != steps.end() && step->time_us < end_us; ++step) {
            least.empty = std::min(least.empty, step->empty);
            least.cpus = std::min(least.cpus, step->cpus);
            least.memory_mib = std::min(least.memory_mib, step->memory_mib);
        }
        least_empty_[node] = static_cast<std::int32_t>(least.empty);
        if (!limited_) continue;
        least_cpus_[node] = least.cpus;
        least_memory_mib_[node] = least.memory_mib;
    }
    window_.set_free(least_empty_, least_cpus_, least_memory_mib_);
}

// `to` is where a row blocks the job.
Profile::Fit Profile::fit_from(std::size_t from, std::size_t& to, Time length_us, const Demand& demand,
                               std::int64_t row, Placer& placer, Allocation& out) {
    const Time end = expected_end(time_us_[from], length_us);
    to = from;
    while (to < rows() && time_us_[to] < end && may_fit(to, demand, placer)) ++to;
    if (to < rows() && time_us_[to] < end) return Fit::blocked;
    least_free(time_us_[from], end);
    return placer.place(window_, demand, row, out) ? Fit::fits : Fit::misfit;
}

bool Profile::fits_at_once(Time length_us, const Demand& demand, Placer& placer, Allocation& out) {
    if (takes_whole_nodes(demand))
        return find_whole_nodes(length_us, demand, time_us_.front(), time_us_.front(), out) != kEndless;
    if (searches_nodes(demand)) {
        out.parts.clear();
        return std::any_of(demand.pools.begin(), demand.pools.end(), [&](const PoolOption& option) {
            return has_room_at_once(option, expected_end(time_us_.front(), length_us), out.parts);
        });
    }
    std::size_t to = 0;
    return fit_from(0, to, length_us, demand, 0, placer, out) == Fit::fits;
}

Time Profile::find(Time length_us, const Demand& demand, std::int64_t row, Time not_before_us, Time latest_us,
                   Placer& placer, Allocation& out) {
    if (searches_nodes(demand)) {
        if (ranks_nodes(demand)) return find_on_one_node(length_us, demand, not_before_us, latest_us, out);
        if (takes_whole_nodes(demand)) return find_whole_nodes(length_us, demand, not_before_us, latest_us, out);
        Time first = latest_us;
        for (const PoolOption& option : demand.pools)
            first = std::min(first, first_in_pool(option, length_us, std::max(not_before_us, time_us_.front()), first));
        if (first == kEndless) return kEndless;
        least_free(first, expected_end(first, length_us));
        return placer.place(window_, demand, row, out) ? first : kEndless;
    }
    const auto first = std::lower_bound(time_us_.begin(), time_us_.end(), not_before_us);
    for (std::size_t from = as_index(first - time_us_.begin()); from < rows(); ++from) {
        if (from > 0 && ends_[from] == 0) continue;
        std::size_t to = from;
        const Fit fit = fit_from(from, to, length_us, demand, row, placer, out);
        if (fit == Fit::fits) return time_us_[from];
        if (fit == Fit::blocked) from = to;  // whatever begins up to here has this row in its time
    }
    return kEndless;
}

}  // namespace gpuyard
