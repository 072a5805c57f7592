// Conversions that the files of the Python module share.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/vector.h>

#include <limits>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "cluster/cluster.hpp"
#include "policy/policy.hpp"
#include "simulator/progress.hpp"
#include "simulator/schedule.hpp"

namespace gpuyard {

namespace nb = nanobind;

template <class T>
using In = nb::ndarray<const T, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
template <class T>
using Out = nb::ndarray<nb::numpy, T, nb::ndim<1>>;

template <class T>
std::span<const T> view(const In<T>& array) {
    return {array.data(), array.size()};
}

template <class T>
std::span<const T> view(const std::optional<In<T>>& array) {
    return array ? view(*array) : std::span<const T>();
}

template <class T>
Out<T> to_numpy(std::vector<T> values) {
    auto* owned = new std::vector<T>(std::move(values));
    nb::capsule owner(owned, [](void* p) noexcept { delete static_cast<std::vector<T>*>(p); });
    return Out<T>(owned->data(), {owned->size()}, owner);
}

template <class Row, class Field>
auto column(const std::vector<Row>& rows, Field field) {
    using T = std::decay_t<decltype(field(rows[0]))>;
    std::vector<T> values;
    values.reserve(rows.size());
    for (const Row& row : rows) values.push_back(field(row));
    return to_numpy(std::move(values));
}

inline double seconds_or_nan(Time us) {
    return us == kEndless ? std::numeric_limits<double>::quiet_NaN() : seconds(us);
}

// A policy, and the Python function it may call. The function outlives every call that uses the policy.
struct BoundPolicy {
    Policy policy;
    nb::object scores;
};

using Parts = std::vector<std::pair<std::int32_t, std::int32_t>>;

inline Parts node_pairs(std::span<const Part> parts) {
    Parts pairs;
    for (const Part& part : parts) pairs.emplace_back(part.node, part.gpus);
    return pairs;
}

// With `runs` and `downtime` where there are any.
nb::dict to_dict(ScheduleArrays arrays);

// Calls a Python function, if there is one, and looks for Ctrl-C. `function` must outlive it.
Progress progress_to(const nb::object& function);

// Snapshot, Decision and what is asked of them.
void bind_snapshot(nb::module_& m);
// Snapshots to and from plain columns.
void bind_snapshot_columns(nb::module_& m);
// Environments.
void bind_env(nb::module_& m);
// Networks and what they drive.
void bind_learn(nb::module_& m);
// Pictures of schedules.
void bind_replay(nb::module_& m);
// Single formulas, placements and observations, so that tests can compare them bit by bit with another implementation.
void bind_testing(nb::module_& m);

}  // namespace gpuyard
