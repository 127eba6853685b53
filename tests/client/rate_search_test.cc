// The search for a rate, on servers that are formulas.
#include "client/cli/load/rate_search.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

namespace svdserve::cli {
namespace {

// A queue: the latency grows as the rate nears the capacity, beyond which requests are left over.
RatePoint queue(double rate, double capacity) {
  if (rate >= capacity) return {rate, 1e3, false};
  return {rate, 1e-3 / (1 - rate / capacity), true};
}

FoundRate search(const RateSearch& how, const std::function<RatePoint(double)>& server) {
  const auto found = find_rate(how, [&](double rate) -> client::Result<RatePoint> { return server(rate); });
  EXPECT_TRUE(found.ok());
  return *found;
}

TEST(RateSearch, FindsTheRateWhereTheBoundIsMet) {
  for (const double capacity : {0.5, 20.0, 100.0, 3333.0, 1e6}) {
    for (const double first : {1.0, 100.0, 1e5}) {
      const RateSearch how{.bound_seconds = 2e-3, .first_rate = first};  // met at half the capacity
      const FoundRate found = search(how, [&](double rate) { return queue(rate, capacity); });
      EXPECT_TRUE(found.is_largest) << capacity << " from " << first;
      EXPECT_LE(found.rate, capacity / 2 * (1 + 1e-9));
      EXPECT_GE(found.rate, capacity / 2 / 1.05 * (1 - 1e-9));
      EXPECT_LE(found.points.size(), 60u);
    }
  }
}

TEST(RateSearch, KnowsWhenThereIsNone) {
  const FoundRate found = search({.bound_seconds = 1e-4}, [](double rate) { return queue(rate, 1e4); });
  EXPECT_EQ(found.rate, 0);
  EXPECT_FALSE(found.is_largest);
  EXPECT_GE(found.points.back().rate, 1.0 / 60);
}

TEST(RateSearch, ABoundThatNothingMeetsEndsIt) {
  const RateSearch how{.bound_seconds = 1, .most_points = 7};
  const FoundRate found = search(how, [](double rate) { return RatePoint{rate, 0, true}; });
  EXPECT_EQ(found.points.size(), 7u);
  EXPECT_EQ(found.rate, 6400);
  EXPECT_FALSE(found.is_largest);
}

TEST(RateSearch, OneBadMeasurementDoesNotCount) {
  int measurements = 0;
  const FoundRate found = search({.bound_seconds = 2e-3}, [&](double rate) {
    return ++measurements % 2 == 1 ? RatePoint{rate, 1, true} : queue(rate, 1000);  // every other one is late
  });
  EXPECT_TRUE(found.is_largest);
  EXPECT_GE(found.rate, 470);
  EXPECT_LE(found.rate, 500);
}

TEST(RateSearch, RequestsWithoutAReplyAreBeyondTheBound) {
  const FoundRate found = search({.bound_seconds = 1}, [](double rate) { return RatePoint{rate, 0, rate < 150}; });
  EXPECT_LT(found.rate, 150);
  EXPECT_GT(found.rate, 140);
}

TEST(RateSearch, EndsWithAnError) {
  int measurements = 0;
  const auto found = find_rate({.bound_seconds = 1}, [&](double rate) -> client::Result<RatePoint> {
    if (++measurements == 3) return client::Status{.code = client::Code::kUnavailable};
    return RatePoint{rate, 0, true};
  });
  EXPECT_FALSE(found.ok());
  EXPECT_EQ(found.status().code, client::Code::kUnavailable);
  EXPECT_EQ(measurements, 3);
}

}  // namespace
}  // namespace svdserve::cli
