#include "server/rpc/calls/open_calls.h"

#include <gtest/gtest.h>

#include <vector>

namespace svdserve::server {
namespace {

struct CountedCall final : public OpenCall {
  void cut_off_if_stalled(absl::Time, absl::Duration) override { ++looked_at; }
  void close(const grpc::Status& s) override { status = s; }
  int looked_at = 0;
  grpc::Status status;
};

TEST(OpenCalls, BoundsAllCallsAndThoseOfOnePeer) {
  OpenCalls calls({.calls = 4, .streams = 4, .peer_percent = 75});
  CountedCall a[4], b[2];
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(calls.add(CallKind::kUnary, "a", &a[i]).ok());
  const Error error = calls.add(CallKind::kLarge, "a", &a[3]);
  EXPECT_EQ(error.code, absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(error.reason, Reason::kOverloadedRequests);
  EXPECT_GT(error.retry_after, absl::ZeroDuration());
  EXPECT_TRUE(calls.add(CallKind::kWatch, "b", &b[0]).ok());
  EXPECT_FALSE(calls.add(CallKind::kUnary, "b", &b[1]).ok());
  calls.remove(&a[0]);
  EXPECT_TRUE(calls.add(CallKind::kUnary, "b", &b[1]).ok());
  EXPECT_EQ(calls.count(CallKind::kUnary), 3);
  EXPECT_EQ(calls.count(CallKind::kWatch), 1);
}

TEST(OpenCalls, BoundsStreams) {
  OpenCalls calls({.calls = 100, .streams = 2, .peer_percent = 50});
  CountedCall a, b, c;
  EXPECT_TRUE(calls.add(CallKind::kStream, "a", &a).ok());
  EXPECT_FALSE(calls.add(CallKind::kStream, "a", &b).ok());
  EXPECT_TRUE(calls.add(CallKind::kUnary, "a", &b).ok());
  EXPECT_TRUE(calls.add(CallKind::kStream, "b", &c).ok());
}

TEST(OpenCalls, ClosingReachesEveryCallAndRefusesNewOnes) {
  OpenCalls calls({});
  CountedCall a, b, c;
  ASSERT_TRUE(calls.add(CallKind::kStream, "a", &a).ok());
  ASSERT_TRUE(calls.add(CallKind::kWatch, "b", &b).ok());
  calls.cut_off_stalled(absl::UnixEpoch(), absl::Seconds(1));
  EXPECT_EQ(a.looked_at, 1);
  EXPECT_EQ(b.looked_at, 1);
  calls.close_all();
  EXPECT_EQ(a.status.error_code(), grpc::StatusCode::UNAVAILABLE);
  EXPECT_EQ(calls.add(CallKind::kUnary, "a", &c).reason, Reason::kDraining);
  EXPECT_TRUE(calls.add(CallKind::kWatch, "a", &c).ok());
  CountedCall small;
  EXPECT_TRUE(calls.add(CallKind::kSmall, "a", &small).ok()) << "which tell that the server goes";
}

}  // namespace
}  // namespace svdserve::server
