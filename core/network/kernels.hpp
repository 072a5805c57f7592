// The loops that networks are made of, in one form for each kind of processor. All forms give the same bits: every
// sum is taken in the same order with fused multiply-add, in sixteen lanes with one tree at their end.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

namespace gpuyard {

inline constexpr std::size_t kLanes = 16;

constexpr std::size_t padded(std::size_t count) { return (count + kLanes - 1) / kLanes * kLanes; }

// What becomes of a layer's result: it replaces what was there, also without its negative part, or is added to it.
enum class Finish : std::uint8_t { store, relu, add };

// Rows of floats, `stride` from one to the next.
struct Rows {
    const float* data;
    std::size_t stride, count;
};

// A linear layer as kernels read it: panels of sixteen outputs, each [inputs][16]. What is padded is 0.
struct PackedLayer {
    const float* panels;
    std::size_t inputs, padded_outputs;
};

// Entries of a vector that are not 0.
struct SparseVector {
    const float* values;
    const std::uint32_t* places;
    std::size_t count;
};

struct Kernels {
    std::string_view name;
    // out[r] = finish(start + W x[r]), `out_stride` apart; `start` has the padded outputs.
    void (*dense)(const Rows& x, const PackedLayer& layer, const float* start, float* out, std::size_t out_stride,
                  Finish finish);
    // The same for one row.
    void (*dense_one)(const SparseVector& x, const PackedLayer& layer, const float* start, float* out, Finish finish);
    // out[r * out_stride] = x[r] . weights + bias; all are padded to `width`.
    void (*dots)(const Rows& x, std::size_t width, const float* weights, float bias, float* out,
                 std::size_t out_stride);
    // Column sums and, unless null, maxima with 0, over a padded width.
    void (*pool_rows)(const Rows& x, std::size_t width, float* sum, float* maximum);
    // Layer normalisation of rows of `width` entries, then `weight`, `bias` (padded) and, unless null, `add`.
    void (*normalise)(const Rows& x, std::size_t width, const float* weight, const float* bias, const float* add,
                      float* out);
    // For rows of queries, each of `heads` times `columns` entries: a softmax over the keys, and with its weights the
    // mean of the keys. Keys are [columns][key_stride], the first `keys` of each count; `scratch` has key_stride
    // floats.
    void (*attend)(const Rows& queries, std::size_t heads, std::size_t columns, const float* keys,
                   std::size_t key_count, std::size_t key_stride, float* scratch, float* out, std::size_t out_stride);
    // Of `count` entries in place; the array is padded, and what is padded becomes 0 within 1e-37.
    void (*softmax)(float* x, std::size_t count);
    // sum of weights[r] * x[r], over a padded width.
    void (*weighted_sum)(const Rows& x, std::size_t width, const float* weights, float* out);
    // exp of entries that are at most 0, in place; the array is padded. At least exp(-87).
    void (*exp_negative)(float* x, std::size_t count);
};

// Those this processor can run, the fastest first; "portable" is always among them.
const std::vector<const Kernels*>& available_kernels();

}  // namespace gpuyard
