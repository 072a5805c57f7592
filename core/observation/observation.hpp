// The one observation encoder: docs/contract/observation.md, version 1.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string_view>

#include "observation/env_spec.hpp"
#include "observation/occupancy.hpp"
#include "observation/prospects.hpp"
#include "observation/window_job.hpp"
#include "simulator/snapshot.hpp"

namespace gpuyard {

inline constexpr std::int32_t kObservationVersion = 1;

struct Column {
    std::string_view name;
    double low, high;
};

inline constexpr std::array<Column, kJobColumnCount> kJobColumns{{
    {"present", 0, 1},    {"wait", 0, 1},        {"estimate", 0, 1},      {"estimate_known", 0, 1},
    {"gpus", 0, 1},       {"gpus_log", 0, 1},    {"area", 0, 1},          {"cpus", 0, 1},
    {"memory", 0, 1},     {"priority", 0, 1},    {"slowdown", 0, 1},      {"deadline", 0, 1},
    {"fits", 0, 1},       {"free_after", 0, 1},  {"nodes_needed", 0, 1},  {"fragmentation", -1, 1},
    {"user_share", 0, 1}, {"group_share", 0, 1}, {"before_shadow", 0, 1}, {"base_choice", 0, 1},
    {"speed", 0, 1},
}};
inline constexpr std::array<Column, kAskedJobColumnCount> kAskedJobColumns{{{"starts_in", 0, 1}, {"holds_up", 0, 1}}};
inline constexpr std::array<Column, kNodeColumnCount> kNodeColumns{{
    {"present", 0, 1},
    {"count", 0, 1},
    {"gpu_use", 0, 1},
    {"cpu_use", 0, 1},
    {"memory_use", 0, 1},
    {"gpus", 0, 1},
    {"cpus", 0, 1},
    {"memory", 0, 1},
    {"speed", 0, 1},
    {"release", 0, 1},
    {"base_choice", 0, 1},
}};
// `free` and `base_pool` stand for one column a pool, `lookahead` for as many as it is long.
inline constexpr std::array<Column, 14> kGlobalColumns{{
    {"free", 0, 1},
    {"base_pool", 0, 1},
    {"queue", 0, 1},
    {"queue_beyond", 0, 1},
    {"demand", 0, 1},
    {"arrivals", 0, 1},
    {"running", 0, 1},
    {"gpu_use", 0, 1},
    {"fragmentation", 0, 1},
    {"shadow", 0, 1},
    {"day_sin", -1, 1},
    {"day_cos", -1, 1},
    {"base_waits", 0, 1},
    {"lookahead", 0, 1},
}};
// Comes behind all others, if it is asked for.
inline constexpr std::array<Column, 1> kAskedGlobalColumns{{{"drain", 0, 1}}};

// Everything an observation is made from.
struct Scene {
    Time now_us;
    Time epoch_us;
    const ClusterState& state;
    std::span<const WindowJob* const> rows;
    std::int64_t waiting;
    std::int64_t waiting_milli;  // of GPUs
    std::int64_t running;
    double arrivals;
    std::span<const float> user_share, group_share;  // by number: GPUs held / GPUs
    const Prospects& prospects;
    Occupancy& occupancy;
    const Allocation* base_allocation;  // where the base policy's next start goes; null if it waits
};

struct ObservationBuffers {
    float* jobs = nullptr;
    float* nodes = nullptr;  // may stay null, if nobody reads them
    float* globals = nullptr;
};

class Observer {
public:
    explicit Observer(const EnvSpec& spec);

    // The numbers of floats of the three parts.
    std::size_t jobs_length() const { return spec_.sizes.rows * job_width_; }
    std::size_t nodes_length() const { return spec_.sizes.tokens * node_width_; }
    std::size_t globals_length() const { return global_width_; }

    void write(const Scene& scene, const ObservationBuffers& out);

private:
    void write_jobs(const Scene& scene, float* out);
    void write_nodes(const Scene& scene, float* out);
    void write_globals(const Scene& scene, float* out);

    const EnvSpec& spec_;
    std::size_t job_width_, node_width_, global_width_;
    std::size_t row_width_;                            // of a row of jobs before columns are picked
    std::vector<float> job_scratch_, global_scratch_;  // where columns are picked from
    static constexpr std::size_t kLeftOut = ~std::size_t{0};
    std::size_t release_at_ = kLeftOut, base_choice_at_ = kLeftOut;  // in a row of nodes
};

}  // namespace gpuyard
