// How many jobs of each kind have arrived: what `fgd` takes the jobs to come to be like.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "base/job.hpp"

namespace gpuyard {

struct JobMix {
    struct Class {
        std::int32_t gpus;
        std::int32_t gpu_milli;
        std::int64_t count;
    };
    std::vector<Class> classes;

    // Jobs without GPUs are no class.
    void add(const Demand& demand, std::int64_t count = 1) {
        if (demand.kind != DemandKind::cpu_only) add(demand.gpus, demand.gpu_milli, count);
    }
    void add(std::int32_t gpus, std::int32_t gpu_milli, std::int64_t count) {
        const auto found = std::find_if(classes.begin(), classes.end(),
                                        [&](const Class& c) { return c.gpus == gpus && c.gpu_milli == gpu_milli; });
        if (found == classes.end())
            classes.push_back({gpus, gpu_milli, count});
        else
            found->count += count;
    }

    // Jobs that take whole GPUs, and more of them than `gpus`.
    std::int64_t whole_above(std::int32_t gpus) const {
        std::int64_t sum = 0;
        for (const Class& c : classes) sum += c.gpu_milli == 1000 && c.gpus > gpus ? c.count : 0;
        return sum;
    }
    // Shared jobs that take more than `milli` thousandths.
    std::int64_t shared_above(std::int32_t milli) const {
        std::int64_t sum = 0;
        for (const Class& c : classes) sum += c.gpu_milli < 1000 && c.gpu_milli > milli ? c.count : 0;
        return sum;
    }
};

}  // namespace gpuyard
