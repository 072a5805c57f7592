// One pass of a policy over one queue, job by job in order. The plain form of docs/contract/simulator.md, section 10:
// what `decide` does, and what the simulator does where no index helps.
#pragma once

#include <algorithm>
#include <vector>

#include "base/index.hpp"
#include "policy/backfill.hpp"

namespace gpuyard {

struct Candidate {
    JobId job;
    std::int32_t demand;
    Time estimate_us;
    std::int64_t row;
    bool aged = false;      // section 11
    std::int32_t tier = 0;  // of its partition; higher goes first
    std::size_t place = 0;  // for the host's own use
};

// What a pass works on. `Host` provides:
//   bool next(Candidate&)                                      the queue in order
//   bool may_run_more(const Candidate&)                        by quotas and limits
//   bool make_room(const Candidate&, bool blocked)             whether it was promised room by stopping others
//   Time expected_end_at(const Candidate&, const Allocation&)  if it starts now
//   const Demand& demand_of(const Candidate&)
//   Shadow& shadow_of(const Candidate& head)                   computed for this head
//   void start(const Candidate&, const Allocation&, bool backfilled)
//   bool all_misfit(std::size_t misfits)                       whether these many demands are all that wait
template <class Host>
class ScanPass {
public:
    ScanPass(Host& host, const Policy& policy, Placer& placer, const ClusterState& state)
        : host_(host),
          policy_(policy),
          placer_(placer),
          state_(state) {}

    // `misfits` marks demands known not to fit; it must come all zero and leaves all zero.
    void run(std::vector<std::uint8_t>& misfits, std::vector<std::int32_t>& marked, Allocation& allocation) {
        Candidate candidate;
        while (host_.next(candidate)) {
            if (!host_.may_run_more(candidate)) continue;
            if (fits(candidate, misfits, marked, allocation)) {
                start_if_allowed(candidate, allocation);
                continue;
            }
            if (host_.make_room(candidate, blocked_)) continue;
            if (ends_pass(candidate) || host_.all_misfit(marked.size())) break;
            if (!blocked_) block(candidate);
            if (policy_.backfill == Backfill::easy_sjf) {
                try_shortest_first(misfits, marked, allocation);
                break;
            }
        }
        for (const std::int32_t demand : marked) misfits[as_index(demand)] = 0;
        marked.clear();
    }

private:
    bool fits(const Candidate& candidate, std::vector<std::uint8_t>& misfits, std::vector<std::int32_t>& marked,
              Allocation& allocation) {
        std::uint8_t& misfit = misfits[as_index(candidate.demand)];
        if (misfit) return false;
        if (placer_.place(state_, host_.demand_of(candidate), candidate.row, allocation)) return true;
        if (!placer_.needs_only_room()) return false;
        misfit = 1;  // and it stays one: within a pass nothing is freed
        marked.push_back(candidate.demand);
        return false;
    }

    // Whether nobody may pass a job that does not fit.
    bool ends_pass(const Candidate& misfit) const {
        return policy_.backfill == Backfill::strict || (policy_.backfill == Backfill::greedy && misfit.aged);
    }

    void block(const Candidate& head) {
        blocked_ = true;
        if (policy_.backfill == Backfill::greedy) return;
        head_ = head;
        shadow_ = &host_.shadow_of(head);
    }

    void start_if_allowed(const Candidate& candidate, const Allocation& allocation) {
        const Demand& demand = host_.demand_of(candidate);
        if (!candidate.aged && !Gate(policy_.express, state_, demand, allocation).admits(candidate.estimate_us)) return;
        if (shadow_ == nullptr) {
            host_.start(candidate, allocation, blocked_);
            return;
        }
        const Time end = host_.expected_end_at(candidate, allocation);
        if (end > shadow_->time() && !shadow_->leaves_room(host_.demand_of(head_), placer_, demand, allocation.parts))
            return;
        shadow_->started(end, demand, allocation.parts);
        host_.start(candidate, allocation, true);
    }

    void try_shortest_first(std::vector<std::uint8_t>& misfits, std::vector<std::int32_t>& marked,
                            Allocation& allocation) {
        std::vector<Candidate> rest;
        for (Candidate candidate; host_.next(candidate);) rest.push_back(candidate);
        std::stable_sort(rest.begin(), rest.end(), [](const Candidate& a, const Candidate& b) {
            if (a.tier != b.tier) return a.tier > b.tier;
            if (a.aged || b.aged) return a.aged && !b.aged;
            return a.estimate_us < b.estimate_us;
        });
        for (const Candidate& candidate : rest)
            if (host_.may_run_more(candidate) && fits(candidate, misfits, marked, allocation))
                start_if_allowed(candidate, allocation);
    }

    Host& host_;
    const Policy& policy_;
    Placer& placer_;
    const ClusterState& state_;
    bool blocked_ = false;
    Candidate head_{};
    Shadow* shadow_ = nullptr;
};

}  // namespace gpuyard
