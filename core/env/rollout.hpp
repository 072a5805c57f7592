// Whole episodes run natively, many at once, by networks or by policies.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "base/thread_pool.hpp"
#include "env/environment.hpp"
#include "network/network.hpp"

namespace gpuyard {

// What acts: a network by its largest logit, or a policy as an expert. One of the two is given.
struct Chooser {
    const Network* network = nullptr;
    const Policy* policy = nullptr;
};

// Of episodes by choosers: `metrics` has kEpisodeMetrics.size() entries each.
struct RolloutResults {
    double *metrics, *returns;
    std::int64_t* lengths;
};

// Room for one observation of an environment.
class ObservationRoom {
public:
    explicit ObservationRoom(const EnvSpec& spec);
    // What a network would read now.
    NetworkInput look(Environment& environment, const Network& network);

private:
    std::vector<float> jobs_, nodes_, globals_;
};

class Rollouts {
public:
    Rollouts(std::shared_ptr<const EnvSpec> spec, std::size_t threads) : spec_(std::move(spec)), pool_(threads) {}

    const EnvSpec& spec() const { return *spec_; }

    // Runs every episode to its end by every chooser. `interrupted` is asked by the calling thread now and then, and
    // stops everything: then this returns false.
    bool run(std::span<const Episode> episodes, std::span<const Chooser> choosers, const RolloutResults& results,
             const std::function<bool()>& interrupted);

private:
    // An environment for one thread at a time.
    struct Place {
        explicit Place(std::shared_ptr<const EnvSpec> spec) : environment(spec), room(*spec) {}
        Environment environment;
        ObservationRoom room;
        Scratch scratch;
    };

    std::unique_ptr<Place> take_place();
    void give_back(std::unique_ptr<Place> place);

    std::shared_ptr<const EnvSpec> spec_;
    ThreadPool pool_;
    std::mutex running_, mutex_;
    std::vector<std::unique_ptr<Place>> free_;
};

// Throws std::invalid_argument unless the network was made for observations of this environment.
void check_suits(const Network& network, const EnvSpec& spec);

}  // namespace gpuyard
