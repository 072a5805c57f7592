// host-attention: one scorer shared by all hosts, told the job and what it attends to.
#include <algorithm>
#include <cmath>

#include "network/network.hpp"

namespace gpuyard {

namespace {

class HostAttention final : public Network {
public:
    HostAttention(const NetworkSettings& settings, const NetworkSizes& sizes, const Tensors& tensors,
                  const Kernels& kernels)
        : Network(settings, sizes, kernels),
          width_(padded(settings.width)) {
        const std::size_t width = settings.width;
        nodes_ = {Layer::of(tensors, "encode_nodes.0", sizes.node_columns, width),
                  Layer::of(tensors, "encode_nodes.1", width, width)};
        job_ = {Layer::of(tensors, "encode_job.0", sizes.job_columns + sizes.global_columns, width),
                Layer::of(tensors, "encode_job.1", width, width)};
        asked_ = asked_of_hosts(tensors, width);
        attended_ = Layer::of(tensors, "attended", width, width);
        host_hidden_ = Layer::of(tensors, "host_hidden", width, width);
        job_hidden_ = Layer::of(tensors, "job_hidden", width, width, false);
        state_hidden_ = Layer::of(tensors, "state_hidden", width, width, false);
        value_hidden_ = Layer::of(tensors, "value_hidden", 2 * width, width);
        policy_ = Heads::of(tensors, "policy", width, 1);
        value_ = Heads::of(tensors, "value", width, 1);
    }

private:
    // key^T query / sqrt(width): what the job asks of a host's encoding itself. The key's bias is the same for all
    // hosts, and so nothing to a softmax.
    static Layer asked_of_hosts(const Tensors& tensors, std::size_t width) {
        const auto key = tensor(tensors, "key.weight", {width, width}),
                   query = tensor(tensors, "query.weight", {width, width});
        const auto bias = tensor(tensors, "query.bias", {width});
        tensor(tensors, "key.bias", {width});
        const double scale = 1.0 / std::sqrt(static_cast<double>(width));
        std::vector<double> weights(width * width, 0.0), biases(width, 0.0);
        for (std::size_t row = 0; row < width; ++row)
            for (std::size_t output = 0; output < width; ++output) {
                const double k = static_cast<double>(key[row * width + output]) * scale;
                biases[output] += k * static_cast<double>(bias[row]);
                for (std::size_t i = 0; i < width; ++i)
                    weights[output * width + i] += k * static_cast<double>(query[row * width + i]);
            }
        const std::vector<float> rounded_weights(weights.begin(), weights.end()),
            rounded_biases(biases.begin(), biases.end());
        return Layer(rounded_weights, rounded_biases, width);
    }

    std::size_t scratch_floats() const override {
        const std::size_t hosts = sizes_.tokens;
        return padded(hosts * sizes_.node_columns) + 2 * padded(hosts * width_) + 6 * padded(hosts + 1) +
               3 * padded(sizes_.job_columns + sizes_.global_columns + 1) + 24 * padded(2 * settings_.width + 1);
    }

    const float* encoded_job(const NetworkInput& input, Scratch& scratch) const {
        const std::size_t columns = sizes_.job_columns + sizes_.global_columns;
        float* const x = scratch.floats(columns);
        float* const first = scratch.floats(width_);
        float* const second = scratch.floats(width_);
        std::copy_n(input.jobs, sizes_.job_columns, x);
        std::copy_n(input.globals, sizes_.global_columns, x + sizes_.job_columns);
        apply(job_[0], {x, columns}, job_[0].bias(), first, Finish::relu, scratch);
        apply(job_[1], {first, settings_.width}, job_[1].bias(), second, Finish::relu, scratch);
        return second;
    }

    // What the job attends to among the hosts; 0 if there is none.
    const float* attended_state(const float* job, const Rows& hosts, Scratch& scratch) const {
        float* const asked = scratch.floats(width_);
        float* const weights = scratch.floats(hosts.count + 1);
        float* const sum = scratch.floats(width_);
        float* const state = scratch.floats(width_);
        std::fill_n(state, width_, 0.0F);
        if (hosts.count == 0) return state;
        apply(asked_, {job, settings_.width}, asked_.bias(), asked, Finish::store, scratch);
        kernels_.dots(hosts, width_, asked, 0.0F, weights, 1);
        kernels_.softmax(weights, hosts.count);
        kernels_.weighted_sum(hosts, width_, weights, sum);
        apply(attended_, {sum, settings_.width}, attended_.bias(), state, Finish::store, scratch);
        return state;
    }

    void compute(const NetworkInput& input, float* logits, float* value, Scratch& scratch) const override {
        const RowNumbers present =
            present_rows(input.nodes, sizes_.tokens, sizes_.node_columns, sizes_.node_present, scratch);
        float* const first = scratch.floats(present.count * width_);
        float* const hosts = scratch.floats(present.count * width_);
        apply_to_rows(nodes_[0], picked_rows(input.nodes, sizes_.node_columns, present, scratch), first, Finish::relu);
        apply_to_rows(nodes_[1], {first, width_, present.count}, hosts, Finish::relu);
        const float* const job = encoded_job(input, scratch);
        const float* const state = attended_state(job, {hosts, width_, present.count}, scratch);
        if (value != nullptr) *value = value_of(job, state, scratch);

        float* const start = scratch.floats(width_);
        apply(job_hidden_, {job, settings_.width}, host_hidden_.bias(), start, Finish::store, scratch);
        apply(state_hidden_, {state, settings_.width}, state_hidden_.bias(), start, Finish::add, scratch);
        std::size_t wanted = 0;
        for (std::size_t i = 0; i < present.count; ++i) {
            const std::uint32_t host = present.numbers[i];
            if (!input.mask[host]) continue;
            if (wanted != i) std::copy_n(hosts + i * width_, width_, hosts + wanted * width_);
            present.numbers[wanted++] = host;
        }
        kernels_.dense({hosts, width_, wanted}, host_hidden_.packed(), start, first, width_, Finish::relu);
        float* const scores = scratch.floats(wanted + 1);
        kernels_.dots({first, width_, wanted}, width_, policy_.weights(0), policy_.bias(0), scores, 1);
        for (std::size_t i = 0; i < wanted; ++i) logits[present.numbers[i]] = scores[i];
    }

    float value_of(const float* job, const float* state, Scratch& scratch) const {
        const std::size_t width = settings_.width;
        float* const both = scratch.floats(2 * width);
        float* const hidden = scratch.floats(width_);
        std::copy_n(job, width, both);
        std::copy_n(state, width, both + width);
        apply(value_hidden_, {both, 2 * width}, value_hidden_.bias(), hidden, Finish::relu, scratch);
        return dot(value_, hidden, width_);
    }

    std::size_t width_;  // padded
    std::array<Layer, 2> nodes_, job_;
    Layer asked_, attended_, host_hidden_, job_hidden_, state_hidden_, value_hidden_;
    Heads policy_, value_;
};

}  // namespace

std::unique_ptr<Network> make_host_attention(const NetworkSettings& settings, const NetworkSizes& sizes,
                                             const Tensors& tensors, const Kernels& kernels) {
    return std::make_unique<HostAttention>(settings, sizes, tensors, kernels);
}

}  // namespace gpuyard
