// Entries in order, in blocks of a few dozen with a summary of each: a search leaves out whole blocks by their summary,
// and an insertion moves few entries, however many there are.
#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

#include "base/index.hpp"

namespace gpuyard {

// `Entry` has operator<; `Summary` is that of nothing when it is made, and has add(entry).
template <class Entry, class Summary>
class SummedBlocks {
public:
    struct Block {
        Summary summary;
        std::vector<Entry> entries;
    };

    bool empty() const { return blocks_.empty(); }
    const std::vector<Block>& blocks() const { return blocks_; }
    const Entry& front() const { return blocks_.front().entries.front(); }
    const Entry& back() const { return blocks_.back().entries.back(); }
    // The first entry that follows `key`; null if there is none.
    const Entry* behind(const Entry& key) const {
        const auto block =
            std::upper_bound(blocks_.begin(), blocks_.end(), key,
                             [](const Entry& passed, const Block& one) { return passed < one.entries.back(); });
        if (block == blocks_.end()) return nullptr;
        return &*std::upper_bound(block->entries.begin(), block->entries.end(), key);
    }

    void insert(const Entry& entry) {
        std::size_t at = block_of(entry);
        if (at == blocks_.size()) {
            if (at == 0) blocks_.emplace_back();
            at = blocks_.size() - 1;
        }
        if (blocks_[at].entries.size() == kMost) {
            split(at);
            if (blocks_[at].entries.back() < entry) ++at;
        }
        Block& block = blocks_[at];
        block.entries.insert(std::upper_bound(block.entries.begin(), block.entries.end(), entry), entry);
        block.summary.add(entry);
    }

    // The entry that neither precedes nor follows `key`, which must be there.
    void erase(const Entry& key) {
        const std::size_t at = block_of(key);
        Block& block = blocks_[at];
        block.entries.erase(std::lower_bound(block.entries.begin(), block.entries.end(), key));
        if (block.entries.empty())
            blocks_.erase(blocks_.begin() + static_cast<std::ptrdiff_t>(at));
        else
            summarise(block);
    }

private:
    static constexpr std::size_t kMost = 64;

    // The first block whose last entry is not before this one.
    std::size_t block_of(const Entry& entry) const {
        const auto found =
            std::lower_bound(blocks_.begin(), blocks_.end(), entry,
                             [](const Block& block, const Entry& key) { return block.entries.back() < key; });
        return as_index(found - blocks_.begin());
    }

    static void summarise(Block& block) {
        block.summary = Summary();
        for (const Entry& entry : block.entries) block.summary.add(entry);
    }

    void split(std::size_t at) {
        blocks_.emplace(blocks_.begin() + static_cast<std::ptrdiff_t>(at) + 1);
        auto& lower = blocks_[at].entries;
        const auto middle = lower.begin() + kMost / 2;
        blocks_[at + 1].entries.assign(middle, lower.end());
        lower.erase(middle, lower.end());
        summarise(blocks_[at]);
        summarise(blocks_[at + 1]);
    }

    std::vector<Block> blocks_;  // none of them empty
};

}  // namespace gpuyard
