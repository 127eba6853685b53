// Threads for the way between a caller's memory and a device: one copies 5 to 9 GB/s, and a bus moves 55.
// Each takes parts of its own through two slots of its own. So none waits for the others, and a thread copies one part
// while the bus moves another.
// Knows no CUDA.
#ifndef SVDSERVE_ENGINE_BACKENDS_CUDA_DEVICE_TRANSFER_THREADS_H_
#define SVDSERVE_ENGINE_BACKENDS_CUDA_DEVICE_TRANSFER_THREADS_H_

#include <algorithm>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <mutex>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

namespace svdserve::cuda {

// How `lines` lines, of so many bytes each, are cut into parts for at most `threads` threads, which have `bytes` bytes of
// slots together. A line fits them at least twice, and is not cut. Slots begin at multiples of kAlignment, as kernels
// read numbers there.
struct TransferParts {
  static constexpr int kSlots = 2;  // of a thread

  TransferParts(int64_t lines, int64_t line_bytes, int threads, int64_t bytes) {
    constexpr int64_t kLeastPart = int64_t{256} << 10;  // below, starting a copy takes longer than the copy
    const auto slot_of = [bytes](int64_t count) { return bytes / (kSlots * count) / kAlignment * kAlignment; };
    int64_t wanted = threads;
    while (wanted > 1 && slot_of(wanted) < line_bytes) --wanted;
    slot_bytes = slot_of(wanted);
    const int64_t even = (lines + wanted - 1) / wanted;
    const int64_t most = std::max<int64_t>(1, slot_bytes / line_bytes),
                  least = std::max<int64_t>(1, kLeastPart / line_bytes);
    per_part = std::min(most, std::max(least, even));
    parts = (lines + per_part - 1) / per_part;
    used = static_cast<int>(std::min(wanted, parts));
  }

  static constexpr int64_t kAlignment = 256;
  int64_t slot_bytes, per_part, parts;
  int used;  // threads
};

// Thread safety: one caller at a time. Idle threads sleep.
class TransferThreads {
 public:
  // threads: the calling one included.
  explicit TransferThreads(int threads) {
    helpers_.reserve(static_cast<size_t>(std::max(threads, 1)));
    try {
      for (int i = 1; i < threads; ++i) helpers_.emplace_back([this, i] { help(i); });
    } catch (const std::system_error&) {
      // Where the system has no thread left, those that there are transfer.
    }
  }
  ~TransferThreads() {
    {
      const std::lock_guard lock(mutex_);
      stopping_ = true;
    }
    started_.notify_all();
    for (std::thread& helper : helpers_) helper.join();
  }
  TransferThreads(const TransferThreads&) = delete;
  TransferThreads& operator=(const TransferThreads&) = delete;

  int threads() const { return static_cast<int>(helpers_.size()) + 1; }

  // f(0) .. f(count - 1), each on a thread of its own; f(0) on the calling one. count: at most threads(). Returns when all
  // have ended, and throws what one of them threw.
  void run(int count, std::function<void(int)> f) {
    if (count > 1) {
      const std::lock_guard lock(mutex_);
      job_ = std::move(f);
      count_ = count;
      busy_ = count - 1;
      error_ = nullptr;
      ++round_;
    }
    if (count <= 1) return f(0);
    started_.notify_all();
    const std::exception_ptr own = outcome_of(0);
    std::unique_lock lock(mutex_);
    ended_.wait(lock, [this] { return busy_ == 0; });
    const std::exception_ptr error = own != nullptr ? own : std::exchange(error_, nullptr);
    job_ = nullptr;
    if (error != nullptr) std::rethrow_exception(error);
  }

 private:
  std::exception_ptr outcome_of(int thread) const {
    try {
      job_(thread);
    } catch (...) {
      return std::current_exception();
    }
    return nullptr;
  }

  void help(int thread) {
    std::unique_lock lock(mutex_);
    for (uint64_t done = 0;;) {
      started_.wait(lock, [&] { return stopping_ || round_ != done; });
      if (stopping_) return;
      done = round_;
      if (thread >= count_) continue;
      lock.unlock();
      const std::exception_ptr error = outcome_of(thread);
      lock.lock();
      if (error != nullptr) error_ = error;
      if (--busy_ == 0) ended_.notify_one();
    }
  }

  std::mutex mutex_;
  std::condition_variable started_, ended_;
  std::function<void(int)> job_;  // of this round
  int count_ = 0;                 // threads that have a part in it
  uint64_t round_ = 0;
  int busy_ = 0;  // helpers that have not ended their part
  std::exception_ptr error_;
  bool stopping_ = false;
  std::vector<std::thread> helpers_;
};

}  // namespace svdserve::cuda
#endif  // SVDSERVE_ENGINE_BACKENDS_CUDA_DEVICE_TRANSFER_THREADS_H_
