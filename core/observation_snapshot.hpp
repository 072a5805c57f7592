#pragma once

#include <vector>

#include "observation.hpp"

namespace gpuyard {

struct Observation {
    std::vector<float> jobs, nodes, globals;
};

// For SelectJob, SelectJobAndPool and AcceptOrSkip (with nothing held back).
Observation observe(const Snapshot& snapshot, const EnvSpec& spec);

}  // namespace gpuyard
