// In which order a NativePolicy considers the jobs of a queue.
#include <algorithm>
#include <cmath>
#include <limits>

#include "base/index.hpp"
#include "simulator/native_policy.hpp"

namespace gpuyard {

namespace {

constexpr double kFirst = -std::numeric_limits<double>::infinity();  // the score of aged jobs

}  // namespace

Moment NativePolicy::moment() const {
    return {.now_us = snapshot_.now_us,
            .instant = snapshot_.instant,
            .seed = settings_.seed,
            .origin_s = snapshot_.origin_s,
            .cluster_gpus = static_cast<double>(snapshot_.state.spec().total_gpus),
            .settings = &settings_,
            .gittins = &snapshot_.gittins,
            .order_parameter = policy_.order_parameter};
}

double NativePolicy::usage_of(std::int32_t user) {
    const std::size_t i = as_index(user);
    if (usage_as_of_[i] != snapshot_.instant) {
        usage_[i] = snapshot_.user_usage[i].at(snapshot_.now_us, settings_.usage_half_life_s);
        usage_as_of_[i] = snapshot_.instant;
    }
    return usage_[i];
}

double NativePolicy::group_share(std::int32_t group) const {
    return snapshot_.group_usage[as_index(group)].at(snapshot_.now_us, settings_.usage_half_life_s) /
           settings_.weight_of_group(group);
}

double NativePolicy::dominant_share(const Holdings& held) const {
    const ClusterSpec& spec = snapshot_.state.spec();
    const auto share = [](std::int64_t amount, std::int64_t capacity) {
        return capacity > 0 ? static_cast<double>(amount) / static_cast<double>(capacity) : 0.0;
    };
    return std::max({share(held.milli, static_cast<std::int64_t>(spec.total_gpus) * 1000),
                     share(held.cpus, spec.given_cpus), share(held.memory_mib, spec.given_memory_mib)});
}

Scored NativePolicy::scored(const QueuedJob& job) {
    const Demand& demand = snapshot_.demand(job.demand);
    Scored s{.submit_us = job.submit_us,
             .estimate_us = job.estimate_us,
             .size_gpus = demand.size_gpus,
             .priority = job.priority,
             .deadline_us = job.deadline_us,
             .row = job.row,
             .energy_rate = demand.energy_rate,
             .prediction_us = job.prediction_us,
             .done_us = job.done_us,
             .attained_us = job.attained_us,
             .promoted_us = job.promoted_us,
             .total_milli = demand.total_milli()};
    if (order_traits_.remembers == Memory::fair_factor) {
        const Multifactor& multifactor = settings_.multifactor;
        s.age_us = std::max(snapshot_.calculated_us - job.queued_us, Time{0});
        s.fair_factor = snapshot_.fair_factor[as_index(job.association)];
        if (job.qos >= 0) s.qos_factor = multifactor.qos_factor[as_index(job.qos)];
        s.factors = &factors_[as_index(job.demand)];
    }
    if (fixed_) return s;
    s.starving = snapshot_.now_us - job.queued_us >= settings_.starvation_us;
    if (order_traits_.remembers == Memory::user_usage)
        s.user_usage = usage_of(job.user) / settings_.weight_of_user(job.user);
    if (order_traits_.remembers == Memory::group_usage) s.group_usage = group_share(job.group);
    return s;
}

// Of an order whose scores do not change while a job waits, until it becomes aged.
double NativePolicy::fixed_score(const QueuedJob& job) {
    return is_aged(job) ? kFirst : score(policy_.order, scored(job), moment());
}

// Moves jobs that have become aged since the last decision to where they rank now.
void NativePolicy::age() {
    while (!young_.empty() && policy_.is_aged(snapshot_.now_us, young_.begin()->first)) {
        Entry& entry = entry_of_.at(young_.begin()->second);
        auto& entries = queues_[as_index(snapshot_.demand(job_of(entry).demand).queue)].entries;
        const auto from = std::lower_bound(entries.begin(), entries.end(), entry);
        entry.score = kFirst;
        const auto to = std::lower_bound(entries.begin(), from, entry);
        std::rotate(to, from, from + 1);
        *to = entry;
        young_.erase(young_.begin());
    }
}

// Scores that are calculated at multiples of a time: whether that has come, and if so all of them.
void NativePolicy::calculate_again() {
    if (snapshot_.calculated_us == calculated_us_) return;
    calculated_us_ = snapshot_.calculated_us;
    for (Queue& queue : queues_) {
        for (Entry& entry : queue.entries) {
            entry.score = fixed_score(job_of(entry));
            entry_of_.at(entry.job).score = entry.score;
        }
        std::sort(queue.entries.begin(), queue.entries.end());
    }
}

double NativePolicy::score_of(const ActiveJob& job) const {
    const Demand& demand = snapshot_.demand(job.demand);
    const Time progress = job.progress_us(snapshot_.now_us);
    const Scored s{.estimate_us = job.estimate_us,
                   .size_gpus = demand.size_gpus,
                   .row = job.row,
                   .done_us = job.done_us + work_done(progress, job.slowdown),
                   .attained_us = job.attained_us + progress,
                   .promoted_us = job.promoted_us,
                   .total_milli = demand.total_milli()};
    return score(policy_.order, s, moment());
}

// The share that a user would have if this job and those of theirs that came before it ran too.
void NativePolicy::add_dominant_shares(const Queue& queue) {
    std::vector<Holdings> asked = snapshot_.user_holdings;
    for (std::size_t i = 0; i < queue.entries.size(); ++i) {
        const QueuedJob& job = job_of(queue.entries[i]);
        Holdings& user = asked[as_index(job.user)];
        user.add(snapshot_.demand(job.demand), 1);
        scored_[i].dominant_share = dominant_share(user);
    }
}

void NativePolicy::score_all(const Queue& queue) {
    scores_.resize(queue.entries.size());
    const Moment now = moment();
    if (policy_.order != Order::scored && order_traits_.remembers != Memory::holdings) {
        for (std::size_t i = 0; i < scores_.size(); ++i)
            scores_[i] = score(policy_.order, scored(job_of(queue.entries[i])), now);
        return;
    }
    scored_.clear();
    for (const Entry& entry : queue.entries) scored_.push_back(scored(job_of(entry)));
    if (order_traits_.remembers == Memory::holdings) add_dominant_shares(queue);
    if (policy_.order == Order::scored) {
        QueueColumns columns;
        columns.now_us = snapshot_.now_us;
        for (std::size_t i = 0; i < scored_.size(); ++i)
            append(columns, scored_[i], job_of(queue.entries[i]).user, queue.entries[i].job);
        score_from_outside(policy_, columns, scores_);
        return;
    }
    for (std::size_t i = 0; i < scored_.size(); ++i) scores_[i] = score(policy_.order, scored_[i], now);
}

void NativePolicy::rank(const Queue& queue) {
    // Only now: while nothing fits nobody asks for the order.
    if (queue.period) {
        notice_period();
        order_ = &queue.period->drawn();
        return sort_until(1);
    }
    if (queue.levels) {
        if (!fed_.empty()) notice_starving();
        queue.levels->begin([this](std::size_t level) { return level_score(level); });
        order_ = &queue.levels->drawn();
        return;
    }
    if (order_traits_.changes_by_period()) calculate_again();
    order_ = &queue.entries;
    if (fixed_) return;
    score_all(queue);
    sorted_ = queue.entries;
    for (std::size_t i = 0; i < sorted_.size(); ++i)
        sorted_[i].score = is_aged(job_of(sorted_[i])) ? kFirst : scores_[i];
    if (!snapshot_.state.spec().partitions.empty())
        for (Entry& entry : sorted_) entry.tier = snapshot_.demand(job_of(entry).demand).tier;
    sorted_until_ = 0;
    order_ = &sorted_;
}

// Most passes look at the first few jobs of a long queue only.
void NativePolicy::sort_until(std::size_t count) {
    if (current_ != nullptr && current_->period) return current_->period->draw(count);
    if (current_ != nullptr && current_->levels) return current_->levels->draw(count);
    if (order_ != &sorted_) return;
    while (sorted_until_ < std::min(count, sorted_.size())) {
        const std::size_t next = std::min(sorted_.size(), 2 * sorted_until_ + 64);
        const auto from = sorted_.begin() + static_cast<std::ptrdiff_t>(sorted_until_);
        const auto to = sorted_.begin() + static_cast<std::ptrdiff_t>(next);
        if (to != sorted_.end()) std::nth_element(from, to, sorted_.end());
        std::sort(from, to);
        sorted_until_ = next;
    }
}

std::vector<std::pair<double, JobId>> NativePolicy::scored_jobs() {
    std::vector<std::pair<double, JobId>> jobs;
    for (const Queue& queue : queues_) {
        rank(queue);
        for (const Entry& entry : *order_) jobs.emplace_back(entry.score, entry.job);
    }
    return jobs;
}

std::vector<std::pair<double, JobId>> NativePolicy::ranking() {
    std::vector<std::pair<double, JobId>> jobs;
    for (const Queue& queue : queues_) {
        if (queue.entries.empty()) continue;
        rank(queue);
        sort_until(order_->size());
        for (const Entry& entry : *order_) jobs.emplace_back(entry.score, entry.job);
    }
    return jobs;
}

}  // namespace gpuyard
