// cross-attention: jobs and the no-op attend to nodes.
//
// A node's key and value are linear in its columns, of which there are few. So the matrices between a token and these
// columns are multiplied out once: queries are asked of the columns themselves, and the attended columns are what goes
// through the output layer. What a key has beside its columns is the same for all nodes, and so nothing to a softmax.
#include <algorithm>
#include <cmath>

#include "network/network.hpp"

namespace gpuyard {

namespace {

using Matrix = std::vector<double>;

// a [rows, inner] times b [inner, columns].
Matrix product(const Matrix& a, const Matrix& b, std::size_t rows, std::size_t inner, std::size_t columns) {
    Matrix out(rows * columns, 0.0);
    for (std::size_t r = 0; r < rows; ++r)
        for (std::size_t i = 0; i < inner; ++i)
            for (std::size_t c = 0; c < columns; ++c) out[r * columns + c] += a[r * inner + i] * b[i * columns + c];
    return out;
}

std::vector<float> rounded(const Matrix& values) { return {values.begin(), values.end()}; }

struct Norm {
    std::vector<float> weight, bias;
    static Norm of(const Tensors& tensors, const std::string& name, std::size_t width) {
        return {padded_copy(tensor(tensors, name + ".weight", {width})),
                padded_copy(tensor(tensors, name + ".bias", {width}))};
    }
};

// One layer of attention and what follows it.
struct Block {
    Norm before_attention, before_rise;
    Layer queries;                 // of the columns of nodes, each head's behind another's
    Layer out;                     // from the attended columns
    std::vector<float> out_alone;  // its bias where there is no node
    Layer pool, up, down;

    Block(const Tensors& tensors, std::size_t layer, std::size_t width, std::size_t heads, std::size_t columns) {
        const std::string end = std::string(".").append(std::to_string(layer));
        before_attention = Norm::of(tensors, "norm" + end, width);
        before_rise = Norm::of(tensors, "norm2" + end, width);
        pool = Layer::of(tensors, "pool" + end, width, width);
        up = Layer::of(tensors, "up" + end, width, 2 * width);
        down = Layer::of(tensors, "down" + end, 2 * width, width);
        out_alone = padded_copy(tensor(tensors, "out" + end + ".bias", {width}));
        make_queries(tensors, end, width, heads, columns);
        make_out(tensors, end, width, heads, columns);
    }

private:
    static Matrix read(const Tensors& tensors, const std::string& name, const std::vector<std::size_t>& shape) {
        const auto values = tensor(tensors, name, shape);
        return {values.begin(), values.end()};
    }

    // For head h, with its rows of key and query: (key encode_nodes)^T query / sqrt(width of a head).
    void make_queries(const Tensors& tensors, const std::string& end, std::size_t width, std::size_t heads,
                      std::size_t columns) {
        const Matrix keys = product(read(tensors, "key" + end + ".weight", {width, width}),
                                    read(tensors, "encode_nodes.weight", {width, columns}), width, width, columns);
        const Matrix query = read(tensors, "query" + end + ".weight", {width, width});
        const Matrix bias = read(tensors, "query" + end + ".bias", {width});
        tensor(tensors, "key" + end + ".bias", {width});
        const std::size_t own = width / heads;
        const double scale = 1.0 / std::sqrt(static_cast<double>(own));
        Matrix weights(heads * columns * width, 0.0), biases(heads * columns, 0.0);
        for (std::size_t row = 0; row < width; ++row)
            for (std::size_t c = 0; c < columns; ++c) {
                const std::size_t output = row / own * columns + c;
                const double key = keys[row * columns + c] * scale;
                biases[output] += key * bias[row];
                for (std::size_t i = 0; i < width; ++i) weights[output * width + i] += key * query[row * width + i];
            }
        queries = Layer(rounded(weights), rounded(biases), width);
    }

    void make_out(const Tensors& tensors, const std::string& end, std::size_t width, std::size_t heads,
                  std::size_t columns) {
        const Matrix value = read(tensors, "value_proj" + end + ".weight", {width, width});
        const Matrix values =
            product(value, read(tensors, "encode_nodes.weight", {width, columns}), width, width, columns);
        Matrix constant = product(value, read(tensors, "encode_nodes.bias", {width}), width, width, 1);
        const Matrix value_bias = read(tensors, "value_proj" + end + ".bias", {width});
        for (std::size_t i = 0; i < width; ++i) constant[i] += value_bias[i];
        const Matrix weight = read(tensors, "out" + end + ".weight", {width, width});
        Matrix bias = product(weight, constant, width, width, 1);
        const std::size_t own = width / heads;
        Matrix weights(width * heads * columns, 0.0);
        for (std::size_t output = 0; output < width; ++output) {
            bias[output] += static_cast<double>(out_alone[output]);
            for (std::size_t i = 0; i < width; ++i)
                for (std::size_t c = 0; c < columns; ++c)
                    weights[output * heads * columns + i / own * columns + c] +=
                        weight[output * width + i] * values[i * columns + c];
        }
        out = Layer(rounded(weights), rounded(bias), heads * columns);
    }
};

class CrossAttention final : public Network {
public:
    CrossAttention(const NetworkSettings& settings, const NetworkSizes& sizes, const Tensors& tensors,
                   const Kernels& kernels)
        : Network(settings, sizes, kernels),
          width_(padded(settings.width)),
          jobs_(Layer::of(tensors, "encode_jobs", sizes.job_columns, settings.width)),
          value_hidden_(Layer::of(tensors, "value_hidden", 2 * settings.width, settings.width)),
          noop_token_(padded_copy(tensor(tensors, "noop_token", {settings.width}))),
          policy_(Heads::of(tensors, "policy", settings.width, sizes.choices_per_row())),
          noop_(Heads::of(tensors, "noop", settings.width, 1)),
          value_(Heads::of(tensors, "value", settings.width, 1)) {
        if (sizes.global_columns > 0)
            globals_ = Layer::of(tensors, "encode_globals", sizes.global_columns, settings.width);
        for (std::size_t i = 0; i < settings.depth; ++i)
            blocks_.emplace_back(tensors, i, settings.width, settings.heads, sizes.node_columns);
    }

    bool reads_nodes() const override { return true; }

private:
    // The columns of nodes that are there, each in a row.
    struct Nodes {
        const float* columns;
        std::size_t count, stride;
    };

    std::size_t scratch_floats() const override {
        const std::size_t tokens = sizes_.rows + 1, nodes = padded(sizes_.tokens + 1);
        const std::size_t asked = padded(settings_.heads * sizes_.node_columns);
        return padded(sizes_.rows * sizes_.job_columns) + tokens * (2 * width_ + padded(2 * settings_.width)) +
               2 * tokens * asked + (sizes_.node_columns + 4) * nodes + 4 * padded(tokens + 1) +
               2 * padded(sizes_.global_columns + 1) + (5 * settings_.depth + 8) * (padded(2 * settings_.width + 1));
    }

    Nodes transposed_nodes(const NetworkInput& input, Scratch& scratch) const {
        const RowNumbers present =
            present_rows(input.nodes, sizes_.tokens, sizes_.node_columns, sizes_.node_present, scratch);
        const std::size_t stride = padded(present.count);
        float* const columns = scratch.floats(sizes_.node_columns * stride);
        for (std::size_t c = 0; c < sizes_.node_columns; ++c) {
            float* const to = columns + c * stride;
            for (std::size_t i = 0; i < present.count; ++i)
                to[i] = input.nodes[present.numbers[i] * sizes_.node_columns + c];
            std::fill(to + present.count, to + stride, 0.0F);
        }
        return {columns, present.count, stride};
    }

    // Intermediate results, a row a token.
    struct Tokens {
        float *x, *normed, *wide, *queries, *attended;
        float* key_scores;
        std::size_t count;
    };

    Tokens encoded_tokens(const NetworkInput& input, const RowNumbers& present, std::size_t nodes,
                          Scratch& scratch) const {
        const std::size_t count = present.count + 1, asked = padded(settings_.heads * sizes_.node_columns);
        const Tokens tokens{scratch.floats(count * width_),
                            scratch.floats(count * width_),
                            scratch.floats(count * padded(2 * settings_.width)),
                            scratch.floats(count * asked),
                            scratch.floats(count * asked),
                            scratch.floats(nodes),
                            count};
        apply_to_rows(jobs_, picked_rows(input.jobs, sizes_.job_columns, present, scratch), tokens.x, Finish::store);
        float* const noop = tokens.x + present.count * width_;
        std::copy_n(noop_token_.data(), width_, noop);
        if (sizes_.global_columns > 0)
            apply(globals_, {input.globals, sizes_.global_columns}, globals_.bias(), noop, Finish::add, scratch);
        return tokens;
    }

    void attend(const Block& block, const Nodes& nodes, const Tokens& tokens) const {
        if (nodes.count == 0) {
            for (std::size_t row = 0; row < tokens.count; ++row)
                for (std::size_t i = 0; i < width_; ++i) tokens.x[row * width_ + i] += block.out_alone[i];
            return;
        }
        const std::size_t asked = block.queries.width();
        kernels_.normalise({tokens.x, width_, tokens.count}, settings_.width, block.before_attention.weight.data(),
                           block.before_attention.bias.data(), nullptr, tokens.normed);
        apply_to_rows(block.queries, {tokens.normed, width_, tokens.count}, tokens.queries, Finish::store);
        kernels_.attend({tokens.queries, asked, tokens.count}, settings_.heads, sizes_.node_columns, nodes.columns,
                        nodes.count, nodes.stride, tokens.key_scores, tokens.attended, asked);
        kernels_.dense({tokens.attended, asked, tokens.count}, block.out.packed(), block.out.bias(), tokens.x, width_,
                       Finish::add);
    }

    // The mean of all tokens.
    const float* mean(const Tokens& tokens, Scratch& scratch) const {
        float* const out = scratch.floats(width_);
        kernels_.pool_rows({tokens.x, width_, tokens.count}, width_, out, nullptr);
        for (std::size_t i = 0; i < width_; ++i) out[i] /= static_cast<float>(tokens.count);
        return out;
    }

    // The layers that each token goes through by itself, told what all have in common.
    void rise(const Block& block, const Tokens& tokens, const float* common, Scratch& scratch) const {
        float* const told = scratch.floats(width_);
        apply(block.pool, {common, settings_.width}, block.pool.bias(), told, Finish::store, scratch);
        kernels_.normalise({tokens.x, width_, tokens.count}, settings_.width, block.before_rise.weight.data(),
                           block.before_rise.bias.data(), told, tokens.normed);
        apply_to_rows(block.up, {tokens.normed, width_, tokens.count}, tokens.wide, Finish::relu);
        kernels_.dense({tokens.wide, block.up.width(), tokens.count}, block.down.packed(), block.down.bias(), tokens.x,
                       width_, Finish::add);
    }

    // Keeps the tokens that are wanted, and the no-op's behind them.
    void keep(const RowNumbers& wanted, Tokens& tokens) const {
        for (std::size_t i = 0; i <= wanted.count; ++i) {
            const std::size_t from = i < wanted.count ? wanted.numbers[i] : tokens.count - 1;
            if (from != i) std::copy_n(tokens.x + from * width_, width_, tokens.x + i * width_);
        }
        tokens.count = wanted.count + 1;
    }

    void compute(const NetworkInput& input, float* logits, float* value, Scratch& scratch) const override {
        const RowNumbers present =
            present_rows(input.jobs, sizes_.rows, sizes_.job_columns, sizes_.job_present, scratch);
        const RowNumbers wanted = wanted_rows(input, present, scratch);
        const Nodes nodes = transposed_nodes(input, scratch);
        Tokens tokens = encoded_tokens(input, present, nodes.stride, scratch);
        for (std::size_t i = 0; i < blocks_.size(); ++i) {
            attend(blocks_[i], nodes, tokens);
            const float* const common = mean(tokens, scratch);
            if (value == nullptr && i + 1 == blocks_.size()) keep(wanted, tokens);
            rise(blocks_[i], tokens, common, scratch);
        }
        if (value != nullptr) {
            *value = value_of(tokens, scratch);
            keep(wanted, tokens);
        }
        for (std::size_t i = 0; i < wanted.count; ++i) wanted.numbers[i] = present.numbers[wanted.numbers[i]];
        const float waiting = dot(noop_, tokens.x + wanted.count * width_, width_);
        write_job_logits(input, policy_, {tokens.x, width_, wanted.count}, wanted.numbers, waiting, logits, scratch);
    }

    float value_of(const Tokens& tokens, Scratch& scratch) const {
        float* const both = scratch.floats(2 * settings_.width);
        float* const hidden = scratch.floats(width_);
        std::copy_n(mean(tokens, scratch), settings_.width, both);
        std::copy_n(tokens.x + (tokens.count - 1) * width_, settings_.width, both + settings_.width);
        apply(value_hidden_, {both, 2 * settings_.width}, value_hidden_.bias(), hidden, Finish::relu, scratch);
        return dot(value_, hidden, width_);
    }

    std::size_t width_;  // padded
    Layer jobs_, globals_, value_hidden_;
    std::vector<float> noop_token_;
    std::vector<Block> blocks_;
    Heads policy_, noop_, value_;
};

}  // namespace

std::unique_ptr<Network> make_cross_attention(const NetworkSettings& settings, const NetworkSizes& sizes,
                                              const Tensors& tensors, const Kernels& kernels) {
    return std::make_unique<CrossAttention>(settings, sizes, tensors, kernels);
}

}  // namespace gpuyard
