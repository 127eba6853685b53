// The ids of calls, and which of them the access log tells of.
#include "server/rpc/calls/call_log.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string>

namespace svdserve::server {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

constexpr char kTrace[] = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

TEST(CallIdsTest, TheCallersIdIsKept) {
  EXPECT_EQ(make_call_ids("Ab9-_.:/+=@z", "").request, "Ab9-_.:/+=@z");
  EXPECT_EQ(make_call_ids(std::string(128, 'x'), "").request, std::string(128, 'x'));
}

TEST(CallIdsTest, WithoutAGoodOneEachCallHasItsOwn) {
  std::set<std::string> ids;
  const std::string bad[] = {"", "two words", "line\nfeed", "quote\"", "\xc3\xa9", std::string(129, 'x')};
  for (const std::string& id : bad) {
    const std::string own = make_call_ids(id, "").request;
    EXPECT_THAT(own, ::testing::MatchesRegex("[0-9a-f]{8}-[0-9a-f]+")) << id;
    ids.insert(own);
  }
  EXPECT_EQ(ids.size(), std::size(bad));
}

TEST(CallIdsTest, TracesAreThoseOfW3C) {
  const CallIds ids = make_call_ids("x", kTrace);
  EXPECT_EQ(ids.trace, "4bf92f3577b34da6a3ce929d0e0e4736");
  EXPECT_EQ(ids.span, "00f067aa0ba902b7");
  for (const char* wrong : {"", "00", "01-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
                            "00-4BF92F3577B34DA6A3CE929D0E0E4736-00f067aa0ba902b7-01",
                            "00-00000000000000000000000000000000-00f067aa0ba902b7-01",
                            "00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000000-01",
                            "00-4bf92f3577b34da6a3ce929d0e0e4736 00f067aa0ba902b7-01",
                            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-more"}) {
    EXPECT_EQ(make_call_ids("x", wrong).trace, "") << wrong;
  }
}

TEST(AccessLogTest, FailedAndSlowCallsAlwaysHaveALine) {
  AccessLog log({0, absl::Seconds(1)});
  EXPECT_FALSE(log.wants(absl::StatusCode::kOk, absl::Milliseconds(999)));
  EXPECT_TRUE(log.wants(absl::StatusCode::kOk, absl::Seconds(1)));
  EXPECT_TRUE(log.wants(absl::StatusCode::kInvalidArgument, absl::ZeroDuration()));
  AccessLog without_slow({0, absl::InfiniteDuration()});
  EXPECT_FALSE(without_slow.wants(absl::StatusCode::kOk, absl::Hours(1)));
}

TEST(AccessLogTest, TheOthersAreSampled) {
  const auto share = [](double sample) {
    AccessLog log({sample, absl::InfiniteDuration()});
    int lines = 0;
    for (int i = 0; i < 100000; ++i) lines += log.wants(absl::StatusCode::kOk, absl::ZeroDuration()) ? 1 : 0;
    return lines / 100000.0;
  };
  EXPECT_EQ(share(0), 0);
  EXPECT_EQ(share(1), 1);
  EXPECT_NEAR(share(0.01), 0.01, 0.002);
  EXPECT_NEAR(share(0.5), 0.5, 0.01);
}

TEST(AccessLogTest, ALineHasThatWhichIsKnown) {
  AccessLog log({1, absl::InfiniteDuration()});
  CallLine line;
  line.method = "Decompose";
  line.took = absl::Milliseconds(2);
  line.request_bytes = 4150;
  line.matrices = 7;
  line.rows = line.cols = 4;
  line.dtype = "c64";
  line.devices = "cuda:0,host:0";
  ::testing::internal::CaptureStderr();
  log.write(make_call_ids("my-id", kTrace), "192.0.2.7", line, absl::UnixEpoch());
  const std::string text = ::testing::internal::GetCapturedStderr();
  EXPECT_THAT(text, HasSubstr("level=info event=call method=Decompose code=OK id=my-id "
                              "trace=4bf92f3577b34da6a3ce929d0e0e4736 span=00f067aa0ba902b7 peer=192.0.2.7 "
                              "seconds=0.002000 request_bytes=4150 matrices=7 rows=4 cols=4 dtype=c64 "
                              "device=cuda:0,host:0\n"));
  EXPECT_THAT(text, Not(HasSubstr("reply_bytes")));
}

TEST(AccessLogTest, SampledLinesLeaveRoomForFailures) {
  AccessLog log({1, absl::InfiniteDuration()});
  const CallIds ids = make_call_ids("x", "");
  const absl::Time second = absl::UnixEpoch();
  CallLine line;
  const auto lines_of = [&](absl::StatusCode code, int calls, absl::Time now) {
    line.code = code;
    ::testing::internal::CaptureStderr();
    for (int i = 0; i < calls; ++i) log.write(ids, "", line, now);
    return ::testing::internal::GetCapturedStderr();
  };
  const auto count = [](const std::string& text) { return std::count(text.begin(), text.end(), '\n'); };
  EXPECT_EQ(count(lines_of(absl::StatusCode::kOk, 1000, second)), AccessLog::kLinesPerSecond);
  EXPECT_EQ(count(lines_of(absl::StatusCode::kInternal, 1000, second)), AccessLog::kLinesPerSecond);
  const std::string next = lines_of(absl::StatusCode::kInternal, 1, second + absl::Seconds(1));
  EXPECT_THAT(next, HasSubstr("level=error event=log_lines_dropped of=call lines=800\n"));
  EXPECT_THAT(next, HasSubstr("level=error event=call code=INTERNAL"));
}

}  // namespace
}  // namespace svdserve::server
