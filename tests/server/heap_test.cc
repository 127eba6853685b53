#include "server/heap.h"

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
  KeepHeapWarm();
  const int64_t before = resident_mebibytes();
  constexpr int64_t kUsed = 100;
  for (int i = 0; i < 4; ++i) std::thread([] { use_the_heap(kUsed); }).join();
  use_the_heap(kUsed);
  const int64_t free_bytes = FreeHeapBytes();
  const int64_t kept = resident_mebibytes() - before;
  TrimHeap();
  const int64_t left = resident_mebibytes() - before;
  std::printf("resident: %ld MiB before, %ld more after use, %ld more after TrimHeap()\n", static_cast<long>(before),
              static_cast<long>(kept), static_cast<long>(left));
  if (!kMemoryIsMeasured) return;
  EXPECT_GT(free_bytes >> 20, kUsed);
  EXPECT_GT(kept, kUsed) << "it is kept warm";
  EXPECT_LT(left, 16);
}

class HeapKeeperTest : public ::testing::Test {
 protected:
  static constexpr int64_t kMuch = HeapKeeper::kSpareBytes + 1;
  void Look(int64_t free, int looks = 1) {
    free_bytes = free;
    for (int i = 0; i < looks; ++i) clock.Advance(HeapKeeper::kPeriod);
  }
  FakeClock clock;
  int64_t free_bytes = 0;
  int trims = 0;
  HeapKeeper keeper{&clock, [this] { return free_bytes; }, [this] { ++trims; }};
};

TEST_F(HeapKeeperTest, WhatNobodyNeedsGoesBackOnce) {
  Look(kMuch, HeapKeeper::kLooks - 1);
  EXPECT_EQ(trims, 0);
  Look(kMuch);
  EXPECT_EQ(trims, 1);
  Look(0, 10 * HeapKeeper::kLooks);
  EXPECT_EQ(trims, 1);
}

TEST_F(HeapKeeperTest, AfterABurstItTakesTwoRoundsAtMost) {
  Look(0, 1);  // the burst
  Look(kMuch, 2 * HeapKeeper::kLooks - 1);
  EXPECT_EQ(trims, 1);
  EXPECT_LT(2 * HeapKeeper::kLooks * HeapKeeper::kPeriod, absl::Seconds(60));
}

TEST_F(HeapKeeperTest, AHeapThatIsUsedIsLeftAlone) {
  for (int i = 0; i < 20; ++i) {
    Look(kMuch, HeapKeeper::kLooks - 1);
    Look(HeapKeeper::kSpareBytes);
  }
  EXPECT_EQ(trims, 0);
}

}  // namespace
}  // namespace svdserve::server
