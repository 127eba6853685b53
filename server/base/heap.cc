#include "server/base/heap.h"

#include <malloc.h>

#include <cstdint>
#include <cstdlib>
#include <ctime>
#include <thread>
#include <utility>

#include "server/base/mutex.h"

namespace svdserve::server {
namespace {

// Every arena keeps what it once held: few arenas bound that. The first is the main thread's.
constexpr int kArenas = 2;
// Blocks from here on, when they are freed, make glibc look at what their arena keeps.
constexpr size_t kLargeBlock = 128 << 10;

void keep(int trim_threshold, int top_pad) {
  mallopt(M_TRIM_THRESHOLD, trim_threshold);
  mallopt(M_TOP_PAD, top_pad);
}

void keep_warm() { keep(256 << 20, 64 << 20); }

// To be called on a thread of the second arena.
void trim_arenas() {
  keep(0, 0);
  // malloc_trim() leaves the end of every arena but the first as it is. That goes when a large block of the arena is
  // freed, but for the pad.
  void* volatile block = std::malloc(kLargeBlock);  // volatile: or the compiler drops both
  std::free(block);
  malloc_trim(0);
  keep_warm();
}

// The thread that trims. It is there from the start: at its limit of threads a process cannot begin one. It is the
// first thread beside the main one, so glibc gives it the second arena. Thread-safe. Never destroyed.
class Trimmer {
 public:
  Trimmer() {
    std::thread([this] { serve(); }).detach();
    trim();  // it has its arena when this returns
  }
  // Returns when a trim that began after the call is done.
  void trim() {
    MutexLock lock(&mu_);
    const int64_t mine = ++wanted_;
    changed_.signal_all();
    while (done_ < mine) changed_.wait(&mu_);
  }

 private:
  void serve() {
    mu_.lock();
    while (true) {
      while (done_ == wanted_) changed_.wait(&mu_);
      const int64_t wanted = wanted_;
      mu_.unlock();
      trim_arenas();
      mu_.lock();
      done_ = wanted;
      changed_.signal_all();
    }
  }

  Mutex mu_;
  CondVar changed_;
  int64_t wanted_ ABSL_GUARDED_BY(mu_) = 0;
  int64_t done_ ABSL_GUARDED_BY(mu_) = 0;
};

Trimmer* trimmer = nullptr;  // set by keep_heap_warm(), before there are other threads

}  // namespace

void keep_heap_warm() {
  mallopt(M_MMAP_THRESHOLD, 1 << 30);
  mallopt(M_ARENA_MAX, kArenas);
  keep_warm();
  trimmer = new Trimmer;
}

void trim_heap() {
  if (trimmer != nullptr) {
    trimmer->trim();
  } else {
    malloc_trim(0);  // a program that keeps no heap warm
  }
}

absl::Duration process_cpu_time() {
  timespec used{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used);
  return absl::DurationFromTimespec(used);
}

HeapKeeper::HeapKeeper(Clock* clock, std::function<absl::Duration()> cpu_time, std::function<void()> trim)
    : clock_(clock),
      cpu_time_(std::move(cpu_time)),
      trim_(std::move(trim)),
      alarm_(clock->make_alarm([this] { look(); })) {
  alarm_->set(clock_->now() + kPeriod);
}

void HeapKeeper::look() {
  const absl::Duration used = cpu_time_();
  if (used - looked_ < kQuietShare * kPeriod && used - trimmed_ > kNextToNothing) {
    trim_();
    trimmed_ = cpu_time_();
  }
  looked_ = used;
  alarm_->set(clock_->now() + kPeriod);
}

}  // namespace svdserve::server
