// The schedule as flat arrays, by job id: docs/simulator.md, section 13.
#pragma once

#include <cstdint>
#include <vector>

#include "simulator.hpp"

namespace gpuyard {

struct ScheduleArrays {
    std::vector<Time> start_us, end_us;
    std::vector<std::uint8_t> status, backfilled;
    std::vector<std::int32_t> gpu_index;      // -1 unless shared
    std::vector<std::int64_t> node_offset;    // one longer than the rest
    std::vector<std::int32_t> node, node_gpus;
};

ScheduleArrays schedule_of(const Simulator& simulator);
// The same from a simulator that is done and gives away its record.
ScheduleArrays schedule_of(Simulator&& simulator);

}  // namespace gpuyard
