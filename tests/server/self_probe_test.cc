// When the server counts as hung, and when not.
#include "server/rpc/self_probe.h"

#include <gtest/gtest.h>

#include <utility>
#include <vector>

namespace svdserve::server {
namespace {

// A server that answers at once, never, or when the test says so.
class SelfProbeTest : public ::testing::Test {
 protected:
  // A tick every 100 ms.
  void pass(absl::Duration time) {
    for (const absl::Time end = now_ + time; now_ < end; now_ += absl::Milliseconds(100)) probe_.tick(now_);
  }
  // All calls that are on their way end.
  void end(bool answered) {
    for (auto& done : std::exchange(asked_, {})) done(answered);
  }

  absl::Time now_ = absl::UnixEpoch() + absl::Hours(1);
  bool answers_ = true;
  int questions_ = 0;
  std::vector<std::function<void(bool)>> asked_;
  SelfProbe probe_{[this](std::function<void(bool)> done) {
    ++questions_;
    if (answers_) return done(true);
    asked_.push_back(std::move(done));
  }};
};

TEST_F(SelfProbeTest, AnswersKeepItAlive) {
  EXPECT_TRUE(probe_.alive());  // before the first question
  pass(absl::Minutes(10));
  EXPECT_TRUE(probe_.alive());
  EXPECT_EQ(questions_, 300);  // one each kPeriod
}

TEST_F(SelfProbeTest, WithoutAnAnswerItIsHungAfterItsPatience) {
  pass(absl::Seconds(10));
  answers_ = false;
  pass(SelfProbe::kPatience);
  EXPECT_TRUE(probe_.alive());
  pass(SelfProbe::kPeriod + absl::Milliseconds(100));
  EXPECT_FALSE(probe_.alive());
  EXPECT_EQ(asked_.size(), 1u);  // one question at a time
  end(true);
  EXPECT_TRUE(probe_.alive());
}

TEST_F(SelfProbeTest, ACallThatFailsIsNoAnswerAndTheNextOneFollows) {
  answers_ = false;
  for (int i = 0; i < 200; ++i) {
    pass(absl::Milliseconds(100));
    end(false);
  }
  EXPECT_FALSE(probe_.alive());
  EXPECT_EQ(questions_, 10);
  answers_ = true;
  pass(SelfProbe::kPeriod);
  EXPECT_TRUE(probe_.alive());
}

TEST_F(SelfProbeTest, AProcessThatStoodStillIsNotHung) {
  answers_ = false;
  pass(absl::Seconds(1));  // a question is on its way
  for (int i = 0; i < 5; ++i) {
    now_ += absl::Hours(1);
    probe_.tick(now_);
    pass(absl::Milliseconds(200));
  }
  EXPECT_TRUE(probe_.alive());
  pass(SelfProbe::kPatience);
  EXPECT_FALSE(probe_.alive());  // but it has to answer in the end
}

TEST_F(SelfProbeTest, AnAnswerMayComeWhenTheProbeIsGone) {
  std::function<void(bool)> late;
  {
    SelfProbe probe([&late](std::function<void(bool)> done) { late = std::move(done); });
    probe.tick(now_);
  }
  late(true);
}

}  // namespace
}  // namespace svdserve::server
