// When the server counts as hung, and when not.
#include "server/rpc/calls/self_probe.h"

#include <gtest/gtest.h>

#include <utility>
#include <vector>

namespace svdserve::server {
namespace {

// A server that answers at once, never, or when the test says so.
class SelfProbeTest : public ::testing::Test {
 protected:
  // A tick every 100 ms.
  void Pass(absl::Duration time) {
    for (const absl::Time end = now_ + time; now_ < end; now_ += absl::Milliseconds(100)) probe_.Tick(now_);
  }
  // All calls that are on their way end.
  void End(bool answered) {
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
  Pass(absl::Minutes(10));
  EXPECT_TRUE(probe_.alive());
  EXPECT_EQ(questions_, 300);  // one each kPeriod
}

TEST_F(SelfProbeTest, WithoutAnAnswerItIsHungAfterItsPatience) {
  Pass(absl::Seconds(10));
  answers_ = false;
  Pass(SelfProbe::kPatience);
  EXPECT_TRUE(probe_.alive());
  Pass(SelfProbe::kPeriod + absl::Milliseconds(100));
  EXPECT_FALSE(probe_.alive());
  EXPECT_EQ(asked_.size(), 1u);  // one question at a time
  End(true);
  EXPECT_TRUE(probe_.alive());
}

TEST_F(SelfProbeTest, ACallThatFailsIsNoAnswerAndTheNextOneFollows) {
  answers_ = false;
  for (int i = 0; i < 200; ++i) {
    Pass(absl::Milliseconds(100));
    End(false);
  }
  EXPECT_FALSE(probe_.alive());
  EXPECT_EQ(questions_, 10);
  answers_ = true;
  Pass(SelfProbe::kPeriod);
  EXPECT_TRUE(probe_.alive());
}

TEST_F(SelfProbeTest, AProcessThatStoodStillIsNotHung) {
  answers_ = false;
  Pass(absl::Seconds(1));  // a question is on its way
  for (int i = 0; i < 5; ++i) {
    now_ += absl::Hours(1);
    probe_.Tick(now_);
    Pass(absl::Milliseconds(200));
  }
  EXPECT_TRUE(probe_.alive());
  Pass(SelfProbe::kPatience);
  EXPECT_FALSE(probe_.alive());  // but it has to answer in the end
}

TEST_F(SelfProbeTest, AnAnswerMayComeWhenTheProbeIsGone) {
  std::function<void(bool)> late;
  {
    SelfProbe probe([&late](std::function<void(bool)> done) { late = std::move(done); });
    probe.Tick(now_);
  }
  late(true);
}

}  // namespace
}  // namespace svdserve::server
