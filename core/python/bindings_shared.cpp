#include "python/bindings_shared.hpp"

namespace gpuyard {

namespace {

nb::dict to_dict(RunArrays runs) {
    nb::dict columns;
    columns["entry"] = to_numpy(std::move(runs.entry));
    columns["taken_us"] = to_numpy(std::move(runs.taken_us));
    columns["begin_us"] = to_numpy(std::move(runs.begin_us));
    columns["stop_us"] = to_numpy(std::move(runs.stop_us));
    columns["released_us"] = to_numpy(std::move(runs.released_us));
    columns["restore_us"] = to_numpy(std::move(runs.restore_us));
    columns["lost_us"] = to_numpy(std::move(runs.lost_us));
    columns["ending"] = to_numpy(std::move(runs.ending));
    columns["gpu_index"] = to_numpy(std::move(runs.gpu_index));
    columns["node_offset"] = to_numpy(std::move(runs.node_offset));
    columns["node"] = to_numpy(std::move(runs.node));
    columns["node_gpus"] = to_numpy(std::move(runs.node_gpus));
    return columns;
}

nb::dict to_dict(const std::vector<Downtime>& down) {
    nb::dict columns;
    columns["node"] = column(down, [](const Downtime& d) { return d.node; });
    columns["from_us"] = column(down, [](const Downtime& d) { return d.from_us; });
    columns["to_us"] = column(down, [](const Downtime& d) { return d.to_us; });
    return columns;
}

}  // namespace

nb::dict to_dict(ScheduleArrays arrays) {
    nb::dict dict;
    dict["start_us"] = to_numpy(std::move(arrays.start_us));
    dict["end_us"] = to_numpy(std::move(arrays.end_us));
    dict["status"] = to_numpy(std::move(arrays.status));
    dict["backfilled"] = to_numpy(std::move(arrays.backfilled));
    dict["gpu_index"] = to_numpy(std::move(arrays.gpu_index));
    dict["node_offset"] = to_numpy(std::move(arrays.node_offset));
    dict["node"] = to_numpy(std::move(arrays.node));
    dict["node_gpus"] = to_numpy(std::move(arrays.node_gpus));
    if (arrays.runs) dict["runs"] = to_dict(std::move(*arrays.runs));
    if (!arrays.downtime.empty()) dict["downtime"] = to_dict(arrays.downtime);
    return dict;
}

Progress progress_to(const nb::object& function) {
    return [&function](std::int64_t finished) {
        nb::gil_scoped_acquire acquire;
        if (PyErr_CheckSignals() != 0) throw nb::python_error();
        if (!function.is_none()) function(finished);
    };
}

}  // namespace gpuyard
