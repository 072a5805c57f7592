#include "policy/order.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <stdexcept>

#include "base/rng.hpp"

namespace gpuyard {

namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

static_assert(
    [] {
        for (std::size_t i = 0; i < kOrders.size(); ++i)
            if (kOrders[i].order != static_cast<Order>(i)) return false;
        return kOrders.size() == static_cast<std::size_t>(Order::scored);
    }(),
    "kOrders has a row for each order, in the order of the enum");

template <class T>
const T& given(const T* part_of_moment) {
    if (part_of_moment == nullptr) throw std::invalid_argument("this order depends on more than the job");
    return *part_of_moment;
}

double level(const Scored& job, const Settings& settings) {
    if (job.starving) return 0.0;
    const double service = seconds(job.attained_us - job.promoted_us) * job.size_gpus;
    const auto& levels = settings.tiresias_levels_gpu_s;
    return static_cast<double>(
        std::count_if(levels.begin(), levels.end(), [&](double limit) { return limit <= service; }));
}

}  // namespace

double multifactor_score(const Scored& job, const Multifactor& weights) {
    const DemandFactors& factors = given(job.factors);
    double p = weights.age * std::min(seconds(job.age_us) / weights.max_age_s, 1.0);
    p = p + weights.fair_share * job.fair_factor;
    p = p + weights.size * factors.size;
    p = p + weights.partition * factors.partition;
    p = p + weights.qos * job.qos_factor;
    p = p + weights.gpus * factors.gpu_share;
    p = p + weights.cpus * factors.cpu_share;
    p = p + weights.memory * factors.memory_share;
    p = p + weights.priority * job.priority;
    return -std::floor(std::max(p, 1.0));
}

DemandFactors::DemandFactors(const Demand& demand, const ClusterSpec& cluster, bool favor_small) {
    const auto share = [](double part, double whole) { return whole > 0.0 ? part / whole : 0.0; };
    const auto number = [](auto value) { return static_cast<double>(value); };
    if (demand.cpus > 0 && cluster.given_cpus > 0 && !demand.pools.empty()) {
        const auto fewest =
            std::min_element(demand.pools.begin(), demand.pools.end(),
                             [](const PoolOption& a, const PoolOption& b) { return a.fewest_nodes < b.fewest_nodes; });
        size = (number(fewest->fewest_nodes) / number(cluster.node_count()) +
                number(demand.cpus) / number(cluster.given_cpus)) /
               2.0;
    } else {
        size = share(demand.size_gpus, number(cluster.total_gpus));
    }
    size = std::min(size, 1.0);
    if (favor_small) size = 1.0 - size;
    std::int64_t gpus = static_cast<std::int64_t>(cluster.total_gpus), cpus = cluster.given_cpus,
                 memory_mib = cluster.given_memory_mib;
    if (demand.partition >= 0) {
        const Partition& its = cluster.partitions[as_index(demand.partition)];
        gpus = its.gpus, cpus = its.given_cpus, memory_mib = its.given_memory_mib;
        std::int32_t largest = 0;
        for (const Partition& other : cluster.partitions) largest = std::max(largest, other.job_factor);
        partition = share(number(its.job_factor), number(largest));
    }
    gpu_share = share(demand.size_gpus, number(gpus));
    cpu_share = share(number(demand.cpus), number(cpus));
    memory_share = share(number(demand.memory_mib), number(memory_mib));
}

Order order_from_name(std::string_view name) {
    const auto found =
        std::find_if(kOrders.begin(), kOrders.end(), [&](const OrderTraits& traits) { return traits.name == name; });
    if (found == kOrders.end()) throw std::invalid_argument("unknown order '" + std::string(name) + "'");
    return found->order;
}

double score(Order order, const Scored& job, const Moment& moment) {
    if (traits_of(order).uses_estimate && job.estimate_us == kEndless) return kInfinity;
    const double s = seconds(job.submit_us);
    const double r = seconds(job.estimate_us);
    const double n = job.size_gpus;
    const double w = seconds(moment.now_us - job.submit_us);
    const double t = std::max(moment.origin_s + s, 1.0);
    switch (order) {
        case Order::fifo: return s;
        case Order::lifo: return -s;
        case Order::sjf: return r;
        case Order::ljf: return -r;
        case Order::smallest: return n;
        case Order::largest: return -n;
        case Order::saf: return r * n;
        case Order::laf: return -(r * n);
        case Order::wspt: return r * std::max(r, 10.0) * n;
        case Order::power: return std::pow(r, moment.order_parameter) * n;
        case Order::wfp3: {
            const double q = w / r;
            return -(q * q * q * n);
        }
        case Order::unicep: return -(w / (std::log2(std::max(n, 2.0)) * r));
        case Order::f1: return std::log10(r) * n + 870.0 * std::log10(t);
        case Order::f2: return std::sqrt(r) * n + 25600.0 * std::log10(t);
        case Order::f3: return r * n + 6860000.0 * std::log10(t);
        case Order::f4: return r * std::sqrt(n) + 530000.0 * std::log10(t);
        case Order::priority: return -job.priority;
        case Order::edf: return job.deadline_us == kEndless ? kInfinity : seconds(job.deadline_us);
        case Order::fair_share: return job.user_usage;
        case Order::random:
            return uniform(moment.seed, kStreamOrder, moment.instant, static_cast<std::uint64_t>(job.row));
        case Order::power_aware: return r * job.energy_rate;
        case Order::qssf: return n * seconds(job.prediction_us);
        case Order::group_fair_share: return job.group_usage;
        case Order::drf: return job.dominant_share;
        case Order::multifactor: return multifactor_score(job, given(moment.settings).multifactor);
        case Order::srtf: return seconds(std::max(job.estimate_us - job.done_us, Time{0}));
        case Order::ssf: return seconds(std::max(job.estimate_us - job.done_us, Time{0})) * n;
        case Order::las: return seconds(job.attained_us);
        case Order::las_2d: return seconds(job.attained_us) * n;
        case Order::tiresias: return level(job, given(moment.settings));
        case Order::gittins:
            return -given(moment.gittins).index(GittinsHistory::gpu_seconds(job.attained_us, job.total_milli));
        case Order::scored: break;
    }
    throw std::logic_error("an order from outside has no native score");
}

void append(QueueColumns& columns, const Scored& job, std::int32_t user, JobId id) {
    constexpr double unknown = std::numeric_limits<double>::quiet_NaN();
    columns.submit_s.push_back(seconds(job.submit_us));
    columns.wait_s.push_back(seconds(columns.now_us - job.submit_us));
    columns.estimate_s.push_back(job.estimate_us == kEndless ? unknown : seconds(job.estimate_us));
    columns.gpus.push_back(job.size_gpus);
    columns.priority.push_back(job.priority);
    columns.deadline_s.push_back(job.deadline_us == kEndless ? unknown : seconds(job.deadline_us));
    columns.user_usage.push_back(job.user_usage);
    columns.user.push_back(user);
    columns.job.push_back(id);
}

void score_from_outside(const Policy& policy, const QueueColumns& columns, std::span<double> scores) {
    policy.scores(columns, scores);
    for (std::size_t i = 0; i < scores.size(); ++i)
        if (std::isnan(scores[i]))
            throw std::invalid_argument("an order returned NaN as the score of job " + std::to_string(columns.job[i]));
}

double DecayedUsage::at(Time now_us, double half_life_s) const {
    const double x = seconds(now_us - updated_us_);
    const double f = std::exp2(-(x / half_life_s));
    return usage_ * f + (static_cast<double>(held_milli_) / 1000.0) * (half_life_s / 0.6931471805599453) * (1.0 - f);
}

void DecayedUsage::change(Time now_us, double half_life_s, std::int64_t milli_gpus) {
    usage_ = at(now_us, half_life_s);
    updated_us_ = now_us;
    held_milli_ += milli_gpus;
}

}  // namespace gpuyard
