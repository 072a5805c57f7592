// A few threads that share the calls of one function over a range of numbers.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace gpuyard {

class ThreadPool {
public:
    // The calling thread works too: `threads` - 1 others are started.
    explicit ThreadPool(std::size_t threads);
    ~ThreadPool();
    ThreadPool(const ThreadPool&) = delete;
    ThreadPool& operator=(const ThreadPool&) = delete;

    // Calls `work(i)` for every i below `count`, and returns when all are done. The first exception is thrown again.
    void run(std::size_t count, const std::function<void(std::size_t)>& work);

private:
    void serve();
    void work_off();

    std::vector<std::thread> threads_;
    std::mutex mutex_;
    std::condition_variable wake_;
    std::atomic<std::uint64_t> round_{0};
    std::atomic<bool> stop_{false};
    std::atomic<std::size_t> next_{0}, busy_{0};
    std::size_t count_ = 0, chunk_ = 1;
    const std::function<void(std::size_t)>* work_ = nullptr;
    std::exception_ptr error_;
};

}  // namespace gpuyard
