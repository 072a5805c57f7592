#include "replay/bars.hpp"

#include <algorithm>
#include <limits>
#include <numeric>
#include <stdexcept>

#include "base/index.hpp"

namespace gpuyard {

namespace {

constexpr Time kLongAgo = std::numeric_limits<Time>::min();

// The GPUs of one node, and until when each is taken.
class NodeLanes {
public:
    explicit NodeLanes(std::size_t count) : free_from_(count, kLongAgo) {}

    // The lowest lanes that are free; where a shared GPU leaves too few, also those that are free first.
    std::span<const std::size_t> choose(Time from_us, std::size_t count) {
        chosen_.clear();
        for (std::size_t lane = 0; lane < free_from_.size() && chosen_.size() < count; ++lane)
            if (free_from_[lane] <= from_us) chosen_.push_back(lane);
        if (chosen_.size() < count) add_busy(from_us, count);
        return chosen_;
    }

    std::span<const std::size_t> only(std::size_t lane) {
        chosen_.assign(1, lane);
        return chosen_;
    }

    void take(std::size_t lane, Time to_us) { free_from_[lane] = std::max(free_from_[lane], to_us); }

private:
    void add_busy(Time from_us, std::size_t count) {
        std::vector<std::size_t> busy;
        for (std::size_t lane = 0; lane < free_from_.size(); ++lane)
            if (free_from_[lane] > from_us) busy.push_back(lane);
        std::stable_sort(busy.begin(), busy.end(), [&](auto a, auto b) { return free_from_[a] < free_from_[b]; });
        busy.resize(std::min(count - chosen_.size(), busy.size()));
        chosen_.insert(chosen_.end(), busy.begin(), busy.end());
        std::sort(chosen_.begin(), chosen_.end());
    }

    std::vector<Time> free_from_;
    std::vector<std::size_t> chosen_;
};

void check(std::span<const std::int32_t> node_gpus, const Stays& stays) {
    const std::size_t count = stays.job.size();
    if (stays.from_us.size() != count || stays.to_us.size() != count || stays.gpu_index.size() != count ||
        stays.node_offset.size() != count + 1 || stays.node.size() != stays.held.size())
        throw std::invalid_argument("columns of stays differ in length");
    if (stays.node_offset.front() != 0 || as_index(stays.node_offset.back()) != stays.node.size() ||
        !std::is_sorted(stays.node_offset.begin(), stays.node_offset.end()))
        throw std::invalid_argument("offsets of nodes do not ascend to their number");
    for (const std::int32_t node : stays.node)
        if (node < 0 || as_index(node) >= node_gpus.size()) throw std::invalid_argument("a stay is on an unknown node");
    for (const std::int32_t gpus : node_gpus)
        if (gpus < 0 || gpus > std::numeric_limits<std::uint16_t>::max())
            throw std::invalid_argument("a node has an impossible number of GPUs");
}

}  // namespace

Bars::Bars(std::span<const std::int32_t> node_gpus, const Stays& stays) {
    check(node_gpus, stays);
    first_lane_.push_back(0);
    for (const std::int32_t gpus : node_gpus) first_lane_.push_back(first_lane_.back() + std::max(gpus, 1));
    std::vector<std::size_t> first(node_gpus.size() + 1);
    for (const std::int32_t node : stays.node) ++first[as_index(node) + 1];
    std::partial_sum(first.begin(), first.end(), first.begin());
    std::vector<Place> places(stays.node.size());
    std::vector<std::size_t> next(first.begin(), first.end() - 1);
    for (std::size_t stay = 0; stay < stays.job.size(); ++stay)
        for (std::size_t at = as_index(stays.node_offset[stay]); at < as_index(stays.node_offset[stay + 1]); ++at)
            places[next[as_index(stays.node[at])]++] = {stays.from_us[stay], stay, at};
    bars_.reserve(places.size());
    for (std::size_t node = 0; node < node_gpus.size(); ++node) {
        const auto begin = places.begin() + static_cast<std::ptrdiff_t>(first[node]);
        const auto end = places.begin() + static_cast<std::ptrdiff_t>(first[node + 1]);
        std::sort(begin, end, [](const Place& a, const Place& b) {
            return std::pair(a.from_us, a.at) < std::pair(b.from_us, b.at);
        });
        first_bar_.push_back(bars_.size());
        lay_node(as_index(std::max(node_gpus[node], 1)), node_gpus[node] > 0, {begin, end}, stays);
    }
    first_bar_.push_back(bars_.size());
    bars_.shrink_to_fit();
    latest_us_.resize(bars_.size());
    for (std::size_t node = 0; node < node_gpus.size(); ++node) {
        Time latest_us = kLongAgo;
        for (std::size_t k = first_bar_[node]; k < first_bar_[node + 1]; ++k)
            latest_us_[k] = latest_us = std::max(latest_us, bars_[k].to_us);
    }
}

void Bars::lay_node(std::size_t count, bool has_gpus, std::span<const Place> places, const Stays& stays) {
    NodeLanes lanes(count);
    for (const auto& [from_us, stay, at] : places) {
        const std::int32_t held = stays.held[at];
        if (held <= 0 && has_gpus) continue;
        const std::int32_t shared = stays.gpu_index[stay];
        const bool is_shared = shared >= 0 && as_index(shared) < count;
        const std::size_t wanted = held > 0 ? as_index(held) : 1;
        const auto taken = is_shared ? lanes.only(as_index(shared)) : lanes.choose(from_us, wanted);
        for (std::size_t k = 0; k < taken.size();) {
            std::size_t end = k + 1;
            while (end < taken.size() && taken[end] == taken[end - 1] + 1) ++end;
            bars_.push_back({from_us, stays.to_us[stay], stays.job[stay], static_cast<std::uint16_t>(taken[k]),
                             static_cast<std::uint16_t>(end - k)});
            k = end;
        }
        for (const std::size_t lane : taken) lanes.take(lane, stays.to_us[stay]);
    }
}

std::pair<std::size_t, std::size_t> Bars::between(std::int32_t node, Time from_us, Time to_us) const {
    const std::size_t low = first_bar_[as_index(node)], high = first_bar_[as_index(node) + 1];
    const auto latest = latest_us_.begin() + static_cast<std::ptrdiff_t>(low);
    const auto latest_end = latest_us_.begin() + static_cast<std::ptrdiff_t>(high);
    const auto bar_end = bars_.begin() + static_cast<std::ptrdiff_t>(high);
    const auto first = std::upper_bound(latest, latest_end, from_us) - latest_us_.begin();
    const auto begins = [](Time at_us, const Bar& bar) { return at_us < bar.from_us; };
    const auto last = std::upper_bound(bars_.begin() + first, bar_end, to_us, begins) - bars_.begin();
    return {static_cast<std::size_t>(first), static_cast<std::size_t>(last)};
}

std::vector<std::int32_t> Bars::at(Time at_us) const {
    std::vector<std::int32_t> jobs(as_index(first_lane_.back()), -1);
    for (std::size_t node = 0; node + 1 < first_lane_.size(); ++node) {
        const auto [first, last] = between(static_cast<std::int32_t>(node), at_us, at_us);
        for (std::size_t k = first; k < last; ++k) {
            const Bar& bar = bars_[k];
            if (bar.to_us <= at_us) continue;
            const auto lane = jobs.begin() + first_lane_[node] + bar.lane;
            std::fill(lane, lane + bar.lanes, bar.job);
        }
    }
    return jobs;
}

std::int64_t Bars::memory_bytes() const {
    return static_cast<std::int64_t>(bars_.capacity() * sizeof(Bar) + latest_us_.capacity() * sizeof(Time) +
                                     first_bar_.capacity() * sizeof(std::size_t) +
                                     first_lane_.capacity() * sizeof(std::int32_t));
}

}  // namespace gpuyard
