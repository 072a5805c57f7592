// A set of small integers with fast "first" and "first at or after": a tree of 64-bit words in which a bit of one level
// says that the word below it is not zero. The words live in a caller's array, so that a state can be copied as one
// block.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>

#include "base/index.hpp"

namespace gpuyard {

class BitTreeShape {
public:
    static constexpr std::size_t npos = ~std::size_t{0};

    BitTreeShape() = default;
    explicit BitTreeShape(std::size_t capacity) {
        std::size_t words = (capacity + 63) / 64;
        if (words == 0) words = 1;
        for (;;) {
            offset_[levels_] = words_;
            length_[levels_] = words;
            words_ += words;
            ++levels_;
            if (words == 1) break;
            words = (words + 63) / 64;
        }
    }

    std::size_t words() const { return words_; }

    void insert(std::uint64_t* words, std::size_t i) const {
        for (std::size_t level = 0; level < levels_; ++level, i >>= 6) {
            std::uint64_t& word = words[offset_[level] + (i >> 6)];
            const bool was_set = word != 0;
            word |= std::uint64_t{1} << (i & 63);
            if (was_set) return;
        }
    }

    void erase(std::uint64_t* words, std::size_t i) const {
        for (std::size_t level = 0; level < levels_; ++level, i >>= 6) {
            std::uint64_t& word = words[offset_[level] + (i >> 6)];
            word &= ~(std::uint64_t{1} << (i & 63));
            if (word != 0) return;
        }
    }

    bool contains(const std::uint64_t* words, std::size_t i) const { return (words[i >> 6] >> (i & 63) & 1) != 0; }
    bool empty(const std::uint64_t* words) const { return words[words_ - 1] == 0; }

    std::size_t first(const std::uint64_t* words) const {
        if (empty(words)) return npos;
        return descend(words, levels_, 0);
    }

    // The smallest member >= i.
    std::size_t next(const std::uint64_t* words, std::size_t i) const {
        for (std::size_t level = 0; level < levels_; ++level) {
            const std::size_t at = i >> 6;
            if (at >= length_[level]) return npos;
            const std::uint64_t rest = words[offset_[level] + at] & (~std::uint64_t{0} << (i & 63));
            if (rest != 0) return descend(words, level, (at << 6) | as_index(std::countr_zero(rest)));
            i = at + 1;
        }
        return npos;
    }

private:
    std::size_t descend(const std::uint64_t* words, std::size_t level, std::size_t i) const {
        while (level-- > 0) {
            const std::uint64_t word = words[offset_[level] + i];
            i = (i << 6) | as_index(std::countr_zero(word));
        }
        return i;
    }

    static constexpr std::size_t kMaxLevels = 6;  // 64^6 members
    std::size_t levels_ = 0;
    std::size_t words_ = 0;
    std::array<std::size_t, kMaxLevels> offset_{};
    std::array<std::size_t, kMaxLevels> length_{};
};

}  // namespace gpuyard
