#include "native_run.hpp"

#include <algorithm>
#include <numeric>
#include <stdexcept>

#include "pending_queue.hpp"
#include "scan_pass.hpp"

namespace gpuyard {

namespace {

constexpr std::size_t kMostClasses = 64;         // of a queue, to be searched class by class
constexpr std::int64_t kProgressEvery = 1 << 15;  // instants

std::size_t as_index(std::int64_t i) { return static_cast<std::size_t>(i); }

bool is_easy(const Policy& policy) { return policy.backfill == Backfill::easy || policy.backfill == Backfill::easy_sjf; }

// The order of all jobs under a static score; empty if that is the order of arrival.
std::vector<std::int32_t> static_order(const Simulator& simulator, const Policy& policy) {
    if (policy.order == Order::fifo || !is_static(policy.order)) return {};
    const std::size_t count = simulator.jobs().submit_us.size();
    struct Entry {
        double score;
        std::int32_t job;
    };
    std::vector<Entry> entries(count);
    for (std::size_t i = 0; i < count; ++i)
        entries[i] = {score(policy.order, simulator.scored(static_cast<JobId>(i)), {0, 0, 0, simulator.jobs().origin_s}),
                      static_cast<std::int32_t>(i)};
    std::stable_sort(entries.begin(), entries.end(), [](const Entry& a, const Entry& b) { return a.score < b.score; });
    std::vector<std::int32_t> order(count);
    std::transform(entries.begin(), entries.end(), order.begin(), [](const Entry& e) { return e.job; });
    return order;
}

// A class of waiting jobs with one demand: they fit or do not fit together, at one allocation.
struct JobClass {
    std::size_t group;
    std::int32_t demand;
    Allocation allocation;
    bool fits = false;
    Rank candidate = kNoRank;  // its next job that may start
};

struct QueueRun {
    explicit QueueRun(const std::shared_ptr<const ClusterSpec>& spec) : shadow(spec) {}

    std::vector<JobClass> classes;  // if searched by class
    bool by_class = false;
    std::size_t group = 0;          // of all its jobs, if not searched by class
    std::int64_t waiting = 0;
    bool touched = false;           // something happened to it at this instant
    Rank blocked_rank = kNoRank;    // strict: nothing that ranks behind can start until a job finishes
    Shadow shadow;
    JobId shadow_head = -1;         // the job the shadow was computed for; -1 = not valid
};

class NativeRun {
public:
    NativeRun(Simulator& simulator, const Policy& policy);
    void run(const Progress& progress);

    // Handler of Simulator::next_instant.
    void finished(JobId job, Time expected_end_us);
    void arrived(JobId job);

    // Host of ScanPass.
    bool next(Candidate& out);
    const Demand& demand_of(const Candidate& candidate) const { return demand(candidate.demand); }
    Shadow& shadow_of(const Candidate& head) { return shadow_of(head.job); }
    void start(const Candidate& candidate, const Allocation& allocation, bool backfilled) {
        start(candidate.job, allocation, backfilled);
    }

private:
    bool gated() const { return policy_.express.k != 0.0; }
    const Demand& demand(std::int32_t i) const { return simulator_.jobs().demands[as_index(i)]; }
    QueueRun& queue_of(JobId job) { return queues_[as_index(simulator_.jobs().demand_of(as_index(job)).queue)]; }
    std::vector<std::int32_t> make_groups();
    Candidate candidate_of(JobId job) const;
    void start(JobId job, const Allocation& allocation, bool backfilled);
    Shadow& shadow_of(JobId head);

    bool needs_pass(const QueueRun& queue) const;
    void pass(QueueRun& queue);
    void scan(QueueRun& queue);
    void sort_by_score(const QueueRun& queue);
    Rank start_in_order(QueueRun& queue);
    Rank start_in_order_gated(QueueRun& queue);
    void fill(QueueRun& queue, Rank cursor, Rank blocker);
    void try_class(JobClass& c, Rank cursor);
    void find_candidate(JobClass& c, Rank cursor);

    Simulator& simulator_;
    const Policy& policy_;
    Placer placer_;
    bool static_order_;
    std::vector<QueueRun> queues_;
    std::vector<std::int32_t> group_of_;
    PendingQueue pending_;
    QueueRun* current_ = nullptr;
    const Demand* shadow_demand_ = nullptr;  // of the head, while a pass fills behind it
    // Scanning passes.
    Rank at_ = -1;
    std::vector<Candidate> sorted_;
    std::vector<double> scores_;
    std::vector<std::size_t> by_score_;
    std::vector<std::uint8_t> misfits_;
    std::vector<std::int32_t> marked_;
    Allocation allocation_;
};

NativeRun::NativeRun(Simulator& simulator, const Policy& policy)
    : simulator_(simulator),
      policy_(policy),
      placer_(policy.placement, simulator.settings().seed),
      static_order_(is_static(policy.order)),
      queues_(as_index(simulator.state().spec().queues), QueueRun(simulator.state().shared_spec())),
      group_of_(make_groups()),
      pending_(group_of_, static_cast<std::size_t>(group_of_.empty() ? 0 : 1 + *std::max_element(group_of_.begin(), group_of_.end())),
               static_order(simulator, policy),
               is_easy(policy) || gated() ? std::span<const Time>(simulator.jobs().estimate_us) : std::span<const Time>()),
      misfits_(simulator.jobs().demands.size(), 0) {}

// A group of the pending queue for each demand of a queue that is searched by class, one for each other queue.
std::vector<std::int32_t> NativeRun::make_groups() {
    const JobTable& jobs = simulator_.jobs();
    std::vector<std::size_t> demands_of(queues_.size(), 0);
    for (const Demand& d : jobs.demands) ++demands_of[as_index(d.queue)];
    // A random placement differs from job to job, and easy-sjf has an order of its own behind the head.
    const bool classes_help = static_order_ && policy_.placement != Placement::random && policy_.backfill != Backfill::easy_sjf;
    std::vector<std::int32_t> group_of_demand(jobs.demands.size());
    std::int32_t groups = 0;
    for (std::size_t q = 0; q < queues_.size(); ++q) {
        QueueRun& queue = queues_[q];
        queue.by_class = classes_help && demands_of[q] <= kMostClasses;
        if (!queue.by_class) queue.group = as_index(groups++);
        for (std::size_t d = 0; d < jobs.demands.size(); ++d) {
            if (as_index(jobs.demands[d].queue) != q) continue;
            if (queue.by_class) {
                queue.classes.push_back({as_index(groups), static_cast<std::int32_t>(d), {}, false, kNoRank});
                group_of_demand[d] = groups++;
            } else {
                group_of_demand[d] = static_cast<std::int32_t>(queue.group);
            }
        }
    }
    std::vector<std::int32_t> group_of(jobs.demand.size());
    for (std::size_t i = 0; i < group_of.size(); ++i) group_of[i] = group_of_demand[as_index(jobs.demand[i])];
    return group_of;
}

void NativeRun::run(const Progress& progress) {
    std::int64_t instants = 0;
    while (simulator_.next_instant(*this)) {
        for (QueueRun& queue : queues_) {
            if (needs_pass(queue)) pass(queue);
            queue.touched = false;
        }
        if (++instants % kProgressEvery == 0 && progress) progress(simulator_.finished());
    }
    for (const QueueRun& queue : queues_)
        if (queue.waiting > 0) throw std::logic_error("jobs are left waiting on an idle cluster");
}

void NativeRun::finished(JobId job, Time expected_end_us) {
    QueueRun& queue = queue_of(job);
    queue.touched = true;
    queue.blocked_rank = kNoRank;
    // A job that ends when it was expected to leaves the state at the shadow time as it was.
    if (expected_end_us > simulator_.now()) queue.shadow_head = -1;
}

void NativeRun::arrived(JobId job) {
    QueueRun& queue = queue_of(job);
    ++queue.waiting;
    pending_.insert(job);
    if (queue.blocked_rank == kNoRank || pending_.rank_of(job) < queue.blocked_rank) queue.touched = true;
}

bool NativeRun::needs_pass(const QueueRun& queue) const {
    if (queue.waiting == 0) return false;
    // Scores that change with time may change the order at any instant; overdue jobs may move the shadow time.
    return queue.touched || !static_order_ || (is_easy(policy_) && queue.shadow.time() < simulator_.now());
}

void NativeRun::start(JobId job, const Allocation& allocation, bool backfilled) {
    simulator_.start(job, allocation, backfilled);
    pending_.erase(job);
    --current_->waiting;
    // A backfilled job is in the shadow already; one that ranks before the head is not.
    if (!backfilled) current_->shadow_head = -1;
}

Shadow& NativeRun::shadow_of(JobId head) {
    QueueRun& queue = *current_;
    if (queue.shadow_head != head || queue.shadow.time() < simulator_.now()) {
        const Demand& d = simulator_.jobs().demand_of(as_index(head));
        queue.shadow.compute(simulator_.now(), d, placer_, simulator_.state(), simulator_.running(d.queue));
        queue.shadow_head = head;
    }
    return queue.shadow;
}

void NativeRun::pass(QueueRun& queue) {
    current_ = &queue;
    if (!queue.by_class) return scan(queue);
    if (policy_.backfill == Backfill::greedy) return fill(queue, -1, kNoRank);
    const Rank head = gated() ? start_in_order_gated(queue) : start_in_order(queue);
    if (head == kNoRank) return;
    if (policy_.backfill == Backfill::strict) {
        if (!gated()) queue.blocked_rank = head;
        return;
    }
    const JobId job = pending_.job_at(head);
    shadow_of(job);
    shadow_demand_ = &simulator_.jobs().demand_of(as_index(job));
    fill(queue, head, head);
    shadow_demand_ = nullptr;
}

// Starts jobs in order up to the first that does not fit, and returns that one's rank.
Rank NativeRun::start_in_order(QueueRun& queue) {
    while (queue.waiting > 0) {
        JobClass* best = nullptr;
        Rank best_rank = kNoRank;
        for (JobClass& c : queue.classes) {
            const Rank rank = pending_.first(c.group);
            if (rank >= best_rank) continue;
            best = &c;
            best_rank = rank;
        }
        const JobId job = pending_.job_at(best_rank);
        if (!placer_.place(simulator_.state(), demand(best->demand), 0, best->allocation)) return best_rank;
        start(job, best->allocation, false);
    }
    return kNoRank;
}

// The same where jobs that are not admitted are passed over.
Rank NativeRun::start_in_order_gated(QueueRun& queue) {
    Rank cursor = -1;
    for (;;) {
        JobClass* best = nullptr;
        for (JobClass& c : queue.classes) {
            c.fits = placer_.place(simulator_.state(), demand(c.demand), 0, c.allocation);
            if (c.fits)
                find_candidate(c, cursor);
            else
                c.candidate = pending_.next(c.group, cursor);
            if (c.candidate != kNoRank && (best == nullptr || c.candidate < best->candidate)) best = &c;
        }
        if (best == nullptr) return kNoRank;
        if (!best->fits) return best->candidate;
        cursor = best->candidate;
        start(pending_.job_at(cursor), best->allocation, false);
    }
}

// The next job of a class that fits and may start where the class would be placed now.
void NativeRun::find_candidate(JobClass& c, Rank cursor) {
    const Demand& d = demand(c.demand);
    const Gate gate(policy_.express, simulator_.state(), d, c.allocation);
    Shadow& shadow = current_->shadow;
    const bool any_length = shadow_demand_ == nullptr || shadow.time() == kEndless ||
                            shadow.leaves_room(*shadow_demand_, placer_, d, c.allocation.parts);
    if (any_length && gate.admits_all()) {
        c.candidate = pending_.next(c.group, cursor);
        return;
    }
    const Time room_us = any_length ? kEndless : shadow.time() - simulator_.now();
    const double penalty = simulator_.settings().locality_penalty;
    c.candidate = pending_.next_short(c.group, cursor, [&](Time estimate) {
        if (estimate == kEndless) return false;
        return (any_length || c.allocation.run_time(estimate, penalty) <= room_us) && gate.admits(estimate);
    });
}

void NativeRun::try_class(JobClass& c, Rank cursor) {
    c.fits = placer_.place(simulator_.state(), demand(c.demand), 0, c.allocation);
    c.candidate = kNoRank;
    if (c.fits) find_candidate(c, cursor);
}

// Starts whatever may start behind `cursor`, in order. `blocker` is the first rank known not to fit.
void NativeRun::fill(QueueRun& queue, Rank cursor, Rank blocker) {
    bool first_round = true;
    for (;;) {
        JobClass* best = nullptr;
        for (JobClass& c : queue.classes) {
            if (!first_round && !c.fits) continue;
            if (pending_.first(c.group) == kNoRank) {
                c.fits = false;
                continue;
            }
            try_class(c, cursor);
            if (!c.fits) blocker = std::min(blocker, pending_.next(c.group, cursor));
            if (c.candidate != kNoRank && (best == nullptr || c.candidate < best->candidate)) best = &c;
        }
        first_round = false;
        if (best == nullptr) return;
        cursor = best->candidate;
        const JobId job = pending_.job_at(cursor);
        if (shadow_demand_ != nullptr) {
            const Time estimate = simulator_.jobs().estimate_us[as_index(job)];
            const Time run = best->allocation.run_time(estimate, simulator_.settings().locality_penalty);
            queue.shadow.started(expected_end(simulator_.now(), run), demand(best->demand), best->allocation.parts);
        }
        start(job, best->allocation, blocker < cursor);
    }
}

Candidate NativeRun::candidate_of(JobId job) const {
    const std::size_t i = as_index(job);
    const JobTable& jobs = simulator_.jobs();
    return {job, jobs.demand[i], jobs.estimate_us[i], jobs.row_of(i)};
}

bool NativeRun::next(Candidate& out) {
    if (!static_order_) {
        if (as_index(at_) == by_score_.size()) return false;
        out = sorted_[by_score_[as_index(at_++)]];
        return true;
    }
    at_ = pending_.next(current_->group, at_);
    if (at_ == kNoRank) return false;
    out = candidate_of(pending_.job_at(at_));
    return true;
}

void NativeRun::sort_by_score(const QueueRun& queue) {
    sorted_.clear();
    scores_.clear();
    QueueColumns columns;
    columns.now_us = simulator_.now();
    const Moment moment = simulator_.moment();
    for (Rank rank = pending_.first(queue.group); rank != kNoRank; rank = pending_.next(queue.group, rank)) {
        const JobId job = pending_.job_at(rank);
        sorted_.push_back(candidate_of(job));
        if (policy_.order == Order::scored)
            append(columns, simulator_.scored(job), simulator_.jobs().user_of(as_index(job)), job);
        else
            scores_.push_back(score(policy_.order, simulator_.scored(job), moment));
    }
    if (policy_.order == Order::scored) {
        scores_.resize(sorted_.size());
        policy_.scores(columns, scores_);
    }
    by_score_.resize(sorted_.size());
    std::iota(by_score_.begin(), by_score_.end(), std::size_t{0});
    std::stable_sort(by_score_.begin(), by_score_.end(), [&](std::size_t a, std::size_t b) { return scores_[a] < scores_[b]; });
}

void NativeRun::scan(QueueRun& queue) {
    at_ = -1;
    if (!static_order_) {
        sort_by_score(queue);
        at_ = 0;
    }
    ScanPass(*this, policy_, simulator_.settings(), placer_, simulator_.state(), simulator_.now()).run(misfits_, marked_, allocation_);
}

}  // namespace

Tracking tracking_for(const Policy& policy) {
    return {.running = is_easy(policy), .usage = policy.order == Order::fair_share || policy.order == Order::scored};
}

void run_policy(Simulator& simulator, const Policy& policy, const Progress& progress) {
    NativeRun(simulator, policy).run(progress);
}

}  // namespace gpuyard
