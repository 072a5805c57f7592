// Which actions are legal: docs/contract/mdp.md, "Masks". The one definition, for environments, replays and snapshots.
// It asks nothing that a snapshot does not hold, so that training and a live cluster agree.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>

#include "observation/env_spec.hpp"

namespace gpuyard {

// For the kinds that choose a job. A View has
//   std::size_t rows()                                   jobs of the window
//   std::size_t pools()                                  of the cluster
//   bool startable(std::size_t row)                      whether the job of the row may be chosen
//   bool startable_in(std::size_t row, std::size_t pool) the same in a pool
//   bool base_starts()                                   whether the base policy would start a job
//   bool anything_runs()
// Returns the number of legal actions other than the no-op or skip.
template <class View>
std::int64_t fill_mask(const EnvSpec& spec, View&& view, std::span<std::int8_t> mask) {
    std::fill(mask.begin(), mask.end(), std::int8_t{0});
    std::int64_t starts = 0;
    const auto allow = [&](std::size_t action, bool legal) {
        mask[action] = legal ? 1 : 0;
        starts += legal ? 1 : 0;
    };
    switch (spec.kind) {
        case EnvKind::select_job:
            for (std::size_t row = 0; row < view.rows(); ++row) allow(row, view.startable(row));
            break;
        case EnvKind::select_job_and_pool:
            for (std::size_t row = 0; row < view.rows(); ++row)
                for (std::size_t pool = 0; pool < view.pools(); ++pool)
                    allow(row * spec.sizes.pools + pool, view.startable_in(row, pool));
            break;
        default: allow(1, view.base_starts());
    }
    if (spec.step_mode != StepMode::blocking) mask[spec.noop()] = view.anything_runs() || starts == 0 ? 1 : 0;
    return starts;
}

}  // namespace gpuyard
