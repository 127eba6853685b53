// A copy in host memory by several threads: one reaches 9 GB/s between a caller's memory and pinned memory, and a bus 55.
// Knows no CUDA.
#ifndef SVDSERVE_ENGINE_BACKENDS_CUDA_DEVICE_COPY_THREADS_H_
#define SVDSERVE_ENGINE_BACKENDS_CUDA_DEVICE_COPY_THREADS_H_

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <mutex>
#include <system_error>
#include <thread>
#include <vector>

namespace svdserve::cuda {

// Thread safety: one caller at a time. Idle threads sleep.
class CopyThreads {
 public:
  // threads: the calling one included. Where the system has no thread left, those that there are copy.
  explicit CopyThreads(int threads) {
    helpers_.reserve(static_cast<size_t>(threads < 1 ? 1 : threads));
    try {
      for (int i = 1; i < threads; ++i) helpers_.emplace_back([this, i] { help(static_cast<size_t>(i)); });
    } catch (const std::system_error&) {
      // Fewer threads copy more slowly, and as well.
    }
  }
  ~CopyThreads() {
    {
      const std::lock_guard lock(mutex_);
      stopping_ = true;
    }
    started_.notify_all();
    for (std::thread& helper : helpers_) helper.join();
  }
  CopyThreads(const CopyThreads&) = delete;
  CopyThreads& operator=(const CopyThreads&) = delete;

  // As memcpy(). Returns when all is copied.
  void copy(void* to, const void* from, size_t bytes) {
    if (bytes < kLeastBytes || helpers_.empty()) {
      std::memcpy(to, from, bytes);
      return;
    }
    {
      const std::lock_guard lock(mutex_);
      job_ = {static_cast<char*>(to), static_cast<const char*>(from), bytes, helpers_.size() + 1};
      busy_ = helpers_.size();
      ++round_;
    }
    started_.notify_all();
    copy_part(job_, 0);
    std::unique_lock lock(mutex_);
    ended_.wait(lock, [this] { return busy_ == 0; });
  }

 private:
  // Below, waking the threads takes longer than the copy.
  static constexpr size_t kLeastBytes = size_t{1} << 20;
  struct Job {
    char* to = nullptr;
    const char* from = nullptr;
    size_t bytes = 0, parts = 1;
  };

  static void copy_part(const Job& job, size_t part) {
    const size_t size = job.bytes / job.parts, first = size * part;
    std::memcpy(job.to + first, job.from + first, part + 1 == job.parts ? job.bytes - first : size);
  }

  void help(size_t part) {
    std::unique_lock lock(mutex_);
    for (uint64_t done = 0;;) {
      started_.wait(lock, [&] { return stopping_ || round_ != done; });
      if (stopping_) return;
      done = round_;
      const Job job = job_;
      lock.unlock();
      copy_part(job, part);
      lock.lock();
      if (--busy_ == 0) ended_.notify_one();
    }
  }

  std::mutex mutex_;
  std::condition_variable started_, ended_;
  Job job_;             // of this round
  uint64_t round_ = 0;  // copies begun
  size_t busy_ = 0;     // helpers that have not ended this round's part
  bool stopping_ = false;
  std::vector<std::thread> helpers_;
};

}  // namespace svdserve::cuda
#endif  // SVDSERVE_ENGINE_BACKENDS_CUDA_DEVICE_COPY_THREADS_H_
