#include "simulator/full_run.hpp"

#include <stdexcept>

#include "simulator/native_policy.hpp"

namespace gpuyard {

Needs needs_of(const Policy& policy, const Settings& settings) {
    const OrderTraits& order = traits_of(policy.order);
    Needs needs;
    needs.usage = order.remembers_usage();
    needs.fair = order.remembers == Memory::fair_factor;
    needs.holdings = order.remembers == Memory::holdings;
    needs.history = order.remembers_finished_jobs() || settings.predict;
    return needs;
}

void run_policy(FullSimulator& simulator, const Policy& policy, const Beginning& beginning, const Progress& progress) {
    NativePolicy native(policy, simulator.view(), true);
    simulator.set_listener(&native);
    simulator.play(beginning);
    ProgressClock clock(progress);
    while (simulator.next_instant()) {
        // A plan has to follow what happens also while nobody waits.
        if (!simulator.waiting().empty() || policy.backfill == Backfill::conservative)
            simulator.apply(native.decide(false));
        clock.instant(simulator.finished());
    }
    simulator.set_listener(nullptr);
    clock.end(simulator.finished());
    if (!simulator.waiting().empty()) throw std::logic_error("jobs are left waiting on an idle cluster");
}

}  // namespace gpuyard
