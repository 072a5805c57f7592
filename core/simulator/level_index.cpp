#include "simulator/level_index.hpp"

#include <algorithm>

namespace gpuyard {

void LevelIndex::insert(JobId job, std::size_t slot, std::size_t level) {
    if (levels_[level].empty()) waiting_.push_back(level);
    levels_[level].emplace(job, slot);
    level_of_slot_.resize(std::max(level_of_slot_.size(), slot + 1));
    level_of_slot_[slot] = level;
}

void LevelIndex::erase(JobId job, std::size_t slot) {
    const std::size_t level = level_of_slot_[slot];
    levels_[level].erase(job);
    if (levels_[level].empty()) std::erase(waiting_, level);
}

void LevelIndex::move(JobId job, std::size_t slot, std::size_t level) {
    erase(job, slot);
    insert(job, slot, level);
}

void LevelIndex::push_head(double score, const Level& level, Level::const_iterator at) {
    heads_.push_back({{score, at->first, at->second}, &level, at});
    std::push_heap(heads_.begin(), heads_.end());
}

void LevelIndex::draw(std::size_t count) {
    while (drawn_.size() < count && !heads_.empty()) {
        std::pop_heap(heads_.begin(), heads_.end());
        const Head head = heads_.back();
        heads_.pop_back();
        drawn_.push_back(head.entry);
        if (const auto next = std::next(head.at); next != head.level->end())
            push_head(head.entry.score, *head.level, next);
    }
}

}  // namespace gpuyard
