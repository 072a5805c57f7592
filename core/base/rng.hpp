// Counter-based random draws: docs/contract/simulator.md, section 2. Nothing depends on how often or in which order
// they are made.
#pragma once

#include <cmath>
#include <cstdint>

namespace gpuyard {

inline constexpr std::uint64_t kStreamNoise = 1;
inline constexpr std::uint64_t kStreamOrder = 2;
inline constexpr std::uint64_t kStreamPlacement = 3;
inline constexpr std::uint64_t kStreamFailure = 4;
inline constexpr std::uint64_t kStreamRepair = 5;
inline constexpr std::uint64_t kStreamEpisode = 6;
inline constexpr std::uint64_t kStreamRandomAction = 7;

constexpr std::uint64_t splitmix64(std::uint64_t x) {
    std::uint64_t z = x + 0x9E3779B97F4A7C15ULL;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ULL;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBULL;
    return z ^ (z >> 31);
}

constexpr std::uint64_t draw(std::uint64_t seed, std::uint64_t stream, std::uint64_t a, std::uint64_t b) {
    return splitmix64(splitmix64(splitmix64(splitmix64(seed) ^ stream) ^ a) ^ b);
}

// In [0, 1).
inline double uniform(std::uint64_t seed, std::uint64_t stream, std::uint64_t a, std::uint64_t b) {
    return static_cast<double>(draw(seed, stream, a, b) >> 11) * 0x1p-53;
}

// Standard normal by Box and Muller's transform.
inline double normal(std::uint64_t seed, std::uint64_t stream, std::uint64_t a, std::uint64_t b) {
    const double u1 = static_cast<double>((draw(seed, stream, a, 2 * b) >> 11) + 1) * 0x1p-53;
    const double u2 = uniform(seed, stream, a, 2 * b + 1);
    return std::sqrt(-2.0 * std::log(u1)) * std::cos(6.283185307179586 * u2);
}

// Of mean 1.
inline double exponential(std::uint64_t seed, std::uint64_t stream, std::uint64_t a, std::uint64_t b) {
    return -std::log(1.0 - uniform(seed, stream, a, b));
}

}  // namespace gpuyard
