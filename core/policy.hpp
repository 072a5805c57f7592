// What a native policy consists of, and the settings of a simulation.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "job.hpp"
#include "placement.hpp"

namespace gpuyard {

enum class Order : std::uint8_t {
    fifo, lifo, sjf, ljf, smallest, largest, saf, laf, wspt, wfp3, unicep,
    f1, f2, f3, f4, priority, edf, fair_share, random,
    scored,  // by a function from outside
};

enum class Backfill : std::uint8_t { strict, greedy, easy, easy_sjf };

// `express:T0:K` of docs/simulator.md, section 11. K = 0 admits everything.
struct Express {
    double t0_s = 1.0;
    double k = 0.0;
};

// Columns of one queue at a decision point, for orders that are functions from outside.
struct QueueColumns {
    Time now_us = 0;
    std::vector<double> submit_s, wait_s, estimate_s, gpus, priority, deadline_s, user_usage;  // NaN = unknown or none
    std::vector<std::int64_t> user, job;
};
using ScoreFunction = std::function<void(const QueueColumns&, std::span<double> scores)>;

struct Policy {
    Order order = Order::fifo;
    Backfill backfill = Backfill::strict;
    Express express;
    Placement placement = Placement::consolidate;
    ScoreFunction scores;  // for Order::scored
};

template <class Enum>
struct Named {
    std::string_view name;
    Enum value;
};

inline constexpr std::array<Named<Order>, 19> kOrders{{
    {"fifo", Order::fifo}, {"lifo", Order::lifo}, {"sjf", Order::sjf}, {"ljf", Order::ljf},
    {"smallest", Order::smallest}, {"largest", Order::largest}, {"saf", Order::saf}, {"laf", Order::laf},
    {"wspt", Order::wspt}, {"wfp3", Order::wfp3}, {"unicep", Order::unicep},
    {"f1", Order::f1}, {"f2", Order::f2}, {"f3", Order::f3}, {"f4", Order::f4},
    {"priority", Order::priority}, {"edf", Order::edf}, {"fair-share", Order::fair_share}, {"random", Order::random},
}};
inline constexpr std::array<Named<Backfill>, 4> kBackfills{{
    {"strict", Backfill::strict}, {"greedy", Backfill::greedy}, {"easy", Backfill::easy}, {"easy-sjf", Backfill::easy_sjf},
}};
inline constexpr std::array<Named<Placement>, 8> kPlacements{{
    {"consolidate", Placement::consolidate}, {"best-fit", Placement::best_fit}, {"first-fit", Placement::first_fit},
    {"worst-fit", Placement::worst_fit}, {"first-available", Placement::first_available},
    {"anywhere", Placement::anywhere}, {"spread", Placement::spread}, {"random", Placement::random},
}};

// By name; std::invalid_argument for one that is not in the tables above.
Order order_from_name(std::string_view name);
Backfill backfill_from_name(std::string_view name);
Placement placement_from_name(std::string_view name);

struct Settings {
    std::uint64_t seed = 0;
    bool kill_at_estimate = false;
    double locality_penalty = 0.0;
    double usage_half_life_s = 604800.0;
};

}  // namespace gpuyard
