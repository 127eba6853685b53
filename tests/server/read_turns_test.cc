#include "server/rpc/calls/read_turns.h"

#include <gtest/gtest.h>

namespace svdserve::server {
namespace {

using Begun = ReadTurns::Begun;

struct Call final : public ReadWaiter {
  void on_turn() override { ++turns; }
  int turns = 0;
};

TEST(ReadTurns, BoundsTheExcessOfAPeer) {
  ReadTurns reads({.excess = 100});
  Call a, b, c, d;
  EXPECT_EQ(reads.begin("a", 60, &a), Begun::kReads);
  EXPECT_EQ(reads.begin("a", 40, &b), Begun::kReads);
  EXPECT_EQ(reads.begin("a", 50, &c), Begun::kWaits);
  EXPECT_EQ(reads.begin("a", 10, &d), Begun::kWaits);
  EXPECT_EQ(reads.begin("b", 100, &a), Begun::kReads);
  reads.end("a", 40);
  EXPECT_EQ(c.turns + d.turns, 0);  // the first in line does not fit, and nobody overtakes it
  reads.end("a", 60);
  EXPECT_EQ(c.turns, 1);
  EXPECT_EQ(d.turns, 1);
  EXPECT_FALSE(reads.leave(&c));
  reads.end("a", 50);
  reads.end("a", 10);
  reads.end("b", 100);
  EXPECT_EQ(reads.begin("a", 100, &a), Begun::kReads);
}

TEST(ReadTurns, AReadWithoutAnExcessDoesNotWait) {
  ReadTurns reads({.excess = 100});
  Call a, b;
  EXPECT_EQ(reads.begin("a", 100, &a), Begun::kReads);
  EXPECT_EQ(reads.begin("a", 0, &b), Begun::kReads);
  reads.end("a", 0);
  reads.end("a", 100);
}

TEST(ReadTurns, AnExcessBeyondTheBoundIsReadAlone) {
  ReadTurns reads({.excess = 100});
  Call a, b;
  EXPECT_EQ(reads.begin("a", 1000, &a), Begun::kReads);
  EXPECT_EQ(reads.begin("a", 1, &b), Begun::kWaits);
  reads.end("a", 1000);
  EXPECT_EQ(b.turns, 1);
  reads.end("a", 1);
}

TEST(ReadTurns, WhoLeavesIsNotTold) {
  ReadTurns reads({.excess = 100});
  Call a, b, c;
  EXPECT_EQ(reads.begin("a", 100, &a), Begun::kReads);
  EXPECT_EQ(reads.begin("a", 100, &b), Begun::kWaits);
  EXPECT_EQ(reads.begin("a", 100, &c), Begun::kWaits);
  EXPECT_TRUE(reads.leave(&b));
  EXPECT_FALSE(reads.leave(&b));
  reads.end("a", 100);
  EXPECT_EQ(b.turns, 0);
  EXPECT_EQ(c.turns, 1);
  reads.end("a", 100);
}

TEST(ReadTurns, BoundsThoseThatWait) {
  ReadTurns reads({.excess = 100, .waiting = 3, .of_a_peer = 2});
  Call reading[2], waiting[3], more;
  EXPECT_EQ(reads.begin("a", 100, &reading[0]), Begun::kReads);
  EXPECT_EQ(reads.begin("b", 100, &reading[1]), Begun::kReads);
  EXPECT_FALSE(reads.is_awaited("a"));
  EXPECT_EQ(reads.begin("a", 100, &waiting[0]), Begun::kWaits);
  EXPECT_EQ(reads.begin("a", 100, &waiting[1]), Begun::kWaits);
  EXPECT_EQ(reads.begin("a", 100, &more), Begun::kRefused);
  EXPECT_TRUE(reads.is_awaited("a"));
  EXPECT_FALSE(reads.is_awaited("b"));
  EXPECT_EQ(reads.begin("b", 100, &waiting[2]), Begun::kWaits);
  EXPECT_EQ(reads.begin("b", 100, &more), Begun::kRefused);
  EXPECT_FALSE(reads.leave(&more));
  for (Call& call : waiting) EXPECT_TRUE(reads.leave(&call));
  reads.end("a", 100);
  reads.end("b", 100);
  EXPECT_EQ(reads.begin("b", 100, &more), Begun::kReads);
}

}  // namespace
}  // namespace svdserve::server
