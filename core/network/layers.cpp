#include "network/layers.hpp"

#include <algorithm>
#include <stdexcept>

namespace gpuyard {

namespace {

std::string shown(const std::vector<std::size_t>& shape) {
    std::string text;
    for (const std::size_t size : shape) text.append(text.empty() ? "[" : ", ").append(std::to_string(size));
    return text.append(text.empty() ? "[]" : "]");
}

}  // namespace

std::span<const float> tensor(const Tensors& tensors, const std::string& name, const std::vector<std::size_t>& shape) {
    const auto found = tensors.find(name);
    if (found == tensors.end()) throw std::invalid_argument("tensor " + name + " is missing");
    if (found->second.shape != shape)
        throw std::invalid_argument("tensor " + name + " has shape " + shown(found->second.shape) + "; expected " +
                                    shown(shape));
    return found->second.values;
}

std::vector<float> padded_copy(std::span<const float> values) {
    std::vector<float> copy(values.begin(), values.end());
    copy.resize(padded(values.size()), 0.0F);
    return copy;
}

Layer::Layer(std::span<const float> weight, std::span<const float> bias, std::size_t inputs)
    : inputs_(inputs),
      bias_(padded_copy(bias)) {
    panels_.assign(bias_.size() * inputs, 0.0F);
    for (std::size_t output = 0; output < bias.size(); ++output) {
        float* const panel = panels_.data() + output / kLanes * kLanes * inputs + output % kLanes;
        for (std::size_t input = 0; input < inputs; ++input) panel[input * kLanes] = weight[output * inputs + input];
    }
}

Layer Layer::of(const Tensors& tensors, const std::string& name, std::size_t inputs, std::size_t outputs,
                bool has_bias) {
    const std::vector<float> none(outputs, 0.0F);
    const auto bias = has_bias ? tensor(tensors, name + ".bias", {outputs}) : std::span<const float>(none);
    return Layer(tensor(tensors, name + ".weight", {outputs, inputs}), bias, inputs);
}

Heads Heads::of(const Tensors& tensors, const std::string& name, std::size_t inputs, std::size_t outputs) {
    Heads heads;
    heads.width_ = padded(inputs);
    heads.weights_.assign(outputs * heads.width_, 0.0F);
    const auto weight = tensor(tensors, name + ".weight", {outputs, inputs});
    for (std::size_t output = 0; output < outputs; ++output)
        std::copy_n(weight.begin() + static_cast<std::ptrdiff_t>(output * inputs), inputs,
                    heads.weights_.begin() + static_cast<std::ptrdiff_t>(output * heads.width_));
    const auto bias = tensor(tensors, name + ".bias", {outputs});
    heads.bias_.assign(bias.begin(), bias.end());
    return heads;
}

float* Scratch::floats(std::size_t count) {
    float* const from = floats_.data() + taken_;
    taken_ += padded(count);
    if (taken_ > floats_.size()) throw std::logic_error("a network needs more room than it asked for");
    return from;
}

SparseVector nonzero(std::span<const float> x, Scratch& scratch) {
    float* const values = scratch.floats(x.size() + 1);
    std::uint32_t* const places = scratch.numbers(x.size() + 1);
    std::size_t count = 0;
    for (std::size_t i = 0; i < x.size(); ++i) {  // without a branch, which nobody could foresee
        values[count] = x[i];
        places[count] = static_cast<std::uint32_t>(i);
        count += x[i] != 0.0F ? 1 : 0;
    }
    return {values, places, count};
}

RowNumbers present_rows(const float* rows, std::size_t count, std::size_t columns, std::int64_t present,
                        Scratch& scratch) {
    RowNumbers found{scratch.numbers(count + 1), 0};
    for (std::size_t i = 0; i < count; ++i) {
        const float* const row = rows + i * columns;
        const bool is_there =
            present >= 0 ? row[present] != 0.0F : std::any_of(row, row + columns, [](float x) { return x != 0.0F; });
        found.numbers[found.count] = static_cast<std::uint32_t>(i);
        found.count += is_there ? 1 : 0;
    }
    return found;
}

Rows picked_rows(const float* rows, std::size_t columns, const RowNumbers& which, Scratch& scratch) {
    if (which.count == 0 || which.numbers[which.count - 1] + 1 == which.count) return {rows, columns, which.count};
    float* const to = scratch.floats(which.count * columns);
    for (std::size_t i = 0; i < which.count; ++i)
        std::copy_n(rows + which.numbers[i] * columns, columns, to + i * columns);
    return {to, columns, which.count};
}

}  // namespace gpuyard
