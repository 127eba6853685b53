#include "server/base/listening_socket.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace svdserve::server {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

bool is_loopback(const std::string& text) {
  std::string error;
  const auto address = ListenAddress::resolve(text, &error);
  EXPECT_TRUE(address.has_value()) << text << ": " << error;
  return address && address->is_loopback();
}

TEST(ListenAddress, LoopbackIsDecidedByTheAddress) {
  for (const char* text : {"127.0.0.1:0", "127.3.2.1:50051", "127.1:0", "2130706433:0", "localhost:0", "[::1]:0",
                           "[::ffff:127.0.0.1]:0", "unix:/a/b"}) {
    EXPECT_TRUE(is_loopback(text)) << text;
  }
  for (const char* text : {"0.0.0.0:0", "128.0.0.1:0", "[::]:0", "[::ffff:10.0.0.1]:0", "[2001:db8::1]:0", "0:0"}) {
    EXPECT_FALSE(is_loopback(text)) << text;
  }
}

TEST(ListenAddress, ANameWithoutAnAddressIsSaid) {
  std::string error;
  EXPECT_FALSE(ListenAddress::resolve("[fe80::zz]:1", &error).has_value());
  EXPECT_THAT(error, StartsWith("cannot listen on [fe80::zz]:1: "));
}

TEST(ListenAddress, WhatWasResolvedIsBound) {
  std::string error;
  const auto address = ListenAddress::resolve("127.0.0.1:0", &error);
  ASSERT_TRUE(address.has_value()) << error;
  const ListeningSockets first = ListeningSockets::open(*address, &error);
  const ListeningSockets second = ListeningSockets::open(*address, &error);  // another free port
  ASSERT_FALSE(first.empty() || second.empty()) << error;
  EXPECT_THAT(first.address(), StartsWith("127.0.0.1:"));
  EXPECT_NE(first.address(), second.address());
  EXPECT_NE(first.address(), address->text());
  const auto taken = ListenAddress::resolve(first.address(), &error);
  EXPECT_TRUE(ListeningSockets::open(*taken, &error).empty());
  EXPECT_THAT(error, HasSubstr(first.address() + ": Address already in use"));
}

}  // namespace
}  // namespace svdserve::server
