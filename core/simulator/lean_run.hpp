// Runs a native policy over a whole workload, as fast as the policy allows.
#pragma once

#include <functional>

#include "simulator/full_simulator.hpp"
#include "policy/policy.hpp"
#include "simulator/lean_simulator.hpp"

namespace gpuyard {

// Called now and then, and at the end, with the number of finished jobs; what it throws ends the run.
using Progress = std::function<void(std::int64_t finished)>;

// Whether a policy under these settings needs the full simulator.
bool needs_full_simulator(const Policy& policy, const Settings& settings);

Tracking tracking_for(const Policy& policy);
void run_policy(LeanSimulator& simulator, const Policy& policy, const Progress& progress);

Needs needs_of(const Policy& policy, const Settings& settings);
void run_policy(FullSimulator& simulator, const Policy& policy, const Progress& progress);

}  // namespace gpuyard
