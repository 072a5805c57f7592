// A native policy on a full simulator, seen by one job. First it runs until that job has finished. Then the same is
// gone through again from where the job came, by decisions that are known by now, and halts where the job waits or
// starts, so that why can be asked of a few instants of many.
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "policy/policy.hpp"
#include "simulator/full_simulator.hpp"
#include "simulator/native_policy.hpp"
#include "simulator/progress.hpp"

namespace gpuyard {

class WatchedRun {
public:
    // `keeps_plan`: the whole plan of `conservative` lies in snapshots, so that it can be asked of them.
    WatchedRun(std::shared_ptr<const ClusterSpec> cluster, std::shared_ptr<const JobTable> jobs, Policy policy,
               std::shared_ptr<const Settings> settings, const Past& past, JobId job, bool keeps_plan);
    WatchedRun(const WatchedRun&) = delete;
    WatchedRun& operator=(const WatchedRun&) = delete;

    // Until the job has finished.
    void run(const Progress& progress);
    const FullSimulator& simulator() const { return simulator_; }
    // When the job was stopped, and for whom.
    const std::vector<std::pair<Time, JobId>>& stops() const { return stops_; }

    // Whether a job, until the watched one first started, did so at an instant at which nothing else happened: such a
    // start was planned before.
    bool started_as_planned() const { return started_as_planned_; }

    // After `run`, once: halts at every `every`-th decision during which the job waits, the first one included, and at
    // its starts. Instants for which only a plan of the policy's own asked are left out.
    void look(std::int64_t every);
    // On to the next halt, at which the decision is not carried out yet. False: the job has finished.
    bool advance();
    Snapshot snapshot() const { return again_->snapshot(); }
    const Decision& decision() const { return decided_[at_]; }

private:
    bool waits(const FullSimulator& simulator) const;
    void keep(Decision decision);
    bool halts();
    void carry_out();

    const Policy policy_;
    FullSimulator simulator_;
    NativePolicy native_;
    const JobId job_;
    const bool keeps_plan_;
    std::unique_ptr<FullSimulator> again_;  // as of when the job came, before anything was decided then
    std::vector<Decision> decided_;         // from then on
    std::vector<std::pair<Time, JobId>> stops_;
    bool started_as_planned_ = false;
    // Of the second time.
    std::int64_t every_ = 0;
    std::int64_t decisions_ = 0;  // during which the job waited
    std::size_t at_ = 0;          // the decision of this instant
    bool pending_ = false;        // it is to be carried out
};

}  // namespace gpuyard
