#include "simulator/run.hpp"

#include <utility>

#include "simulator/full_run.hpp"
#include "simulator/lean_run.hpp"

namespace gpuyard {

bool needs_full_simulator(const ClusterSpec& cluster, const JobTable& jobs, const Policy& policy,
                          const Settings& settings) {
    return !cluster.partitions.empty() || !jobs.after_offset.empty() || !traits_of(policy.order).runs_lean() ||
           policy.backfill == Backfill::conservative || settings.predict || !settings.user_weight.empty() ||
           !settings.quota_milli.empty() || settings.defragment || policy.backfill == Backfill::slurm ||
           !settings.limits.empty() || settings.mtbf_us > 0 || settings.sleep_after_us >= 0 ||
           settings.power_cap_mw != INT64_MAX;
}

ScheduleArrays simulate(std::shared_ptr<const ClusterSpec> cluster, std::shared_ptr<const JobTable> jobs,
                        const Policy& policy, std::shared_ptr<const Settings> settings, const Past& past,
                        const Beginning& beginning, const Progress& progress) {
    if (needs_full_simulator(*cluster, *jobs, policy, *settings)) {
        FullSimulator simulator(std::move(cluster), std::move(jobs), settings, needs_of(policy, *settings), past);
        run_policy(simulator, policy, beginning, progress);
        return schedule_of(simulator);
    }
    LeanSimulator simulator(std::move(cluster), std::move(jobs), *settings, tracking_for(policy));
    run_policy(simulator, policy, beginning, progress);
    return schedule_of(std::move(simulator));
}

}  // namespace gpuyard
