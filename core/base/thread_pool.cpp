#include "base/thread_pool.hpp"

#include <algorithm>

namespace gpuyard {

namespace {

// Rounds follow each other closely while a trainer collects steps: sleeping at once would cost more than the work.
constexpr int kSpins = 4000;

void relax() {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    asm volatile("yield");
#endif
}

}  // namespace

ThreadPool::ThreadPool(std::size_t threads) {
    for (std::size_t i = 1; i < threads; ++i) threads_.emplace_back([this] { serve(); });
}

ThreadPool::~ThreadPool() {
    {
        const std::lock_guard lock(mutex_);
        stop_ = true;
        ++round_;
    }
    wake_.notify_all();
    for (std::thread& thread : threads_) thread.join();
}

void ThreadPool::run(std::size_t count, const std::function<void(std::size_t)>& work) {
    if (threads_.empty()) {
        for (std::size_t i = 0; i < count; ++i) work(i);
        return;
    }
    work_ = &work;
    count_ = count;
    chunk_ = std::max<std::size_t>(1, count / (8 * (threads_.size() + 1)));
    error_ = nullptr;
    next_ = 0;
    busy_ = threads_.size();
    {
        const std::lock_guard lock(mutex_);
        ++round_;
    }
    wake_.notify_all();
    work_off();
    while (busy_.load(std::memory_order_acquire) > 0) relax();
    if (error_) std::rethrow_exception(error_);
}

void ThreadPool::serve() {
    for (std::uint64_t seen = 0;;) {
        for (int spin = 0; spin < kSpins && round_.load(std::memory_order_acquire) == seen; ++spin) relax();
        if (round_.load(std::memory_order_acquire) == seen) {
            std::unique_lock lock(mutex_);
            wake_.wait(lock, [&] { return round_.load() != seen; });
        }
        seen = round_.load(std::memory_order_acquire);
        if (stop_) return;
        work_off();
        busy_.fetch_sub(1, std::memory_order_release);
    }
}

void ThreadPool::work_off() {
    for (;;) {
        const std::size_t from = next_.fetch_add(chunk_);
        if (from >= count_) return;
        try {
            for (std::size_t i = from; i < std::min(from + chunk_, count_); ++i) (*work_)(i);
        } catch (...) {
            const std::lock_guard lock(mutex_);
            if (!error_) error_ = std::current_exception();
        }
    }
}

}  // namespace gpuyard
