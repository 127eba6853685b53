#include "server/heap.h"

#include <malloc.h>

#include <cstdlib>
#include <thread>

#include "server/mutex.h"

namespace svdserve::server {
namespace {

// Every arena keeps what it once held: few arenas bound that.
constexpr int kArenas = 2;
// Blocks from here on, when they are freed, make glibc look at what their arena keeps.
constexpr size_t kLargeBlock = 128 << 10;

void keep(int trim_threshold, int top_pad) {
  mallopt(M_TRIM_THRESHOLD, trim_threshold);
  mallopt(M_TOP_PAD, top_pad);
}

}  // namespace

void KeepHeapWarm() {
  mallopt(M_MMAP_THRESHOLD, 1 << 30);
  mallopt(M_ARENA_MAX, kArenas);
  keep(256 << 20, 64 << 20);
}

void TrimHeap() {
  static Mutex one_at_a_time;
  MutexLock lock(&one_at_a_time);
  // malloc_trim() leaves the end of every arena but the first as it is. That goes when a large block of the arena is
  // freed, but for the pad. Threads that begin are given one arena after the other.
  keep(0, 0);
  for (int i = 0; i < 2 * kArenas; ++i) {
    std::thread([] {
      void* volatile block = std::malloc(kLargeBlock);  // volatile: or the compiler drops both
      std::free(block);
    }).join();
  }
  malloc_trim(0);
  keep(256 << 20, 64 << 20);
}

}  // namespace svdserve::server
