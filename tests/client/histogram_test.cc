#include "client/cli/load/histogram.h"

#include <gtest/gtest.h>

namespace svdserve::cli {
namespace {

TEST(Histogram, QuantilesAreAtMostOnePartIn128TooLarge) {
  Histogram h;
  for (int64_t us = 1; us <= 10000; ++us) h.add(std::chrono::microseconds(us));
  for (const double q : {0.001, 0.5, 0.9, 0.99, 0.999, 1.0}) {
    const double exact = std::ceil(q * 10000) * 1e-6;
    EXPECT_GE(h.quantile_seconds(q), exact * (1 - 1e-12)) << q;
    EXPECT_LE(h.quantile_seconds(q), exact * (1 + 1.0 / 128)) << q;
  }
  EXPECT_EQ(h.max_seconds(), 0.01);
}

TEST(Histogram, EveryMagnitudeHasABucket) {
  Histogram h;
  for (const int64_t ns :
       {int64_t{-5}, int64_t{0}, int64_t{1}, int64_t{127}, int64_t{128}, int64_t{255}, int64_t{256}, INT64_MAX}) {
    h.add(std::chrono::nanoseconds(ns));
  }
  EXPECT_EQ(h.total(), 8);
  EXPECT_EQ(h.quantile_seconds(0.5), 127e-9);
  EXPECT_EQ(h.quantile_seconds(1), static_cast<double>(INT64_MAX) * 1e-9);
}

TEST(Histogram, AddsUp) {
  Histogram a, b;
  a.add(std::chrono::seconds(1));
  b.add(std::chrono::seconds(3));
  a.add(b);
  EXPECT_EQ(a.total(), 2);
  EXPECT_EQ(a.max_seconds(), 3);
}

TEST(Histogram, EmptyIsZero) { EXPECT_EQ(Histogram().quantile_seconds(0.99), 0); }

}  // namespace
}  // namespace svdserve::cli
