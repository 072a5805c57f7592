#include "simulator/rank_index.hpp"

#include <utility>

#include "simulator/lane_index.hpp"
#include "simulator/wait_index.hpp"

namespace gpuyard {

namespace {

bool goes_by_wait(Order order) { return order == Order::wfp3 || order == Order::unicep; }

bool goes_by_lane(Order order) {
    return order == Order::fair_share || order == Order::group_fair_share || order == Order::drf;
}

}  // namespace

bool may_index(const Policy& policy) {
    if (!goes_by_wait(policy.order) && !goes_by_lane(policy.order) && !traits_of(policy.order).changes_by_period())
        return false;
    if (policy.backfill != Backfill::strict && policy.backfill != Backfill::greedy && policy.backfill != Backfill::easy)
        return false;
    if (policy.express.k != 0.0 || policy.ages()) return false;
    // A random placement differs from job to job; for tiers, more room may hinder.
    return policy.placement != Placement::random && !is_tier(policy.placement);
}

std::unique_ptr<RankIndex> make_rank_index(Order order, std::span<const Demand> demands, std::size_t lanes,
                                           LaneScore score) {
    if (goes_by_wait(order)) return std::make_unique<WaitIndex>(order, demands);
    return std::make_unique<LaneIndex>(demands, lanes, order == Order::drf, std::move(score));
}

}  // namespace gpuyard
