// Runs a native policy over a whole workload on a full simulator.
#pragma once

#include "policy/policy.hpp"
#include "simulator/full_simulator.hpp"
#include "simulator/progress.hpp"

namespace gpuyard {

// What the simulator has to keep for a policy.
Needs needs_of(const Policy& policy, const Settings& settings);
void run_policy(FullSimulator& simulator, const Policy& policy, const Beginning& beginning, const Progress& progress);

}  // namespace gpuyard
