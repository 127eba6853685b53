#include "server/rpc/calls/read_turns.h"

#include <gtest/gtest.h>

namespace svdserve::server {
namespace {

struct Call final : public ReadWaiter {
  void on_turn() override { ++turns; }
  int turns = 0;
};

TEST(ReadTurns, BoundsTheExcessOfAPeer) {
  ReadTurns reads(100);
  Call a, b, c, d;
  EXPECT_TRUE(reads.begin("a", 60, &a));
  EXPECT_TRUE(reads.begin("a", 40, &b));
  EXPECT_FALSE(reads.begin("a", 50, &c));
  EXPECT_FALSE(reads.begin("a", 10, &d));
  EXPECT_TRUE(reads.begin("b", 100, &a));
  reads.end("a", 40);
  EXPECT_EQ(c.turns + d.turns, 0);  // the first in line does not fit, and nobody overtakes it
  reads.end("a", 60);
  EXPECT_EQ(c.turns, 1);
  EXPECT_EQ(d.turns, 1);
  EXPECT_FALSE(reads.leave(&c));
  reads.end("a", 50);
  reads.end("a", 10);
  reads.end("b", 100);
  EXPECT_TRUE(reads.begin("a", 100, &a));
}

TEST(ReadTurns, AReadWithoutAnExcessDoesNotWait) {
  ReadTurns reads(100);
  Call a, b;
  EXPECT_TRUE(reads.begin("a", 100, &a));
  EXPECT_TRUE(reads.begin("a", 0, &b));
  reads.end("a", 0);
  reads.end("a", 100);
}

TEST(ReadTurns, AnExcessBeyondTheBoundIsReadAlone) {
  ReadTurns reads(100);
  Call a, b;
  EXPECT_TRUE(reads.begin("a", 1000, &a));
  EXPECT_FALSE(reads.begin("a", 1, &b));
  reads.end("a", 1000);
  EXPECT_EQ(b.turns, 1);
  reads.end("a", 1);
}

TEST(ReadTurns, WhoLeavesIsNotTold) {
  ReadTurns reads(100);
  Call a, b, c;
  EXPECT_TRUE(reads.begin("a", 100, &a));
  EXPECT_FALSE(reads.begin("a", 100, &b));
  EXPECT_FALSE(reads.begin("a", 100, &c));
  EXPECT_TRUE(reads.leave(&b));
  EXPECT_FALSE(reads.leave(&b));
  reads.end("a", 100);
  EXPECT_EQ(b.turns, 0);
  EXPECT_EQ(c.turns, 1);
  reads.end("a", 100);
}

}  // namespace
}  // namespace svdserve::server
