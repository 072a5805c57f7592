// Reports of how far a run is.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>

namespace gpuyard {

// Called now and then, and at the end, with the number of finished jobs; what it throws ends the run.
using Progress = std::function<void(std::int64_t finished)>;

// Calls `report` at most every 50 ms, and looks at the clock at every 64th instant only.
class ProgressClock {
public:
    explicit ProgressClock(const Progress& report) : report_(report) {}

    void instant(std::int64_t finished) {
        if (++instants_ % kLookEvery != 0 || !report_) return;
        const auto now = std::chrono::steady_clock::now();
        if (now < next_) return;
        report_(finished);
        next_ = now + kReportEvery;
    }
    void end(std::int64_t finished) const {
        if (report_) report_(finished);
    }

private:
    static constexpr std::int64_t kLookEvery = 64;
    static constexpr std::chrono::milliseconds kReportEvery{50};

    const Progress& report_;
    std::int64_t instants_ = 0;
    std::chrono::steady_clock::time_point next_ = std::chrono::steady_clock::time_point::min();
};

}  // namespace gpuyard
