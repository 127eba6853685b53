// Copies by several threads: every byte, none beyond, for sizes about the ends of parts, again and again.
#include "engine/backends/cuda/device/copy_threads.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <vector>

namespace svdserve::cuda {
namespace {

TEST(CopyThreadsTest, CopiesEveryByteAndNoOther) {
  for (const int threads : {0, 1, 2, 3, 4, 7}) {
    CopyThreads copies(threads);
    for (const size_t bytes : {size_t{0}, size_t{1}, size_t{4097}, (size_t{1} << 20) - 1, size_t{1} << 20,
                               (size_t{1} << 20) + 5, (size_t{3} << 20) + 1}) {
      std::vector<unsigned char> from(bytes + 2), to(bytes + 2, 0xee);
      for (size_t i = 0; i < from.size(); ++i) from[i] = static_cast<unsigned char>(i * 2654435761u >> 24);
      copies.copy(to.data() + 1, from.data() + 1, bytes);
      EXPECT_EQ(to.front(), 0xee) << threads << " threads, " << bytes << " bytes";
      EXPECT_EQ(to.back(), 0xee) << threads << " threads, " << bytes << " bytes";
      EXPECT_TRUE(std::equal(from.begin() + 1, from.end() - 1, to.begin() + 1))
          << threads << " threads, " << bytes << " bytes";
    }
  }
}

TEST(CopyThreadsTest, RepeatsWithoutLosingARound) {
  CopyThreads copies(4);
  std::vector<uint32_t> from(size_t{1} << 18), to(from.size());
  for (uint32_t round = 1; round <= 200; ++round) {
    from.assign(from.size(), round);
    copies.copy(to.data(), from.data(), from.size() * sizeof(uint32_t));
    ASSERT_EQ(to, from) << round;
  }
}

}  // namespace
}  // namespace svdserve::cuda
