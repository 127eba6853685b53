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

TEST(Interruption, ASignalRequestsAStop) {
  const auto hangup_before = std::signal(SIGHUP, SIG_DFL);  // as nohup does not leave it
  for (const int signal : {SIGHUP, SIGINT, SIGTERM}) {
    Interruption interruption;
    EXPECT_EQ(interruption.exit_code(), 0);
    EXPECT_FALSE(interruption.token().stop_requested());
    kill(getpid(), signal);
    EXPECT_TRUE(client::testing::eventually([&] { return interruption.token().stop_requested(); }));
    EXPECT_EQ(interruption.exit_code(), 128 + signal);
  }
  std::signal(SIGHUP, hangup_before);
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
