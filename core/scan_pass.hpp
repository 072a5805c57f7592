// One pass of a policy over one queue, job by job in order. The plain form of docs/simulator.md, section 10: what `decide` does,
// and what the simulator does where no index helps.
#pragma once

#include <algorithm>
#include <vector>

#include "backfill.hpp"

namespace gpuyard {

struct Candidate {
    JobId job;
    std::int32_t demand;
    Time estimate_us;
    std::int64_t row;
};

// What a pass works on. `Host` provides:
//   bool next(Candidate&)                                      the queue in order
//   const Demand& demand_of(const Candidate&)
//   Shadow& shadow_of(const Candidate& head)                   computed for this head
//   void start(const Candidate&, const Allocation&, bool backfilled)
//   bool all_misfit(std::size_t misfits)                       whether these many demands are all that wait
template <class Host>
class ScanPass {
public:
    ScanPass(Host& host, const Policy& policy, const Settings& settings, Placer& placer, const ClusterState& state, Time now_us)
        : host_(host), policy_(policy), settings_(settings), placer_(placer), state_(state), now_us_(now_us) {}

    // `misfits` marks demands known not to fit; it must come all zero and leaves all zero.
    void run(std::vector<std::uint8_t>& misfits, std::vector<std::int32_t>& marked, Allocation& allocation) {
        Candidate candidate;
        while (host_.next(candidate)) {
            if (fits(candidate, misfits, marked, allocation)) {
                start_if_allowed(candidate, allocation);
                continue;
            }
            if (policy_.backfill == Backfill::strict || host_.all_misfit(marked.size())) break;
            if (!blocked_) block(candidate);
            if (policy_.backfill == Backfill::easy_sjf) {
                try_shortest_first(misfits, marked, allocation);
                break;
            }
        }
        for (const std::int32_t demand : marked) misfits[static_cast<std::size_t>(demand)] = 0;
        marked.clear();
    }

private:
    bool fits(const Candidate& candidate, std::vector<std::uint8_t>& misfits, std::vector<std::int32_t>& marked,
              Allocation& allocation) {
        std::uint8_t& misfit = misfits[static_cast<std::size_t>(candidate.demand)];
        if (misfit) return false;
        if (placer_.place(state_, host_.demand_of(candidate), candidate.row, allocation)) return true;
        misfit = 1;  // and it stays one: within a pass nothing is freed
        marked.push_back(candidate.demand);
        return false;
    }

    void block(const Candidate& head) {
        blocked_ = true;
        if (policy_.backfill == Backfill::greedy) return;
        head_ = head;
        shadow_ = &host_.shadow_of(head);
    }

    void start_if_allowed(const Candidate& candidate, const Allocation& allocation) {
        const Demand& demand = host_.demand_of(candidate);
        if (!Gate(policy_.express, state_, demand, allocation).admits(candidate.estimate_us)) return;
        if (shadow_ == nullptr) {
            host_.start(candidate, allocation, blocked_);
            return;
        }
        const Time end = expected_end(now_us_, allocation.run_time(candidate.estimate_us, settings_.locality_penalty));
        if (end > shadow_->time() && !shadow_->leaves_room(host_.demand_of(head_), placer_, demand, allocation.parts)) return;
        shadow_->started(end, demand, allocation.parts);
        host_.start(candidate, allocation, true);
    }

    void try_shortest_first(std::vector<std::uint8_t>& misfits, std::vector<std::int32_t>& marked, Allocation& allocation) {
        std::vector<Candidate> rest;
        for (Candidate candidate; host_.next(candidate);) rest.push_back(candidate);
        std::stable_sort(rest.begin(), rest.end(),
                         [](const Candidate& a, const Candidate& b) { return a.estimate_us < b.estimate_us; });
        for (const Candidate& candidate : rest)
            if (fits(candidate, misfits, marked, allocation)) start_if_allowed(candidate, allocation);
    }

    Host& host_;
    const Policy& policy_;
    const Settings& settings_;
    Placer& placer_;
    const ClusterState& state_;
    Time now_us_;
    bool blocked_ = false;
    Candidate head_{};
    Shadow* shadow_ = nullptr;
};

}  // namespace gpuyard
