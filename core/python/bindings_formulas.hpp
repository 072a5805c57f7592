#pragma once

#include <nanobind/nanobind.h>

namespace gpuyard {

// Single formulas and single placements, so that tests can compare them bit by bit with another implementation.
void bind_formulas(nanobind::module_& m);

}  // namespace gpuyard
