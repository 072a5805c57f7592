// By what `tetris` and `fgd` choose a node. docs/contract/simulator.md, section 9.
#pragma once

#include <cstdint>

#include "cluster/cluster.hpp"
#include "cluster/job_mix.hpp"

namespace gpuyard {

// `tetris`: how well what the job takes on a node goes with what is free there; the larger the better. `gpus` of a gang
// go there.
double alignment(const ClusterState& state, const Demand& demand, std::int32_t node, std::int32_t gpus);

// `fgd`: growth of fragmentation, the smaller the better. The GPUs that are neither empty nor taken do not matter to
// it. If `gpus` empty GPUs of a node with `empty` of `size` are taken:
std::int64_t growth_of_whole(const JobMix& mix, std::int32_t size, std::int32_t empty, std::int32_t gpus);
// If a job that shares a GPU goes to a node that can hold it:
std::int64_t growth_of_shared(const JobMix& mix, const ClusterState& state, std::int32_t node, std::int32_t milli);

}  // namespace gpuyard
