// Pictures of a part of a schedule, no finer than what shows them.
#include <algorithm>
#include <stdexcept>

#include "base/index.hpp"
#include "replay/bars.hpp"

namespace gpuyard {

// Use of the cells of a row by key, in lanes times columns.
class RowUse {
public:
    RowUse(std::size_t columns, std::size_t keys) : columns_(columns), keys_(keys), use_(columns * keys) {}

    std::size_t columns() const { return columns_; }
    void clear() { std::fill(use_.begin(), use_.end(), 0.0F); }

    // Lanes that are in use between two places, in columns.
    void add(double left, double right, std::size_t key, double lanes) {
        const std::size_t last = std::min(static_cast<std::size_t>(right), columns_ - 1);
        for (auto column = static_cast<std::size_t>(left); column <= last; ++column) {
            const double covered =
                std::min(right, static_cast<double>(column + 1)) - std::max(left, static_cast<double>(column));
            use_[column * keys_ + key] += static_cast<float>(std::max(covered, 0.0) * lanes);
        }
    }

    // The key with the most use, and the use of all.
    std::pair<std::uint8_t, float> strongest(std::size_t column) const {
        const float* own = use_.data() + column * keys_;
        float total = 0.0F;
        std::size_t best = 0;
        for (std::size_t key = 1; key < keys_; ++key) {
            total += own[key];
            if (own[key] > own[best]) best = key;
        }
        return {static_cast<std::uint8_t>(best), total};
    }

private:
    std::size_t columns_;
    std::size_t keys_;
    std::vector<float> use_;
};

namespace {

// What is used at all is never shown as idle.
std::uint8_t as_share(float use, std::int64_t lanes) {
    return static_cast<std::uint8_t>(std::clamp(use / static_cast<float>(lanes) * 255.0F, 1.0F, 255.0F));
}

void check(const PictureView& view, std::int32_t nodes) {
    if (view.to_us <= view.from_us || view.columns < 1 || view.rows < 1 || view.first_node < 0 ||
        view.last_node <= view.first_node || view.last_node > nodes)
        throw std::invalid_argument("a picture needs a stretch of time, nodes, columns and rows");
}

}  // namespace

void Bars::add_node(RowUse& use, std::span<const std::uint8_t> keys, const PictureView& view, std::int32_t node,
                    std::int64_t begin, std::int64_t end) const {
    const double per_us = static_cast<double>(use.columns()) / static_cast<double>(view.to_us - view.from_us);
    const std::int64_t offset = first_lane_[as_index(node)] - first_lane_[as_index(view.first_node)];
    const auto [first, last] = between(node, view.from_us, view.to_us);
    for (std::size_t k = first; k < last; ++k) {
        const Bar& bar = bars_[k];
        const std::int64_t low = std::max<std::int64_t>(offset + bar.lane, begin);
        const std::int64_t high = std::min<std::int64_t>(offset + bar.lane + bar.lanes, end);
        const Time from_us = std::max(bar.from_us, view.from_us), to_us = std::min(bar.to_us, view.to_us);
        if (low >= high || to_us <= from_us) continue;
        use.add(static_cast<double>(from_us - view.from_us) * per_us,
                static_cast<double>(to_us - view.from_us) * per_us, keys[as_index(bar.job)],
                static_cast<double>(high - low));
    }
}

Picture Bars::draw(std::span<const std::uint8_t> keys, const PictureView& view) const {
    check(view, static_cast<std::int32_t>(first_lane_.size()) - 1);
    const std::size_t columns = as_index(view.columns), rows = as_index(view.rows);
    const std::size_t most = keys.empty() ? 0 : *std::max_element(keys.begin(), keys.end());
    const auto first = first_lane_.begin() + view.first_node, last = first_lane_.begin() + view.last_node;
    const std::int64_t lanes = *last - *first;
    Picture picture{std::vector<std::uint8_t>(rows * columns), std::vector<std::uint8_t>(rows * columns)};
    RowUse use(columns, most + 1);
    for (std::size_t row = 0; row < rows; ++row) {
        // Lanes of this row, and the node of the first one.
        const std::int64_t begin = static_cast<std::int64_t>(row) * lanes / view.rows;
        const std::int64_t end = std::max(static_cast<std::int64_t>(row + 1) * lanes / view.rows, begin + 1);
        use.clear();
        for (auto at = std::upper_bound(first, last, *first + begin) - 1; at != last && *at - *first < end; ++at)
            add_node(use, keys, view, static_cast<std::int32_t>(at - first_lane_.begin()), begin, end);
        for (std::size_t column = 0; column < columns; ++column) {
            const auto [key, total] = use.strongest(column);
            picture.key[row * columns + column] = key;
            if (key != 0) picture.share[row * columns + column] = as_share(total, end - begin);
        }
    }
    return picture;
}

}  // namespace gpuyard
