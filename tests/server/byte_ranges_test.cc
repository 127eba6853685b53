#include "server/validate/byte_ranges.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <random>
#include <utility>
#include <vector>

namespace svdserve::server {
namespace {

using Added = ByteRanges::Added;

TEST(ByteRangesTest, OneRunStaysOneRange) {
  ByteRanges ranges(100, 1);
  for (int64_t at = 0; at < 100; at += 10) {
    EXPECT_EQ(ranges.first_gap(), at);
    EXPECT_EQ(ranges.add(at, 10), Added::kYes);
    EXPECT_EQ(ranges.ranges(), 1u);
  }
  EXPECT_TRUE(ranges.complete());
  EXPECT_EQ(ranges.first_gap(), 100);
}

TEST(ByteRangesTest, EveryKindOfOverlapIsSeenAndChangesNothing) {
  ByteRanges ranges(100, 10);
  ASSERT_EQ(ranges.add(20, 10), Added::kYes);
  ASSERT_EQ(ranges.add(40, 10), Added::kYes);
  const std::pair<int64_t, int64_t> overlaps[] = {{20, 10}, {20, 1},  {29, 1},  {25, 2},  {10, 11},
                                                  {29, 11}, {15, 40}, {0, 100}, {45, 30}, {29, 12}};
  for (const auto& [offset, bytes] : overlaps) EXPECT_EQ(ranges.add(offset, bytes), Added::kOverlaps) << offset;
  EXPECT_EQ(ranges.covered(), 20);
  EXPECT_EQ(ranges.add(30, 10), Added::kYes);
  EXPECT_EQ(ranges.ranges(), 1u);
  EXPECT_EQ(ranges.first_gap(), 0);
  EXPECT_EQ(ranges.add(0, 20), Added::kYes);
  EXPECT_EQ(ranges.first_gap(), 50);
}

TEST(ByteRangesTest, WhatIsNotWithinTheOperandIsRefused) {
  constexpr int64_t kMost = std::numeric_limits<int64_t>::max(), kLeast = std::numeric_limits<int64_t>::min();
  ByteRanges ranges(100, 10);
  const std::pair<int64_t, int64_t> outside[] = {{-1, 1},    {100, 1},       {99, 2},     {0, 101},
                                                 {kMost, 1}, {kMost, kMost}, {kLeast, 1}, {0, kMost},
                                                 {1, kMost}, {0, 0},         {0, -1}};
  for (const auto& [offset, bytes] : outside) EXPECT_EQ(ranges.add(offset, bytes), Added::kOutOfRange) << offset;
  EXPECT_EQ(ranges.covered(), 0);
}

TEST(ByteRangesTest, NoMoreRangesThanTheLimit) {
  ByteRanges ranges(100, 3);
  for (const int64_t at : {0, 20, 40}) ASSERT_EQ(ranges.add(at, 1), Added::kYes);
  EXPECT_EQ(ranges.add(60, 1), Added::kTooMany);
  EXPECT_EQ(ranges.add(1, 1), Added::kYes);   // joins one
  EXPECT_EQ(ranges.add(2, 18), Added::kYes);  // joins two
  EXPECT_EQ(ranges.ranges(), 2u);
  EXPECT_EQ(ranges.add(60, 1), Added::kYes);
}

TEST(ByteRangesTest, AnyOrderCompletes) {
  std::mt19937 random(3);
  std::vector<int64_t> order(1000);
  for (size_t i = 0; i < order.size(); ++i) order[i] = static_cast<int64_t>(i);
  for (int round = 0; round < 20; ++round) {
    std::shuffle(order.begin(), order.end(), random);
    ByteRanges ranges(7 * 1000 - 3, 1000);
    for (size_t i = 0; i < order.size(); ++i) {
      EXPECT_FALSE(ranges.complete());
      ASSERT_EQ(ranges.add(7 * order[i], order[i] == 999 ? 4 : 7), Added::kYes);
      ASSERT_EQ(ranges.add(7 * order[i] + 2, 1), Added::kOverlaps);
    }
    EXPECT_TRUE(ranges.complete());
    EXPECT_EQ(ranges.ranges(), 1u);
  }
}

}  // namespace
}  // namespace svdserve::server
