#include "client/cpp/wire/send_buffers.h"

#include <gtest/gtest.h>

#include <cstring>
#include <string>

namespace svdserve::client::internal {
namespace {

TEST(SendBuffers, CopiesAndUsesMemoryAgain) {
  const auto pool = SendBuffers::make(1 << 20);
  const std::string text(1000, 'a');
  const void* where = nullptr;
  {
    const auto copy = pool->copy(text.data(), text.size());
    EXPECT_EQ(std::memcmp(copy.get(), text.data(), text.size()), 0);
    where = copy.get();
    EXPECT_NE(pool->copy(text.data(), 600).get(), where);  // in use
  }
  EXPECT_EQ(pool->copy(text.data(), text.size() - 100).get(), where);
  EXPECT_NE(pool->copy(text.data(), 10).get(), where);  // most of it would lie idle
}

TEST(SendBuffers, KeepsNoMoreThanItMay) {
  const auto pool = SendBuffers::make(1500);
  const std::string text(1000, 'a');
  auto first = pool->copy(text.data(), text.size()), second = pool->copy(text.data(), text.size());
  const void* const kept = second.get();
  first.reset();
  second.reset();  // the older one goes
  const auto again = pool->copy(text.data(), text.size());
  EXPECT_EQ(again.get(), kept);
}

TEST(SendBuffers, ABufferMayOutliveThePool) {
  auto pool = SendBuffers::make(1 << 20);
  const auto copy = pool->copy("abc", 3);
  pool.reset();
  EXPECT_EQ(std::memcmp(copy.get(), "abc", 3), 0);
}

}  // namespace
}  // namespace svdserve::client::internal
