#include "simulator/whole_nodes.hpp"

#include <algorithm>
#include <bit>

namespace gpuyard {

void WholeNodes::clear(std::size_t nodes) {
    for_good_us_.assign(nodes, kEndless);
    gaps_.resize(nodes);
    for (auto& gaps : gaps_) gaps.clear();
    has_gaps_.assign((nodes + 63) / 64, 0);
    good_.clear();
    open_.assign(nodes, 0);
}

void WholeNodes::set(std::size_t position, std::span<const Gap> gaps, Time for_good_us) {
    std::vector<Gap>& known = gaps_[position];
    if (!std::equal(known.begin(), known.end(), gaps.begin(), gaps.end())) {
        known.assign(gaps.begin(), gaps.end());
        const std::uint64_t bit = std::uint64_t{1} << (position % 64);
        if (gaps.empty())
            has_gaps_[position / 64] &= ~bit;
        else
            has_gaps_[position / 64] |= bit;
    }
    Time& before = for_good_us_[position];
    if (before == for_good_us) return;
    if (before != kEndless) count_good(before, -1);
    if (for_good_us != kEndless) count_good(for_good_us, 1);
    before = for_good_us;
}

void WholeNodes::count_good(Time time_us, std::int32_t nodes) {
    const auto at = std::lower_bound(good_.begin(), good_.end(), time_us,
                                     [](const Good& good, Time time) { return good.time_us < time; });
    if (at == good_.end() || at->time_us != time_us)
        good_.insert(at, {time_us, nodes});
    else if ((at->nodes += nodes) == 0)
        good_.erase(at);
}

// Those that begin up to a time.
void WholeNodes::collect_chances(Time length_us, Time not_before_us, Time last_us) {
    chances_.clear();
    for (std::size_t word = 0; word < has_gaps_.size(); ++word)
        for (std::uint64_t bits = has_gaps_[word]; bits != 0; bits &= bits - 1) {
            const std::size_t position = 64 * word + as_index(std::countr_zero(bits));
            for (const Gap& gap : gaps_[position]) {
                const Time from = std::max(gap.from_us, not_before_us);
                if (from > last_us) break;
                if (gap.until_us < from || gap.until_us - from < length_us) continue;
                chances_.push_back({from, gap.until_us - length_us, position});
            }
        }
}

Time WholeNodes::first(std::int32_t count, Time length_us, Time not_before_us, Time latest_us) {
    std::int32_t free = 0;
    std::size_t good = 0;
    for (; good < good_.size() && good_[good].time_us <= not_before_us; ++good) free += good_[good].nodes;
    Time for_good = free >= count ? not_before_us : kEndless;
    std::int32_t most = free;
    for (std::size_t at = good; at < good_.size() && for_good == kEndless && good_[at].time_us <= latest_us; ++at)
        if ((most += good_[at].nodes) >= count) for_good = good_[at].time_us;
    const Time last = std::min(for_good, latest_us);
    collect_chances(length_us, not_before_us, last);
    if (for_good == not_before_us || (for_good == kEndless && most + std::ssize(chances_) < count)) return for_good;
    from_us_.clear();
    until_us_.clear();
    for (const Chance& chance : chances_) {
        from_us_.push_back(chance.from_us);
        until_us_.push_back(chance.until_us);
    }
    std::sort(from_us_.begin(), from_us_.end());
    std::sort(until_us_.begin(), until_us_.end());
    // A gang can begin only when one more node becomes free.
    std::size_t begun = 0, over = 0;
    while (begun < from_us_.size() || (over < begun && good < good_.size())) {
        const Time next_good = good < good_.size() ? good_[good].time_us : kEndless;
        const Time time = begun < from_us_.size() ? std::min(from_us_[begun], next_good) : next_good;
        if (time > last) break;
        for (; good < good_.size() && good_[good].time_us <= time; ++good) free += good_[good].nodes;
        for (; begun < from_us_.size() && from_us_[begun] <= time; ++begun) ++free;
        for (; over < begun && until_us_[over] < time; ++over) --free;
        if (free >= count) return time;
    }
    return for_good;
}

}  // namespace gpuyard
