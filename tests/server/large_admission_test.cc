#include "server/admit/large_admission.h"

#include <gtest/gtest.h>

#include <utility>
#include <vector>

#include "tests/server/fake_clock.h"

namespace svdserve::server {
namespace {

class LargeAdmissionTest : public ::testing::Test {
 protected:
  struct Matrix {
    LargeAdmission::Place place;
    Reservation operand, results;
  };
  bool admit(int64_t operand, int64_t most, const Peer& peer = "a") {
    Matrix matrix;
    const Error error = admission.admit(peer, operand, most, &matrix.place, &matrix.operand);
    if (error.ok()) {
      matrices.push_back(std::move(matrix));
      return true;
    }
    EXPECT_EQ(error.code, absl::StatusCode::kResourceExhausted);
    EXPECT_EQ(error.reason, Reason::kOverloadedBytes);
    EXPECT_GT(error.retry_after, absl::ZeroDuration());
    return false;
  }
  bool keep(size_t index, int64_t bytes) {
    return admission.keep(bytes, &matrices[index].place, &matrices[index].results);
  }

  FakeClock clock;
  LargeAdmission admission{{.max_bytes = 100, .max_requests = 10}, &clock};
  std::vector<Matrix> matrices;
};

TEST_F(LargeAdmissionTest, OperandsLeaveRoomForTheLargestNeed) {
  EXPECT_TRUE(admit(10, 60));  // needs 50 more
  EXPECT_TRUE(admit(40, 50));
  EXPECT_EQ(admission.usage().bytes, 50) << "only operands are reserved";
  EXPECT_FALSE(admit(1, 1)) << "50 are kept, and the first needs all of the rest";
  EXPECT_EQ(admission.usage().bytes, 50);
  EXPECT_EQ(admission.usage().requests, 2);
  matrices.erase(matrices.begin());
  EXPECT_TRUE(admit(50, 60));
}

TEST_F(LargeAdmissionTest, AMatrixWithALargeNeedComesInOnlyWhereItCanBeComputed) {
  EXPECT_TRUE(admit(30, 40));
  EXPECT_FALSE(admit(10, 71)) << "40 would be kept, and it needs 61 more";
  EXPECT_TRUE(admit(10, 70));
}

TEST_F(LargeAdmissionTest, ResultsAreKeptOnlyWhereEachOtherMatrixCanStillBeComputed) {
  ASSERT_TRUE(admit(10, 60));
  ASSERT_TRUE(admit(10, 60));
  EXPECT_FALSE(keep(0, 31)) << "51 would be kept, and the other needs 50";
  EXPECT_TRUE(keep(0, 30));
  EXPECT_EQ(admission.usage().bytes, 50);
  EXPECT_TRUE(keep(1, 30)) << "80 are kept, and each needs 20";
  EXPECT_EQ(admission.usage().bytes, 80);
}

TEST_F(LargeAdmissionTest, WhatIsComputedOrGoneCountsNoMore) {
  ASSERT_TRUE(admit(10, 100));
  EXPECT_FALSE(admit(10, 20));
  matrices[0].place = {};  // it has its results; its operand is still reserved
  EXPECT_TRUE(admit(10, 20));
  EXPECT_EQ(admission.usage().bytes, 20);
}

TEST_F(LargeAdmissionTest, NothingIsReservedBeyondTheLimit) {
  ASSERT_TRUE(admit(10, 100));
  Reservation computing;
  EXPECT_TRUE(admission.reserve(90, &computing));
  EXPECT_FALSE(keep(0, 1));
  Reservation more;
  EXPECT_FALSE(admission.reserve(1, &more));
}

TEST_F(LargeAdmissionTest, OnePeersShareLeavesRoomForTheOthers) {
  LargeAdmission shared({.max_bytes = 100, .max_requests = 4, .peer_percent = 75}, &clock);
  EXPECT_EQ(shared.share(), 75);
  std::list<Matrix> admitted;
  const auto admit = [&](const Peer& peer, int64_t operand, int64_t most) {
    Matrix matrix;
    const Error error = shared.admit(peer, operand, most, &matrix.place, &matrix.operand);
    if (error.ok()) admitted.push_back(std::move(matrix));
    return error.reason;
  };
  EXPECT_EQ(admit("a", 5, 75), Reason::kNone);
  EXPECT_EQ(admit("a", 1, 5), Reason::kOverloadedBytes) << "the first needs all of its peer's share";
  EXPECT_EQ(admit("b", 10, 25), Reason::kNone);
  admitted.clear();
  for (int i = 0; i < 3; ++i) EXPECT_EQ(admit("a", 1, 2), Reason::kNone);
  EXPECT_EQ(admit("a", 1, 2), Reason::kOverloadedRequests);
  EXPECT_EQ(admit("b", 1, 2), Reason::kNone);
}

}  // namespace
}  // namespace svdserve::server
