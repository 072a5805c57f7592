// Signed ids as indices of vectors.
#pragma once

#include <cstddef>
#include <cstdint>

namespace gpuyard {

// Not negative: every id in the core is signed, so that -1 can mean none.
constexpr std::size_t as_index(std::int64_t i) { return static_cast<std::size_t>(i); }

}  // namespace gpuyard
