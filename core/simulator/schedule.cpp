#include "simulator/schedule.hpp"

#include <algorithm>
#include <bit>

#include "base/index.hpp"

namespace gpuyard {

namespace {

ScheduleArrays allocations_of(const LeanSimulator& simulator) {
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
            if (simulator.jobs().demand_of(i).kind == DemandKind::shared)
                out.gpu_index[i] = std::countr_zero(part.gpu_mask);
        }
        out.node_offset.push_back(static_cast<std::int64_t>(out.node.size()));
    }
    return out;
}

std::optional<RunArrays> runs_of(const FullSimulator& simulator) {
    std::vector<const Run*> runs;
    bool plain = true;
    for (const Run& run : simulator.runs()) {
        if (run.begin_us < 0) continue;
        runs.push_back(&run);
        plain = plain && run.taken_us == run.begin_us && run.ending <= RunEnding::timeout;
    }
    if (plain) return std::nullopt;
    std::sort(runs.begin(), runs.end(), [](const Run* a, const Run* b) {
        return a->begin_us != b->begin_us ? a->begin_us < b->begin_us : a->job < b->job;
    });
    RunArrays out;
    out.node_offset.push_back(0);
    for (const Run* run : runs) {
        out.entry.push_back(run->job);
        out.taken_us.push_back(run->taken_us);
        out.begin_us.push_back(run->begin_us);
        out.stop_us.push_back(run->stop_us);
        out.released_us.push_back(run->released_us);
        out.restore_us.push_back(run->restore_us);
        out.lost_us.push_back(run->lost_us);
        out.ending.push_back(static_cast<std::uint8_t>(run->ending));
        std::int32_t gpu = -1;
        for (const Part& part : simulator.parts_of(*run)) {
            out.node.push_back(part.node);
            out.node_gpus.push_back(part.gpus);
            if (simulator.jobs().demand_of(as_index(run->job)).kind == DemandKind::shared)
                gpu = std::countr_zero(part.gpu_mask);
        }
        out.gpu_index.push_back(gpu);
        out.node_offset.push_back(static_cast<std::int64_t>(out.node.size()));
    }
    return out;
}

void add_times(ScheduleArrays& out, LeanSimulator::Record record) {
    out.start_us = std::move(record.start_us);
    out.end_us = std::move(record.end_us);
    out.status = std::move(record.ending);
    out.backfilled = std::move(record.backfilled);
}

}  // namespace

ScheduleArrays schedule_of(const FullSimulator& simulator) {
    const std::size_t jobs = simulator.jobs().submit_us.size();
    std::vector<const Run*> last(jobs, nullptr);
    ScheduleArrays out;
    out.start_us.assign(jobs, -1);
    out.end_us.assign(jobs, -1);
    out.status.assign(jobs, 0);
    out.gpu_index.assign(jobs, -1);
    out.backfilled = simulator.backfilled();
    for (const Run& run : simulator.runs()) {
        if (run.begin_us < 0) continue;
        const auto i = as_index(run.job);
        if (last[i] == nullptr) out.start_us[i] = run.begin_us;
        last[i] = &run;
    }
    out.node_offset.push_back(0);
    for (std::size_t i = 0; i < jobs; ++i) {
        if (const Run* run = last[i]) {
            if (run->ending == RunEnding::completed || run->ending == RunEnding::timeout) out.end_us[i] = run->stop_us;
            out.status[i] = run->ending == RunEnding::timeout ? 1 : 0;
            for (const Part& part : simulator.parts_of(*run)) {
                out.node.push_back(part.node);
                out.node_gpus.push_back(part.gpus);
                if (simulator.jobs().demand_of(i).kind == DemandKind::shared)
                    out.gpu_index[i] = std::countr_zero(part.gpu_mask);
            }
        }
        out.node_offset.push_back(static_cast<std::int64_t>(out.node.size()));
    }
    out.runs = runs_of(simulator);
    out.downtime = simulator.downtime(out.end_us.empty() ? 0 : *std::max_element(out.end_us.begin(), out.end_us.end()));
    return out;
}

ScheduleArrays schedule_of(const LeanSimulator& simulator) {
    ScheduleArrays out = allocations_of(simulator);
    add_times(out, simulator.record());
    return out;
}

ScheduleArrays schedule_of(LeanSimulator&& simulator) {
    ScheduleArrays out = allocations_of(simulator);
    add_times(out, simulator.take_record());
    return out;
}

}  // namespace gpuyard
