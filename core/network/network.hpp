// The forward pass of every network: docs/contract/networks.md.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "network/layers.hpp"
#include "observation/env_spec.hpp"

namespace gpuyard {

enum class NetworkKind : std::uint8_t { mlp, job_scorer, cross_attention, host_attention, rule, state_rule };
enum class Residual : std::uint8_t { none, base, rule };

inline constexpr std::array<Named<NetworkKind>, 6> kNetworkKinds{{
    {"mlp", NetworkKind::mlp},
    {"job-scorer", NetworkKind::job_scorer},
    {"cross-attention", NetworkKind::cross_attention},
    {"host-attention", NetworkKind::host_attention},
    {"rule", NetworkKind::rule},
    {"state-rule", NetworkKind::state_rule},
}};
inline constexpr std::array<Named<Residual>, 3> kResiduals{{
    {"none", Residual::none},
    {"base", Residual::base},
    {"rule", Residual::rule},
}};

struct NetworkSettings {
    NetworkKind kind = NetworkKind::job_scorer;
    std::size_t width = 1, depth = 1, heads = 1;
    Residual residual = Residual::none;
    float strength = 1.0F;
};

// Of observations and actions. Columns by number; -1 if the observation does not have it.
struct NetworkSizes {
    EnvKind kind = EnvKind::select_job;
    std::size_t rows = 0, job_columns = 0, tokens = 0, node_columns = 0, global_columns = 0, pools = 0, actions = 0;
    std::int64_t job_present = -1, job_base_choice = -1, node_present = -1, node_base_choice = -1, base_pool = -1,
                 base_waits = -1, running = -1;

    bool selects_job() const { return kind == EnvKind::select_job || kind == EnvKind::select_job_and_pool; }
    std::size_t choices_per_row() const { return kind == EnvKind::select_job_and_pool ? pools : 1; }
};

// Of one environment. Where the mask is 0, or a row is not there, logits are not computed: they are what a residual
// gives, or 0.
struct NetworkInput {
    const float* jobs;
    const float* nodes;
    const float* globals;
    const std::int8_t* mask;
};

// The rule of the search: scores of jobs and a gate that admits them.
class Rule {
public:
    // `prefix` comes before the tensors' names. `leans`: whether weights depend on the state of the whole cluster.
    Rule(const Tensors& tensors, const std::string& prefix, const NetworkSizes& sizes, float strength,
         bool leans = false);
    void add_logits(const NetworkInput& input, const Kernels& kernels, float* logits, Scratch& scratch) const;
    std::size_t scratch_floats() const;

private:
    // The weights of score and gate in a state, packed as kernels read them.
    PackedLayer weights_in(const NetworkInput& input, const Kernels& kernels, Scratch& scratch) const;

    NetworkSizes sizes_;
    float strength_;
    bool leans_;
    Layer rows_;  // score and gate of a job; if it leans, their biases alone count
    Layer globals_;
    Layer weights_;  // from globals to the weights of the score, then those of the gate
};

class Network {
public:
    // Throws std::invalid_argument if tensors are missing or misshapen. `kernels`: by name, or "auto" for the fastest.
    static std::unique_ptr<const Network> make(const NetworkSettings& settings, const NetworkSizes& sizes,
                                               const Tensors& tensors, const std::string& kernels = "auto");
    virtual ~Network() = default;
    Network(const Network&) = delete;
    Network& operator=(const Network&) = delete;

    // Writes `actions` logits and, unless null, the value, which costs extra. May be called by many threads, each with
    // its own scratch.
    void forward(const NetworkInput& input, float* logits, float* value, Scratch& scratch) const;
    // The same for `count` inputs that lie one behind the other.
    void forward_batch(NetworkInput input, std::size_t count, float* logits, float* values, Scratch& scratch) const;
    // The legal action of the largest logit, the first of these; -1 if none is legal.
    std::int64_t choose(const NetworkInput& input, Scratch& scratch) const;

    const NetworkSizes& sizes() const { return sizes_; }
    virtual bool reads_nodes() const {
        return sizes_.kind == EnvKind::select_host || sizes_.kind == EnvKind::rank_hosts;
    }

protected:
    Network(const NetworkSettings& settings, const NetworkSizes& sizes, const Kernels& kernels)
        : settings_(settings),
          sizes_(sizes),
          kernels_(kernels) {}

    // Writes into logits that are 0.
    virtual void compute(const NetworkInput& input, float* logits, float* value, Scratch& scratch) const = 0;
    virtual std::size_t scratch_floats() const = 0;

    // One row through a layer.
    void apply(const Layer& layer, std::span<const float> x, const float* start, float* out, Finish finish,
               Scratch& scratch) const {
        kernels_.dense_one(nonzero(x, scratch), layer.packed(), start, out, finish);
    }
    void apply_to_rows(const Layer& layer, const Rows& x, float* out, Finish finish) const {
        kernels_.dense(x, layer.packed(), layer.bias(), out, layer.width(), finish);
    }
    float dot(const Heads& heads, const float* x, std::size_t width) const {
        float out = 0.0F;
        kernels_.dots({x, width, 1}, width, heads.weights(0), heads.bias(0), &out, 1);
        return out;
    }
    // Which of the present rows of jobs have a logit that somebody asks for, as places among them.
    RowNumbers wanted_rows(const NetworkInput& input, const RowNumbers& present, Scratch& scratch) const;
    // Logits of rows of jobs, computed for those wanted, and of waiting.
    void write_job_logits(const NetworkInput& input, const Heads& policy, const Rows& wanted,
                          const std::uint32_t* numbers, float waiting, float* logits, Scratch& scratch) const;

    NetworkSettings settings_;
    NetworkSizes sizes_;
    const Kernels& kernels_;

private:
    void add_base(const NetworkInput& input, float* logits) const;
    std::optional<Rule> rule_;  // that the logits start from
};

// The makers of each kind.
std::unique_ptr<Network> make_mlp(const NetworkSettings&, const NetworkSizes&, const Tensors&, const Kernels&);
std::unique_ptr<Network> make_rule(const NetworkSettings&, const NetworkSizes&, const Tensors&, const Kernels&);
std::unique_ptr<Network> make_job_scorer(const NetworkSettings&, const NetworkSizes&, const Tensors&, const Kernels&);
std::unique_ptr<Network> make_cross_attention(const NetworkSettings&, const NetworkSizes&, const Tensors&,
                                              const Kernels&);
std::unique_ptr<Network> make_host_attention(const NetworkSettings&, const NetworkSizes&, const Tensors&,
                                             const Kernels&);

}  // namespace gpuyard
