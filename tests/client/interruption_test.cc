#include "client/cli/interruption.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <csignal>

#include "tests/client/fake_service.h"

namespace svdserve::cli {
namespace {

TEST(Interruption, ASignalRequestsAStop) {
  for (const int signal : {SIGINT, SIGTERM}) {
    Interruption interruption;
    EXPECT_EQ(interruption.exit_code(), 0);
    EXPECT_FALSE(interruption.token().stop_requested());
    kill(getpid(), signal);
    EXPECT_TRUE(client::testing::eventually([&] { return interruption.token().stop_requested(); }));
    EXPECT_EQ(interruption.exit_code(), 128 + signal);
  }
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
