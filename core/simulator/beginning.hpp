// A schedule that is given up to a moment, from which on a policy decides: docs/contract/simulator.md, section 7.
#pragma once

#include <cstddef>
#include <stdexcept>
#include <string>
#include <vector>

#include "base/job.hpp"
#include "cluster/cluster.hpp"
#include "cluster/job_table.hpp"

namespace gpuyard {

// What is given cannot have happened.
struct ImpossibleBeginning : std::runtime_error {
    using std::runtime_error::runtime_error;
};

struct GivenStart {
    JobId job = -1;
    Time start_us = 0;
    std::vector<Part> parts;  // by ascending node id; which GPUs of a node is decided when the job starts
};

struct Beginning {
    Time decides_from_us = 0;
    std::vector<GivenStart> starts;  // by (start, job)

    bool is_given() const { return decides_from_us > 0; }
};

// Sorts the starts. Throws unless each is of one job, after its submit and before the moment.
Beginning make_beginning(const JobTable& jobs, Time decides_from_us, std::vector<GivenStart> starts);

// Why a job cannot take these nodes now; empty if it can, and then `parts` says which of their GPUs.
std::string misfit(const ClusterState& state, const Demand& demand, std::vector<Part>& parts);

// The given starts, one after another as time passes.
class GivenStarts {
public:
    GivenStarts(const JobTable& jobs, const Beginning& beginning) : jobs_(jobs), beginning_(beginning) {}

    // When the next one is, or else the policy decides.
    Time next_time() const {
        return at_ < beginning_.starts.size() ? beginning_.starts[at_].start_us : beginning_.decides_from_us;
    }
    bool due(Time now_us) const { return at_ < beginning_.starts.size() && next_time() == now_us; }
    // The next one, with the GPUs that it takes now.
    GivenStart take(const ClusterState& state);

private:
    const JobTable& jobs_;
    const Beginning& beginning_;
    std::size_t at_ = 0;
};

}  // namespace gpuyard
