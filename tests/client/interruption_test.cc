#include "client/cli/interruption.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <csignal>
#include <thread>

#include "tests/client/fake_service.h"

namespace svdserve::cli {
namespace {

// Whether a stop follows each signal to the process, and the exit code names it.
bool signals_request_stops() {
  std::signal(SIGHUP, SIG_DFL);  // as nohup does not leave it
  for (const int signal : {SIGHUP, SIGINT, SIGTERM}) {
    Interruption interruption;
    if (interruption.exit_code() != 0 || interruption.token().stop_requested()) return false;
    kill(getpid(), signal);
    if (!client::testing::eventually([&] { return interruption.token().stop_requested(); })) return false;
    if (interruption.exit_code() != 128 + signal) return false;
  }
  return true;
}

// In a process of its own: threads of gRPC that other tests left would take the signals.
TEST(Interruption, ASignalRequestsAStop) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(_exit(signals_request_stops() ? 0 : 1), ::testing::ExitedWithCode(0), "");
}

TEST(Interruption, AHangupThatIsIgnoredStaysSo) {
  const auto hangup_before = std::signal(SIGHUP, SIG_IGN);
  {
    Interruption interruption;
    kill(getpid(), SIGHUP);
    std::this_thread::sleep_for(std::chrono::milliseconds(50));  // far longer than a signal takes
    EXPECT_FALSE(interruption.token().stop_requested());
  }
  std::signal(SIGHUP, hangup_before);
}

TEST(Interruption, AReaderThatHasGoneIsAnErrorOfTheWrite) {
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  close(ends[0]);
  {
    Interruption interruption;
    EXPECT_EQ(write(ends[1], "x", 1), -1);
    EXPECT_EQ(errno, EPIPE);
  }
  std::signal(SIGPIPE, SIG_DFL);
  EXPECT_EXIT(
      {
        { Interruption interruption; }
        (void)!write(ends[1], "x", 1);
      },
      ::testing::KilledBySignal(SIGPIPE), "");  // the process's own again
  close(ends[1]);
}

TEST(Interruption, ItsEndIsNoSignal) {
  std::stop_token token;
  {
    Interruption interruption;
    token = interruption.token();
  }
  EXPECT_FALSE(token.stop_requested());
  EXPECT_EXIT(raise(SIGTERM), ::testing::KilledBySignal(SIGTERM), "");  // the process's own again
}

}  // namespace
}  // namespace svdserve::cli
