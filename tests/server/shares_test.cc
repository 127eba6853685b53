#include "server/device/cost/shares.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>
#include <random>

namespace svdserve::server {
namespace {

using ::testing::ElementsAre;

TEST(Shares, EqualDevicesGetEqualShares) {
  const std::vector<Pace> three(3, Pace{0, 1e-6});
  EXPECT_THAT(shares_of(three, 9, 1), ElementsAre(3, 3, 3));
  EXPECT_THAT(shares_of(three, 11, 1), ElementsAre(4, 4, 3));
  EXPECT_THAT(shares_of(three, 5, 2), ElementsAre(3, 2, 0));  // the third share would be too small
  EXPECT_THAT(shares_of(three, 3, 2), ElementsAre(3, 0, 0));
  EXPECT_THAT(shares_of(three, 1, 100), ElementsAre(1, 0, 0));
}

TEST(Shares, FollowSpeed) {
  EXPECT_THAT(shares_of(std::vector<Pace>{{0, 1}, {0, 3}}, 400, 1), ElementsAre(300, 100));
  EXPECT_THAT(shares_of(std::vector<Pace>{{0, 1}, {0, 999}}, 1000, 10), ElementsAre(1000, 0));
  EXPECT_THAT(shares_of(std::vector<Pace>{{0, 999}, {0, 1}, {0, 1}}, 1000, 10), ElementsAre(0, 500, 500));
}

TEST(Shares, WhoBeginsLaterGetsLess) {
  EXPECT_THAT(shares_of(std::vector<Pace>{{0, 1}, {50, 1}}, 150, 1), ElementsAre(100, 50));
  EXPECT_THAT(shares_of(std::vector<Pace>{{0, 1}, {500, 1}}, 150, 1), ElementsAre(150, 0));
}

TEST(Shares, EarliestFinish) {
  EXPECT_DOUBLE_EQ(earliest_finish(std::vector<Pace>{{2, 0.5}}, 10), 7);
  EXPECT_DOUBLE_EQ(earliest_finish(std::vector<Pace>{{0, 1}, {0, 1}}, 10), 5);
  EXPECT_DOUBLE_EQ(earliest_finish(std::vector<Pace>{{0, 1}, {4, 1}}, 10), 7);
  EXPECT_DOUBLE_EQ(earliest_finish(std::vector<Pace>{{100, 1}, {0, 1}}, 10), 10);
}

TEST(Shares, AlwaysAddUpAndEndTogether) {
  std::mt19937 random(3);
  std::uniform_real_distribution<double> unit(0.01, 1);
  for (int round = 0; round < 2000; ++round) {
    std::vector<Pace> paces(1 + random() % 8);
    for (Pace& pace : paces) pace = {random() % 2 == 0 ? 0 : 1000 * unit(random), unit(random) * unit(random)};
    const int64_t count = 1 + static_cast<int64_t>(random() % 100000),
                  least = 1 + static_cast<int64_t>(random() % 1000);
    const std::vector<int64_t> shares = shares_of(paces, count, least);
    ASSERT_EQ(shares.size(), paces.size());
    EXPECT_EQ(std::accumulate(shares.begin(), shares.end(), int64_t{0}), count);
    const double best = earliest_finish(paces, static_cast<double>(count));
    for (size_t i = 0; i < shares.size(); ++i) {
      EXPECT_TRUE(shares[i] == 0 || shares[i] >= least || shares[i] == count);
      // Nobody ends before the best that can be done but for a matrix of rounding.
      if (shares[i] > 0) {
        EXPECT_GE(paces[i].start + (static_cast<double>(shares[i]) + 1) * paces[i].seconds_per_matrix, best * 0.999999);
      }
    }
  }
}

TEST(Shares, AreWholeUnits) {
  const std::vector<Pace> paces{{0, 1}, {0, 2}, {0, 5}};
  for (const int64_t units : {1, 2, 7, 100}) {
    for (const int64_t unit : {1, 3, 14}) {
      int64_t sum = 0;
      for (const int64_t share : shares_of(paces, units * unit, unit, unit)) {
        EXPECT_EQ(share % unit, 0) << units << " x " << unit;
        sum += share;
      }
      EXPECT_EQ(sum, units * unit);
    }
  }
}

}  // namespace
}  // namespace svdserve::server
