// The waiting jobs of an episode by rank, of which the first few are found without looking at the others.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <numeric>
#include <span>
#include <vector>

#include "base/bit_tree.hpp"
#include "base/index.hpp"
#include "base/job.hpp"

namespace gpuyard {

class WaitingJobs {
public:
    // Nobody waits. `scores`: smaller first, ties by job; empty: by job.
    void reset(std::size_t jobs, std::span<const double> scores) {
        job_at_.resize(jobs);
        rank_of_.resize(jobs);
        std::iota(job_at_.begin(), job_at_.end(), 0);
        if (!scores.empty())
            std::sort(job_at_.begin(), job_at_.end(), [&](std::int32_t a, std::int32_t b) {
                const double x = scores[as_index(a)], y = scores[as_index(b)];
                return x != y ? x < y : a < b;
            });
        for (std::size_t rank = 0; rank < jobs; ++rank)
            rank_of_[as_index(job_at_[rank])] = static_cast<std::int32_t>(rank);
        shape_ = BitTreeShape(jobs);
        words_.assign(shape_.words(), 0);
        count_ = 0;
    }

    void insert(JobId job) {
        shape_.insert(words_.data(), place(job));
        ++count_;
    }
    void erase(JobId job) {
        shape_.erase(words_.data(), place(job));
        --count_;
    }
    std::int64_t count() const { return count_; }

    // Calls `visit(job)` in order for as long as it returns true.
    template <class Visit>
    void visit(Visit visit) const {
        for (std::size_t at = shape_.first(words_.data()); at != BitTreeShape::npos;
             at = shape_.next(words_.data(), (at | 63) + 1)) {
            const std::size_t base = at & ~std::size_t{63};
            for (std::uint64_t rest = words_[at >> 6]; rest != 0; rest &= rest - 1)
                if (!visit(static_cast<JobId>(job_at_[base + as_index(std::countr_zero(rest))]))) return;
        }
    }

    // The first that ranks behind a job, which need not wait itself; -1 if there is none.
    JobId behind(JobId job) const {
        const std::size_t at = shape_.next(words_.data(), place(job) + 1);
        return at == BitTreeShape::npos ? -1 : static_cast<JobId>(job_at_[at]);
    }

private:
    std::size_t place(JobId job) const { return as_index(rank_of_[as_index(job)]); }

    std::vector<std::int32_t> job_at_, rank_of_;
    BitTreeShape shape_;
    std::vector<std::uint64_t> words_;
    std::int64_t count_ = 0;
};

}  // namespace gpuyard
