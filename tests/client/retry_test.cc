#include "client/cpp/calls/retry.h"

#include <gtest/gtest.h>

namespace svdserve::client::internal {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

const Clock::time_point kNow = Clock::time_point(seconds(1000));

Status unavailable() {
  Status s;
  s.code = Code::kUnavailable;
  return s;
}

Status overloaded(milliseconds delay) {
  Status s;
  s.code = Code::kResourceExhausted;
  s.retry_delay = delay;
  return s;
}

RetryPolicy policy() {
  return {.max_attempts = 5, .initial_backoff = milliseconds(100), .max_backoff = milliseconds(300), .multiplier = 2};
}

TEST(RetrySchedule, BacksOffExponentiallyUpToTheMaximum) {
  RetrySchedule s(policy(), std::nullopt);
  EXPECT_EQ(s.next(unavailable(), kNow, 0), milliseconds(50));  // half the backoff is certain, half is chance
  EXPECT_EQ(s.next(unavailable(), kNow, 0.5), milliseconds(150));
  EXPECT_EQ(s.next(unavailable(), kNow, 0), milliseconds(150));
  EXPECT_EQ(s.next(unavailable(), kNow, 0), milliseconds(150));
  EXPECT_EQ(s.attempts(), 5);
  EXPECT_EQ(s.next(unavailable(), kNow, 0), std::nullopt);
}

TEST(RetrySchedule, NeverComesBackBeforeTheServerWantsIt) {
  RetrySchedule s(policy(), std::nullopt);
  EXPECT_EQ(s.next(overloaded(milliseconds(400)), kNow, 0), milliseconds(400));
  EXPECT_EQ(s.next(overloaded(milliseconds(400)), kNow, 0.5), milliseconds(500));
}

// Many clients that are told the same long delay do not come back together.
TEST(RetrySchedule, ALongDelayIsJitteredByAQuarter) {
  RetrySchedule s(policy(), std::nullopt);
  EXPECT_EQ(s.next(overloaded(seconds(8)), kNow, 0), seconds(8));
  EXPECT_EQ(s.next(overloaded(seconds(8)), kNow, 0.5), seconds(9));
}

TEST(RetrySchedule, DoesNotWaitForADelayBeyondThePolicys) {
  RetryPolicy p = policy();
  p.max_server_delay = seconds(2);
  RetrySchedule s(p, std::nullopt);
  EXPECT_EQ(s.next(overloaded(seconds(2)), kNow, 0), seconds(2));
  EXPECT_EQ(s.next(overloaded(milliseconds(2001)), kNow, 0), std::nullopt);
  EXPECT_EQ(s.next(overloaded(std::chrono::hours(24 * 365)), kNow, 0), std::nullopt);
}

TEST(RetrySchedule, GivesUpWhereTheWaitWouldPassTheDeadline) {
  RetrySchedule s(policy(), kNow + milliseconds(400));
  EXPECT_EQ(s.next(overloaded(milliseconds(400)), kNow, 0), std::nullopt);
  EXPECT_EQ(s.next(overloaded(milliseconds(399)), kNow, 0), milliseconds(399));
}

TEST(RetrySchedule, DoesNotRepeatWhatCannotHelp) {
  RetrySchedule s(policy(), std::nullopt);
  for (const Code code : {Code::kInvalidArgument, Code::kDeadlineExceeded, Code::kCancelled, Code::kInternal,
                          Code::kResourceExhausted /* without a delay: a message over the limit */}) {
    Status status;
    status.code = code;
    EXPECT_EQ(s.next(status, kNow, 0), std::nullopt) << name(code);
  }
}

TEST(RetrySchedule, OneAttemptMeansNoRetry) {
  RetrySchedule s({.max_attempts = 1}, std::nullopt);
  EXPECT_EQ(s.next(unavailable(), kNow, 0), std::nullopt);
}

TEST(DeadlineAfter, KnowsNoneAndTooFar) {
  EXPECT_EQ(deadline_after(std::nullopt, kNow), std::nullopt);
  EXPECT_EQ(deadline_after(std::chrono::nanoseconds::max(), kNow), std::nullopt);
  EXPECT_EQ(deadline_after(seconds(1), kNow), kNow + seconds(1));
}

TEST(Uniform, StaysInItsInterval) {
  for (int i = 0; i < 1000; ++i) {
    const double u = uniform();
    EXPECT_GE(u, 0);
    EXPECT_LT(u, 1);
  }
}

}  // namespace
}  // namespace svdserve::client::internal
