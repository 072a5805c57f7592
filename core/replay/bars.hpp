// A schedule as bars on the GPUs of nodes, which pictures of any part of it are made from.
#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "base/job.hpp"

namespace gpuyard {

// Stays of jobs on nodes. Stay i held `held` GPUs on each node of `node_offset[i]:node_offset[i + 1]`.
struct Stays {
    std::span<const std::int32_t> job;
    std::span<const Time> from_us;
    std::span<const Time> to_us;
    // GPU within its node that a job shares, -1 of others.
    std::span<const std::int32_t> gpu_index;
    std::span<const std::int64_t> node_offset;
    std::span<const std::int32_t> node;
    std::span<const std::int32_t> held;
};

// What part of a schedule a picture shows, and how finely.
struct PictureView {
    Time from_us = 0;
    Time to_us = 0;
    std::int32_t first_node = 0;
    std::int32_t last_node = 0;  // the first that is not shown
    std::int32_t columns = 0;
    std::int32_t rows = 0;
};

class RowUse;

// A picture, row by row. Key 0 is an idle cell.
struct Picture {
    std::vector<std::uint8_t> key;
    // How much of the cell is in use: 0 to 255.
    std::vector<std::uint8_t> share;
};

// Bars by node and begin. A lane is a GPU; nodes without GPUs have one lane for their jobs. Jobs that hold no
// GPU of a node that has some are not drawn.
class Bars {
public:
    // Gives each stay the lowest GPUs that are free, as schedules say only how many a job held.
    Bars(std::span<const std::int32_t> node_gpus, const Stays& stays);

    // The jobs on each lane at a moment, -1 where there is none.
    std::vector<std::int32_t> at(Time at_us) const;

    // For each cell the key of those jobs that use most of it. `keys` are from 1 to 255, one a job.
    Picture draw(std::span<const std::uint8_t> keys, const PictureView& view) const;

    std::int64_t count() const { return static_cast<std::int64_t>(bars_.size()); }
    std::int64_t memory_bytes() const;
    // Lane of the first GPU of each node, and behind the last one how many lanes there are.
    const std::vector<std::int32_t>& first_lanes() const { return first_lane_; }

private:
    // GPUs side by side that a stay held.
    struct Bar {
        Time from_us;
        Time to_us;
        std::int32_t job;
        std::uint16_t lane;  // within its node
        std::uint16_t lanes;
    };

    // Where a stay was: an index of Stays::node.
    struct Place {
        Time from_us;
        std::size_t stay;
        std::size_t at;
    };

    void lay_node(std::size_t count, bool has_gpus, std::span<const Place> places, const Stays& stays);
    // Adds what the bars of a node take of lanes `begin` to `end` of the picture, counted from the first one.
    void add_node(RowUse& use, std::span<const std::uint8_t> keys, const PictureView& view, std::int32_t node,
                  std::int64_t begin, std::int64_t end) const;
    // The bars of a node that may lie between two moments: the first and the one behind the last.
    std::pair<std::size_t, std::size_t> between(std::int32_t node, Time from_us, Time to_us) const;

    std::vector<std::int32_t> first_lane_;
    std::vector<std::size_t> first_bar_;
    std::vector<Bar> bars_;
    std::vector<Time> latest_us_;  // the latest end of a node's bars up to this one
};

}  // namespace gpuyard
