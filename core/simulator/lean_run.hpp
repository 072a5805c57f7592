// Runs a native policy over a whole workload on a lean simulator, as fast as the policy allows.
#pragma once

#include "policy/policy.hpp"
#include "simulator/beginning.hpp"
#include "simulator/lean_simulator.hpp"
#include "simulator/progress.hpp"

namespace gpuyard {

// What the simulator has to keep for a policy.
Tracking tracking_for(const Policy& policy);
void run_policy(LeanSimulator& simulator, const Policy& policy, const Beginning& beginning, const Progress& progress);

}  // namespace gpuyard
