#include "server/rpc/calls/small_read.h"

#include <gtest/gtest.h>

#include "tests/server/fake_clock.h"

namespace svdserve::server {
namespace {

using Lateness = SmallRead::Lateness;

struct Reader {
  Reader(ReadTurns* turns, Clock* clock) : read(turns, clock) {}
  Error begin(const Peer& peer) {
    return read.begin(peer, [this] { ++begun; });
  }
  SmallRead read;
  int begun = 0;
};

class SmallReadTest : public ::testing::Test {
 protected:
  FakeClock clock_;
  ReadTurns turns_{{.excess = 1, .waiting = 2, .of_a_peer = 1}};
  Reader a_{&turns_, &clock_}, b_{&turns_, &clock_}, c_{&turns_, &clock_};
};

TEST_F(SmallReadTest, OneOfAPeerAtATime) {
  EXPECT_TRUE(a_.begin("a").ok());
  EXPECT_TRUE(b_.begin("a").ok());
  EXPECT_TRUE(c_.begin("c").ok());
  EXPECT_EQ(a_.begun, 1);
  EXPECT_EQ(b_.begun, 0);
  EXPECT_EQ(c_.begun, 1);
  a_.read.end();
  a_.read.end();
  EXPECT_EQ(b_.begun, 1);
  EXPECT_FALSE(b_.read.leave());
  b_.read.end();
  EXPECT_TRUE(a_.begin("a").ok()) << "a call may read again";
  EXPECT_EQ(a_.begun, 2);
  a_.read.end();
  c_.read.end();
}

TEST_F(SmallReadTest, TooManyThatWaitAreRefused) {
  EXPECT_TRUE(a_.begin("a").ok());
  EXPECT_TRUE(b_.begin("a").ok());
  const Error error = c_.begin("a");
  EXPECT_EQ(error.code, absl::StatusCode::kResourceExhausted);
  EXPECT_GT(error.retry_after, absl::ZeroDuration());
  EXPECT_EQ(c_.read.lateness(clock_.now() + absl::Hours(1)), Lateness::kNone);
  EXPECT_TRUE(b_.read.leave());
  a_.read.end();
  EXPECT_EQ(b_.begun + c_.begun, 0);
}

TEST_F(SmallReadTest, AMessageHasSomeTimeToCome) {
  EXPECT_TRUE(a_.begin("a").ok());
  clock_.advance(SmallRead::kPatience);
  EXPECT_EQ(a_.read.lateness(clock_.now()), Lateness::kNone);
  clock_.advance(absl::Milliseconds(1));
  EXPECT_EQ(a_.read.lateness(clock_.now()), Lateness::kSends);
  a_.read.end();
  EXPECT_EQ(a_.read.lateness(clock_.now()), Lateness::kNone);
}

TEST_F(SmallReadTest, AndLessWhereAnotherCallWaits) {
  EXPECT_TRUE(a_.begin("a").ok());
  clock_.advance(SmallRead::kPatienceIfAwaited);
  EXPECT_TRUE(b_.begin("a").ok());
  EXPECT_EQ(a_.read.lateness(clock_.now()), Lateness::kNone);
  clock_.advance(absl::Milliseconds(1));
  EXPECT_EQ(a_.read.lateness(clock_.now()), Lateness::kInTheWay);
  clock_.advance(SmallRead::kLongestWait);
  EXPECT_EQ(b_.read.lateness(clock_.now()), Lateness::kWaits);
  EXPECT_TRUE(b_.read.leave());
  a_.read.end();
}

}  // namespace
}  // namespace svdserve::server
