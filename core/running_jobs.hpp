// Running jobs of one queue by (expected end, job), in sorted blocks: starts and finishes move few entries, however many run.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <stdexcept>
#include <vector>

#include "job.hpp"

namespace gpuyard {

// A job that runs; its allocation is `part_count` parts from `first_part` on in an array kept elsewhere.
struct RunningJob {
    Time expected_end_us;  // kEndless = unknown
    JobId job;
    std::int32_t demand;
    std::uint32_t part_count;
    std::size_t first_part;

    bool operator<(const RunningJob& other) const {
        return expected_end_us != other.expected_end_us ? expected_end_us < other.expected_end_us : job < other.job;
    }
};

class RunningJobs {
public:
    void insert(const RunningJob& job) {
        std::size_t at = block_of(job);
        if (at == blocks_.size()) {
            if (at == 0) blocks_.push_back(fresh());
            at = blocks_.size() - 1;
        }
        if (blocks_[at]->count == kBlock) {
            split(at);
            if (!(job < blocks_[at]->back())) ++at;
        }
        Block& block = *blocks_[at];
        RunningJob* const place = std::upper_bound(block.begin(), block.end(), job);
        std::move_backward(place, block.end(), block.end() + 1);
        *place = job;
        ++block.count;
    }

    void erase(Time expected_end_us, JobId job) {
        const RunningJob key{expected_end_us, job, 0, 0, 0};
        const std::size_t at = block_of(key);
        if (at == blocks_.size()) throw std::logic_error("a job that does not run cannot finish");
        Block& block = *blocks_[at];
        RunningJob* const place = std::lower_bound(block.begin(), block.end(), key);
        std::move(place + 1, block.end(), place);
        if (--block.count > 0) return;
        spare_.push_back(std::move(blocks_[at]));
        blocks_.erase(blocks_.begin() + static_cast<std::ptrdiff_t>(at));
    }

    void clear() {
        for (auto& block : blocks_) spare_.push_back(std::move(block));
        blocks_.clear();
    }

    // Calls `visit(job)` in order for as long as it returns true.
    template <class Visit>
    void visit_in_order(Visit visit) const {
        for (const auto& block : blocks_)
            for (const RunningJob* job = block->begin(); job != block->end(); ++job)
                if (!visit(*job)) return;
    }

private:
    static constexpr std::size_t kBlock = 64;

    struct Block {
        std::size_t count = 0;
        std::array<RunningJob, kBlock> jobs;
        RunningJob* begin() { return jobs.data(); }
        RunningJob* end() { return jobs.data() + count; }
        const RunningJob* begin() const { return jobs.data(); }
        const RunningJob* end() const { return jobs.data() + count; }
        const RunningJob& back() const { return jobs[count - 1]; }
    };

    // The first block whose last job is not before this one.
    std::size_t block_of(const RunningJob& job) const {
        const auto found = std::lower_bound(blocks_.begin(), blocks_.end(), job,
                                            [](const auto& block, const RunningJob& key) { return block->back() < key; });
        return static_cast<std::size_t>(found - blocks_.begin());
    }

    void split(std::size_t at) {
        auto upper = fresh();
        Block& lower = *blocks_[at];
        std::copy(lower.begin() + kBlock / 2, lower.end(), upper->begin());
        upper->count = kBlock - kBlock / 2;
        lower.count = kBlock / 2;
        blocks_.insert(blocks_.begin() + static_cast<std::ptrdiff_t>(at) + 1, std::move(upper));
    }

    std::unique_ptr<Block> fresh() {
        if (spare_.empty()) return std::make_unique<Block>();
        auto block = std::move(spare_.back());
        spare_.pop_back();
        block->count = 0;
        return block;
    }

    std::vector<std::unique_ptr<Block>> blocks_;  // none of them empty
    std::vector<std::unique_ptr<Block>> spare_;
};

}  // namespace gpuyard
