// A full simulator driven from outside: advance, look at the snapshot, apply a decision, of which every start is
// checked.
#pragma once

#include "simulator/full_simulator.hpp"

namespace gpuyard {

class CheckedSimulator {
public:
    CheckedSimulator(std::shared_ptr<const ClusterSpec> cluster, std::shared_ptr<const JobTable> jobs,
                     std::shared_ptr<const Settings> settings, const Past& past, const Beginning& beginning)
        : simulator_(std::move(cluster), std::move(jobs), settings,
                     {.usage = true,
                      .fair = !settings->multifactor.association_group.empty(),
                      .holdings = true,
                      .history = true},
                     past) {
        simulator_.play(beginning);
    }

    bool advance() { return simulator_.next_instant(); }
    Snapshot snapshot() const { return simulator_.snapshot(); }
    // Checks each start (queued, allowed nodes, whole gang, free or made free) and makes it; on an error none after it
    // is made.
    void apply(const Decision& decision);

    const FullSimulator& simulator() const { return simulator_; }

private:
    std::vector<Part> checked_parts(const Start& start) const;
    ClusterState room_for(const Start& start) const;

    FullSimulator simulator_;
    bool applied_any_ = false;
    std::uint64_t applied_ = 0;  // the instant of the last decision
};

}  // namespace gpuyard
