#include "schedule.hpp"

#include <bit>

namespace gpuyard {

ScheduleArrays schedule_of(const Simulator& simulator) {
    const Simulator::Record& record = simulator.record();
    const std::size_t jobs = record.start_us.size();
    ScheduleArrays out;
    out.start_us = record.start_us;
    out.end_us = record.end_us;
    out.status = record.ending;
    out.backfilled = record.backfilled;
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

}  // namespace gpuyard
