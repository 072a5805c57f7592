// The schedule as flat arrays, by job id: docs/contract/simulator.md, section 13.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "simulator/full_simulator.hpp"
#include "simulator/lean_simulator.hpp"

namespace gpuyard {

// Every run, by (begin, job): docs/contract/simulator.md, section 14.
struct RunArrays {
    std::vector<std::int64_t> entry;  // the job
    std::vector<Time> taken_us, begin_us, stop_us, released_us, restore_us, lost_us;
    std::vector<std::uint8_t> ending;
    std::vector<std::int32_t> gpu_index;
    std::vector<std::int64_t> node_offset;
    std::vector<std::int32_t> node, node_gpus;
};

struct ScheduleArrays {
    std::vector<Time> start_us, end_us;
    std::vector<std::uint8_t> status, backfilled;
    std::vector<std::int32_t> gpu_index;    // -1 unless shared
    std::vector<std::int64_t> node_offset;  // one longer than the rest
    std::vector<std::int32_t> node, node_gpus;
    std::optional<RunArrays> runs;  // unless every job ran in one piece, from when it took its GPUs to when it finished
    std::vector<Downtime> downtime;  // of nodes, until the last job ended
};

ScheduleArrays schedule_of(const FullSimulator& simulator);
ScheduleArrays schedule_of(const LeanSimulator& simulator);
// The schedule of a simulator that is done and gives away its record.
ScheduleArrays schedule_of(LeanSimulator&& simulator);

}  // namespace gpuyard
