// Networks as policies: over a whole workload at once, or one decision at a time.
#pragma once

#include <memory>

#include "env_spec.hpp"
#include "episode.hpp"
#include "native_run.hpp"
#include "network.hpp"
#include "schedule.hpp"
#include "snapshot.hpp"

namespace gpuyard {

// The schedule of an episode in which a network acts, in the time of the episode's table.
ScheduleArrays replay(std::shared_ptr<const EnvSpec> spec, const Episode& episode, const Network& network, const Progress& progress);

// What the network starts now, one job after another until it would rather wait: for SelectJob, SelectJobAndPool and AcceptOrSkip in
// `instant` mode. On an idle cluster it may not wait, for nobody knows whether anything will happen.
Decision decide(const Snapshot& snapshot, const EnvSpec& spec, const Network& network);

}  // namespace gpuyard
