#include "simulator/lean_run.hpp"

#include <algorithm>
#include <limits>
#include <numeric>
#include <optional>
#include <stdexcept>

#include "base/index.hpp"
#include "policy/indexed_pass.hpp"
#include "policy/scan_pass.hpp"
#include "simulator/job_order.hpp"
#include "simulator/pending_queue.hpp"
#include "simulator/rank_index.hpp"
#include "simulator/snapshot.hpp"

namespace gpuyard {

namespace {

constexpr std::size_t kMostClasses = 1024;  // of a queue, to be searched class by class
constexpr Express kNoLane{};

bool is_easy(const Policy& policy) {
    return policy.backfill == Backfill::easy || policy.backfill == Backfill::easy_sjf;
}

// A class of waiting jobs with one demand: they fit or do not fit together, at one allocation.
struct JobClass {
    std::size_t group;
    std::int32_t demand;
    Allocation allocation = {};
    bool fits = false;
    Ranked candidate = {};  // its next job that may start
};

struct QueueRun {
    explicit QueueRun(const std::shared_ptr<const ClusterSpec>& spec) : shadow(spec) {}

    std::vector<JobClass> classes;  // if searched by class
    bool by_class = false;
    std::size_t group = 0;  // of all its jobs, if not searched by class
    std::vector<std::int32_t> demands;
    std::int64_t waiting = 0;  // jobs
    std::size_t waiting_demands = 0;
    bool touched = false;         // something happened to it since its last pass
    Rank blocked_rank = kNoRank;  // strict: nothing that ranks behind can start until a job finishes
    Shadow shadow;
    JobId shadow_head = -1;  // the job the shadow was computed for; -1 = not valid
};

class LeanRun {
public:
    LeanRun(LeanSimulator& simulator, const Policy& policy);
    // What is given before the policy decides.
    void play(const Beginning& beginning);
    void run(const Progress& progress);

    // Handler of LeanSimulator::next_instant.
    void finished(JobId job, Time expected_end_us);
    void arrived(JobId job);

    // Host of ScanPass.
    bool next(Candidate& out);
    const Demand& demand_of(const Candidate& candidate) const { return demand(candidate.demand); }
    Shadow& shadow_of(const Candidate& head) { return shadow_of(head.job); }
    bool may_run_more(const Candidate&) const { return true; }
    bool make_room(const Candidate&, bool) const { return false; }
    Time expected_end_at(const Candidate& candidate, const Allocation& allocation) const {
        return expected_end(simulator_.now(),
                            allocation.run_time(candidate.estimate_us, simulator_.settings().locality_penalty));
    }
    void start(const Candidate& candidate, const Allocation& allocation, bool backfilled) {
        start(candidate.job, allocation, backfilled);
    }
    bool all_misfit(std::size_t misfits) const { return misfits >= current_->waiting_demands; }

    // Host of IndexedPass.
    Candidate candidate_of(const RankedJob& job) const { return candidate_of(job.key.job); }
    Time now_us() const { return simulator_.now(); }
    double locality_penalty() const { return simulator_.settings().locality_penalty; }

private:
    bool gated() const { return policy_.express.k != 0.0; }
    // Where a job would go decides whether it starts.
    bool place_matters() const { return is_easy(policy_) || gated(); }
    const Demand& demand(std::int32_t i) const { return simulator_.jobs().demands[as_index(i)]; }
    QueueRun& queue_of(JobId job) { return queues_[as_index(simulator_.jobs().demand_of(as_index(job)).queue)]; }
    std::vector<std::int32_t> make_groups();
    Candidate candidate_of(JobId job) const;
    bool ranks_behind(std::size_t a, std::size_t b) const {
        return scores_[a] != scores_[b] ? scores_[a] > scores_[b] : a > b;
    }
    void start(JobId job, const Allocation& allocation, bool backfilled);
    Shadow& shadow_of(JobId head);

    // The jobs that are being looked at, in the order in which they fill up behind a head.
    const PendingQueue& filling_order() const { return by_estimate_ && !among_aged() ? *by_estimate_ : *among_; }
    bool among_aged() const { return among_ != &pending_; }
    void decide();
    void age();
    bool pass_aged(QueueRun& queue);
    void fill_behind(QueueRun& queue, Ranked head);
    double usage_of(std::int32_t user);
    bool needs_pass(const QueueRun& queue) const;
    bool anything_fits(const QueueRun& queue);
    void pass(QueueRun& queue);
    void scan(QueueRun& queue);
    void make_indexes();
    RankIndex& index_of(const QueueRun& queue) { return *indexes_[as_index(&queue - queues_.data())]; }
    IndexedJob indexed(JobId job) const;
    void pass_indexed(QueueRun& queue);
    void rank_by_score(const QueueRun& queue);
    Ranked start_in_order(QueueRun& queue);
    Ranked start_in_order_gated(QueueRun& queue);
    void fill(QueueRun& queue, Rank cursor, Rank blocker);
    void try_class(JobClass& c, Rank cursor);
    void find_candidate(JobClass& c, Rank cursor);

    LeanSimulator& simulator_;
    const Policy& policy_;
    Placer placer_;
    JobMix mix_;
    bool makes_room_;  // a start may make room for other jobs
    bool static_order_;
    bool searches_by_class_;
    std::vector<QueueRun> queues_;
    std::size_t groups_ = 0;
    std::vector<std::int32_t> group_of_;
    PendingQueue pending_;  // under a static order with an ageing bound: without the aged jobs
    std::optional<PendingQueue> aged_;
    const PendingQueue* among_ = &pending_;  // whose jobs are looked at: `pending_`, or `aged_`
    JobId next_to_age_ = 0;
    QueueRun* current_ = nullptr;
    const Demand* shadow_demand_ = nullptr;    // of the head, while a pass fills behind it
    std::optional<PendingQueue> by_estimate_;  // if easy-sjf is searched by class
    std::vector<std::int64_t> waiting_of_;     // jobs, by demand
    // Scanning passes.
    Ranked at_;  // the last job given out
    std::vector<Candidate> candidates_;
    std::vector<double> scores_;
    std::vector<std::size_t> by_score_;  // a heap, the first on top
    std::vector<double> usage_;          // by user, as of the instant in usage_as_of_
    std::vector<std::uint64_t> usage_as_of_;
    std::vector<std::uint8_t> misfits_;
    std::vector<std::int32_t> marked_;
    Allocation allocation_;
    // By queue, if passes are made with them.
    std::vector<std::unique_ptr<RankIndex>> indexes_;
    std::vector<IndexedPass<LeanRun>::Fitting> fitting_;
};

LeanRun::LeanRun(LeanSimulator& simulator, const Policy& policy)
    : simulator_(simulator),
      policy_(policy),
      placer_(policy.placement, simulator.settings().seed),
      makes_room_(std::any_of(simulator.jobs().demands.begin(), simulator.jobs().demands.end(),
                              [&](const Demand& d) { return starts_may_make_room(policy.placement, d); })),
      static_order_(traits_of(policy.order).is_static()),
      // A random placement differs from job to job, and behind the head easy-sjf has an order in which jobs that were
      // passed over before the head cannot be told apart. Where starts make room, a class that does not fit may fit
      // later in a pass.
      searches_by_class_(static_order_ && policy.placement != Placement::random && !makes_room_ &&
                         !(policy.backfill == Backfill::easy_sjf && gated())),
      queues_(as_index(simulator.state().spec().queues), QueueRun(simulator.state().shared_spec())),
      group_of_(make_groups()),
      pending_(group_of_, groups_, static_order(simulator, policy),
               policy.backfill == Backfill::easy || gated() ? std::span<const Time>(simulator.jobs().estimate_us)
                                                            : std::span<const Time>()),
      waiting_of_(simulator.jobs().demands.size(), 0),
      usage_(as_index(simulator.jobs().users), 0.0),
      usage_as_of_(as_index(simulator.jobs().users), ~std::uint64_t{0}),
      misfits_(simulator.jobs().demands.size(), 0) {
    placer_.set_mix(&mix_);
    if (policy.backfill == Backfill::easy_sjf && searches_by_class_)
        by_estimate_.emplace(group_of_, groups_, estimate_order(simulator, policy), std::span<const Time>());
    if (static_order_ && policy.ages())
        aged_.emplace(group_of_, groups_, std::vector<std::int32_t>(),
                      is_easy(policy) ? std::span<const Time>(simulator.jobs().estimate_us) : std::span<const Time>());
    if (may_index(policy) && !makes_room_) make_indexes();
}

void LeanRun::make_indexes() {
    const JobTable& jobs = simulator_.jobs();
    for (std::size_t q = 0; q < queues_.size(); ++q)
        indexes_.push_back(make_rank_index(policy_.order, jobs.demands, as_index(jobs.users),
                                           [this](std::int32_t user, const Holdings&) { return usage_of(user); }));
}

IndexedJob LeanRun::indexed(JobId job) const {
    const JobTable& jobs = simulator_.jobs();
    const std::size_t i = as_index(job);
    return {job, jobs.demand[i], jobs.user_of(i), jobs.submit_us[i], jobs.estimate_us[i]};
}

// A group of the pending queue for each demand of a queue that is searched by class, one for each other queue.
std::vector<std::int32_t> LeanRun::make_groups() {
    const JobTable& jobs = simulator_.jobs();
    std::vector<std::int32_t> group_of_demand(jobs.demands.size());
    for (std::size_t d = 0; d < jobs.demands.size(); ++d)
        queues_[as_index(jobs.demands[d].queue)].demands.push_back(static_cast<std::int32_t>(d));
    for (QueueRun& queue : queues_) {
        queue.by_class = searches_by_class_ && queue.demands.size() <= kMostClasses;
        if (!queue.by_class) queue.group = groups_++;
        for (const std::int32_t d : queue.demands) {
            if (queue.by_class) queue.classes.push_back({.group = groups_, .demand = d});
            group_of_demand[as_index(d)] = static_cast<std::int32_t>(queue.by_class ? groups_++ : queue.group);
        }
    }
    std::vector<std::int32_t> group_of(jobs.demand.size());
    for (std::size_t i = 0; i < group_of.size(); ++i) group_of[i] = group_of_demand[as_index(jobs.demand[i])];
    return group_of;
}

void LeanRun::play(const Beginning& beginning) {
    if (!beginning.is_given()) return;
    const Time until = beginning.decides_from_us;
    GivenStarts given(simulator_.jobs(), beginning);
    while (std::min(simulator_.next_time(), given.next_time()) < until) {
        if (given.next_time() < simulator_.next_time())
            simulator_.idle_instant(given.next_time());
        else
            simulator_.next_instant(*this);
        while (given.due(simulator_.now())) {
            const GivenStart begun = given.take(simulator_.state());
            const Demand& demand = simulator_.jobs().demand_of(as_index(begun.job));
            current_ = &queue_of(begun.job);
            start(begun.job, allocation_of(simulator_.state().spec(), demand, begun.parts), false);
        }
    }
    for (QueueRun& queue : queues_) queue.touched = true;
    if (simulator_.next_time() == until) return;
    simulator_.idle_instant(until);
    decide();
}

void LeanRun::decide() {
    if (aged_) age();
    for (QueueRun& queue : queues_)
        if (needs_pass(queue)) pass(queue);
}

void LeanRun::run(const Progress& progress) {
    ProgressClock clock(progress);
    while (simulator_.next_instant(*this)) {
        decide();
        clock.instant(simulator_.finished());
    }
    clock.end(simulator_.finished());
    for (const QueueRun& queue : queues_)
        if (queue.waiting > 0) throw std::logic_error("jobs are left waiting on an idle cluster");
}

void LeanRun::finished(JobId job, Time expected_end_us) {
    QueueRun& queue = queue_of(job);
    queue.touched = true;
    queue.blocked_rank = kNoRank;
    // A job that ends when it was expected to leaves the state at the shadow time as it was.
    if (expected_end_us > simulator_.now()) queue.shadow_head = -1;
}

void LeanRun::arrived(JobId job) {
    QueueRun& queue = queue_of(job);
    if (policy_.placement == Placement::fgd) mix_.add(simulator_.jobs().demand_of(as_index(job)));
    ++queue.waiting;
    if (waiting_of_[as_index(simulator_.jobs().demand[as_index(job)])]++ == 0) ++queue.waiting_demands;
    pending_.insert(job);
    if (by_estimate_) by_estimate_->insert(job);
    if (!indexes_.empty()) index_of(queue).insert(indexed(job));
    if (queue.blocked_rank == kNoRank || pending_.rank_of(job) < queue.blocked_rank) queue.touched = true;
}

// Jobs become aged in the order in which they arrived.
void LeanRun::age() {
    const JobTable& jobs = simulator_.jobs();
    for (; next_to_age_ < std::ssize(jobs.submit_us); ++next_to_age_) {
        if (!policy_.is_aged(simulator_.now(), jobs.submit_us[as_index(next_to_age_)])) return;
        if (!pending_.contains(next_to_age_)) continue;
        pending_.erase(next_to_age_);
        if (by_estimate_) by_estimate_->erase(next_to_age_);
        aged_->insert(next_to_age_);
        QueueRun& queue = queue_of(next_to_age_);
        queue.touched = true;
        queue.blocked_rank = kNoRank;
    }
}

bool LeanRun::needs_pass(const QueueRun& queue) const {
    if (queue.waiting == 0) return false;
    // Scores that change with time may change the order at any instant; overdue jobs may move the shadow time. Else
    // only events matter to a queue, and the starts of its last pass: those may move where a job that was tried before
    // them would go. So may, for `fgd`, arrivals in any queue.
    return queue.touched || !static_order_ || (is_easy(policy_) && queue.shadow.time() < simulator_.now()) ||
           (policy_.placement == Placement::fgd && place_matters());
}

void LeanRun::start(JobId job, const Allocation& allocation, bool backfilled) {
    simulator_.start(job, allocation, backfilled);
    if (aged_ && job < next_to_age_) {
        aged_->erase(job);
    } else {
        pending_.erase(job);
        if (by_estimate_) by_estimate_->erase(job);
    }
    if (!indexes_.empty()) index_of(*current_).erase(indexed(job));
    --current_->waiting;
    current_->touched = place_matters() || makes_room_;
    if (--waiting_of_[as_index(simulator_.jobs().demand[as_index(job)])] == 0) --current_->waiting_demands;
    // A backfilled job is in the shadow already; one that ranks before the head is not. Where starts make room, the
    // head may now be placeable before the shadow time.
    if (!backfilled || makes_room_) current_->shadow_head = -1;
}

Shadow& LeanRun::shadow_of(JobId head) {
    QueueRun& queue = *current_;
    if (queue.shadow_head != head || queue.shadow.time() < simulator_.now()) {
        const Demand& d = simulator_.jobs().demand_of(as_index(head));
        queue.shadow.compute(simulator_.now(), d, placer_, simulator_.state(), simulator_.running(d.queue));
        queue.shadow_head = head;
    }
    return queue.shadow;
}

void LeanRun::pass(QueueRun& queue) {
    current_ = &queue;
    queue.touched = false;
    if (!indexes_.empty()) return pass_indexed(queue);
    if (!queue.by_class) return scan(queue);
    if (aged_ && pass_aged(queue)) return;
    if (policy_.backfill == Backfill::greedy) return fill(queue, -1, kNoRank);
    const Ranked head = gated() ? start_in_order_gated(queue) : start_in_order(queue);
    if (!head) return;
    if (policy_.backfill != Backfill::strict)
        fill_behind(queue, head);
    else if (!gated())
        queue.blocked_rank = head.rank;
}

// The part of a pass that goes over aged jobs. Whether the pass is over: one of them did not fit.
bool LeanRun::pass_aged(QueueRun& queue) {
    among_ = &*aged_;
    const Ranked head = start_in_order(queue);
    if (head && is_easy(policy_))
        fill_behind(queue, head);
    else if (head)
        queue.blocked_rank = -1;
    among_ = &pending_;
    return static_cast<bool>(head);
}

void LeanRun::fill_behind(QueueRun& queue, Ranked head) {
    if (!anything_fits(queue)) return;  // then the shadow time, which costs, does not matter
    shadow_of(head.job);
    shadow_demand_ = &simulator_.jobs().demand_of(as_index(head.job));
    const bool behind_aged = among_aged();
    if (behind_aged) {
        fill(queue, head.rank, kNoRank);
        among_ = &pending_;
    }
    fill(queue, by_estimate_ || behind_aged ? -1 : head.rank, kNoRank);
    shadow_demand_ = nullptr;
}

// Starts jobs in order up to the first that does not fit, and returns that one.
Ranked LeanRun::start_in_order(QueueRun& queue) {
    while (queue.waiting > 0) {
        JobClass* best = nullptr;
        Ranked head;
        for (JobClass& c : queue.classes) {
            const Ranked first = among_->first(c.group);
            if (first.rank >= head.rank) continue;
            best = &c;
            head = first;
        }
        if (best == nullptr) return {};
        if (!placer_.place(simulator_.state(), demand(best->demand), 0, best->allocation)) return head;
        start(head.job, best->allocation, false);
    }
    return {};
}

// The same where jobs that are not admitted are passed over.
Ranked LeanRun::start_in_order_gated(QueueRun& queue) {
    Rank cursor = -1;
    for (;;) {
        JobClass* best = nullptr;
        for (JobClass& c : queue.classes) {
            c.candidate = pending_.next(c.group, cursor);
            // No job of the class that may start ranks before its next one: what cannot be best is not placed.
            if (!c.candidate || (best != nullptr && c.candidate.rank > best->candidate.rank)) continue;
            c.fits = placer_.place(simulator_.state(), demand(c.demand), 0, c.allocation);
            if (c.fits) find_candidate(c, cursor);
            if (c.candidate && (best == nullptr || c.candidate.rank < best->candidate.rank)) best = &c;
        }
        if (best == nullptr) return {};
        if (!best->fits) return best->candidate;
        cursor = best->candidate.rank;
        start(best->candidate.job, best->allocation, false);
    }
}

// The next job of a class that fits and may start where the class would be placed now.
void LeanRun::find_candidate(JobClass& c, Rank cursor) {
    const Demand& d = demand(c.demand);
    const Gate gate(among_aged() ? kNoLane : policy_.express, simulator_.state(), d, c.allocation);
    Shadow& shadow = current_->shadow;
    const bool any_length = shadow_demand_ == nullptr || shadow.time() == kEndless ||
                            shadow.leaves_room(*shadow_demand_, placer_, d, c.allocation.parts);
    if (any_length && gate.admits_all()) {
        c.candidate = filling_order().next(c.group, cursor);
        return;
    }
    const Time room_us = any_length ? kEndless : shadow.time() - simulator_.now();
    const double penalty = simulator_.settings().locality_penalty;
    const auto is_short = [&](Time estimate) {
        if (estimate == kEndless) return false;
        return (any_length || c.allocation.run_time(estimate, penalty) <= room_us) && gate.admits(estimate);
    };
    if (!by_estimate_ || among_aged()) {
        c.candidate = among_->next_short(c.group, cursor, is_short);
        return;
    }
    c.candidate = by_estimate_->next(c.group, cursor);  // the shortest: if it is too long, all are
    if (c.candidate && !is_short(simulator_.jobs().estimate_us[as_index(c.candidate.job)])) c.candidate = {};
}

void LeanRun::try_class(JobClass& c, Rank cursor) {
    c.fits = placer_.place(simulator_.state(), demand(c.demand), 0, c.allocation);
    c.candidate = {};
    if (c.fits) find_candidate(c, cursor);
}

// Starts whatever may start behind `cursor`, in order. Behind a head every start is a backfilled one; else those are
// that rank behind a job that did not fit, the first of which is `blocker`.
void LeanRun::fill(QueueRun& queue, Rank cursor, Rank blocker) {
    bool first_round = true;
    for (;;) {
        JobClass* best = nullptr;
        for (JobClass& c : queue.classes) {
            if (!first_round && !c.fits) continue;
            if (!among_->first(c.group)) {
                c.fits = false;
                continue;
            }
            if (shadow_demand_ != nullptr && best != nullptr &&
                filling_order().next(c.group, cursor).rank > best->candidate.rank) {
                c.fits = true;  // it may: it cannot be best, and is not tried
                continue;
            }
            try_class(c, cursor);
            if (!c.fits && shadow_demand_ == nullptr) blocker = std::min(blocker, among_->next(c.group, cursor).rank);
            if (c.candidate && (best == nullptr || c.candidate.rank < best->candidate.rank)) best = &c;
        }
        first_round = false;
        if (best == nullptr) return;
        cursor = best->candidate.rank;
        const JobId job = best->candidate.job;
        if (shadow_demand_ != nullptr) {
            const Time estimate = simulator_.jobs().estimate_us[as_index(job)];
            const Time run = best->allocation.run_time(estimate, simulator_.settings().locality_penalty);
            queue.shadow.started(expected_end(simulator_.now(), run), demand(best->demand), best->allocation.parts);
        }
        start(job, best->allocation, shadow_demand_ != nullptr || blocker < cursor);
    }
}

Candidate LeanRun::candidate_of(JobId job) const {
    const std::size_t i = as_index(job);
    const JobTable& jobs = simulator_.jobs();
    return {job, jobs.demand[i], jobs.estimate_us[i], jobs.row_of(i),
            policy_.is_aged(simulator_.now(), jobs.submit_us[i])};
}

bool LeanRun::next(Candidate& out) {
    if (static_order_) {
        at_ = at_ ? among_->behind(current_->group, at_.job) : among_->first(current_->group);
        if (!at_ && among_aged()) {
            among_ = &pending_;
            at_ = pending_.first(current_->group);
        }
        if (at_) out = candidate_of(at_.job);
        return static_cast<bool>(at_);
    }
    if (by_score_.empty()) return false;
    std::pop_heap(by_score_.begin(), by_score_.end(), [&](std::size_t a, std::size_t b) { return ranks_behind(a, b); });
    out = candidates_[by_score_.back()];
    by_score_.pop_back();
    return true;
}

double LeanRun::usage_of(std::int32_t user) {
    const std::size_t i = as_index(user);
    if (usage_as_of_[i] != simulator_.instant()) {
        usage_[i] = simulator_.usage_of(user);
        usage_as_of_[i] = simulator_.instant();
    }
    return usage_[i];
}

void LeanRun::rank_by_score(const QueueRun& queue) {
    candidates_.clear();
    scores_.clear();
    const bool from_outside = policy_.order == Order::scored;
    QueueColumns columns;
    columns.now_us = simulator_.now();
    const Moment moment = simulator_.moment();
    for (Ranked at = pending_.first(queue.group); at; at = pending_.behind(queue.group, at.job)) {
        const JobId job = at.job;
        const std::int32_t user = simulator_.jobs().user_of(as_index(job));
        const Scored scored = simulator_.scored(job, usage_of(user));
        candidates_.push_back(candidate_of(job));
        if (from_outside)
            append(columns, scored, user, job);
        else
            scores_.push_back(score(policy_.order, scored, moment));
    }
    scores_.resize(candidates_.size());
    if (from_outside) score_from_outside(policy_, columns, scores_);
    for (std::size_t i = 0; i < candidates_.size() && candidates_[i].aged; ++i)  // in order of arrival
        scores_[i] = -std::numeric_limits<double>::infinity();
    by_score_.resize(candidates_.size());
    std::iota(by_score_.begin(), by_score_.end(), std::size_t{0});
    std::make_heap(by_score_.begin(), by_score_.end(),
                   [&](std::size_t a, std::size_t b) { return ranks_behind(a, b); });
}

// Whether any waiting job fits at all, where that is cheaper to know than the order.
bool LeanRun::anything_fits(const QueueRun& queue) {
    if (queue.demands.size() > kMostClasses) return true;
    return std::any_of(queue.demands.begin(), queue.demands.end(), [&](std::int32_t d) {
        return waiting_of_[as_index(d)] > 0 && placer_.placeable(simulator_.state(), demand(d));
    });
}

void LeanRun::pass_indexed(QueueRun& queue) {
    fitting_.clear();
    for (const std::int32_t d : queue.demands)
        if (waiting_of_[as_index(d)] > 0 && placer_.placeable(simulator_.state(), demand(d)))
            fitting_.push_back({.demand = d});
    if (fitting_.empty()) return;
    index_of(queue).begin(simulator_.moment());
    IndexedPass(*this, policy_, placer_, simulator_.state(), index_of(queue)).run(fitting_, allocation_);
}

void LeanRun::scan(QueueRun& queue) {
    if (!anything_fits(queue)) return;
    at_ = {};
    if (aged_) among_ = &*aged_;
    if (!static_order_) rank_by_score(queue);
    ScanPass(*this, policy_, placer_, simulator_.state()).run(misfits_, marked_, allocation_);
    among_ = &pending_;
}

}  // namespace

Tracking tracking_for(const Policy& policy) {
    return {.running = is_easy(policy), .usage = traits_of(policy.order).remembers == Memory::user_usage};
}

void run_policy(LeanSimulator& simulator, const Policy& policy, const Beginning& beginning, const Progress& progress) {
    LeanRun run(simulator, policy);
    run.play(beginning);
    run.run(progress);
}

}  // namespace gpuyard
