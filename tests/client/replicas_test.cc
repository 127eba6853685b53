#include "client/cpp/calls/replicas.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "client/cpp/wire/address.h"

namespace svdserve::client::internal {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

const Clock::time_point kStart = Clock::time_point(seconds(1000));

Status gone() { return {.code = Code::kUnavailable}; }

Status full(milliseconds delay) {
  Status s{.code = Code::kResourceExhausted};
  s.retry_delay = delay;
  return s;
}

// How many of `calls` go where.
std::vector<int> shares(Rotation* rotation, size_t replicas, int calls, Clock::time_point now) {
  std::vector<int> all(replicas);
  for (int i = 0; i < calls; ++i) ++all[rotation->next({}, now)];
  return all;
}

TEST(SplitAddresses, TakesCommasAndSpaces) {
  EXPECT_EQ(split_addresses("a:1"), std::vector<std::string>{"a:1"});
  EXPECT_EQ(split_addresses("a:1, b:2,,unix:/c"), (std::vector<std::string>{"a:1", "b:2", "", "unix:/c"}));
}

TEST(Rotation, GivesEqualSharesToThoseThatTakeCalls) {
  Rotation rotation(4);
  EXPECT_EQ(shares(&rotation, 4, 40, kStart), (std::vector<int>{10, 10, 10, 10}));
  rotation.note(1, gone(), kStart);
  EXPECT_EQ(shares(&rotation, 4, 30, kStart), (std::vector<int>{10, 0, 10, 10}));
}

TEST(Rotation, DoesNotGoWhereItFailedBefore) {
  Rotation rotation(3);
  for (int i = 0; i < 6; ++i) EXPECT_EQ(rotation.next({true, true, false}, kStart), 2u);
  rotation.note(2, gone(), kStart);
  for (int i = 0; i < 6; ++i) EXPECT_EQ(rotation.next({true, true, false}, kStart), 2u) << "the others were tried";
}

TEST(Rotation, AFullReplicaIsLeftForItsDelayOrASecond) {
  Rotation rotation(2);
  rotation.note(0, full(milliseconds(300)), kStart);
  rotation.note(1, full(seconds(60)), kStart);
  EXPECT_EQ(rotation.next({}, kStart), 0u) << "it is due first";
  EXPECT_EQ(shares(&rotation, 2, 10, kStart + milliseconds(300)), (std::vector<int>{10, 0}));
  EXPECT_EQ(shares(&rotation, 2, 10, kStart + seconds(1)), (std::vector<int>{5, 5}));
}

TEST(Rotation, AReplicaThatIsDownComesBackByItsHealth) {
  Rotation rotation(2);
  rotation.checked(0, true, kStart);
  rotation.checked(1, true, kStart);
  rotation.note(0, gone(), kStart);
  EXPECT_EQ(rotation.due(kStart), std::nullopt);
  const auto later = kStart + milliseconds(100);
  EXPECT_EQ(shares(&rotation, 2, 4, later), (std::vector<int>{0, 4})) << "time alone does not bring it back";
  ASSERT_EQ(rotation.due(later), 0u);
  EXPECT_EQ(rotation.due(later), std::nullopt) << "one check at a time";
  rotation.checked(0, false, later);
  EXPECT_EQ(rotation.due(later + milliseconds(199)), std::nullopt) << "the second leave is twice as long";
  ASSERT_EQ(rotation.due(later + milliseconds(200)), 0u);
  rotation.checked(0, true, later + milliseconds(200));
  EXPECT_EQ(shares(&rotation, 2, 4, later + milliseconds(200)), (std::vector<int>{2, 2}));
}

TEST(Rotation, ASuccessBringsBackAllButOneThatSaysItDoesNotServe) {
  Rotation rotation(2);
  rotation.note(0, gone(), kStart);
  rotation.note(0, {}, kStart);
  EXPECT_EQ(shares(&rotation, 2, 4, kStart), (std::vector<int>{2, 2}));
  ASSERT_EQ(rotation.due(kStart), 0u);
  rotation.checked(0, false, kStart);
  rotation.note(0, {}, kStart);
  EXPECT_EQ(shares(&rotation, 2, 4, kStart), (std::vector<int>{0, 4}));
}

TEST(Rotation, ReplicasThatTakeCallsAreAskedEveryTwoSeconds) {
  Rotation rotation(2);
  EXPECT_EQ(rotation.due(kStart), 0u);
  EXPECT_EQ(rotation.due(kStart), 1u);
  rotation.checked(0, true, kStart);
  rotation.checked(1, true, kStart);
  EXPECT_EQ(rotation.due(kStart + milliseconds(1999)), std::nullopt);
  EXPECT_EQ(rotation.due(kStart + seconds(2)), 0u);
}

TEST(RetryBudget, HalfOfItMayBeSpentAndSuccessesRefillIt) {
  RetryBudget budget;
  int spent = 0;
  for (; budget.allows(); ++spent) budget.failed();
  EXPECT_EQ(spent, 5);
  for (int i = 0; i < 11; ++i) budget.succeeded();
  EXPECT_TRUE(budget.allows());
  for (int i = 0; i < 100; ++i) budget.failed();
  for (int i = 0; i < 49; ++i) budget.succeeded();
  EXPECT_FALSE(budget.allows());
}

}  // namespace
}  // namespace svdserve::client::internal
