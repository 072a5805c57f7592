#include "env/vector_env.hpp"

#include <algorithm>
#include <cmath>
#include <string>

#include "base/index.hpp"
#include "base/rng.hpp"

namespace gpuyard {

namespace {

[[noreturn]] void refuse(std::size_t i, std::int64_t action, std::span<const std::int8_t> mask) {
    std::string legal;
    std::size_t more = 0;
    for (std::size_t a = 0; a < mask.size(); ++a) {
        if (!mask[a]) continue;
        if (legal.size() < 60)
            legal += (legal.empty() ? "" : ", ") + std::to_string(a);
        else
            ++more;
    }
    if (more > 0) legal += " and " + std::to_string(more) + " more";
    const bool in_range = action >= 0 && action < std::ssize(mask);
    throw InvalidAction(
        "environment " + std::to_string(i) + ": action " + std::to_string(action) +
        (in_range ? " cannot be executed now" : " is not between 0 and " + std::to_string(mask.size() - 1)) +
        "; legal are " + legal + " (choose by info[\"action_mask\"], or make the environment with invalid=\"noop\")");
}

}  // namespace

ObservationLengths::ObservationLengths(const EnvSpec& spec) {
    const Observer observer(spec);
    jobs = observer.jobs_length();
    nodes = observer.nodes_length();
    globals = observer.globals_length();
    actions = spec.actions();
}

ObservationArrays::ObservationArrays(const ObservationLengths& lengths, float* jobs_to, float* nodes_to,
                                     float* globals_to, std::int8_t* mask_to)
    : jobs(jobs_to),
      nodes(nodes_to),
      globals(globals_to),
      mask(mask_to),
      jobs_stride(lengths.jobs),
      nodes_stride(lengths.nodes),
      globals_stride(lengths.globals) {}

ObservationArrays::ObservationArrays(const ObservationLengths& lengths, float* flat, std::int8_t* mask_to)
    : jobs(flat),
      nodes(jobs + lengths.jobs),
      globals(nodes + lengths.nodes),
      flat_mask(globals + lengths.globals),
      mask(mask_to) {
    jobs_stride = nodes_stride = globals_stride = flat_mask_stride = lengths.flat();
}

VectorEnv::VectorEnv(std::shared_ptr<const EnvSpec> spec, std::size_t count, std::size_t threads, Autoreset autoreset)
    : spec_(std::move(spec)),
      autoreset_(autoreset),
      given_(count),
      seeds_(count, 0),
      episodes_(count, 0),
      begun_(count, 0),
      done_(count, 0),
      pool_(threads) {
    for (std::size_t i = 0; i < count; ++i) environments_.push_back(std::make_unique<Environment>(spec_));
}

Environment& VectorEnv::begun(std::size_t i) {
    if (!begun_.at(i))
        throw std::logic_error("environment " + std::to_string(i) + ": no episode has begun; call reset()");
    return *environments_[i];
}

void VectorEnv::begin(std::size_t i) {
    if (given_[i]) {
        const Episode episode = std::move(*given_[i]);
        given_[i].reset();
        environments_[i]->begin(episode);
    } else if (source_) {
        environments_[i]->begin(source_->drawn(seeds_[i], episodes_[i]++));
    } else {
        throw std::logic_error("environment " + std::to_string(i) + " was given no episode");
    }
    ++begun_[i];
    done_[i] = 0;
}

void VectorEnv::write(std::size_t i, const ObservationArrays& to) {
    Environment& env = *environments_[i];
    env.observe({to.jobs + i * to.jobs_stride, to.nodes + i * to.nodes_stride, to.globals + i * to.globals_stride});
    const auto mask = env.mask();
    std::copy(mask.begin(), mask.end(), to.mask + i * mask.size());
    if (to.flat_mask != nullptr) std::copy(mask.begin(), mask.end(), to.flat_mask + i * to.flat_mask_stride);
}

void VectorEnv::reset(std::span<const std::uint64_t> seeds, std::span<const std::uint8_t> which) {
    pool_.run(count(), [&](std::size_t i) {
        if (!which.empty() && !which[i]) return;
        if (!seeds.empty()) {
            seeds_[i] = seeds[i];
            episodes_[i] = begun_[i] = 0;
        }
        begin(i);
        write(i, observation_);
    });
}

void VectorEnv::resume(std::size_t i, std::uint64_t seed, std::uint64_t drawn, std::span<const std::int64_t> actions,
                       std::span<const float> priorities) {
    seeds_.at(i) = seed;
    episodes_[i] = begun_[i] = drawn;
    begin(i);
    Environment& env = *environments_[i];
    const auto unfit = [&](std::size_t step) {
        return InvalidAction("environment " + std::to_string(i) + ": action " + std::to_string(step) +
                             " of its episode " + std::to_string(drawn) +
                             " cannot be repeated: the environment is not the one in which it was taken");
    };
    for (std::size_t step = 0; step < actions.size(); ++step) {
        if (!spec_->invalid_is_noop && !env.legal(actions[step])) throw unfit(step);
        if (env.step(actions[step]).done()) throw unfit(step);
    }
    const std::size_t hosts = spec_->actions();
    for (std::size_t at = 0; at < priorities.size(); at += hosts)
        if (env.step_ranked(priorities.subspan(at, hosts)).done()) throw unfit(at / hosts);
    write(i, observation_);
}

void VectorEnv::after_step(std::size_t i, const StepResult& result) {
    Environment& env = *environments_[i];
    step_.reward[i] = result.reward;
    step_.terminated[i] = result.terminated ? 1 : 0;
    step_.truncated[i] = result.truncated ? 1 : 0;
    step_.ended[i] = result.done() ? 1 : 0;
    done_[i] = result.done() ? 1 : 0;
    if (result.done()) {
        step_.episode_return[i] = env.total_reward();
        step_.episode_length[i] = env.steps();
        env.write_metrics(step_.metrics + i * kEpisodeMetrics.size());
        if (autoreset_ == Autoreset::same_step) {
            write(i, last_);
            begin(i);
        }
    }
    write(i, observation_);
}

template <class Step>
void VectorEnv::step_all(Step step) {
    pool_.run(count(), [&](std::size_t i) {
        if (!awaits_reset(i)) return after_step(i, step(i));
        begin(i);
        step_.reward[i] = 0.0;
        step_.terminated[i] = step_.truncated[i] = step_.ended[i] = 0;
        write(i, observation_);
    });
}

void VectorEnv::check(std::span<const std::int64_t> actions) const {
    for (std::size_t i = 0; i < count(); ++i) {
        if (!begun_[i]) throw std::logic_error("call reset() before step()");
        if (awaits_reset(i)) continue;
        if (done_[i])
            throw std::logic_error("environment " + std::to_string(i) + ": the episode is over; call reset()");
        if (actions.empty() || spec_->invalid_is_noop || environments_[i]->ended()) continue;
        if (!environments_[i]->legal(actions[i])) refuse(i, actions[i], environments_[i]->mask());
    }
}

void VectorEnv::step(std::span<const std::int64_t> actions) {
    check(actions);
    step_all([&](std::size_t i) { return environments_[i]->step(actions[i]); });
}

void VectorEnv::step_ranked(std::span<const float> priorities) {
    const std::size_t hosts = spec_->actions();
    for (std::size_t i = 0; i < priorities.size(); ++i)
        if (!std::isfinite(priorities[i]) && !awaits_reset(i / hosts))
            throw InvalidAction("environment " + std::to_string(i / hosts) + ": the priority of host " +
                                std::to_string(i % hosts) + " is not a finite number");
    check({});
    step_all([&](std::size_t i) { return environments_[i]->step_ranked(priorities.subspan(i * hosts, hosts)); });
}

void VectorEnv::expert_actions(const Policy& policy, std::span<std::int64_t> out) {
    for (std::size_t i = 0; i < count(); ++i)
        if (!begun_[i]) throw std::logic_error("call reset() before expert_actions()");
    // What to do in an environment whose episode is over does not matter.
    pool_.run(count(), [&](std::size_t i) { out[i] = done_[i] ? 0 : environments_[i]->expert_action(policy); });
}

void VectorEnv::random_actions(std::span<std::int64_t> out) {
    for (std::size_t i = 0; i < count(); ++i) {
        if (!begun_[i]) throw std::logic_error("call reset() before random_actions()");
        const auto mask = environments_[i]->mask();
        const auto legal = std::count(mask.begin(), mask.end(), std::int8_t{1});
        const double u =
            uniform(seeds_[i], kStreamRandomAction, begun_[i], static_cast<std::uint64_t>(environments_[i]->steps()));
        auto skip = static_cast<std::int64_t>(u * static_cast<double>(legal));
        std::int64_t action = 0;
        while (legal > 0 && (mask[as_index(action)] == 0 || skip-- > 0)) ++action;
        out[i] = action;
    }
}

}  // namespace gpuyard
