// One client and several servers whose answers the test decides.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <mutex>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "tests/client/fake_service.h"

namespace svdserve::client::testing {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::HasSubstr;

constexpr int kUnavailable = 14, kResourceExhausted = 8;

ClientOptions options_for(std::initializer_list<const FakeService*> services) {
  ClientOptions o = options_for(**services.begin());
  std::vector<std::string> addresses;
  for (const FakeService* const service : services) addresses.push_back(service->address());
  o.address = addresses;
  return o;
}

FakeService::Handler rejects(std::chrono::milliseconds delay) {
  return [delay](const Seen&) { return Answer{.code = kResourceExhausted, .message = "full", .retry_delay = delay}; };
}

const std::vector<double> kMatrix = {1, 0, 0, 1};

TEST(FailoverTest, ARejectedCallGoesToTheNextAtOnce) {
  FakeService full(rejects(seconds(100)));
  FakeService other;
  Client client(options_for({&full, &other}));
  for (int i = 0; i < 20; ++i) {
    const auto r = client.singular_values(kMatrix, {2, 2}, {.timeout = seconds(60)});
    ASSERT_TRUE(r.ok()) << r.status().to_string();
    EXPECT_LE(r->report.attempts, 2);
  }
  EXPECT_EQ(other.requests(), 20);
  EXPECT_GE(full.requests(), 1);
}

TEST(FailoverTest, ItWaitsTheShortestDelayWhenAllHaveRejectedIt) {
  FakeService longer(rejects(milliseconds(60'000)));
  FakeService shorter([](const Seen& seen) {
    return seen.number < 2 ? Answer{.code = kResourceExhausted, .retry_delay = milliseconds(50)} : Answer();
  });
  Client client(options_for({&longer, &shorter}));
  const auto begin = std::chrono::steady_clock::now();
  const auto r = client.singular_values(kMatrix, {2, 2}, {.timeout = seconds(50)});
  ASSERT_TRUE(r.ok()) << r.status().to_string();
  EXPECT_GE(std::chrono::steady_clock::now() - begin, milliseconds(50));
  EXPECT_EQ(shorter.requests(), 3);
}

TEST(FailoverTest, OneAttemptMeansNoOther) {
  FakeService full(rejects(milliseconds(10)));
  FakeService other;
  ClientOptions o = options_for({&full, &other});
  o.retry.max_attempts = 1;
  Client client(std::move(o));
  int failed = 0;
  for (int i = 0; i < 4; ++i) failed += client.singular_values(kMatrix, {2, 2}).ok() ? 0 : 1;
  EXPECT_EQ(failed, full.requests());
  EXPECT_GE(failed, 1);
}

TEST(FailoverTest, AMistakeIsToldByTheFirst) {
  const FakeService::Handler wrong = [](const Seen&) { return Answer{.code = 3, .message = "no", .field = "a"}; };
  FakeService first(wrong), second(wrong);
  Client client(options_for({&first, &second}));
  EXPECT_EQ(client.singular_values(kMatrix, {2, 2}).status().code, Code::kInvalidArgument);
  EXPECT_EQ(first.requests() + second.requests(), 1);
}

TEST(FailoverTest, AServerThatIsGoneIsLeftByEveryKindOfCall) {
  FakeService here;
  here.large().chunk_bytes = 4096;
  std::string gone;
  {
    FakeService short_lived;
    gone = short_lived.address();
  }
  ClientOptions o = options_for(here);
  o.address = {gone, here.address()};
  Client client(std::move(o));
  for (int i = 0; i < 6; ++i) {
    EXPECT_TRUE(client.singular_values(kMatrix, {2, 2}, {.timeout = seconds(60)}).ok());
    EXPECT_TRUE(client.async().singular_values(kMatrix, {2, 2}, {.timeout = seconds(60)}).get().ok());
    EXPECT_TRUE(client.server_info(kCall).ok());
  }
  EXPECT_EQ(here.requests(), 12);
}

TEST(FailoverTest, ALargeMatrixGoesToTheNext) {
  FakeService full, other;
  for (FakeService* const service : {&full, &other}) service->set_limits({.max_large_bytes = 1 << 30});
  full.large().refusals.assign(1, {.code = kResourceExhausted, .retry_delay = seconds(100)});
  Client client(options_for({&full, &other}));
  const std::vector<double> matrix(40 * 30, 1.0);
  for (int i = 0; i < 2; ++i) {  // one of them begins with the first
    const auto r = client.svd_large(matrix, {40, 30}, {.timeout = seconds(60)});
    ASSERT_TRUE(r.ok()) << r.status().to_string();
  }
  EXPECT_EQ(full.large().opens.size() + other.large().opens.size(), 3u);
  EXPECT_GE(other.large().uploads.size(), 1u);
}

TEST(FailoverTest, FourRoundsOverAllServers) {
  FakeService draining([](const Seen&) { return Answer{.code = kUnavailable, .message = "draining"}; });
  FakeService also([](const Seen&) { return Answer{.code = kUnavailable, .message = "draining"}; });
  Client client(options_for({&draining, &also}));
  const auto r = client.singular_values(kMatrix, {2, 2}, {.timeout = seconds(60)});
  EXPECT_EQ(r.status().code, Code::kUnavailable);
  // Four rounds of two, but for those at once that the budget does not allow any more.
  const int requests = draining.requests() + also.requests();
  EXPECT_TRUE(requests >= 6 && requests <= 8) << requests;
}

TEST(FailoverTest, AServerNamedTwiceHasOneShare) {
  FakeService one, other;
  ClientOptions o = options_for({&one, &other});
  o.address = {one.address(), other.address(), one.address()};
  Client client(std::move(o));
  for (int i = 0; i < 40; ++i) ASSERT_TRUE(client.singular_values(kMatrix, {2, 2}, {.timeout = seconds(60)}).ok());
  EXPECT_EQ(one.requests(), 20);
  EXPECT_EQ(other.requests(), 20);
}

// Lines as ClientOptions::log gets them.
struct Lines {
  std::mutex mutex;
  std::vector<std::pair<LogLevel, std::string>> all;

  void follow(ClientOptions* o) {
    o->log = [this](LogLevel level, const std::string& line) {
      std::lock_guard lock(mutex);
      all.emplace_back(level, line);
      throw std::runtime_error("a line is lost, and nothing else");
    };
  }
  bool has(LogLevel level, const std::string& part) {
    std::lock_guard lock(mutex);
    return std::ranges::any_of(
        all, [&](const auto& l) { return l.first == level && l.second.find(part) != std::string::npos; });
  }
};

TEST(FailoverTest, TheLogTellsOfRetriesAndFailovers) {
  Lines lines;
  FakeService full(rejects(seconds(100)));
  FakeService other;
  ClientOptions o = options_for({&full, &other});
  lines.follow(&o);
  Client client(std::move(o));
  for (int i = 0; i < 2; ++i) ASSERT_TRUE(client.singular_values(kMatrix, {2, 2}, {.timeout = seconds(60)}).ok());
  EXPECT_TRUE(lines.has(LogLevel::kInfo, full.address() + ": attempt 2 goes to another server at once, after: "
                                                          "RESOURCE_EXHAUSTED"));
}

TEST(FailoverTest, TheLogTellsOfOneServersRetries) {
  Lines lines;
  FakeService drains([](const Seen& seen) {
    return seen.number == 0 ? Answer{.code = kUnavailable, .message = "draining"} : Answer();
  });
  ClientOptions o = options_for(drains);
  o.retry.max_attempts = 3;
  lines.follow(&o);
  Client client(std::move(o));
  ASSERT_TRUE(client.singular_values(kMatrix, {2, 2}, {.timeout = seconds(60)}).ok());
  EXPECT_TRUE(lines.has(LogLevel::kInfo, drains.address() + ": attempt 2 of 3 follows in "));
  EXPECT_TRUE(lines.has(LogLevel::kInfo, "s, after: UNAVAILABLE"));
}

TEST(FailoverTest, TheLogTellsOfServersThatAreLeft) {
  Lines lines;
  FakeService drains([](const Seen&) { return Answer{.code = kUnavailable, .message = "draining"}; });
  FakeService other;
  ClientOptions o = options_for({&drains, &other});
  lines.follow(&o);
  Client client(std::move(o));
  for (int i = 0; i < 2; ++i) ASSERT_TRUE(client.singular_values(kMatrix, {2, 2}, {.timeout = seconds(60)}).ok());
  EXPECT_TRUE(lines.has(LogLevel::kWarning, drains.address() + " is left to itself, the other servers get its calls: "
                                                               "UNAVAILABLE"));
}

TEST(AddressTest, AListIsChecked) {
  EXPECT_TRUE(check_address("127.0.0.1:1,[::1]:2, unix:/tmp/a").ok());
  EXPECT_TRUE(check_address(Address{"a:1", "b:2"}.text()).ok());
  EXPECT_THAT(check_address("a:1,b").to_string(), HasSubstr("\"b\""));
  EXPECT_FALSE(check_address("a:1,").ok());
  for (const char* wrong : {"a:1;b:2", "a:1 b:2"}) {
    EXPECT_THAT(check_address(wrong).to_string(), HasSubstr("must have a comma between two servers")) << wrong;
  }
  EXPECT_EQ((Address{"a:1", "b:2"}.text()), "a:1,b:2");
}

}  // namespace
}  // namespace svdserve::client::testing
