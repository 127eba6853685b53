// Tests that share a server, which holds nothing once a test is over.
#ifndef SVDSERVE_TESTS_SUPPORT_ONE_SERVER_TEST_H_
#define SVDSERVE_TESTS_SUPPORT_ONE_SERVER_TEST_H_

#include <gtest/gtest.h>

#include <memory>

#include "tests/support/running_server.h"
#include "tests/support/wire.h"

namespace svdserve::testing {

// Suite: the class that derives from it. Each has a server of its own.
template <class Suite>
class OneServerTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    server_ = new RunningServer({"--log-level=warning"});
    channel_ = connect(server_->address());
  }
  static void TearDownTestSuite() {
    channel_.reset();
    delete server_;
  }
  void TearDown() override {
    EXPECT_TRUE(wait_until([] { return server_->metric("svdserve_inflight_requests") == 0; }));
    EXPECT_EQ(server_->metric("svdserve_inflight_bytes"), 0);
  }

  static inline RunningServer* server_ = nullptr;
  static inline std::shared_ptr<grpc::Channel> channel_;
};

}  // namespace svdserve::testing
#endif  // SVDSERVE_TESTS_SUPPORT_ONE_SERVER_TEST_H_
