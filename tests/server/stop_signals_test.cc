#include "server/base/stop_signals.h"

#include <gtest/gtest.h>

#include <csignal>

namespace svdserve::server {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
constexpr seconds kStart(1000);

TEST(SignalRules, TheFirstDrainsAndALaterOneStops) {
  for (const int first : {SIGTERM, SIGINT}) {
    for (const int second : {SIGTERM, SIGINT}) {
      SignalRules rules;
      EXPECT_EQ(rules.On(first, kStart), SignalAction::kDrain);
      EXPECT_EQ(rules.On(second, kStart + milliseconds(1001)), SignalAction::kStopAtOnce);
    }
  }
}

TEST(SignalRules, ATermSignalWithinASecondIsTheSameWish) {
  SignalRules rules;
  EXPECT_EQ(rules.On(SIGTERM, kStart), SignalAction::kDrain);
  EXPECT_EQ(rules.On(SIGTERM, kStart), SignalAction::kIgnore);
  EXPECT_EQ(rules.On(SIGTERM, kStart + seconds(1)), SignalAction::kIgnore);
  EXPECT_EQ(rules.On(SIGTERM, kStart + milliseconds(1500)), SignalAction::kStopAtOnce);
}

TEST(SignalRules, WhoPressesAgainIsInAHurry) {
  SignalRules rules;
  EXPECT_EQ(rules.On(SIGINT, kStart), SignalAction::kDrain);
  EXPECT_EQ(rules.On(SIGINT, kStart + milliseconds(200)), SignalAction::kStopAtOnce);
  SignalRules mixed;
  EXPECT_EQ(mixed.On(SIGTERM, kStart), SignalAction::kDrain);
  EXPECT_EQ(mixed.On(SIGINT, kStart + milliseconds(200)), SignalAction::kStopAtOnce);
}

TEST(SignalRules, AHangupIsIgnoredAtAnyTime) {
  SignalRules rules;
  EXPECT_EQ(rules.On(SIGHUP, kStart), SignalAction::kIgnore);
  EXPECT_EQ(rules.On(SIGTERM, kStart), SignalAction::kDrain);
  EXPECT_EQ(rules.On(SIGHUP, kStart + seconds(5)), SignalAction::kIgnore);
}

}  // namespace
}  // namespace svdserve::server
