#include "schedule.hpp"

#include <bit>

namespace gpuyard {

namespace {

ScheduleArrays allocations_of(const Simulator& simulator) {
    const std::size_t jobs = simulator.record().start_us.size();
    ScheduleArrays out;
    out.gpu_index.assign(jobs, -1);
    out.node_offset.reserve(jobs + 1);
    out.node_offset.push_back(0);
    out.node.reserve(jobs);
    out.node_gpus.reserve(jobs);
    for (std::size_t i = 0; i < jobs; ++i) {
        for (const Part& part : simulator.parts_of(static_cast<JobId>(i))) {
            out.node.push_back(part.node);
            out.node_gpus.push_back(part.gpus);
            if (simulator.jobs().demand_of(i).kind == DemandKind::shared) out.gpu_index[i] = std::countr_zero(part.gpu_mask);
        }
        out.node_offset.push_back(static_cast<std::int64_t>(out.node.size()));
    }
    return out;
}

void add_times(ScheduleArrays& out, Simulator::Record record) {
    out.start_us = std::move(record.start_us);
    out.end_us = std::move(record.end_us);
    out.status = std::move(record.ending);
    out.backfilled = std::move(record.backfilled);
}

}  // namespace

ScheduleArrays schedule_of(const Simulator& simulator) {
    ScheduleArrays out = allocations_of(simulator);
    add_times(out, simulator.record());
    return out;
}

ScheduleArrays schedule_of(Simulator&& simulator) {
    ScheduleArrays out = allocations_of(simulator);
    add_times(out, simulator.take_record());
    return out;
}

}  // namespace gpuyard
