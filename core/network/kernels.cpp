#include "network/kernels.hpp"

#include <bit>
#include <cmath>

#if defined(__x86_64__) && defined(__GNUC__)
#define GPUYARD_WIDE_KERNELS 1
// GCC warns of what its own header leaves undefined on purpose.
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#include <immintrin.h>
#endif

namespace gpuyard {

namespace portable {

#define KERNEL [[maybe_unused]] static

struct Lanes {
    float of[kLanes];
};

template <class Function>
KERNEL Lanes each(Function function) {
    Lanes out;
    for (std::size_t i = 0; i < kLanes; ++i) out.of[i] = function(i);
    return out;
}

KERNEL Lanes load(const float* from) {
    return each([=](std::size_t i) { return from[i]; });
}
KERNEL void store(float* to, const Lanes& a) {
    for (std::size_t i = 0; i < kLanes; ++i) to[i] = a.of[i];
}
KERNEL Lanes broadcast(float value) {
    return each([=](std::size_t) { return value; });
}
KERNEL Lanes fused(const Lanes& a, const Lanes& b, const Lanes& c) {
    return each([&](std::size_t i) { return std::fma(a.of[i], b.of[i], c.of[i]); });
}
KERNEL Lanes plus(const Lanes& a, const Lanes& b) {
    return each([&](std::size_t i) { return a.of[i] + b.of[i]; });
}
KERNEL Lanes minus(const Lanes& a, const Lanes& b) {
    return each([&](std::size_t i) { return a.of[i] - b.of[i]; });
}
KERNEL Lanes times(const Lanes& a, const Lanes& b) {
    return each([&](std::size_t i) { return a.of[i] * b.of[i]; });
}
KERNEL Lanes largest(const Lanes& a, const Lanes& b) {
    return each([&](std::size_t i) { return a.of[i] > b.of[i] ? a.of[i] : b.of[i]; });
}
KERNEL float total(Lanes a) {
    for (std::size_t half = kLanes / 2; half > 0; half /= 2)
        for (std::size_t i = 0; i < half; ++i) a.of[i] += a.of[i + half];
    return a.of[0];
}
KERNEL float maximum_of(Lanes a) {
    for (std::size_t half = kLanes / 2; half > 0; half /= 2)
        for (std::size_t i = 0; i < half; ++i) a.of[i] = a.of[i] > a.of[i + half] ? a.of[i] : a.of[i + half];
    return a.of[0];
}
// a * 2^n, where `rounded` is n + 1.5 * 2^23.
KERNEL Lanes scaled_by_power(const Lanes& a, const Lanes& rounded) {
    return each([&](std::size_t i) {
        return std::bit_cast<float>(std::bit_cast<std::uint32_t>(a.of[i]) +
                                    (std::bit_cast<std::uint32_t>(rounded.of[i]) << 23U));
    });
}
KERNEL float square_root(float x) { return std::sqrt(x); }

#include "network/kernels.inl"
#undef KERNEL

}  // namespace portable

#ifdef GPUYARD_WIDE_KERNELS

// The end of both trees: sums and maxima of eight lanes.
#define GPUYARD_EIGHT_LANE_TREES                                                                \
    KERNEL float total_of_eight(__m256 a) {                                                     \
        const __m128 four = _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1)); \
        const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));                         \
        return _mm_cvtss_f32(_mm_add_ss(two, _mm_shuffle_ps(two, two, 1)));                     \
    }                                                                                           \
    KERNEL float maximum_of_eight(__m256 a) {                                                   \
        const __m128 four = _mm_max_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1)); \
        const __m128 two = _mm_max_ps(four, _mm_movehl_ps(four, four));                         \
        return _mm_cvtss_f32(_mm_max_ss(two, _mm_shuffle_ps(two, two, 1)));                     \
    }                                                                                           \
    KERNEL float square_root(float x) { return _mm_cvtss_f32(_mm_sqrt_ss(_mm_set_ss(x))); }

namespace avx2 {

#define KERNEL [[maybe_unused]] __attribute__((target("avx2,fma"))) static inline

struct Lanes {
    __m256 low, high;
};

GPUYARD_EIGHT_LANE_TREES
KERNEL Lanes load(const float* from) { return {_mm256_loadu_ps(from), _mm256_loadu_ps(from + 8)}; }
KERNEL void store(float* to, Lanes a) {
    _mm256_storeu_ps(to, a.low);
    _mm256_storeu_ps(to + 8, a.high);
}
KERNEL Lanes broadcast(float value) {
    const __m256 all = _mm256_set1_ps(value);
    return {all, all};
}
KERNEL Lanes fused(Lanes a, Lanes b, Lanes c) {
    return {_mm256_fmadd_ps(a.low, b.low, c.low), _mm256_fmadd_ps(a.high, b.high, c.high)};
}
KERNEL Lanes plus(Lanes a, Lanes b) { return {_mm256_add_ps(a.low, b.low), _mm256_add_ps(a.high, b.high)}; }
KERNEL Lanes minus(Lanes a, Lanes b) { return {_mm256_sub_ps(a.low, b.low), _mm256_sub_ps(a.high, b.high)}; }
KERNEL Lanes times(Lanes a, Lanes b) { return {_mm256_mul_ps(a.low, b.low), _mm256_mul_ps(a.high, b.high)}; }
KERNEL Lanes largest(Lanes a, Lanes b) { return {_mm256_max_ps(a.low, b.low), _mm256_max_ps(a.high, b.high)}; }
KERNEL float total(Lanes a) { return total_of_eight(_mm256_add_ps(a.low, a.high)); }
KERNEL float maximum_of(Lanes a) { return maximum_of_eight(_mm256_max_ps(a.low, a.high)); }
KERNEL __m256 with_exponent(__m256 a, __m256 rounded) {
    return _mm256_castsi256_ps(
        _mm256_add_epi32(_mm256_castps_si256(a), _mm256_slli_epi32(_mm256_castps_si256(rounded), 23)));
}
KERNEL Lanes scaled_by_power(Lanes a, Lanes rounded) {
    return {with_exponent(a.low, rounded.low), with_exponent(a.high, rounded.high)};
}

#include "network/kernels.inl"
#undef KERNEL

}  // namespace avx2

namespace avx512 {

#define KERNEL [[maybe_unused]] __attribute__((target("avx512f,avx2,fma"))) static inline

struct Lanes {
    __m512 all;
};

GPUYARD_EIGHT_LANE_TREES
KERNEL Lanes load(const float* from) { return {_mm512_loadu_ps(from)}; }
KERNEL void store(float* to, Lanes a) { _mm512_storeu_ps(to, a.all); }
KERNEL Lanes broadcast(float value) { return {_mm512_set1_ps(value)}; }
KERNEL Lanes fused(Lanes a, Lanes b, Lanes c) { return {_mm512_fmadd_ps(a.all, b.all, c.all)}; }
KERNEL Lanes plus(Lanes a, Lanes b) { return {_mm512_add_ps(a.all, b.all)}; }
KERNEL Lanes minus(Lanes a, Lanes b) { return {_mm512_sub_ps(a.all, b.all)}; }
KERNEL Lanes times(Lanes a, Lanes b) { return {_mm512_mul_ps(a.all, b.all)}; }
KERNEL Lanes largest(Lanes a, Lanes b) { return {_mm512_max_ps(a.all, b.all)}; }
KERNEL __m256 upper(Lanes a) { return _mm256_castpd_ps(_mm512_extractf64x4_pd(_mm512_castps_pd(a.all), 1)); }
KERNEL float total(Lanes a) { return total_of_eight(_mm256_add_ps(_mm512_castps512_ps256(a.all), upper(a))); }
KERNEL float maximum_of(Lanes a) { return maximum_of_eight(_mm256_max_ps(_mm512_castps512_ps256(a.all), upper(a))); }
KERNEL Lanes scaled_by_power(Lanes a, Lanes rounded) {
    return {_mm512_castsi512_ps(
        _mm512_add_epi32(_mm512_castps_si512(a.all), _mm512_slli_epi32(_mm512_castps_si512(rounded.all), 23)))};
}

#include "network/kernels.inl"
#undef KERNEL

}  // namespace avx512

#endif

#define GPUYARD_KERNELS(form)                                                             \
    {#form,           form::dense,  form::dense_one, form::dots,         form::pool_rows, \
     form::normalise, form::attend, form::softmax,   form::weighted_sum, form::exp_negative}

const std::vector<const Kernels*>& available_kernels() {
    static const Kernels plain GPUYARD_KERNELS(portable);
    static const std::vector<const Kernels*> available = [] {
        std::vector<const Kernels*> found;
#ifdef GPUYARD_WIDE_KERNELS
        static const Kernels wide GPUYARD_KERNELS(avx2);
        static const Kernels widest GPUYARD_KERNELS(avx512);
        const bool has_fma = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
        if (has_fma && __builtin_cpu_supports("avx512f")) found.push_back(&widest);
        if (has_fma) found.push_back(&wide);
#endif
        found.push_back(&plain);
        return found;
    }();
    return available;
}

}  // namespace gpuyard
