// Networks as policies: over a whole workload at once, or one decision at a time.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "env/episode.hpp"
#include "network/network.hpp"
#include "observation/env_spec.hpp"
#include "simulator/lean_run.hpp"
#include "simulator/schedule.hpp"
#include "simulator/snapshot.hpp"

namespace gpuyard {

// The schedule of an episode in which a network acts, in the time of the episode's table.
ScheduleArrays replay(std::shared_ptr<const EnvSpec> spec, const Episode& episode, const Network& network,
                      const Progress& progress);

// What the network starts now, one job after another until it would rather wait: for SelectJob, SelectJobAndPool and
// AcceptOrSkip in `instant` mode.
Decision decide(const Snapshot& snapshot, const EnvSpec& spec, const Network& network);

// How long each decision of an episode took, microseconds: to observe and to choose, and to step on to the next state.
struct DecisionTimes {
    std::vector<double> decide_us, step_us;
    std::vector<std::int64_t> waiting;  // jobs, when it was made
};

// Of the first `count` decisions, or of all if there are fewer.
DecisionTimes time_decisions(std::shared_ptr<const EnvSpec> spec, const Episode& episode, const Network& network,
                             std::size_t count);

}  // namespace gpuyard
