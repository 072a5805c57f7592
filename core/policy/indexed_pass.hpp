// One pass of a policy over one queue, from start to start: what ScanPass does job by job, where the rank index finds
// the next job that may start. For `strict`, `greedy` and `easy` without admission, and placements by which jobs of one
// demand fit or do not fit together.
#pragma once

#include <span>
#include <vector>

#include "policy/scan_pass.hpp"
#include "simulator/rank_index.hpp"

namespace gpuyard {

// `Host` provides, as for ScanPass:
//   const Demand& demand_of(const Candidate&)
//   Shadow& shadow_of(const Candidate& head)
//   void start(const Candidate&, const Allocation&, bool backfilled)
// and
//   Candidate candidate_of(const RankedJob&)
//   Time now_us()
//   double locality_penalty()
template <class Host>
class IndexedPass {
public:
    IndexedPass(Host& host, const Policy& policy, Placer& placer, const ClusterState& state, RankIndex& index)
        : host_(host),
          policy_(policy),
          placer_(placer),
          state_(state),
          index_(index) {}

    // Demands of which jobs wait and fit, which are used up.
    struct Fitting {
        std::int32_t demand;
        Allocation allocation = {};
        RankedJob candidate = {};  // its next job that may start
    };

    void run(std::vector<Fitting>& fitting, Allocation& allocation) {
        RankedJob head;
        for (;;) {
            head = index_.first(at_);
            if (!head) return;
            const Candidate candidate = host_.candidate_of(head);
            if (!placer_.place(state_, host_.demand_of(candidate), candidate.row, allocation)) break;
            at_ = head.key;
            host_.start(candidate, allocation, false);
        }
        if (policy_.backfill == Backfill::strict) return;
        head_ = host_.candidate_of(head);
        at_ = head.key;
        drop_misfits(fitting);
        if (fitting.empty()) return;  // then the shadow time, which costs, does not matter
        if (policy_.backfill == Backfill::easy) shadow_ = &host_.shadow_of(head_);
        while (start_next(fitting)) continue;
    }

private:
    const Demand& demand_of(const Fitting& fitting) const {
        Candidate candidate{};
        candidate.demand = fitting.demand;
        return host_.demand_of(candidate);
    }

    void drop_misfits(std::vector<Fitting>& fitting) {
        std::erase_if(fitting, [&](Fitting& f) { return !placer_.place(state_, demand_of(f), 0, f.allocation); });
    }

    // Which of a demand's jobs may be backfilled where it would be placed now.
    ShortEnough allowed(const Fitting& f) {
        if (shadow_ == nullptr || shadow_->time() == kEndless ||
            shadow_->leaves_room(host_.demand_of(head_), placer_, demand_of(f), f.allocation.parts))
            return {};
        return {&f.allocation, host_.locality_penalty(), shadow_->time() - host_.now_us()};
    }

    // Starts the first that may start behind `at_`. False if there is none.
    bool start_next(std::vector<Fitting>& fitting) {
        Fitting* best = nullptr;
        for (Fitting& f : fitting) {
            f.candidate = index_.first_of(f.demand, at_, allowed(f));
            if (f.candidate && (best == nullptr || f.candidate.before(best->candidate))) best = &f;
        }
        if (best == nullptr) return false;
        at_ = best->candidate.key;
        const Candidate candidate = host_.candidate_of(best->candidate);
        if (shadow_ != nullptr)
            shadow_->started(expected_end(host_.now_us(),
                                          best->allocation.run_time(candidate.estimate_us, host_.locality_penalty())),
                             demand_of(*best), best->allocation.parts);
        host_.start(candidate, best->allocation, true);
        drop_misfits(fitting);
        return !fitting.empty();
    }

    Host& host_;
    const Policy& policy_;
    Placer& placer_;
    const ClusterState& state_;
    RankIndex& index_;
    RankKey at_;  // the last job that was tried
    Candidate head_{};
    Shadow* shadow_ = nullptr;
};

}  // namespace gpuyard
