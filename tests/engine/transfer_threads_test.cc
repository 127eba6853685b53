// Threads that transfer parts: every part once, errors reach the caller, and rounds follow each other.
#include "engine/backends/cuda/device/transfer_threads.h"

#include <gtest/gtest.h>

#include <atomic>
#include <stdexcept>
#include <thread>
#include <vector>

namespace svdserve::cuda {
namespace {

TEST(TransferThreadsTest, RunsEachPartOnceRoundAfterRound) {
  for (const int threads : {0, 1, 2, 5}) {
    TransferThreads all(threads);
    ASSERT_EQ(all.threads(), std::max(threads, 1));
    for (int round = 0; round < 200; ++round) {
      const int count = 1 + round % all.threads();
      std::vector<std::atomic<int>> calls(static_cast<size_t>(all.threads()));
      all.run(count, [&](int thread) { ++calls[static_cast<size_t>(thread)]; });
      for (int thread = 0; thread < all.threads(); ++thread) {
        ASSERT_EQ(calls[static_cast<size_t>(thread)], thread < count ? 1 : 0) << "round " << round;
      }
    }
  }
}

TEST(TransferThreadsTest, ThrowsWhatAPartThrewOnceAllHaveEnded) {
  TransferThreads all(4);
  for (int bad = 0; bad < 4; ++bad) {
    std::atomic<int> ended = 0;
    const auto part = [&](int thread) {
      if (thread == bad) throw std::runtime_error("part");
      std::this_thread::yield();
      ++ended;
    };
    EXPECT_THROW(all.run(4, part), std::runtime_error);
    EXPECT_EQ(ended, 3);
    all.run(4, [&](int) { ++ended; });
    EXPECT_EQ(ended, 7) << "an error is thrown again";
  }
}

TEST(TransferPartsTest, HaveAllLinesWithinTheirSlots) {
  constexpr int64_t kBytes = int64_t{32} << 20;
  for (const int threads : {1, 3, 5, 6, 7, 8}) {
    for (const int64_t line_bytes :
         {int64_t{4}, int64_t{8000}, int64_t{1} << 20, int64_t{5} << 20, kBytes / 3, kBytes / 7, kBytes / 2}) {
      for (const int64_t lines : {1, 2, 7, 1000, 100000}) {
        const TransferParts cut(lines, line_bytes, threads, kBytes);
        EXPECT_GE(cut.used, 1);
        EXPECT_LE(cut.used, threads);
        EXPECT_LE(TransferParts::kSlots * cut.used * cut.slot_bytes, kBytes);
        EXPECT_EQ(cut.slot_bytes % 256, 0) << "kernels read numbers at its beginning";
        EXPECT_LE(cut.per_part * line_bytes, cut.slot_bytes);
        EXPECT_GE(cut.parts * cut.per_part, lines);
        EXPECT_LT((cut.parts - 1) * cut.per_part, lines);
      }
    }
  }
}

}  // namespace
}  // namespace svdserve::cuda
