#include <chrono>
#include <stdexcept>

#include "simulator/native_policy.hpp"
#include "simulator/lean_run.hpp"

namespace gpuyard {

namespace {

constexpr std::int64_t kClockEvery = 64;  // instants between looks at the clock
constexpr std::chrono::milliseconds kProgressEvery{50};

}  // namespace

bool needs_full_simulator(const Policy& policy, const Settings& settings) {
    switch (policy.order) {
        case Order::qssf: case Order::group_fair_share: case Order::drf: case Order::multifactor: return true;
        default: break;
    }
    return preempts(policy.order) || policy.backfill == Backfill::conservative || settings.predict || !settings.user_weight.empty() ||
           !settings.quota_milli.empty() || settings.defragment || settings.mtbf_us > 0 || settings.sleep_after_us >= 0 ||
           settings.power_cap_mw != INT64_MAX;
}

Needs needs_of(const Policy& policy, const Settings& settings) {
    Needs needs;
    switch (policy.order) {
        case Order::fair_share: case Order::group_fair_share: case Order::multifactor: case Order::scored: needs.usage = true; break;
        case Order::drf: needs.holdings = true; break;
        case Order::qssf: case Order::gittins: needs.history = true; break;
        default: break;
    }
    needs.history = needs.history || settings.predict;
    return needs;
}

void run_policy(FullSimulator& simulator, const Policy& policy, const Progress& progress) {
    NativePolicy native(policy, simulator.view());
    simulator.set_listener(&native);
    std::int64_t instants = 0;
    auto last = std::chrono::steady_clock::time_point::min();
    while (simulator.next_instant()) {
        // A plan has to follow what happens also while nobody waits.
        if (!simulator.waiting().empty() || policy.backfill == Backfill::conservative) simulator.apply(native.decide(false));
        if (++instants % kClockEvery != 0 || !progress) continue;
        if (const auto now = std::chrono::steady_clock::now(); now >= last + kProgressEvery) {
            progress(simulator.finished());
            last = now;
        }
    }
    simulator.set_listener(nullptr);
    if (progress) progress(simulator.finished());
    if (!simulator.waiting().empty()) throw std::logic_error("jobs are left waiting on an idle cluster");
}

}  // namespace gpuyard
