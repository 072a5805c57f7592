// From when on gangs of whole GPUs have room, by counting nodes alone: a bound that costs far less than to look at what
// is free at every time.
#pragma once

#include <span>
#include <vector>

#include "cluster/cluster.hpp"

namespace gpuyard {

class RoomTimes {
public:
    static constexpr Time kAlways = INT64_MIN;

    // What is free now; then what is released, in order of time.
    void begin(const ClusterState& now);
    void release(Time time_us, std::span<const Part> parts);

    // Before that time such a job has no room in any of its pools, even if nothing else is started or reserved;
    // kEndless: at no time, kAlways: not known. For rules that stay inside one pool.
    Time first(const Demand& demand) const;

private:
    Time nth_node(const Pool& pool, std::int32_t empty, std::int32_t count) const;
    Time first_in(const Demand& demand, const PoolOption& option) const;

    const ClusterSpec* spec_ = nullptr;
    std::vector<std::int32_t> empty_;  // by node, at the time of the last release; at least what there is
    // By pool and number of empty GPUs: nodes that have so many now, and when one more has.
    std::vector<std::int32_t> now_;
    std::vector<std::vector<Time>> more_us_;
};

}  // namespace gpuyard
