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
      EXPECT_EQ(rules.on(first, kStart), SignalAction::kDrain);
      EXPECT_EQ(rules.on(second, kStart + milliseconds(1001)), SignalAction::kStopAtOnce);
    }
  }
}

TEST(SignalRules, ATermSignalWithinASecondIsTheSameWish) {
  SignalRules rules;
  EXPECT_EQ(rules.on(SIGTERM, kStart), SignalAction::kDrain);
  EXPECT_EQ(rules.on(SIGTERM, kStart), SignalAction::kIgnore);
  EXPECT_EQ(rules.on(SIGTERM, kStart + seconds(1)), SignalAction::kIgnore);
  EXPECT_EQ(rules.on(SIGTERM, kStart + milliseconds(1500)), SignalAction::kStopAtOnce);
}

TEST(SignalRules, WhoPressesAgainIsInAHurry) {
  SignalRules rules;
  EXPECT_EQ(rules.on(SIGINT, kStart), SignalAction::kDrain);
  EXPECT_EQ(rules.on(SIGINT, kStart + milliseconds(200)), SignalAction::kStopAtOnce);
  SignalRules mixed;
  EXPECT_EQ(mixed.on(SIGTERM, kStart), SignalAction::kDrain);
  EXPECT_EQ(mixed.on(SIGINT, kStart + milliseconds(200)), SignalAction::kStopAtOnce);
}

TEST(SignalRules, AHangupIsIgnoredAtAnyTime) {
  SignalRules rules;
  EXPECT_EQ(rules.on(SIGHUP, kStart), SignalAction::kReload);
  EXPECT_EQ(rules.on(SIGTERM, kStart), SignalAction::kDrain);
  EXPECT_EQ(rules.on(SIGHUP, kStart + seconds(5)), SignalAction::kReload);
}

}  // namespace
}  // namespace svdserve::server
