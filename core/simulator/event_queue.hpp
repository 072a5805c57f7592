// Finish events, earliest first, ties by job id: a 4-ary heap in one array.
#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

#include "base/job.hpp"

namespace gpuyard {

class EventQueue {
public:
    struct Event {
        Time time;
        JobId job;
        // Without branches: which of two events is first is a coin toss to the processor.
        bool operator<(const Event& other) const {
            return static_cast<bool>(static_cast<int>(time < other.time) |
                                     (static_cast<int>(time == other.time) & static_cast<int>(job < other.job)));
        }
    };

    bool empty() const { return heap_.empty(); }
    std::size_t size() const { return heap_.size(); }
    void clear() { heap_.clear(); }
    const Event& top() const { return heap_.front(); }

    void push(Event event) {
        std::size_t hole = heap_.size();
        heap_.push_back(event);
        while (hole > 0) {
            const std::size_t parent = (hole - 1) / 4;
            if (!(event < heap_[parent])) break;
            heap_[hole] = heap_[parent];
            hole = parent;
        }
        heap_[hole] = event;
    }

    void pop() {
        const Event last = heap_.back();
        heap_.pop_back();
        const std::size_t size = heap_.size();
        if (size == 0) return;
        std::size_t hole = 0;
        for (;;) {
            const std::size_t child = 4 * hole + 1;
            if (child >= size) break;
            std::size_t best = child;
            const std::size_t end = std::min(child + 4, size);
            for (std::size_t other = child + 1; other < end; ++other) best = heap_[other] < heap_[best] ? other : best;
            if (!(heap_[best] < last)) break;
            heap_[hole] = heap_[best];
            hole = best;
        }
        heap_[hole] = last;
    }

private:
    std::vector<Event> heap_;
};

}  // namespace gpuyard
