// What the server asks of malloc.
#ifndef SVDSERVE_SERVER_HEAP_H_
#define SVDSERVE_SERVER_HEAP_H_

#include <cstdint>
#include <functional>
#include <limits>
#include <memory>

#include "absl/time/time.h"
#include "server/clock.h"

namespace svdserve::server {

// Blocks where glibc would map and fault in every megabyte afresh stay in the heap: large messages cost a third. Begins
// the thread that trims. To be called once, before there are other threads.
void KeepHeapWarm();

// Gives the system back what the heap keeps free, such as the tens of megabytes that a large upload leaves. Takes a few
// milliseconds, in which others may wait for the heap. Begins no thread. Thread-safe.
void TrimHeap();

// Bytes that the heap holds and nobody uses. Some of them the system may have back already.
int64_t FreeHeapBytes();

// Trims the heap after a burst. It looks at the free bytes once a period. Bytes that are free at each of kLooks looks
// are needed by nobody: if there are more than kSpareBytes of them, they go back. A server under steady load uses its
// heap, so it is not trimmed.
class HeapKeeper {
 public:
  static constexpr absl::Duration kPeriod = absl::Seconds(5);
  static constexpr int kLooks = 4;
  static constexpr int64_t kSpareBytes = int64_t{32} << 20;

  // `clock` outlives the keeper. The functions are called on the clock's thread: FreeHeapBytes() and TrimHeap(), or
  // what a test gives.
  explicit HeapKeeper(Clock* clock, std::function<int64_t()> free_bytes = FreeHeapBytes,
                      std::function<void()> trim = TrimHeap);
  HeapKeeper(const HeapKeeper&) = delete;
  HeapKeeper& operator=(const HeapKeeper&) = delete;

 private:
  void Look();

  Clock* const clock_;
  const std::function<int64_t()> free_bytes_;
  const std::function<void()> trim_;
  // Of the looks since the last decision; changed by the alarm alone.
  int looks_ = 0;
  int64_t least_ = std::numeric_limits<int64_t>::max();
  std::unique_ptr<Alarm> alarm_;  // last: its callback uses the others
};

}  // namespace svdserve::server
#endif  // SVDSERVE_SERVER_HEAP_H_
