// A native policy on a full simulator, seen by one job: the run halts where that job waits or starts, so that why can
// be asked of a few instants of many without a snapshot of each.
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "policy/policy.hpp"
#include "simulator/full_simulator.hpp"
#include "simulator/native_policy.hpp"

namespace gpuyard {

class WatchedRun {
public:
    // Halts at every `every`-th decision during which the job waits, the first one included, and at its starts.
    WatchedRun(std::shared_ptr<const ClusterSpec> cluster, std::shared_ptr<const JobTable> jobs, Policy policy,
               std::shared_ptr<const Settings> settings, const Past& past, JobId job, std::int64_t every);
    WatchedRun(const WatchedRun&) = delete;
    WatchedRun& operator=(const WatchedRun&) = delete;

    // On to the next halt, at which the decision is made but not carried out. False: the job has finished.
    bool advance();

    Snapshot snapshot() const { return simulator_.snapshot(); }
    const Decision& decision() const { return decision_; }
    const FullSimulator& simulator() const { return simulator_; }
    // When the job was stopped, and for whom.
    const std::vector<std::pair<Time, JobId>>& stops() const { return stops_; }

private:
    bool decide();
    void note_stop();

    const Policy policy_;
    FullSimulator simulator_;
    NativePolicy native_;
    const JobId job_;
    const std::int64_t every_;
    std::int64_t decisions_ = 0;  // during which the job waited
    Decision decision_;           // of this instant
    bool pending_ = false;        // it is to be carried out
    std::vector<std::pair<Time, JobId>> stops_;
};

}  // namespace gpuyard
