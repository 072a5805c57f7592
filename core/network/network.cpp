#include "network/network.hpp"

#include <algorithm>
#include <cmath>
#include <stdexcept>

#include "base/index.hpp"

namespace gpuyard {

namespace {

const Kernels& kernels_named(const std::string& name) {
    for (const Kernels* kernels : available_kernels())
        if (name == "auto" || name == kernels->name) return *kernels;
    throw std::invalid_argument("this processor has no kernels " + name);
}

void check_sizes(const NetworkSettings& settings) {
    if (settings.width == 0 || settings.depth == 0 || settings.heads == 0 || settings.width % settings.heads != 0)
        throw std::invalid_argument("width, depth and heads are at least 1, and heads share the width");
}

void check_finite(const Tensors& tensors) {
    for (const auto& [name, tensor] : tensors)
        if (!std::all_of(tensor.values.begin(), tensor.values.end(), [](float x) { return std::isfinite(x); }))
            throw std::invalid_argument("tensor " + name + " holds numbers that are not finite");
}

void check_columns(const NetworkSettings& settings, const NetworkSizes& sizes) {
    const auto need = [](std::int64_t column, const char* name) {
        if (column < 0) throw std::invalid_argument(std::string("the network needs column ") + name);
    };
    const bool scores_jobs = settings.kind == NetworkKind::job_scorer || settings.kind == NetworkKind::cross_attention;
    const bool hosts = sizes.kind == EnvKind::select_host || sizes.kind == EnvKind::rank_hosts;
    if (sizes.kind == EnvKind::accept_or_skip && scores_jobs) need(sizes.job_base_choice, "base_choice");
    if (hosts && sizes.tokens != sizes.actions &&
        (settings.kind == NetworkKind::host_attention || settings.residual == Residual::base))
        throw std::invalid_argument("the network needs one row of nodes a host (tokens = nodes)");
    if (settings.residual != Residual::base) return;
    if (hosts) need(sizes.node_base_choice, "base_choice");
    if (!sizes.selects_job()) return;
    need(sizes.job_base_choice, "base_choice");
    need(sizes.base_waits, "base_waits");
    if (sizes.kind == EnvKind::select_job_and_pool) need(sizes.base_pool, "base_pool");
}

}  // namespace

std::unique_ptr<const Network> Network::make(const NetworkSettings& settings, const NetworkSizes& sizes,
                                             const Tensors& tensors, const std::string& kernels) {
    check_sizes(settings);
    check_finite(tensors);
    check_columns(settings, sizes);
    using Make =
        std::unique_ptr<Network> (*)(const NetworkSettings&, const NetworkSizes&, const Tensors&, const Kernels&);
    constexpr std::array<Make, kNetworkKinds.size()> makers{
        make_mlp, make_job_scorer, make_cross_attention, make_host_attention, make_rule, make_rule};
    auto network = makers[static_cast<std::size_t>(settings.kind)](settings, sizes, tensors, kernels_named(kernels));
    if (settings.residual == Residual::rule) network->rule_.emplace(tensors, "rule.", sizes, settings.strength);
    return network;
}

void Network::forward(const NetworkInput& input, float* logits, float* value, Scratch& scratch) const {
    std::fill_n(logits, sizes_.actions, 0.0F);
    scratch.prepare(scratch_floats());
    compute(input, logits, value, scratch);
    if (settings_.residual == Residual::base) add_base(input, logits);
    if (!rule_) return;
    scratch.prepare(rule_->scratch_floats());
    rule_->add_logits(input, kernels_, logits, scratch);
}

void Network::forward_batch(NetworkInput input, std::size_t count, float* logits, float* values,
                            Scratch& scratch) const {
    for (std::size_t i = 0; i < count; ++i) {
        forward(input, logits + i * sizes_.actions, values + i, scratch);
        input = {input.jobs + sizes_.rows * sizes_.job_columns, input.nodes + sizes_.tokens * sizes_.node_columns,
                 input.globals + sizes_.global_columns, input.mask + sizes_.actions};
    }
}

std::int64_t Network::choose(const NetworkInput& input, Scratch& scratch) const {
    // Logits come first in the scratch of nobody: they are few enough for the stack, or rare.
    constexpr std::size_t kUsual = 1024;
    std::array<float, kUsual> few;
    std::vector<float> many(sizes_.actions > kUsual ? sizes_.actions : 0);
    float* const logits = many.empty() ? few.data() : many.data();
    forward(input, logits, nullptr, scratch);
    std::int64_t best = -1;
    for (std::size_t action = 0; action < sizes_.actions; ++action)
        if (input.mask[action] && (best < 0 || logits[action] > logits[as_index(best)]))
            best = static_cast<std::int64_t>(action);
    return best;
}

RowNumbers Network::wanted_rows(const NetworkInput& input, const RowNumbers& present, Scratch& scratch) const {
    RowNumbers wanted{scratch.numbers(present.count + 1), 0};
    const std::size_t choices = sizes_.choices_per_row();
    for (std::size_t i = 0; i < present.count; ++i) {
        const std::size_t row = present.numbers[i];
        bool is_wanted = false;
        if (sizes_.kind == EnvKind::accept_or_skip)
            is_wanted = input.jobs[row * sizes_.job_columns + as_index(sizes_.job_base_choice)] != 0.0F;
        else
            for (std::size_t choice = 0; choice < choices; ++choice)
                is_wanted = is_wanted || input.mask[row * choices + choice];
        wanted.numbers[wanted.count] = static_cast<std::uint32_t>(i);
        wanted.count += is_wanted ? 1 : 0;
    }
    return wanted;
}

void Network::write_job_logits(const NetworkInput& input, const Heads& policy, const Rows& wanted,
                               const std::uint32_t* numbers, float waiting, float* logits, Scratch& scratch) const {
    const bool accepts = sizes_.kind == EnvKind::accept_or_skip;
    float* const scores = scratch.floats(wanted.count + 1);
    for (std::size_t choice = 0; choice < policy.outputs(); ++choice) {
        kernels_.dots(wanted, wanted.stride, policy.weights(choice), policy.bias(choice), scores, 1);
        for (std::size_t i = 0; i < wanted.count; ++i) {
            const std::size_t row = numbers[i];
            if (accepts)
                logits[1] += input.jobs[row * sizes_.job_columns + as_index(sizes_.job_base_choice)] * scores[i];
            else
                logits[row * policy.outputs() + choice] = scores[i];
        }
    }
    logits[accepts ? 0 : sizes_.actions - 1] = waiting;
}

void Network::add_base(const NetworkInput& input, float* logits) const {
    const float strength = settings_.strength;
    switch (sizes_.kind) {
        case EnvKind::select_job:
        case EnvKind::select_job_and_pool:
            for (std::size_t row = 0; row < sizes_.rows; ++row) {
                const float chosen = input.jobs[row * sizes_.job_columns + as_index(sizes_.job_base_choice)];
                if (chosen == 0.0F) continue;
                for (std::size_t pool = 0; pool < sizes_.choices_per_row(); ++pool)
                    logits[row * sizes_.choices_per_row() + pool] +=
                        strength * chosen *
                        (sizes_.kind == EnvKind::select_job ? 1.0F : input.globals[as_index(sizes_.base_pool) + pool]);
            }
            logits[sizes_.actions - 1] += strength * input.globals[as_index(sizes_.base_waits)];
            break;
        case EnvKind::accept_or_skip: logits[1] += strength; break;
        default:
            for (std::size_t host = 0; host < sizes_.actions; ++host)
                logits[host] += strength * input.nodes[host * sizes_.node_columns + as_index(sizes_.node_base_choice)];
    }
}

}  // namespace gpuyard
