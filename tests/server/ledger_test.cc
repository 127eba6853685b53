#include "server/admit/ledger.h"

#include <gtest/gtest.h>

#include <optional>
#include <utility>
#include <vector>

#include "tests/server/fake_clock.h"

namespace svdserve::server {
namespace {

using absl::StatusCode;

TEST(Ledger, CountsWhatIsReserved) {
  FakeClock clock;
  Ledger ledger({.max_bytes = 100, .max_requests = 10}, &clock);
  {
    Reservation a, b;
    EXPECT_TRUE(ledger.Admit(60, &a).ok());
    EXPECT_TRUE(ledger.Admit(40, &b).ok());
    EXPECT_EQ(ledger.usage().bytes, 100);
    EXPECT_EQ(ledger.usage().requests, 2);
    Reservation moved = std::move(a);
    EXPECT_EQ(ledger.usage().requests, 2);
    EXPECT_EQ(moved.bytes(), 60);
  }
  EXPECT_EQ(ledger.usage().bytes, 0);
  EXPECT_EQ(ledger.usage().requests, 0);
}

TEST(Ledger, RefusesBytesThatDoNotFit) {
  FakeClock clock;
  Ledger ledger({.max_bytes = 100, .max_requests = 10}, &clock);
  Reservation a, b;
  ASSERT_TRUE(ledger.Admit(60, &a).ok());
  const Error error = ledger.Admit(41, &b);
  EXPECT_EQ(error.code, StatusCode::kResourceExhausted);
  EXPECT_EQ(error.reason, Reason::kOverloadedBytes);
  EXPECT_GT(error.retry_after, absl::ZeroDuration());
  EXPECT_EQ(ledger.usage().requests, 1);
  EXPECT_TRUE(ledger.Admit(40, &b).ok());
}

TEST(Ledger, WhatNeverFitsIsNotToBeTriedAgain) {
  FakeClock clock;
  Ledger ledger({.max_bytes = 100, .max_requests = 10}, &clock);
  Reservation a;
  const Error error = ledger.Admit(101, &a);
  EXPECT_EQ(error.reason, Reason::kOverloadedBytes);
  EXPECT_EQ(error.retry_after, absl::ZeroDuration());
}

TEST(Ledger, AnAdmittedRequestMayGrowWhereThereIsRoomAlsoWhenDraining) {
  FakeClock clock;
  Ledger ledger({.max_bytes = 100, .max_requests = 1}, &clock);
  Reservation request;
  ASSERT_TRUE(ledger.Admit(60, &request).ok());
  ledger.StartDrain();
  {
    Reservation more, too_much;
    EXPECT_FALSE(ledger.Extend(41, &too_much));
    EXPECT_TRUE(ledger.Extend(40, &more));
    EXPECT_EQ(more.bytes(), 40);
    EXPECT_EQ(ledger.usage().bytes, 100);
    EXPECT_EQ(ledger.usage().requests, 1);
  }
  EXPECT_EQ(ledger.usage().bytes, 60);
  EXPECT_EQ(ledger.usage().requests, 1);
}

TEST(Ledger, RefusesRequestsBeyondTheLimit) {
  FakeClock clock;
  Ledger ledger({.max_bytes = 100, .max_requests = 2}, &clock);
  Reservation a, b, c;
  ASSERT_TRUE(ledger.Admit(0, &a).ok());
  ASSERT_TRUE(ledger.Admit(0, &b).ok());
  EXPECT_EQ(ledger.Admit(0, &c).reason, Reason::kOverloadedRequests);
  a = Reservation();
  EXPECT_TRUE(ledger.Admit(0, &c).ok());
}

TEST(Ledger, DrainRefusesEverything) {
  FakeClock clock;
  Ledger ledger({}, &clock);
  ledger.StartDrain();
  Reservation a;
  const Error error = ledger.Admit(1, &a);
  EXPECT_EQ(error.code, StatusCode::kUnavailable);
  EXPECT_EQ(error.reason, Reason::kDraining);
  EXPECT_GT(error.retry_after, absl::ZeroDuration());
}

// 10 requests in memory, one leaving every `pace`: what a refused client is told.
absl::Duration DelayAt(absl::Duration pace) {
  FakeClock clock;
  Ledger ledger({.max_bytes = 1000, .max_requests = 10}, &clock);
  std::vector<Reservation> held(10);
  for (Reservation& r : held) EXPECT_TRUE(ledger.Admit(100, &r).ok());
  for (int i = 0; i < 200; ++i) {
    clock.Advance(pace);
    held[i % 10] = Reservation();
    EXPECT_TRUE(ledger.Admit(100, &held[i % 10]).ok());
  }
  Reservation refused;
  return ledger.Admit(100, &refused).retry_after;
}

TEST(Ledger, RetryDelayFollowsTheBacklog) {
  // Half of ten requests, at that pace.
  EXPECT_NEAR(absl::ToDoubleSeconds(DelayAt(absl::Milliseconds(20))), 0.1, 0.01);
  EXPECT_NEAR(absl::ToDoubleSeconds(DelayAt(absl::Milliseconds(200))), 1.0, 0.2);
  EXPECT_EQ(DelayAt(absl::Microseconds(10)), absl::Milliseconds(10));
  EXPECT_EQ(DelayAt(absl::Seconds(60)), absl::Seconds(10));
}

TEST(Ledger, RetryDelayBeforeAnythingLeftIsTheAgeOfTheBacklog) {
  FakeClock clock;
  Ledger ledger({.max_bytes = 1000, .max_requests = 1}, &clock);
  Reservation a, b;
  ASSERT_TRUE(ledger.Admit(1, &a).ok());
  EXPECT_EQ(ledger.Admit(1, &b).retry_after, absl::Milliseconds(10));
  clock.Advance(absl::Seconds(3));
  EXPECT_EQ(ledger.Admit(1, &b).retry_after, absl::Seconds(3));
}

}  // namespace
}  // namespace svdserve::server
