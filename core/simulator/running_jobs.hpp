// Running jobs of one queue by (expected end, job).
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/job.hpp"
#include "base/sorted_blocks.hpp"

namespace gpuyard {

// A job that runs; its allocation is `part_count` parts from `first_part` on in an array kept elsewhere.
struct RunningJob {
    Time expected_end_us;  // kEndless = unknown
    JobId job;
    std::int32_t demand;
    std::uint32_t part_count;
    std::size_t first_part;

    // What compares equal to that job.
    static RunningJob key(Time expected_end_us, JobId job) {
        return {.expected_end_us = expected_end_us, .job = job, .demand = 0, .part_count = 0, .first_part = 0};
    }
    bool operator<(const RunningJob& other) const {
        return expected_end_us != other.expected_end_us ? expected_end_us < other.expected_end_us : job < other.job;
    }
    static std::int64_t weight() { return 0; }
};

using RunningJobs = SortedBlocks<RunningJob>;

}  // namespace gpuyard
