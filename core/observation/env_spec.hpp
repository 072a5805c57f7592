// What an environment is made of: docs/contract/mdp.md. Shared by all environments of a vector.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "policy/policy.hpp"

namespace gpuyard {

enum class EnvKind : std::uint8_t { select_job, select_job_and_pool, select_host, rank_hosts, accept_or_skip };
enum class StepMode : std::uint8_t { instant, event, tick, blocking };
enum class Tokens : std::uint8_t { nodes, classes };
enum class Lookahead : std::uint8_t { off, per_gpu, sorted, cdf };

enum class Term : std::uint8_t {
    jct,
    wait,
    slowdown,
    completed_work,
    waiting_work,
    utilization,
    flops_utilization,
    cpu_utilization,
    completions,
    energy,
    makespan,
    idle_while_feasible,
    load_balance,
    fairness,
    backlog,
    finish_early,
    versus_baseline,
};
inline constexpr std::size_t kTerms = 17;

inline constexpr std::array<Named<EnvKind>, 5> kEnvKinds{{
    {"select-job", EnvKind::select_job},
    {"select-job-and-pool", EnvKind::select_job_and_pool},
    {"select-host", EnvKind::select_host},
    {"rank-hosts", EnvKind::rank_hosts},
    {"accept-or-skip", EnvKind::accept_or_skip},
}};
inline constexpr std::array<Named<StepMode>, 4> kStepModes{{
    {"instant", StepMode::instant},
    {"event", StepMode::event},
    {"tick", StepMode::tick},
    {"blocking", StepMode::blocking},
}};
inline constexpr std::array<Named<Tokens>, 2> kTokens{{{"nodes", Tokens::nodes}, {"classes", Tokens::classes}}};
inline constexpr std::array<Named<Lookahead>, 4> kLookaheads{{
    {"off", Lookahead::off},
    {"per_gpu", Lookahead::per_gpu},
    {"sorted", Lookahead::sorted},
    {"cdf", Lookahead::cdf},
}};
inline constexpr std::array<Named<Term>, kTerms> kTermNames{{
    {"jct", Term::jct},
    {"wait", Term::wait},
    {"slowdown", Term::slowdown},
    {"completed_work", Term::completed_work},
    {"waiting_work", Term::waiting_work},
    {"utilization", Term::utilization},
    {"flops_utilization", Term::flops_utilization},
    {"cpu_utilization", Term::cpu_utilization},
    {"completions", Term::completions},
    {"energy", Term::energy},
    {"makespan", Term::makespan},
    {"idle_while_feasible", Term::idle_while_feasible},
    {"load_balance", Term::load_balance},
    {"fairness", Term::fairness},
    {"backlog", Term::backlog},
    {"finish_early", Term::finish_early},
    {"versus_baseline", Term::versus_baseline},
}};

// Lengths of the arrays of an observation, the same in every episode.
struct Dimensions {
    std::size_t rows = 0;    // of jobs
    std::size_t tokens = 0;  // of nodes
    std::size_t pools = 0;
    std::size_t lookahead = 0;
    std::size_t hosts = 0;  // nodes of the largest cluster
};

// Columns of an observation that are there unasked, and those of jobs that are not.
inline constexpr std::size_t kJobColumnCount = 21, kAskedJobColumnCount = 2, kNodeColumnCount = 11;
inline constexpr std::size_t kSingleGlobals = 11;
inline std::size_t global_length(const Dimensions& sizes) { return 2 * sizes.pools + kSingleGlobals + sizes.lookahead; }

struct EnvSpec {
    EnvKind kind = EnvKind::select_job;
    StepMode step_mode = StepMode::instant;
    Time tick_us = 0;
    bool blocking_backfill = false;
    bool backfill_before_shadow = false;  // only what ends before the chosen job can start
    Tokens tokens = Tokens::nodes;
    Lookahead lookahead = Lookahead::off;
    Time lookahead_horizon_us = 1;
    Policy base;
    std::shared_ptr<const Settings> settings;
    std::array<double, kTerms> weights{};
    bool per_job = true;
    double horizon_factor = 0.0;  // 0: no horizon
    std::int64_t max_steps = 0;   // 0: no limit
    bool invalid_is_noop = false;
    double invalid_penalty = 0.0;
    std::optional<Policy> baseline;   // for versus_baseline
    std::size_t baseline_metric = 0;  // of kEpisodeMetrics
    Dimensions sizes;
    // Columns to write, by number; all if not given.
    using Chosen = std::optional<std::vector<std::size_t>>;
    Chosen job_columns, node_columns, global_columns;

    // Whether a column beyond those that are there unasked is among the chosen.
    bool asks_for_starts() const { return asks_beyond(job_columns, kJobColumnCount); }
    bool asks_for_drain() const { return asks_beyond(global_columns, global_length(sizes)); }

    double weight(Term term) const { return weights[static_cast<std::size_t>(term)]; }
    bool chooses_host() const { return kind == EnvKind::select_host || kind == EnvKind::rank_hosts; }
    std::size_t actions() const {
        switch (kind) {
            case EnvKind::select_job: return sizes.rows + 1;
            case EnvKind::select_job_and_pool: return sizes.rows * sizes.pools + 1;
            case EnvKind::accept_or_skip: return 2;
            default: return sizes.hosts;
        }
    }
    // The no-op or skip, for the kinds that choose a job.
    std::size_t noop() const { return kind == EnvKind::accept_or_skip ? 0 : actions() - 1; }

private:
    static bool asks_beyond(const Chosen& columns, std::size_t usual) {
        return columns &&
               std::any_of(columns->begin(), columns->end(), [&](std::size_t column) { return column >= usual; });
    }
};

}  // namespace gpuyard
