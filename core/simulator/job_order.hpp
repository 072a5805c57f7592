// The order of all jobs of a workload, where it is known from the start.
#pragma once

#include <cstdint>
#include <vector>

#include "simulator/lean_simulator.hpp"

namespace gpuyard {

// The order of all jobs under a static score; empty if that is the order of arrival.
std::vector<std::int32_t> static_order(const LeanSimulator& simulator, const Policy& policy);

// The order in which easy-sjf tries jobs behind the head: by estimate, ties in the policy's order.
std::vector<std::int32_t> estimate_order(const LeanSimulator& simulator, const Policy& policy);

}  // namespace gpuyard
