// The observation of a snapshot, from a simulator or a live cluster: what an Environment keeps up to date is built here
// at once.
#pragma once

#include <span>
#include <vector>

#include "observation/observation.hpp"

namespace gpuyard {

struct Observation {
    std::vector<float> jobs, nodes, globals;
};

// What SelectJob, SelectJobAndPool and AcceptOrSkip offer in a snapshot, to which it keeps a reference.
class SnapshotView {
public:
    // `held`: jobs that the base policy passes over.
    SnapshotView(const Snapshot& snapshot, const EnvSpec& spec, std::span<const JobId> held);
    SnapshotView(const SnapshotView&) = delete;
    SnapshotView& operator=(const SnapshotView&) = delete;

    std::span<const WindowJob* const> rows() const { return rows_; }
    const Prospects& prospects() const { return prospects_; }
    Observation observation() const;

private:
    const Snapshot& snapshot_;
    const EnvSpec& spec_;
    ClusterScale scale_;
    std::vector<WindowJob> jobs_;
    std::vector<const WindowJob*> rows_;
    mutable Occupancy occupancy_;  // finds out some of what it shows when it is asked
    Prospects prospects_;
};

// With nothing held back.
Observation observe(const Snapshot& snapshot, const EnvSpec& spec);

}  // namespace gpuyard
