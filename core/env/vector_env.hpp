// Many environments stepped together by a pool of threads into arrays that the caller owns.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <stdexcept>
#include <vector>

#include "base/thread_pool.hpp"
#include "env/environment.hpp"

namespace gpuyard {

// An action that cannot be executed now.
class InvalidAction : public std::invalid_argument {
public:
    using std::invalid_argument::invalid_argument;
};

enum class Autoreset : std::uint8_t { off, same_step, next_step };
inline constexpr std::array<Named<Autoreset>, 3> kAutoresets{{
    {"off", Autoreset::off},
    {"same-step", Autoreset::same_step},
    {"next-step", Autoreset::next_step},
}};

// How many floats the parts of one observation have, and how many actions there are.
struct ObservationLengths {
    explicit ObservationLengths(const EnvSpec& spec);
    std::size_t flat() const { return jobs + nodes + globals + actions; }

    std::size_t jobs, nodes, globals, actions;
};

// Where observations go. Each environment has its own stretch, `*_stride` floats (or bytes of the mask) after the one
// before.
struct ObservationArrays {
    ObservationArrays() = default;
    ObservationArrays(const ObservationLengths& lengths, float* jobs_to, float* nodes_to, float* globals_to,
                      std::int8_t* mask_to);
    // All in one array: jobs, nodes, globals, and the mask as floats.
    ObservationArrays(const ObservationLengths& lengths, float* flat, std::int8_t* mask_to);

    float *jobs = nullptr, *nodes = nullptr, *globals = nullptr;
    float* flat_mask = nullptr;  // null unless observations are flat
    std::int8_t* mask = nullptr;
    std::size_t jobs_stride = 0, nodes_stride = 0, globals_stride = 0, flat_mask_stride = 0;
};

struct StepArrays {
    double* reward = nullptr;
    std::uint8_t *terminated = nullptr, *truncated = nullptr;
    // Of episodes that ended in the step.
    std::uint8_t* ended = nullptr;
    double* episode_return = nullptr;
    std::int64_t* episode_length = nullptr;
    double* metrics = nullptr;  // kEpisodeMetrics.size() each
};

class VectorEnv {
public:
    VectorEnv(std::shared_ptr<const EnvSpec> spec, std::size_t count, std::size_t threads, Autoreset autoreset);

    std::size_t count() const { return environments_.size(); }
    const EnvSpec& spec() const { return *spec_; }
    // An environment in which an episode has begun.
    Environment& begun(std::size_t i);

    // Episodes are drawn from a source, or given one by one before they are needed.
    void set_source(WindowSource source) { source_ = std::move(source); }
    void give(std::size_t i, Episode episode) { given_.at(i) = std::move(episode); }

    // `last`: where the last observation of an episode goes if the next begins in the same step.
    void attach(const ObservationArrays& observation, const ObservationArrays& last, const StepArrays& step) {
        observation_ = observation;
        last_ = last;
        step_ = step;
    }

    // Begins episodes in the environments that `which` marks, or in all. `seeds` starts their draws again.
    void reset(std::span<const std::uint64_t> seeds, std::span<const std::uint8_t> which);
    // Puts an environment back where it was: in the episode number `drawn` of its seed, after these actions (or
    // priorities).
    void resume(std::size_t i, std::uint64_t seed, std::uint64_t drawn, std::span<const std::int64_t> actions,
                std::span<const float> priorities);
    // Whatever is wrong with an action, nothing has changed.
    void step(std::span<const std::int64_t> actions);
    void step_ranked(std::span<const float> priorities);
    void expert_actions(const Policy& policy, std::span<std::int64_t> out);
    // One of the legal actions, all equally likely, by seed, episode and step.
    void random_actions(std::span<std::int64_t> out);

private:
    void begin(std::size_t i);
    void write(std::size_t i, const ObservationArrays& to);
    void after_step(std::size_t i, const StepResult& result);
    template <class Step>
    void step_all(Step step);
    void check(std::span<const std::int64_t> actions) const;
    bool awaits_reset(std::size_t i) const { return autoreset_ == Autoreset::next_step && done_[i] != 0; }

    std::shared_ptr<const EnvSpec> spec_;
    Autoreset autoreset_;
    std::vector<std::unique_ptr<Environment>> environments_;
    std::optional<WindowSource> source_;
    std::vector<std::optional<Episode>> given_;
    std::vector<std::uint64_t> seeds_;
    std::vector<std::uint64_t> episodes_, begun_;  // drawn, and begun in all, since the seed was set
    std::vector<std::uint8_t> done_;
    ObservationArrays observation_, last_;
    StepArrays step_;
    ThreadPool pool_;
};

}  // namespace gpuyard
