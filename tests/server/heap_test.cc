#include "server/base/heap.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <thread>
#include <vector>

#include "tests/server/fake_clock.h"

namespace svdserve::server {
namespace {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kMemoryIsMeasured = false;  // sanitizers have a heap of their own
#else
constexpr bool kMemoryIsMeasured = true;
#endif

int64_t resident_mebibytes() {
  std::FILE* const file = std::fopen("/proc/self/statm", "r");
  int64_t total = 0, resident = 0;
  EXPECT_EQ(std::fscanf(file, "%ld %ld", &total, &resident), 2);
  std::fclose(file);
  return resident * sysconf(_SC_PAGESIZE) >> 20;
}

// Blocks of many sizes, freed in another order: much is left between and behind those that stay.
void use_the_heap(int64_t mebibytes) {
  std::vector<void*> blocks, kept;
  int64_t bytes = 0;
  for (size_t i = 0; bytes < mebibytes << 20; ++i) {
    const size_t size = size_t{1000} << i % 11;  // up to a mebibyte
    blocks.push_back(std::malloc(size));
    std::memset(blocks.back(), 1, size);
    bytes += static_cast<int64_t>(size);
    if (i % 500 == 0) kept.push_back(std::malloc(100));
  }
  for (size_t i = 0; i < blocks.size(); i += 2) std::free(blocks[i]);
  for (size_t i = 1; i < blocks.size(); i += 2) std::free(blocks[i]);
  for (void* block : kept) std::free(block);
}

TEST(Heap, TrimmingGivesBackWhatAllThreadsHaveUsed) {
  keep_heap_warm();
  const int64_t before = resident_mebibytes();
  constexpr int64_t kUsed = 100;
  for (int i = 0; i < 4; ++i) std::thread([] { use_the_heap(kUsed); }).join();
  use_the_heap(kUsed);
  const int64_t kept = resident_mebibytes() - before;
  trim_heap();
  const int64_t left = resident_mebibytes() - before;
  std::printf("resident: %ld MiB before, %ld more after use, %ld more after TrimHeap()\n", static_cast<long>(before),
              static_cast<long>(kept), static_cast<long>(left));
  if (!kMemoryIsMeasured) return;
  EXPECT_GT(kept, kUsed) << "it is kept warm";
  EXPECT_LT(left, 16);
}

class HeapKeeperTest : public ::testing::Test {
 protected:
  const absl::Duration kMost = HeapKeeper::kQuietShare * HeapKeeper::kPeriod;  // of a quiet period
  // A period in which the process uses so much.
  void period(absl::Duration used) {
    cpu_time += used;
    clock.advance(HeapKeeper::kPeriod);
  }
  FakeClock clock;
  absl::Duration cpu_time = absl::Minutes(3);
  int trims = 0;
  HeapKeeper keeper{&clock, [this] { return cpu_time; }, [this] { ++trims; }};
};

TEST_F(HeapKeeperTest, AfterABurstTheHeapIsTrimmedOnce) {
  period(absl::Seconds(20));
  EXPECT_EQ(trims, 0);
  period(absl::Milliseconds(1));
  EXPECT_EQ(trims, 1);
  for (int i = 0; i < 90; ++i) period(absl::Milliseconds(1));
  EXPECT_EQ(trims, 1) << "next to nothing was done";
  EXPECT_LT(2 * HeapKeeper::kPeriod, absl::Minutes(1));
}

TEST_F(HeapKeeperTest, UnderLoadTheHeapStaysWarm) {
  for (int i = 0; i < 100; ++i) period(kMost);
  EXPECT_EQ(trims, 0);
}

TEST_F(HeapKeeperTest, AFewRequestsDoNotHideABurst) {
  period(absl::Seconds(20));
  period(kMost - absl::Milliseconds(1));
  EXPECT_EQ(trims, 1);
}

}  // namespace
}  // namespace svdserve::server
