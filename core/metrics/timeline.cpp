#include "metrics/timeline.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <stdexcept>
#include <string>
#include <utility>

#include "base/index.hpp"

namespace gpuyard {
namespace {

using Index = std::uint32_t;
using Times = std::span<const std::int64_t>;
__extension__ typedef __int128 Wide;  // squares of large nodes' loads, summed over many nodes, pass 64 bits

constexpr std::int64_t kMilli = 1000;  // thousandths of a GPU

void require(bool holds, const char* message) {
    if (!holds) throw std::invalid_argument(message);
}

// Positions of `keys` in ascending order, equal keys in order of position. Radix sort by 11-bit digits: several times
// faster than comparing, which matters because sorting is most of the work here.
std::vector<Index> ascending_order(Times keys) {
    constexpr unsigned kDigitBits = 11;
    constexpr std::size_t kDigits = std::size_t{1} << kDigitBits;
    require(keys.size() < std::numeric_limits<Index>::max(), "too many jobs");
    std::vector<Index> order(keys.size());
    for (std::size_t i = 0; i < order.size(); ++i) order[i] = static_cast<Index>(i);
    if (std::is_sorted(keys.begin(), keys.end())) return order;

    const auto [low, high] = std::minmax_element(keys.begin(), keys.end());
    const auto base = static_cast<std::uint64_t>(*low);
    const std::uint64_t range = static_cast<std::uint64_t>(*high) - base;
    std::vector<std::pair<std::uint64_t, Index>> from(keys.size());
    std::vector<std::pair<std::uint64_t, Index>> to(keys.size());
    for (Index i = 0; i < keys.size(); ++i) from[i] = {static_cast<std::uint64_t>(keys[i]) - base, i};
    for (unsigned shift = 0; shift < 64 && (range >> shift) > 0; shift += kDigitBits) {
        std::array<std::size_t, kDigits> begin{};
        for (const auto& entry : from) ++begin[(entry.first >> shift) & (kDigits - 1)];
        std::size_t total = 0;
        for (std::size_t& count : begin) total += std::exchange(count, total);
        for (const auto& entry : from) to[begin[(entry.first >> shift) & (kDigits - 1)]++] = entry;
        from.swap(to);
    }
    for (std::size_t i = 0; i < order.size(); ++i) order[i] = from[i].second;
    return order;
}

// Integral of a step function, by Neumaier's compensated sum: millions of short steps lose no digits.
class StepIntegral {
public:
    void add(double value, double duration) {
        const double term = value * duration;
        const double sum = sum_ + term;
        lost_ += std::abs(sum_) >= std::abs(term) ? (sum_ - sum) + term : (term - sum) + sum_;
        sum_ = sum;
    }
    double value() const { return sum_ + lost_; }

private:
    double sum_ = 0.0;
    double lost_ = 0.0;
};

// Busy and free thousandths of GPUs over all nodes. All sums are integers, so starts and ends cancel exactly.
// Utilisation is busy / size, so sums of it and of its square are kept apart for each distinct size.
class NodeLoads {
public:
    explicit NodeLoads(std::span<const std::int32_t> node_size) : busy_(node_size.size(), 0) {
        std::vector<std::int32_t> sizes(node_size.begin(), node_size.end());
        std::sort(sizes.begin(), sizes.end());
        sizes.erase(std::unique(sizes.begin(), sizes.end()), sizes.end());
        for (const std::int32_t size : sizes) {
            require(size >= 0, "a node has a negative number of GPUs");
            classes_.push_back({kMilli * size, 0, 0});
        }
        for (const std::int32_t size : node_size) {
            const auto place = std::lower_bound(sizes.begin(), sizes.end(), size) - sizes.begin();
            class_of_.push_back(static_cast<Index>(place));
            gpu_nodes_ += size > 0 ? 1.0 : 0.0;
            free_ += kMilli * size;
        }
    }

    void change(std::size_t node, std::int64_t milli) {
        SizeClass& size_class = classes_[class_of_[node]];
        const std::int64_t before = busy_[node];
        const std::int64_t after = before + milli;
        if (after < 0 || after > size_class.capacity) {
            throw std::invalid_argument("node " + std::to_string(node) + " is given more work than it has GPUs");
        }
        busy_[node] = after;
        size_class.busy += milli;
        size_class.busy_squared += static_cast<Wide>(after * after - before * before);
        free_ -= milli;
        free_on_partly_used_ -= before > 0 ? size_class.capacity - before : 0;
        free_on_partly_used_ += after > 0 ? size_class.capacity - after : 0;
    }

    double variance() const {
        if (gpu_nodes_ == 0.0) return 0.0;
        double sum = 0.0;
        double sum_of_squares = 0.0;
        for (const SizeClass& size_class : classes_) {
            if (size_class.busy == 0) continue;
            const auto capacity = static_cast<double>(size_class.capacity);
            sum += static_cast<double>(size_class.busy) / capacity;
            sum_of_squares += static_cast<double>(size_class.busy_squared) / (capacity * capacity);
        }
        const double mean = sum / gpu_nodes_;
        return std::max(0.0, sum_of_squares / gpu_nodes_ - mean * mean);
    }

    double fragmentation() const {
        return free_ == 0 ? 0.0 : static_cast<double>(free_on_partly_used_) / static_cast<double>(free_);
    }

private:
    struct SizeClass {
        std::int64_t capacity;  // thousandths of one node
        std::int64_t busy;
        Wide busy_squared;
    };
    std::vector<SizeClass> classes_;
    std::vector<Index> class_of_;
    std::vector<std::int64_t> busy_;
    double gpu_nodes_ = 0.0;
    std::int64_t free_ = 0;
    std::int64_t free_on_partly_used_ = 0;  // a full node adds 0
};

// Sharing jobs on each GPU, and for how long there was any.
class SharedGpus {
public:
    explicit SharedGpus(std::span<const std::int32_t> node_size) : busy_us_(node_size.size(), 0.0) {
        first_.reserve(node_size.size() + 1);
        first_.push_back(0);
        for (const std::int32_t size : node_size) first_.push_back(first_.back() + as_index(size));
    }

    void join(std::size_t node, std::int32_t index, std::int64_t now) {
        Sharers& gpu = at(node, index);
        if (gpu.count++ == 0) gpu.since = now;
    }

    void leave(std::size_t node, std::int32_t index, std::int64_t now) {
        Sharers& gpu = at(node, index);
        if (--gpu.count == 0) busy_us_[node] += static_cast<double>(now - gpu.since);
    }

    std::vector<double> take_busy_us() { return std::move(busy_us_); }

private:
    struct Sharers {
        std::int64_t since = 0;
        std::int64_t count = 0;
    };

    Sharers& at(std::size_t node, std::int32_t index) {
        const std::size_t place = first_[node] + as_index(index);
        require(place < first_[node + 1], "a shared GPU's index is not below its node's number of GPUs");
        if (gpus_.empty()) gpus_.resize(first_.back());
        return gpus_[place];
    }

    std::vector<std::size_t> first_;
    std::vector<Sharers> gpus_;
    std::vector<double> busy_us_;
};

void check(const Allocations& runs, std::size_t nodes, std::int64_t from_us, std::int64_t to_us) {
    const std::size_t jobs = runs.start_us.size();
    require(runs.end_us.size() == jobs && runs.gpu_index.size() == jobs && runs.gpu_milli.size() == jobs &&
                runs.node_offset.size() == jobs + 1 && runs.node_gpus.size() == runs.node.size(),
            "the columns of a schedule differ in length");
    require(runs.node_offset[0] == 0 && runs.node_offset[jobs] == static_cast<std::int64_t>(runs.node.size()),
            "node_offset does not span the allocations");
    for (std::size_t i = 0; i < jobs; ++i) {
        require(runs.node_offset[i] <= runs.node_offset[i + 1], "node_offset decreases");
        require(runs.start_us[i] < runs.end_us[i], "a job ends no later than it starts");
        require(from_us <= runs.start_us[i] && runs.end_us[i] <= to_us, "a job runs outside the given time span");
    }
    for (const std::int32_t node : runs.node) {
        require(node >= 0 && as_index(node) < nodes, "a node id is not in the cluster");
    }
}

class Sweep {
public:
    Sweep(const Allocations& runs, std::span<const std::int32_t> node_size)
        : runs_(runs),
          loads_(node_size),
          shared_(node_size) {}

    void start(Index job) {
        for (std::size_t k = first(job); k < first(job + 1); ++k) {
            const auto node = as_index(runs_.node[k]);
            loads_.change(node, milli(job, k));
            if (runs_.gpu_index[job] >= 0) shared_.join(node, runs_.gpu_index[job], runs_.start_us[job]);
        }
    }

    void end(Index job) {
        for (std::size_t k = first(job); k < first(job + 1); ++k) {
            const auto node = as_index(runs_.node[k]);
            loads_.change(node, -milli(job, k));
            if (runs_.gpu_index[job] >= 0) shared_.leave(node, runs_.gpu_index[job], runs_.end_us[job]);
        }
    }

    void stay(double duration_us) {
        imbalance_.add(loads_.variance(), duration_us);
        fragmentation_.add(loads_.fragmentation(), duration_us);
    }

    TimeMeans means(double span_us) {
        return {imbalance_.value() / span_us, fragmentation_.value() / span_us, shared_.take_busy_us()};
    }

private:
    std::size_t first(std::size_t job) const { return as_index(runs_.node_offset[job]); }

    std::int64_t milli(Index job, std::size_t k) const {
        return runs_.gpu_index[job] >= 0 ? runs_.gpu_milli[job] : kMilli * runs_.node_gpus[k];
    }

    const Allocations& runs_;
    NodeLoads loads_;
    SharedGpus shared_;
    StepIntegral imbalance_;
    StepIntegral fragmentation_;
};

// A job's stay in the system, from submit to end, and the jobs in both orders.
struct Stays {
    Times begin;
    Times end;
    std::vector<Index> by_begin;
    std::vector<Index> by_end;
};

constexpr Index kNone = std::numeric_limits<Index>::max();

// The times during which each user has a job in the system, as disjoint intervals in order of their begins. Between
// two consecutive ones of a user lies a gap; gaps are numbered in order of their ends.
struct BusyIntervals {
    std::vector<std::int64_t> begin;
    std::vector<Index> last_job;   // the job whose end is the interval's
    std::vector<Index> gap_after;  // kNone after a user's last interval
    std::vector<std::int64_t> gap_end;
};

BusyIntervals busy_intervals(std::span<const std::int32_t> user, const Stays& stays) {
    BusyIntervals busy;
    std::vector<Index> latest(as_index(*std::max_element(user.begin(), user.end())) + 1, kNone);
    for (const Index job : stays.by_begin) {
        Index& interval = latest[as_index(user[job])];
        if (interval != kNone && stays.begin[job] <= stays.end[busy.last_job[interval]]) {
            Index& last = busy.last_job[interval];
            if (stays.end[job] > stays.end[last]) last = job;
            continue;
        }
        if (interval != kNone) {
            busy.gap_after[interval] = static_cast<Index>(busy.gap_end.size());
            busy.gap_end.push_back(stays.begin[job]);
        }
        interval = static_cast<Index>(busy.begin.size());
        busy.begin.push_back(stays.begin[job]);
        busy.last_job.push_back(job);
        busy.gap_after.push_back(kNone);
    }
    return busy;
}

// The intervals in order of their ends.
std::vector<Index> by_end(const BusyIntervals& busy, const Stays& stays) {
    std::vector<Index> closed_by(stays.end.size(), kNone);
    for (Index k = 0; k < busy.last_job.size(); ++k) closed_by[busy.last_job[k]] = k;
    std::vector<Index> order;
    order.reserve(busy.last_job.size());
    for (const Index job : stays.by_end) {
        if (closed_by[job] != kNone) order.push_back(closed_by[job]);
    }
    return order;
}

// Counts by prefix: a Fenwick tree.
class PrefixCounts {
public:
    explicit PrefixCounts(std::size_t size) : tree_(size + 1, 0) {}
    void add(std::size_t position) {
        for (std::size_t i = position + 1; i < tree_.size(); i += i & (~i + 1)) ++tree_[i];
    }
    std::int32_t below(std::size_t position) const {
        std::int32_t count = 0;
        for (std::size_t i = position; i > 0; i &= i - 1) count += tree_[i];
        return count;
    }

private:
    std::vector<std::int32_t> tree_;
};

// The busy intervals of one user that meet a stay are consecutive, one more than the gaps between them. So the users
// met are the intervals that begin before the stay's end, less those that end by its begin, less the gaps inside it:
// those that begin after its begin and end before its end. Stays are taken from the latest to the earliest, and gaps
// that begin after the stay does are entered into a tree over the gaps' ends.
std::vector<std::int32_t> users_met(const Stays& stays, const BusyIntervals& busy) {
    std::vector<std::int32_t> met(stays.begin.size(), 0);
    std::vector<Index> gaps_closed(stays.begin.size(), 0);
    Index begun = 0;
    Index closed = 0;
    for (const Index job : stays.by_end) {
        while (begun < busy.begin.size() && busy.begin[begun] < stays.end[job]) ++begun;
        while (closed < busy.gap_end.size() && busy.gap_end[closed] < stays.end[job]) ++closed;
        met[job] = static_cast<std::int32_t>(begun);
        gaps_closed[job] = closed;
    }
    const std::vector<Index> intervals = by_end(busy, stays);
    PrefixCounts gaps(busy.gap_end.size());
    std::size_t ended = intervals.size();
    for (auto job = stays.by_begin.rbegin(); job != stays.by_begin.rend(); ++job) {
        while (ended > 0 && stays.end[busy.last_job[intervals[ended - 1]]] > stays.begin[*job]) {
            const Index gap = busy.gap_after[intervals[--ended]];
            if (gap != kNone) gaps.add(gap);
        }
        met[*job] -= static_cast<std::int32_t>(ended) + gaps.below(gaps_closed[*job]);
    }
    return met;
}

}  // namespace

TimeMeans time_means(const Allocations& allocations, std::span<const std::int32_t> node_size, std::int64_t from_us,
                     std::int64_t to_us) {
    check(allocations, node_size.size(), from_us, to_us);
    const std::vector<Index> starts = ascending_order(allocations.start_us);
    const std::vector<Index> ends = ascending_order(allocations.end_us);
    Sweep sweep(allocations, node_size);
    std::int64_t now = from_us;
    std::size_t started = 0;
    std::size_t ended = 0;
    while (ended < ends.size()) {
        std::int64_t next = allocations.end_us[ends[ended]];
        if (started < starts.size()) next = std::min(next, allocations.start_us[starts[started]]);
        if (next > now) sweep.stay(static_cast<double>(next - now));
        now = next;
        while (ended < ends.size() && allocations.end_us[ends[ended]] == now) sweep.end(ends[ended++]);
        while (started < starts.size() && allocations.start_us[starts[started]] == now) sweep.start(starts[started++]);
    }
    if (to_us > now) sweep.stay(static_cast<double>(to_us - now));
    return sweep.means(to_us > from_us ? static_cast<double>(to_us - from_us) : 1.0);
}

std::vector<std::int32_t> users_active(std::span<const std::int32_t> user, Times submit_us, Times end_us) {
    const std::size_t jobs = user.size();
    require(submit_us.size() == jobs && end_us.size() == jobs, "user, submit and end differ in length");
    for (std::size_t i = 0; i < jobs; ++i) {
        require(user[i] >= 0, "a user's number is negative");
        require(submit_us[i] < end_us[i], "a job ends no later than it is submitted");
    }
    if (jobs == 0) return {};
    const Stays stays{submit_us, end_us, ascending_order(submit_us), ascending_order(end_us)};
    return users_met(stays, busy_intervals(user, stays));
}

}  // namespace gpuyard
