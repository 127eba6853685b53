// The server's settings of malloc, and when it gives memory back.
#ifndef SVDSERVE_SERVER_BASE_HEAP_H_
#define SVDSERVE_SERVER_BASE_HEAP_H_

#include <functional>
#include <memory>

#include "absl/time/time.h"
#include "server/base/clock.h"

namespace svdserve::server {

// Large blocks stay in the heap, where glibc would map and fault in every megabyte afresh: large messages cost a third.
// Begins the thread that trims. To be called once, before there are other threads.
void keep_heap_warm();

// Gives the system back what the heap keeps free, such as the tens of megabytes that a large upload leaves. Takes some
// milliseconds for 100 MiB; others may wait for the heap meanwhile. Begins no thread. Thread-safe.
void trim_heap();

// The CPU time that all threads of the process have used.
absl::Duration process_cpu_time();

// Trims the heap after a burst. Once a period it looks at the process's CPU time. The process is quiet when it used
// less than kQuietShare of one core in the last period. Then the heap is trimmed, unless next to nothing was done since
// the last trim. So a burst is given back after two periods at most, a server under load keeps its heap warm, and an
// idle server trims nothing.
class HeapKeeper {
 public:
  static constexpr absl::Duration kPeriod = absl::Seconds(10);
  static constexpr double kQuietShare = 0.25;
  static constexpr absl::Duration kNextToNothing = absl::Milliseconds(100);

  // `clock` outlives the keeper. The functions are called on a thread of the clock's: process_cpu_time() and trim_heap(),
  // or what a test gives.
  explicit HeapKeeper(Clock* clock, std::function<absl::Duration()> cpu_time = process_cpu_time,
                      std::function<void()> trim = trim_heap);
  HeapKeeper(const HeapKeeper&) = delete;
  HeapKeeper& operator=(const HeapKeeper&) = delete;

 private:
  void look();

  Clock* const clock_;
  const std::function<absl::Duration()> cpu_time_;
  const std::function<void()> trim_;
  // CPU time at the last look and after the last trim; changed by the alarm alone.
  absl::Duration looked_, trimmed_;
  std::unique_ptr<Alarm> alarm_;  // last: its callback uses the others
};

}  // namespace svdserve::server
#endif  // SVDSERVE_SERVER_BASE_HEAP_H_
