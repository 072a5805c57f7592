#include "simulator.hpp"

#include <algorithm>
#include <stdexcept>
#include <string>

namespace gpuyard {

namespace {

std::size_t as_index(std::int64_t i) { return static_cast<std::size_t>(i); }

}  // namespace

Simulator::Simulator(std::shared_ptr<const ClusterSpec> cluster, std::shared_ptr<const JobTable> jobs, const Settings& settings,
                     Tracking tracking)
    : jobs_(std::move(jobs)), settings_(settings), state_(cluster) {
    const std::size_t count = jobs_->submit_us.size();
    record_.start_us.assign(count, -1);
    record_.end_us.assign(count, -1);
    record_.ending.assign(count, 0);
    record_.backfilled.assign(count, 0);
    record_.first_part.assign(count, 0);
    record_.part_count.assign(count, 0);
    parts_.reserve(count);
    if (tracking.running) {
        running_.resize(as_index(cluster->queues));
        expected_end_us_.assign(count, 0);
    }
    if (tracking.usage) usage_.resize(as_index(jobs_->users));
}

Scored Simulator::scored(JobId job, double user_usage) const {
    const std::size_t i = as_index(job);
    return {jobs_->submit_us[i],    jobs_->estimate_us[i], jobs_->demand_of(i).size_gpus,   jobs_->priority_of(i),
            jobs_->deadline_of(i), jobs_->row_of(i),      user_usage};
}

void Simulator::start(JobId job, const Allocation& allocation, bool backfilled) {
    const std::size_t i = as_index(job);
    const Demand& demand = jobs_->demand_of(i);
    Time run = allocation.run_time(jobs_->duration_us[i], settings_.locality_penalty);
    if (settings_.kill_at_estimate) {
        const Time allowed = allocation.run_time(jobs_->estimate_us[i], settings_.locality_penalty);
        if (allowed < run) {
            run = allowed;
            record_.ending[i] = static_cast<std::uint8_t>(Ending::timeout);
        }
    }
    if (now_us_ > kLatest - run) throw std::overflow_error("the simulated time exceeds the simulator's clock (2^62 microseconds)");
    record_.start_us[i] = now_us_;
    record_.end_us[i] = now_us_ + run;
    record_.backfilled[i] = backfilled ? 1 : 0;
    record_.first_part[i] = parts_.size();
    record_.part_count[i] = static_cast<std::uint32_t>(allocation.parts.size());
    state_.hold(demand, allocation.parts);
    events_.push({now_us_ + run, job});
    if (!running_.empty()) {
        const Time expected = allocation.run_time(jobs_->estimate_us[i], settings_.locality_penalty);
        expected_end_us_[i] = expected_end(now_us_, expected);
        running_[as_index(demand.queue)].insert({expected_end_us_[i], job, jobs_->demand[i], record_.part_count[i], parts_.size()});
    }
    if (!usage_.empty())
        usage_[as_index(jobs_->user_of(i))].change(now_us_, settings_.usage_half_life_s, demand.total_milli());
    parts_.insert(parts_.end(), allocation.parts.begin(), allocation.parts.end());
}

Time Simulator::finish(JobId job) {
    const std::size_t i = as_index(job);
    const Demand& demand = jobs_->demand_of(i);
    ++finished_;
    state_.release(demand, parts_of(job));
    if (!usage_.empty())
        usage_[as_index(jobs_->user_of(i))].change(now_us_, settings_.usage_half_life_s, -demand.total_milli());
    if (running_.empty()) return 0;
    running_[as_index(demand.queue)].erase(expected_end_us_[i], job);
    return expected_end_us_[i];
}

SteppedSimulator::SteppedSimulator(std::shared_ptr<const ClusterSpec> cluster, std::shared_ptr<const JobTable> jobs,
                                   const Settings& settings)
    : jobs_(jobs), simulator_(std::move(cluster), std::move(jobs), settings, {.running = true, .usage = true}) {}

Snapshot SteppedSimulator::snapshot() const {
    Snapshot snapshot(simulator_.state());
    snapshot.now_us = simulator_.now();
    snapshot.instant = simulator_.instant();
    snapshot.origin_s = jobs_->origin_s;
    snapshot.settings = simulator_.settings();
    snapshot.demands = std::shared_ptr<const std::vector<Demand>>(jobs_, &jobs_->demands);
    for (const JobId job : waiting_) {
        const std::size_t i = as_index(job);
        snapshot.queue.push_back({job, jobs_->submit_us[i], jobs_->estimate_us[i], jobs_->demand[i], jobs_->user_of(i),
                                  jobs_->priority_of(i), jobs_->deadline_of(i), jobs_->row_of(i)});
    }
    for (std::int32_t queue = 0; queue < simulator_.state().spec().queues; ++queue) {
        const Running running = simulator_.running(queue);
        running.jobs.visit_in_order([&](RunningJob job) {
            const auto parts = running.parts_of(job);
            job.first_part = snapshot.parts.size();
            snapshot.parts.insert(snapshot.parts.end(), parts.begin(), parts.end());
            snapshot.running.push_back(job);
            return true;
        });
    }
    std::sort(snapshot.running.begin(), snapshot.running.end());
    for (std::int32_t user = 0; user < jobs_->users; ++user) snapshot.user_usage.push_back(simulator_.usage_of(user));
    return snapshot;
}

Allocation SteppedSimulator::checked_allocation(const Start& start) const {
    const auto fail = [&](const std::string& why) {
        throw std::invalid_argument("cannot start job " + std::to_string(start.job) + ": " + why);
    };
    if (std::find(waiting_.begin(), waiting_.end(), start.job) == waiting_.end()) fail("it is not queued");
    const ClusterState& state = simulator_.state();
    const ClusterSpec& spec = state.spec();
    const Demand& demand = jobs_->demand_of(as_index(start.job));
    Allocation allocation;
    allocation.parts = start.parts;
    std::int32_t gpus = 0, largest = 0, last = -1;
    for (Part& part : allocation.parts) {
        if (part.node <= last || as_index(part.node) >= spec.node_count()) fail("nodes must exist and ascend");
        last = part.node;
        const Pool& pool = spec.pools[as_index(spec.pool[as_index(part.node)])];
        const std::string node = "node " + std::to_string(part.node);
        if (!demand.allows[as_index(spec.pool[as_index(part.node)])]) fail("it may not use " + node);
        const bool cpu_only = demand.kind == DemandKind::cpu_only;
        if (cpu_only ? part.gpus != 0 : part.gpus < 1) fail("a bad number of GPUs on " + node);
        const std::int32_t share = cpu_only ? 1 : part.gpus;
        if (state.free_cpus(part.node) < demand.cpus_for(share) || state.free_memory(part.node) < demand.memory_for(share))
            fail(node + " lacks CPUs or memory");
        if (demand.kind == DemandKind::shared) {
            const std::int32_t gpu = state.fullest_gpu(part.node, demand.gpu_milli);
            if (gpu < 0) fail(node + " has no GPU with room");
            part.gpu_mask = std::uint64_t{1} << gpu;
        } else if (!cpu_only) {
            if (state.empty(part.node) < part.gpus) fail(node + " has too few empty GPUs");
            part.gpu_mask = state.lowest_empty(part.node, part.gpus);
        }
        allocation.speed = gpus == 0 ? pool.speed : std::min(allocation.speed, pool.speed);
        gpus += part.gpus;
        largest = std::max(largest, pool.size);
    }
    if (gpus != demand.gpus || (demand.gpus == 0 && allocation.parts.size() != 1)) fail("a gang starts whole or not at all");
    if (demand.gpus == 0) allocation.speed = 1.0;
    if (demand.gpus > 0) allocation.fewest_nodes = (demand.gpus + largest - 1) / largest;
    return allocation;
}

void SteppedSimulator::apply(const Decision& decision) {
    for (const Start& start : decision.starts) {
        simulator_.start(start.job, checked_allocation(start), start.backfilled);
        waiting_.erase(std::find(waiting_.begin(), waiting_.end(), start.job));
    }
}

}  // namespace gpuyard
