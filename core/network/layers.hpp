// What networks are built from: tensors by name, layers packed for the kernels, and room for intermediate results.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "network/kernels.hpp"

namespace gpuyard {

struct Tensor {
    std::vector<std::size_t> shape;
    std::vector<float> values;
};

using Tensors = std::map<std::string, Tensor>;

// The values of a tensor of a shape that is known. Throws std::invalid_argument if there is none, or it has another
// shape.
std::span<const float> tensor(const Tensors& tensors, const std::string& name, const std::vector<std::size_t>& shape);

// A vector with zeros behind it, up to whole lanes.
std::vector<float> padded_copy(std::span<const float> values);

// y = x W^T + b, W being [outputs, inputs].
class Layer {
public:
    Layer() = default;
    // Without `bias` all biases are 0.
    Layer(std::span<const float> weight, std::span<const float> bias, std::size_t inputs);
    // The tensors `name.weight` and, if there is a bias, `name.bias`.
    static Layer of(const Tensors& tensors, const std::string& name, std::size_t inputs, std::size_t outputs,
                    bool has_bias = true);

    PackedLayer packed() const { return {panels_.data(), inputs_, bias_.size()}; }
    const float* bias() const { return bias_.data(); }
    std::size_t width() const { return bias_.size(); }  // padded

private:
    std::size_t inputs_ = 0;
    std::vector<float> panels_, bias_;
};

// A layer of few outputs, which are dot products.
class Heads {
public:
    Heads() = default;
    static Heads of(const Tensors& tensors, const std::string& name, std::size_t inputs, std::size_t outputs);

    std::size_t outputs() const { return bias_.size(); }
    const float* weights(std::size_t output) const { return weights_.data() + output * width_; }
    float bias(std::size_t output) const { return bias_[output]; }

private:
    std::size_t width_ = 0;
    std::vector<float> weights_, bias_;
};

// Room for intermediate results, taken piece by piece and given back all at once. One a thread.
class Scratch {
public:
    void prepare(std::size_t floats) {
        if (floats_.size() < floats) floats_.resize(floats);
        taken_ = 0;
    }
    // Of whole lanes; whatever stood there before.
    float* floats(std::size_t count);
    std::uint32_t* numbers(std::size_t count) { return reinterpret_cast<std::uint32_t*>(floats(count)); }

private:
    std::vector<float> floats_;
    std::size_t taken_ = 0;
};

// The entries of a vector that are not 0.
SparseVector nonzero(std::span<const float> x, Scratch& scratch);

// Rows of an array by number.
struct RowNumbers {
    std::uint32_t* numbers;
    std::size_t count;
};

// Rows that are there: those whose column `present` is not 0, or if there is no such column, that have an entry other
// than 0.
RowNumbers present_rows(const float* rows, std::size_t count, std::size_t columns, std::int64_t present,
                        Scratch& scratch);

// These rows of an array of unpadded rows, one after another; the array itself if they are its beginning.
Rows picked_rows(const float* rows, std::size_t columns, const RowNumbers& which, Scratch& scratch);

}  // namespace gpuyard
