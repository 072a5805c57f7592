// Pictures of schedules for the dashboard.
#include <stdexcept>

#include "python/bindings_shared.hpp"
#include "replay/bars.hpp"

namespace gpuyard {

using namespace nb::literals;

void bind_replay(nb::module_& m) {
    nb::class_<Bars>(m, "Bars")
        .def(
            "__init__",
            [](Bars* self, const In<std::int32_t>& node_gpus, const In<std::int32_t>& job, const In<Time>& from_us,
               const In<Time>& to_us, const In<std::int32_t>& gpu_index, const In<std::int64_t>& node_offset,
               const In<std::int32_t>& node, const In<std::int32_t>& held) {
                const Stays stays{view(job),         view(from_us), view(to_us), view(gpu_index),
                                  view(node_offset), view(node),    view(held)};
                const nb::gil_scoped_release release;
                new (self) Bars(view(node_gpus), stays);
            },
            "node_gpus"_a, "job"_a, "from_us"_a, "to_us"_a, "gpu_index"_a, "node_offset"_a, "node"_a, "held"_a)
        .def_prop_ro(
            "first_lanes", [](const Bars& self) { return to_numpy(std::vector(self.first_lanes())); },
            nb::rv_policy::move)
        .def_prop_ro("memory_bytes", &Bars::memory_bytes)
        .def("__len__", [](const Bars& self) { return self.count(); })
        .def(
            "at",
            [](const Bars& self, Time at_us) {
                std::vector<std::int32_t> jobs;
                {
                    const nb::gil_scoped_release release;
                    jobs = self.at(at_us);
                }
                return to_numpy(std::move(jobs));
            },
            "at_us"_a)
        .def(
            "draw",
            [](const Bars& self, const In<std::uint8_t>& keys, Time from_us, Time to_us, std::int32_t first_node,
               std::int32_t last_node, std::int32_t columns, std::int32_t rows) {
                const PictureView shown{from_us, to_us, first_node, last_node, columns, rows};
                Picture picture;
                {
                    const nb::gil_scoped_release release;
                    picture = self.draw(view(keys), shown);
                }
                return nb::make_tuple(to_numpy(std::move(picture.key)), to_numpy(std::move(picture.share)));
            },
            "keys"_a, "from_us"_a, "to_us"_a, "first_node"_a, "last_node"_a, "columns"_a, "rows"_a);
}

}  // namespace gpuyard
