// Networks of one kind of layer: mlp, and rules.
#include <algorithm>
#include <limits>

#include "base/index.hpp"
#include "network/network.hpp"

namespace gpuyard {

namespace {

class Mlp final : public Network {
public:
    Mlp(const NetworkSettings& settings, const NetworkSizes& sizes, const Tensors& tensors, const Kernels& kernels)
        : Network(settings, sizes, kernels),
          inputs_(sizes.rows * sizes.job_columns + sizes.tokens * sizes.node_columns + sizes.global_columns),
          policy_(Layer::of(tensors, "policy", settings.width, sizes.actions)),
          value_(Heads::of(tensors, "value", settings.width, 1)) {
        for (std::size_t i = 0; i < settings.depth; ++i)
            hidden_.push_back(
                Layer::of(tensors, "hidden." + std::to_string(i), i == 0 ? inputs_ : settings.width, settings.width));
    }

    bool reads_nodes() const override { return true; }

private:
    std::size_t scratch_floats() const override {
        const std::size_t width = padded(settings_.width) + kLanes;
        return 3 * (padded(inputs_) + kLanes) + (3 * settings_.depth + 4) * width + padded(sizes_.actions) +
               padded(sizes_.rows) + padded(sizes_.tokens) + 4 * kLanes;
    }

    // All of an observation in a row, without rows that are not there.
    SparseVector input_vector(const NetworkInput& input, Scratch& scratch) const {
        float* const x = scratch.floats(inputs_);
        std::fill_n(x, inputs_, 0.0F);
        const auto copy = [&](const float* rows, const RowNumbers& which, std::size_t columns, float* to) {
            for (std::size_t i = 0; i < which.count; ++i)
                std::copy_n(rows + which.numbers[i] * columns, columns, to + which.numbers[i] * columns);
        };
        copy(input.jobs, present_rows(input.jobs, sizes_.rows, sizes_.job_columns, sizes_.job_present, scratch),
             sizes_.job_columns, x);
        const std::size_t nodes_at = sizes_.rows * sizes_.job_columns,
                          globals_at = nodes_at + sizes_.tokens * sizes_.node_columns;
        copy(input.nodes, present_rows(input.nodes, sizes_.tokens, sizes_.node_columns, sizes_.node_present, scratch),
             sizes_.node_columns, x + nodes_at);
        std::copy_n(input.globals, sizes_.global_columns, x + globals_at);
        return nonzero({x, inputs_}, scratch);
    }

    void compute(const NetworkInput& input, float* logits, float* value, Scratch& scratch) const override {
        const float* x = nullptr;
        for (const Layer& layer : hidden_) {
            float* const out = scratch.floats(layer.width());
            if (x == nullptr)
                kernels_.dense_one(input_vector(input, scratch), layer.packed(), layer.bias(), out, Finish::relu);
            else
                apply(layer, {x, settings_.width}, layer.bias(), out, Finish::relu, scratch);
            x = out;
        }
        float* const out = scratch.floats(policy_.width());
        apply(policy_, {x, settings_.width}, policy_.bias(), out, Finish::store, scratch);
        std::copy_n(out, sizes_.actions, logits);
        if (value != nullptr) *value = dot(value_, x, padded(settings_.width));
    }

    std::size_t inputs_;
    std::vector<Layer> hidden_;
    Layer policy_;
    Heads value_;
};

class RuleNetwork final : public Network {
public:
    RuleNetwork(const NetworkSettings& settings, const NetworkSizes& sizes, const Tensors& tensors,
                const Kernels& kernels)
        : Network(settings, sizes, kernels),
          own_(tensors, "", sizes, settings.strength, settings.kind == NetworkKind::state_rule) {}

private:
    std::size_t scratch_floats() const override { return own_.scratch_floats(); }
    void compute(const NetworkInput& input, float* logits, float* value, Scratch& scratch) const override {
        own_.add_logits(input, kernels_, logits, scratch);
        if (value != nullptr) *value = 0.0F;
    }

    Rule own_;
};

}  // namespace

Rule::Rule(const Tensors& tensors, const std::string& prefix, const NetworkSizes& sizes, float strength, bool leans)
    : sizes_(sizes),
      strength_(strength),
      leans_(leans) {
    const std::size_t columns = sizes.job_columns;
    const auto score = tensor(tensors, prefix + "score.weight", {1, columns});
    const auto gate = tensor(tensors, prefix + "gate_jobs.weight", {1, columns});
    std::vector<float> both(score.begin(), score.end());
    both.insert(both.end(), gate.begin(), gate.end());
    const std::array<float, 2> bias{0.0F, tensor(tensors, prefix + "gate_jobs.bias", {1})[0]};
    rows_ = Layer(both, bias, columns);
    if (sizes.global_columns > 0)
        globals_ = Layer::of(tensors, prefix + "gate_globals", sizes.global_columns, 1, false);
    if (!leans) return;
    std::vector<float> leaning;
    for (const char* const name : {"score_state.weight", "gate_state.weight"}) {
        const auto part = tensor(tensors, prefix + name, {columns, sizes.global_columns});
        leaning.insert(leaning.end(), part.begin(), part.end());
    }
    weights_ = Layer(leaning, both, sizes.global_columns);
}

std::size_t Rule::scratch_floats() const {
    const std::size_t leaning =
        leans_ ? weights_.width() + kLanes * sizes_.job_columns + 2 * padded(sizes_.global_columns + 1) + 2 * kLanes
               : 0;
    return padded(sizes_.rows * sizes_.job_columns) + (kLanes + 3) * padded(sizes_.rows + 1) +
           2 * padded(sizes_.global_columns + 1) + 8 * kLanes + leaning;
}

PackedLayer Rule::weights_in(const NetworkInput& input, const Kernels& kernels, Scratch& scratch) const {
    if (!leans_) return rows_.packed();
    float* const weights = scratch.floats(weights_.width());
    kernels.dense_one(nonzero({input.globals, sizes_.global_columns}, scratch), weights_.packed(), weights_.bias(),
                      weights, Finish::store);
    const std::size_t columns = sizes_.job_columns;
    float* const panel = scratch.floats(columns * kLanes);
    std::fill_n(panel, columns * kLanes, 0.0F);
    for (std::size_t column = 0; column < columns; ++column) {
        panel[column * kLanes] = weights[column];
        panel[column * kLanes + 1] = weights[columns + column];
    }
    return {panel, columns, kLanes};
}

void Rule::add_logits(const NetworkInput& input, const Kernels& kernels, float* logits, Scratch& scratch) const {
    RowNumbers legal{scratch.numbers(sizes_.rows + 1), 0};
    for (std::size_t row = 0; row < sizes_.rows; ++row)
        if (input.mask[row]) legal.numbers[legal.count++] = static_cast<std::uint32_t>(row);
    float* const start = scratch.floats(kLanes);
    std::copy_n(rows_.bias(), kLanes, start);
    if (sizes_.global_columns > 0) {
        float* const gate = scratch.floats(kLanes);
        kernels.dense_one(nonzero({input.globals, sizes_.global_columns}, scratch), globals_.packed(), globals_.bias(),
                          gate, Finish::store);
        start[1] += gate[0];
    }
    float* const both = scratch.floats(legal.count * kLanes);  // each score, and the gate behind it
    kernels.dense(picked_rows(input.jobs, sizes_.job_columns, legal, scratch), weights_in(input, kernels, scratch),
                  start, both, kLanes, Finish::store);
    const bool nothing_runs = sizes_.running >= 0 && input.globals[as_index(sizes_.running)] == 0.0F;
    const auto admits = [&](std::size_t i) { return nothing_runs || both[i * kLanes + 1] >= 0.0F; };
    float best = -std::numeric_limits<float>::infinity();
    for (std::size_t i = 0; i < legal.count; ++i)
        if (admits(i)) best = std::max(best, both[i * kLanes]);
    float* const powers = scratch.floats(legal.count + 1);
    std::fill_n(powers, padded(legal.count + 1), 0.0F);
    for (std::size_t i = 0; i < legal.count; ++i)
        powers[i] = admits(i) ? both[i * kLanes] - best : std::min(both[i * kLanes + 1], -1e-3F);
    kernels.exp_negative(powers, legal.count);
    for (std::size_t i = 0; i < legal.count; ++i)
        logits[legal.numbers[i]] += strength_ * (admits(i) ? 1.0F + powers[i] : powers[i]);
    logits[sizes_.actions - 1] += strength_;
}

std::unique_ptr<Network> make_mlp(const NetworkSettings& settings, const NetworkSizes& sizes, const Tensors& tensors,
                                  const Kernels& kernels) {
    return std::make_unique<Mlp>(settings, sizes, tensors, kernels);
}

std::unique_ptr<Network> make_rule(const NetworkSettings& settings, const NetworkSizes& sizes, const Tensors& tensors,
                                   const Kernels& kernels) {
    return std::make_unique<RuleNetwork>(settings, sizes, tensors, kernels);
}

}  // namespace gpuyard
