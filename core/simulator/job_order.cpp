#include "simulator/job_order.hpp"

#include <algorithm>
#include <numeric>

#include "base/index.hpp"

namespace gpuyard {

namespace {

// Jobs by a key, ties in the order given.
template <class Key>
std::vector<std::int32_t> sorted_by(const std::vector<Key>& key, std::vector<std::int32_t> jobs) {
    struct Entry {
        Key key;
        std::int32_t job;
    };
    std::vector<Entry> entries(jobs.size());
    std::transform(jobs.begin(), jobs.end(), entries.begin(),
                   [&](std::int32_t job) { return Entry{key[as_index(job)], job}; });
    std::stable_sort(entries.begin(), entries.end(), [](const Entry& a, const Entry& b) { return a.key < b.key; });
    std::transform(entries.begin(), entries.end(), jobs.begin(), [](const Entry& e) { return e.job; });
    return jobs;
}

std::vector<std::int32_t> order_of_arrival(const LeanSimulator& simulator) {
    std::vector<std::int32_t> jobs(simulator.jobs().submit_us.size());
    std::iota(jobs.begin(), jobs.end(), 0);
    return jobs;
}

}  // namespace

std::vector<std::int32_t> static_order(const LeanSimulator& simulator, const Policy& policy) {
    if (policy.order == Order::fifo || !traits_of(policy.order).is_static()) return {};
    const Moment moment{.now_us = 0,
                        .instant = 0,
                        .seed = 0,
                        .origin_s = simulator.jobs().origin_s,
                        .order_parameter = policy.order_parameter};
    std::vector<double> scores(simulator.jobs().submit_us.size());
    for (std::size_t i = 0; i < scores.size(); ++i)
        scores[i] = score(policy.order, simulator.scored(static_cast<JobId>(i), 0.0), moment);
    return sorted_by(scores, order_of_arrival(simulator));
}

std::vector<std::int32_t> estimate_order(const LeanSimulator& simulator, const Policy& policy) {
    std::vector<std::int32_t> jobs = static_order(simulator, policy);
    if (jobs.empty()) jobs = order_of_arrival(simulator);
    return sorted_by(simulator.jobs().estimate_us, std::move(jobs));
}

}  // namespace gpuyard
