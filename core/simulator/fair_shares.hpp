// The fair-share factors of `multifactor`: docs/contract/slurm.md, section 4.
#pragma once

#include <span>
#include <vector>

#include "policy/policy.hpp"

namespace gpuyard {

// The factor of each association, from the usage of each.
std::vector<double> fair_factors(const Multifactor& shares, std::span<const double> usage);

}  // namespace gpuyard
