// A native policy over a whole workload, on the leanest simulator that can run it.
#pragma once

#include <memory>

#include "policy/policy.hpp"
#include "simulator/beginning.hpp"
#include "simulator/history.hpp"
#include "simulator/progress.hpp"
#include "simulator/schedule.hpp"

namespace gpuyard {

// Whether a policy needs the full simulator for these jobs under these settings.
bool needs_full_simulator(const ClusterSpec& cluster, const JobTable& jobs, const Policy& policy,
                          const Settings& settings);

// `past`: jobs that had finished before, for policies that go by them.
ScheduleArrays simulate(std::shared_ptr<const ClusterSpec> cluster, std::shared_ptr<const JobTable> jobs,
                        const Policy& policy, std::shared_ptr<const Settings> settings, const Past& past,
                        const Beginning& beginning, const Progress& progress);

}  // namespace gpuyard
