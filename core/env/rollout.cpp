#include "env/rollout.hpp"

#include <atomic>
#include <chrono>
#include <stdexcept>
#include <string>
#include <thread>

namespace gpuyard {

namespace {

constexpr std::int64_t kStepsBetweenQuestions = 512;
constexpr std::chrono::milliseconds kBetweenQuestions{50};

// Asks now and then whether to stop, in the thread that made it. The others only learn of it.
class Interruption {
public:
    explicit Interruption(const std::function<bool()>& ask) : ask_(ask) {}

    bool asked_to_stop() {
        if (std::this_thread::get_id() == caller_ && !stop_.load(std::memory_order_relaxed)) {
            const auto now = std::chrono::steady_clock::now();
            if (now - asked_ >= kBetweenQuestions) {
                asked_ = now;
                if (ask_()) stop_ = true;
            }
        }
        return stop_.load(std::memory_order_relaxed);
    }
    bool stopped() const { return stop_; }

private:
    const std::function<bool()>& ask_;
    std::thread::id caller_ = std::this_thread::get_id();
    std::chrono::steady_clock::time_point asked_ = std::chrono::steady_clock::now();
    std::atomic<bool> stop_{false};
};

}  // namespace

ObservationRoom::ObservationRoom(const EnvSpec& spec) {
    const Observer observer(spec);
    jobs_.resize(observer.jobs_length());
    nodes_.resize(observer.nodes_length());
    globals_.resize(observer.globals_length());
}

NetworkInput ObservationRoom::look(Environment& environment, const Network& network) {
    environment.observe({jobs_.data(), network.reads_nodes() ? nodes_.data() : nullptr, globals_.data()});
    return {jobs_.data(), nodes_.data(), globals_.data(), environment.mask().data()};
}

std::unique_ptr<Rollouts::Place> Rollouts::take_place() {
    {
        const std::lock_guard lock(mutex_);
        if (!free_.empty()) {
            auto place = std::move(free_.back());
            free_.pop_back();
            return place;
        }
    }
    return std::make_unique<Place>(spec_);
}

void Rollouts::give_back(std::unique_ptr<Place> place) {
    const std::lock_guard lock(mutex_);
    free_.push_back(std::move(place));
}

bool Rollouts::run(std::span<const Episode> episodes, std::span<const Chooser> choosers, const RolloutResults& results,
                   const std::function<bool()>& interrupted) {
    const std::lock_guard only_one(running_);
    Interruption interruption(interrupted);
    const auto run_one = [&](std::size_t task) {
        if (interruption.asked_to_stop()) return;
        auto place = take_place();
        Environment& environment = place->environment;
        const Chooser& chooser = choosers[task / episodes.size()];
        environment.begin(episodes[task % episodes.size()]);
        for (StepResult result; !result.done();) {
            if (environment.steps() % kStepsBetweenQuestions == 0 && interruption.asked_to_stop()) return;
            std::int64_t action = 0;  // whatever it is, if the episode is over already
            if (!environment.ended())
                action = chooser.network != nullptr
                             ? chooser.network->choose(place->room.look(environment, *chooser.network), place->scratch)
                             : environment.expert_action(*chooser.policy);
            result = environment.step(action);
        }
        results.returns[task] = environment.total_reward();
        results.lengths[task] = environment.steps();
        environment.write_metrics(results.metrics + task * kEpisodeMetrics.size());
        give_back(std::move(place));
    };
    pool_.run(episodes.size() * choosers.size(), run_one);
    return !interruption.stopped();
}

void check_suits(const Network& network, const EnvSpec& spec) {
    const Observer observer(spec);
    const NetworkSizes& sizes = network.sizes();
    const auto check = [](std::size_t network_has, std::size_t environment_has, const char* what) {
        if (network_has != environment_has)
            throw std::invalid_argument(std::string("the network was made for ") + std::to_string(network_has) + " " +
                                        what + ", the environment has " + std::to_string(environment_has));
    };
    if (sizes.kind != spec.kind) throw std::invalid_argument("the network was made for another kind of environment");
    check(sizes.rows * sizes.job_columns, observer.jobs_length(), "numbers of jobs");
    check(sizes.tokens * sizes.node_columns, observer.nodes_length(), "numbers of nodes");
    check(sizes.global_columns, observer.globals_length(), "numbers of globals");
    check(sizes.actions, spec.actions(), "actions");
}

}  // namespace gpuyard
