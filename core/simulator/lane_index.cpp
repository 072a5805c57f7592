#include "simulator/lane_index.hpp"

#include "base/index.hpp"

namespace gpuyard {

LaneIndex::Part& LaneIndex::part_of(std::int32_t demand, std::int32_t lane) {
    auto& parts = parts_[as_index(demand)];
    const auto found = std::lower_bound(parts.begin(), parts.end(), lane,
                                        [](const Part& part, std::int32_t key) { return part.lane < key; });
    if (found != parts.end() && found->lane == lane) return *found;
    return *parts.insert(found, Part{lane, {}});
}

void LaneIndex::insert(const IndexedJob& job) {
    Lane& lane = lanes_[as_index(job.lane)];
    if (lane.jobs.empty()) waiting_.push_back(job.lane);
    Asking asking{job.job, job.demand, job.estimate_us, {}};
    asking.asked.add(demands_[as_index(job.demand)], 1);
    lane.jobs.insert(asking);
    part_of(job.demand, job.lane).jobs.insert({job.job, job.estimate_us});
}

void LaneIndex::erase(const IndexedJob& job) {
    Lane& lane = lanes_[as_index(job.lane)];
    lane.jobs.erase({job.job, job.demand, job.estimate_us, {}});
    if (lane.jobs.empty()) std::erase(waiting_, job.lane);
    auto& parts = parts_[as_index(job.demand)];
    Part& part = part_of(job.demand, job.lane);
    part.jobs.erase({job.job, job.estimate_us});
    if (part.jobs.empty()) parts.erase(parts.begin() + (&part - parts.data()));
}

void LaneIndex::begin(const Moment&) {
    for (const std::int32_t number : waiting_) {
        Lane& lane = lanes_[as_index(number)];
        lane.scored = false;
        lane.next = {};
        lane.before = {};
        lane.over = false;
    }
}

// Where all jobs of a lane have one.
double LaneIndex::score_of(std::int32_t number) {
    Lane& lane = lanes_[as_index(number)];
    if (!lane.scored) {
        lane.score = score_(number, {});
        lane.scored = true;
    }
    return lane.score;
}

double LaneIndex::score_in(std::int32_t number, JobId job) {
    if (!sums_) return score_of(number);
    Holdings asked;
    for (const auto& block : lanes_[as_index(number)].jobs.blocks()) {
        if (block.entries.back().job < job) {
            asked.add(block.summary.sum);
            continue;
        }
        for (const Asking& entry : block.entries) {
            if (entry.job > job) break;
            asked.add(entry.asked);
        }
        break;
    }
    return score_(number, asked);
}

// Moves on to the lane's first job behind a place.
void LaneIndex::advance(std::int32_t number, const RankKey& behind) {
    Lane& lane = lanes_[as_index(number)];
    if (lane.over || (lane.next && behind < lane.next.key)) return;
    const JobId passed = lane.next.key.job;
    lane.next = {};
    lane.over = true;
    if (!sums_ && score_of(number) < behind.score) return;
    for (const auto& block : lane.jobs.blocks()) {
        if (block.entries.back().job <= passed) continue;
        for (const Asking& entry : block.entries) {
            if (entry.job <= passed) continue;
            if (sums_) lane.before.add(entry.asked);
            const RankKey key{sums_ ? score_(number, lane.before) : score_of(number), entry.job};
            if (!(behind < key)) continue;
            lane.next = {key, entry.demand, entry.estimate_us};
            lane.over = false;
            return;
        }
    }
}

RankedJob LaneIndex::first(const RankKey& behind) {
    RankedJob best;
    for (const std::int32_t number : waiting_) {
        advance(number, behind);
        const RankedJob& next = lanes_[as_index(number)].next;
        if (next && next.before(best)) best = next;
    }
    return best;
}

RankedJob LaneIndex::first_in(const Part& part, std::int32_t demand, const RankKey& behind,
                              const ShortEnough& is_short) {
    if (!sums_ && score_of(part.lane) < behind.score) return {};
    const JobId passed = !sums_ && score_of(part.lane) == behind.score ? behind.job : -1;
    for (const auto& block : part.jobs.blocks()) {
        if (block.entries.back().job <= passed || !is_short(block.summary.estimate_us)) continue;
        for (const Lasting& entry : block.entries) {
            if (entry.job <= passed || !is_short(entry.estimate_us)) continue;
            const RankKey key{score_in(part.lane, entry.job), entry.job};
            if (behind < key) return {key, demand, entry.estimate_us};
        }
    }
    return {};
}

RankedJob LaneIndex::first_of(std::int32_t demand, const RankKey& behind, const ShortEnough& is_short) {
    RankedJob best;
    for (const Part& part : parts_[as_index(demand)])
        if (const RankedJob job = first_in(part, demand, behind, is_short); job && job.before(best)) best = job;
    return best;
}

}  // namespace gpuyard
