// Entries in order, in sorted blocks: inserting and erasing moves few of them, however many there are.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <memory>
#include <stdexcept>
#include <vector>

#include "base/index.hpp"

namespace gpuyard {

// `Entry` has operator< and `weight()`; each block knows the sum of its entries' weights.
template <class Entry>
class SortedBlocks {
public:
    static constexpr std::size_t kBlock = 64;

    struct Block {
        std::size_t count = 0;
        std::int64_t weight = 0;
        std::array<Entry, kBlock> entries;
        Entry* begin() { return entries.data(); }
        Entry* end() { return entries.data() + count; }
        const Entry* begin() const { return entries.data(); }
        const Entry* end() const { return entries.data() + count; }
        const Entry& back() const { return entries[count - 1]; }
        void weigh() {
            weight = 0;
            for (const Entry& entry : *this) weight += entry.weight();
        }
    };

    void insert(const Entry& entry) {
        std::size_t at = block_of(entry);
        if (at == blocks_.size()) {
            if (at == 0) blocks_.push_back(fresh());
            at = blocks_.size() - 1;
        }
        if (blocks_[at]->count == kBlock) {
            split(at);
            if (!(entry < blocks_[at]->back())) ++at;
        }
        Block& block = *blocks_[at];
        Entry* const place = std::upper_bound(block.begin(), block.end(), entry);
        std::move_backward(place, block.end(), block.end() + 1);
        *place = entry;
        ++block.count;
        block.weight += entry.weight();
    }

    // The entry that neither precedes nor follows `key`, which must be there.
    void erase(const Entry& key) {
        const std::size_t at = block_of(key);
        if (at == blocks_.size()) throw std::logic_error("a job that does not run cannot finish");
        Block& block = *blocks_[at];
        Entry* const place = std::lower_bound(block.begin(), block.end(), key);
        block.weight -= place->weight();
        std::move(place + 1, block.end(), place);
        if (--block.count > 0) return;
        spare_.push_back(std::move(blocks_[at]));
        blocks_.erase(blocks_.begin() + static_cast<std::ptrdiff_t>(at));
    }

    void clear() {
        for (auto& block : blocks_) spare_.push_back(std::move(block));
        blocks_.clear();
    }

    // Calls `visit(entry)` in order for as long as it returns true.
    template <class Visit>
    void visit_in_order(Visit visit) const {
        for (const auto& block : blocks_)
            for (const Entry& entry : *block)
                if (!visit(entry)) return;
    }

    // Null if there is none.
    const Entry* last() const { return blocks_.empty() ? nullptr : &blocks_.back()->back(); }

    std::size_t block_count() const { return blocks_.size(); }
    const Block& block(std::size_t i) const { return *blocks_[i]; }

private:
    // The first block whose last entry is not before this one.
    std::size_t block_of(const Entry& entry) const {
        const auto found = std::lower_bound(blocks_.begin(), blocks_.end(), entry,
                                            [](const auto& block, const Entry& key) { return block->back() < key; });
        return as_index(found - blocks_.begin());
    }

    void split(std::size_t at) {
        auto upper = fresh();
        Block& lower = *blocks_[at];
        std::copy(lower.begin() + kBlock / 2, lower.end(), upper->begin());
        upper->count = kBlock - kBlock / 2;
        lower.count = kBlock / 2;
        lower.weigh();
        upper->weigh();
        blocks_.insert(blocks_.begin() + static_cast<std::ptrdiff_t>(at) + 1, std::move(upper));
    }

    std::unique_ptr<Block> fresh() {
        if (spare_.empty()) return std::make_unique<Block>();
        auto block = std::move(spare_.back());
        spare_.pop_back();
        block->count = 0;
        block->weight = 0;
        return block;
    }

    std::vector<std::unique_ptr<Block>> blocks_;  // none of them empty
    std::vector<std::unique_ptr<Block>> spare_;
};

}  // namespace gpuyard
