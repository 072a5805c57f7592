#include "env/reward.hpp"

#include <algorithm>

#include "base/index.hpp"

namespace gpuyard {

namespace {

constexpr Time kBound = 10'000'000;  // run times below 10 s count as 10 s

// When the bounded slowdown of a waiting job begins to exceed 1.
Time grows_from(const JobTable& jobs, JobId job) {
    const std::size_t i = as_index(job);
    return jobs.submit_us[i] + std::max(Time{0}, kBound - jobs.duration_us[i]);
}

double growth_rate(const JobTable& jobs, JobId job) {
    return 1.0 / seconds(std::max(jobs.duration_us[as_index(job)], kBound));
}

}  // namespace

double load_variance(const ClusterState& state) {
    const ClusterSpec& spec = state.spec();
    double count = 0.0, sum = 0.0, squares = 0.0;
    const auto visit_all = [&](auto add) {
        for (const Pool& pool : spec.pools) {
            if (pool.size == 0) continue;
            const auto size = static_cast<double>(pool.size);
            // Nodes with as many empty GPUs are alike, unless parts of GPUs are in use.
            for (std::int32_t empty = 0; !spec.track_gpus && empty <= pool.size; ++empty)
                add(static_cast<double>(state.bucket_count(pool, empty)),
                    static_cast<double>(pool.size - empty) / size);
            for (std::size_t i = 0; spec.track_gpus && i < pool.nodes.size(); ++i)
                add(1.0, (size - static_cast<double>(state.free_milli(pool.nodes[i])) / 1000.0) / size);
        }
        for (std::size_t node = 0; spec.total_gpus == 0 && node < spec.node_count(); ++node)
            if (spec.cpus[node] != kUnlimited && spec.cpus[node] > 0)
                add(1.0, static_cast<double>(spec.cpus[node] - state.free_cpus(static_cast<std::int32_t>(node))) /
                             static_cast<double>(spec.cpus[node]));
    };
    visit_all([&](double nodes, double used) {
        count += nodes;
        sum += nodes * used;
    });
    if (count == 0.0) return 0.0;
    const double mean = sum / count;
    visit_all([&](double nodes, double used) { squares += nodes * ((used - mean) * (used - mean)); });
    return squares / count;
}

void Rewards::reset(const JobTable& jobs, const ClusterState& state, std::int64_t warmup, std::int64_t own_to) {
    jobs_ = &jobs;
    state_ = &state;
    terms_.fill(0.0);
    own_to_ = own_to;
    const std::size_t count = as_index(own_to);
    own_jobs_ = static_cast<double>(own_to - warmup);
    share_.assign(jobs.submit_us.size(), 0.0);
    counts_gpus_ = false;
    for (std::size_t i = as_index(warmup); i < count; ++i) counts_gpus_ = counts_gpus_ || jobs.demand_of(i).gpus > 0;
    work_ = 0.0;
    for (std::size_t i = 0; i < count; ++i) {
        const Demand& demand = jobs.demand_of(i);
        share_[i] = (counts_gpus_ ? demand.size_gpus : static_cast<double>(demand.cpus)) * seconds(jobs.duration_us[i]);
        if (i >= as_index(warmup)) work_ += share_[i];
    }
    for (double& share : share_) share = work_ > 0.0 ? share / work_ : 0.0;
    in_system_ = waiting_ = 0;
    slowdown_rate_ = waiting_share_ = unfinished_share_ = 0.0;
    for (const double share : share_) unfinished_share_ += share;
    delayed_.clear();
    held_cpus_ = 0;
    speed_sum_ = 0.0;
    for (const Pool& pool : state.spec().pools)
        speed_sum_ += static_cast<double>(static_cast<std::int64_t>(pool.nodes.size()) * pool.size) * pool.speed;
    user_milli_.assign(as_index(jobs.users), 0);
    user_jobs_.assign(as_index(jobs.users), 0);
    users_in_system_ = milli_sum_ = 0;
    milli_squares_ = 0.0;
}

void Rewards::arrived(JobId job) {
    if (user_jobs_[as_index(jobs_->user_of(as_index(job)))]++ == 0) ++users_in_system_;
    if (!counts(job)) return;
    ++in_system_;
    ++waiting_;
    waiting_share_ += share(job);
    if (jobs_->duration_us[as_index(job)] < kBound)
        delayed_.push_back(job);
    else
        slowdown_rate_ += growth_rate(*jobs_, job);
}

void Rewards::hold(JobId job, std::span<const Part> parts, std::int64_t sign) {
    const Demand& demand = jobs_->demand_of(as_index(job));
    if (demand.cpus > 0)
        for (const Part& part : parts)
            if (state_->spec().cpus[as_index(part.node)] != kUnlimited)
                held_cpus_ += sign * demand.cpus_for(part.gpus > 0 ? part.gpus : 1);
    std::int64_t& milli = user_milli_[as_index(jobs_->user_of(as_index(job)))];
    const auto before = static_cast<double>(milli);
    milli += sign * demand.total_milli();
    milli_sum_ += sign * demand.total_milli();
    milli_squares_ += static_cast<double>(milli) * static_cast<double>(milli) - before * before;
}

void Rewards::started(JobId job, std::span<const Part> parts) {
    hold(job, parts, +1);
    if (!counts(job)) return;
    --waiting_;
    waiting_share_ -= share(job);
    const auto delayed = std::find(delayed_.begin(), delayed_.end(), job);
    if (delayed != delayed_.end())
        delayed_.erase(delayed);
    else
        slowdown_rate_ -= growth_rate(*jobs_, job);
    if (waiting_ == 0) slowdown_rate_ = waiting_share_ = 0.0;  // what rounding left
}

void Rewards::finished(JobId job, std::span<const Part> parts, bool completed) {
    hold(job, parts, -1);
    if (--user_jobs_[as_index(jobs_->user_of(as_index(job)))] == 0) --users_in_system_;
    if (!counts(job)) return;
    --in_system_;
    unfinished_share_ -= share(job);
    add(Term::completed_work, share(job));
    if (completed) add(Term::completions, jobs_->priority_of(as_index(job)));
}

void Rewards::pass_slowdown(Time from_us, Time to_us, double dt) {
    add(Term::slowdown, -(slowdown_rate_ * dt));
    for (std::size_t i = 0; i < delayed_.size();) {
        const Time from = std::max(from_us, grows_from(*jobs_, delayed_[i]));
        if (from > to_us) {
            ++i;
            continue;
        }
        const double rate = growth_rate(*jobs_, delayed_[i]);
        add(Term::slowdown, -(rate * seconds(to_us - from)));
        slowdown_rate_ += rate;
        delayed_[i] = delayed_.back();
        delayed_.pop_back();
    }
}

double Rewards::unfairness() const {
    if (milli_sum_ == 0) return 0.0;
    const auto sum = static_cast<double>(milli_sum_);
    return 1.0 - sum * sum / (static_cast<double>(users_in_system_) * milli_squares_);
}

void Rewards::pass(Time from_us, Time to_us) {
    const double dt = seconds(to_us - from_us);
    add(Term::jct, -(static_cast<double>(in_system_) * dt));
    add(Term::wait, -(static_cast<double>(waiting_) * dt));
    pass_slowdown(from_us, to_us, dt);
    add(Term::waiting_work, -(waiting_share_ * dt));
    add(Term::makespan, -dt);
    const ClusterSpec& spec = state_->spec();
    if (uses(Term::utilization) || uses(Term::flops_utilization)) {
        double held = 0.0, flops = 0.0;
        for (std::size_t p = 0; p < spec.pools.size(); ++p) {
            const Pool& pool = spec.pools[p];
            const std::int64_t all = static_cast<std::int64_t>(pool.nodes.size()) * pool.size * 1000;
            const double busy =
                static_cast<double>(all - state_->pool_free_milli(static_cast<std::int32_t>(p))) / 1000.0;
            held += busy;
            flops += busy * pool.speed;
        }
        if (spec.total_gpus > 0) {
            add(Term::utilization, held / static_cast<double>(spec.total_gpus) * dt);
            add(Term::flops_utilization, flops / speed_sum_ * dt);
        }
    }
    if (spec.given_cpus > 0)
        add(Term::cpu_utilization, static_cast<double>(held_cpus_) / static_cast<double>(spec.given_cpus) * dt);
    if (uses(Term::energy))
        add(Term::energy, -(static_cast<double>(spec.idle_mw + state_->busy_mw()) / 1000.0 * dt / 3.6e6));
    if (uses(Term::load_balance)) add(Term::load_balance, -(load_variance(*state_) * dt));
    if (uses(Term::fairness)) add(Term::fairness, -(unfairness() * dt));
}

double Rewards::take() {
    if (spec_.per_job)
        for (const Term term : {Term::jct, Term::wait, Term::slowdown, Term::completions})
            terms_[static_cast<std::size_t>(term)] /= own_jobs_;
    double sum = 0.0;
    for (std::size_t i = 0; i < kTerms; ++i) sum += spec_.weights[i] * terms_[i];
    terms_.fill(0.0);
    return sum;
}

}  // namespace gpuyard
