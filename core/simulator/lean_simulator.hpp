// Time, events and the record of what happened where every job runs once and nodes are always up:
// docs/contract/simulator.md, section 7. Policies are elsewhere; they call `start`. Everything else is in
// full_simulator.hpp.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/index.hpp"
#include "base/job.hpp"
#include "cluster/cluster.hpp"
#include "policy/backfill.hpp"
#include "policy/order.hpp"
#include "policy/policy.hpp"
#include "simulator/event_queue.hpp"

namespace gpuyard {

enum class Ending : std::uint8_t { completed = 0, timeout = 1 };

// What a simulator keeps beyond the schedule, because a policy asks for it.
struct Tracking {
    bool running = false;  // running jobs by expected end
    bool usage = false;    // decayed usage of users
};

class LeanSimulator {
public:
    LeanSimulator(std::shared_ptr<const ClusterSpec> cluster, std::shared_ptr<const JobTable> jobs,
                  const Settings& settings, Tracking tracking);
    LeanSimulator(const LeanSimulator&) = delete;
    LeanSimulator& operator=(const LeanSimulator&) = delete;

    // Begins anew. Allocates nothing if no earlier cluster or workload was smaller.
    void reset(const ClusterState& empty, std::shared_ptr<const JobTable> jobs);

    Time now() const { return now_us_; }
    std::uint64_t instant() const { return instant_; }
    std::int64_t finished() const { return finished_; }
    const JobTable& jobs() const { return *jobs_; }
    const Settings& settings() const { return settings_; }
    const ClusterState& state() const { return state_; }
    Moment moment() const {
        return {.now_us = now_us_, .instant = instant_, .seed = settings_.seed, .origin_s = jobs_->origin_s};
    }
    Running running(std::int32_t queue) const { return {running_[as_index(queue)], parts_, jobs_->demands}; }
    double usage_of(std::int32_t user) const {
        return usage_.empty() ? 0.0 : usage_[as_index(user)].at(now_us_, settings_.usage_half_life_s);
    }
    // A job as an order sees it, given its user's usage now.
    Scored scored(JobId job, double user_usage) const;

    // When something finishes or arrives next; kEndless if nothing is left to happen.
    Time next_time() const {
        const Time arrival = next_arrival_ < jobs_->submit_us.size() ? jobs_->submit_us[next_arrival_] : kEndless;
        return events_.empty() ? arrival : std::min(arrival, events_.top().time);
    }
    // Lets time pass up to `time`, before which nothing happens.
    void wait_until(Time time) { now_us_ = time; }

    // An instant at which nothing happens, before whatever happens next.
    void idle_instant(Time time) {
        now_us_ = time;
        ++instant_;
    }

    // Moves to the next instant: tells `handler` of each job that finishes (with its expected end) and of each that
    // arrives. False when nothing is left to happen.
    template <class Handler>
    bool next_instant(Handler& handler) {
        const Time next = next_time();
        if (next == kEndless) return false;
        now_us_ = next;
        ++instant_;
        while (!events_.empty() && events_.top().time == next) {
            const JobId job = events_.top().job;
            events_.pop();
            handler.finished(job, finish(job));
        }
        while (next_arrival_ < jobs_->submit_us.size() && jobs_->submit_us[next_arrival_] == next)
            handler.arrived(static_cast<JobId>(next_arrival_++));
        return true;
    }

    // Starts a queued job now. The allocation must be free.
    void start(JobId job, const Allocation& allocation, bool backfilled);

    bool has_started(JobId job) const { return record_.start_us[as_index(job)] >= 0; }
    Time expected_end_of(JobId job) const { return expected_end_us_[as_index(job)]; }
    std::span<const Part> parts() const { return parts_; }

    // The schedule, by job id. Jobs that did not start have start -1.
    struct Record {
        std::vector<Time> start_us, end_us;
        std::vector<std::uint8_t> ending, backfilled;
        std::vector<std::size_t> first_part;
        std::vector<std::uint32_t> part_count;
    };
    const Record& record() const { return record_; }
    Record take_record() { return std::move(record_); }
    std::span<const Part> parts_of(JobId job) const {
        const auto i = as_index(job);
        return std::span(parts_).subspan(record_.first_part[i], record_.part_count[i]);
    }

private:
    Time finish(JobId job);
    void clear_record();

    std::shared_ptr<const JobTable> jobs_;
    Settings settings_;
    Tracking tracking_;
    ClusterState state_;
    EventQueue events_;
    std::size_t next_arrival_ = 0;
    Time now_us_ = 0;
    std::uint64_t instant_ = ~std::uint64_t{0};  // the first instant is 0
    std::int64_t finished_ = 0;
    Record record_;
    std::vector<Part> parts_;
    std::vector<RunningJobs> running_;   // by queue, if tracked
    std::vector<Time> expected_end_us_;  // by job, if running jobs are tracked
    std::vector<DecayedUsage> usage_;    // by user, if tracked
};

}  // namespace gpuyard
