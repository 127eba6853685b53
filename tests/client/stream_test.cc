#include "client/cpp/stream.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <complex>
#include <string>
#include <thread>
#include <vector>

#include "client/cpp/client.h"
#include "svdserve/v1/svd_service.pb.h"
#include "tests/client/fake_service.h"

namespace svdserve::client::testing {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

StreamOptions stream_options(int max_in_flight, bool ordered) {
  return {.max_in_flight = max_in_flight, .ordered = ordered, .call = {.timeout = seconds(60)}};
}

// One 2x2 matrix that begins with `first`; its memory must live for submit() only.
Batch one(const std::vector<double>& data) { return {.data = data.data(), .rows = 2, .cols = 2, .count = 1}; }
std::vector<double> matrix(uint64_t first) { return {static_cast<double>(first), 0, 0, 0}; }

TEST(Stream, AnswersInOrderWhileOneThreadSubmitsAndAnotherReads) {
  FakeService service([](const Seen& s) {
    Answer a;
    a.hold = s.number % 3 == 0;  // overtaken by the next
    return a;
  });
  Client client(options_for(service));
  Stream stream = client.open_stream(stream_options(8, true));
  constexpr uint64_t kRequests = 1000;  // one more follows: number 999 is held back, number 1000 is not
  std::jthread submitter([&] {
    for (uint64_t i = 1; i <= kRequests + 1; ++i) {
      const auto id = stream.submit(one(matrix(i)));
      ASSERT_TRUE(id.ok()) << id.status().to_string();
      ASSERT_EQ(*id, i);
    }
    stream.finish();
  });
  uint64_t expected = 0;
  while (const auto reply = stream.next()) {
    ASSERT_EQ(reply->id, ++expected);
    ASSERT_TRUE(reply->status.ok()) << reply->status.to_string();
    ASSERT_THAT(reply->values_as<double>(),
                ::testing::ElementsAre(static_cast<double>(expected), static_cast<double>(2 * expected)));
  }
  EXPECT_EQ(expected, kRequests + 1);
  EXPECT_TRUE(stream.status().ok()) << stream.status().to_string();
}

TEST(Stream, Eigenproblems) {
  FakeService service([](const Seen& s) { return Answer{.code = s.eigen_options.empty() ? 13 : 0}; });
  Client client(options_for(service));
  Stream stream = client.open_stream({.problem = Problem::kHermitian, .call = {.timeout = seconds(60)}});
  const ComputeOptions compute{.problem = Problem::kHermitian, .vectors = Vectors::kThin};
  for (uint64_t i = 1; i <= 3; ++i) ASSERT_TRUE(stream.submit(one(matrix(i)), compute).ok());
  EXPECT_EQ(stream.submit(one(matrix(4))).status().field, "options.problem");
  stream.finish();
  for (uint64_t i = 1; i <= 3; ++i) {
    const auto reply = stream.next();
    ASSERT_TRUE(reply && reply->status.ok()) << reply->status.to_string();
    EXPECT_THAT(reply->values_as<double>(), ::testing::ElementsAre(i, 2 * i));
    EXPECT_THAT(reply->plane_as<double>(Plane::kLeft), ::testing::ElementsAre(0, 0, 0, 0));
  }
  EXPECT_FALSE(stream.next());
}

TEST(Stream, GeneralEigenproblems) {
  FakeService service([](const Seen& s) { return Answer{.code = s.eigen_options.empty() ? 13 : 0}; });
  Client client(options_for(service));
  Stream stream = client.open_stream({.problem = Problem::kGeneral, .call = {.timeout = seconds(60)}});
  using Complex = std::complex<double>;
  const ComputeOptions compute{.problem = Problem::kGeneral, .vectors = Vectors::kFull};
  for (uint64_t i = 1; i <= 3; ++i) ASSERT_TRUE(stream.submit(one(matrix(i)), compute).ok());
  EXPECT_EQ(stream.submit(one(matrix(4)), {.problem = Problem::kHermitian}).status().field, "options.problem");
  stream.finish();
  for (uint64_t i = 1; i <= 3; ++i) {
    const auto reply = stream.next();
    ASSERT_TRUE(reply && reply->status.ok()) << reply->status.to_string();
    const auto value = static_cast<double>(i);
    EXPECT_THAT(reply->plane_as<Complex>(Plane::kValues),
                ::testing::ElementsAre(Complex(value, -value), Complex(2 * value, -2 * value)));
    EXPECT_THAT(reply->plane_as<Complex>(Plane::kLeft), ::testing::ElementsAre(0., 0., 0., 0.));
    EXPECT_THAT(reply->plane_as<Complex>(Plane::kRight), ::testing::ElementsAre(0., 0., 0., 0.));
  }
  EXPECT_FALSE(stream.next());
}

TEST(Stream, StartingVectorsAndConditions) {
  std::vector<std::string> starts;
  FakeService service([&](const Seen& s) {
    v1::EigendecomposeOptions options;
    EXPECT_TRUE(options.ParseFromString(s.eigen_options) && options.condition());
    EXPECT_EQ(options.starting_vectors(), !s.starting_vectors.empty());
    starts.push_back(s.starting_vectors);
    return Answer{.code = s.number == 1 ? 14 : 0};  // the second one is sent again
  });
  Client client(options_for(service));
  Stream stream = client.open_stream({.problem = Problem::kGeneral, .call = {.timeout = seconds(60)}});
  const ComputeOptions compute{.problem = Problem::kGeneral, .condition = true};
  const std::string letters[] = {std::string(64, 'a'), std::string(64, 'b'), ""};
  for (size_t i = 0; i < 3; ++i) {
    const std::vector<double> a = matrix(i + 1);
    Batch batch = one(a);
    std::string copied = letters[i];  // it need not live on
    if (!copied.empty()) batch.starting_vectors = copied.data();
    ASSERT_TRUE(stream.submit(batch, compute).ok());
  }
  stream.finish();
  for (uint64_t i = 1; i <= 3; ++i) {
    const auto reply = stream.next();
    ASSERT_TRUE(reply && reply->status.ok()) << reply->status.to_string();
    EXPECT_THAT(reply->plane_as<double>(Plane::kEigenvalueCondition), ::testing::ElementsAre(i, 2 * i));
    EXPECT_TRUE(reply->planes[static_cast<size_t>(Plane::kLeft)].empty());
  }
  EXPECT_THAT(starts, ::testing::UnorderedElementsAre(letters[0], letters[1], letters[1], letters[2]));
}

TEST(Stream, WithoutOrderAnswersComeAsTheyArrive) {
  FakeService service([](const Seen& s) {
    Answer a;
    a.hold = s.number == 0;
    return a;
  });
  Client client(options_for(service));
  Stream stream = client.open_stream(stream_options(2, false));
  ASSERT_TRUE(stream.submit(one(matrix(1))).ok());
  ASSERT_TRUE(stream.submit(one(matrix(2))).ok());
  EXPECT_EQ(stream.next()->id, 2u);
  EXPECT_EQ(stream.next()->id, 1u);
}

TEST(Stream, IsBounded) {
  FakeService service;
  Client client(options_for(service));
  Stream stream = client.open_stream(stream_options(3, true));
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(stream.try_submit(one(matrix(1)))->has_value());
  const auto full = stream.try_submit(one(matrix(1)));
  ASSERT_TRUE(full.ok());
  EXPECT_FALSE(full->has_value());
  ASSERT_TRUE(stream.next());
  EXPECT_TRUE(stream.try_submit(one(matrix(1)))->has_value());
}

TEST(Stream, ABadRequestDoesNotEndIt) {
  FakeService service([](const Seen& s) {
    Answer a;
    if (s.number == 0) {
      a.code = 3;
      a.reason = "INVALID_FIELD";
      a.field = "request.matrices.rows";
    }
    return a;
  });
  Client client(options_for(service));
  Stream stream = client.open_stream(stream_options(4, true));
  ASSERT_TRUE(stream.submit(one(matrix(1))).ok());
  ASSERT_TRUE(stream.submit(one(matrix(2))).ok());
  EXPECT_EQ(stream.next()->status.field, "request.matrices.rows");
  EXPECT_TRUE(stream.next()->status.ok());
}

TEST(Stream, SendsAgainWhatWasRefusedForLoad) {
  FakeService service([](const Seen& s) {
    Answer a;
    if (s.number < 2) {
      a.code = 8;
      a.retry_delay = milliseconds(5);
    }
    return a;
  });
  Client client(options_for(service));
  Stream stream = client.open_stream(stream_options(4, true));
  ASSERT_TRUE(stream.submit(one(matrix(7))).ok());
  stream.finish();  // stays open for the retry
  const auto reply = stream.next();
  ASSERT_TRUE(reply);
  ASSERT_TRUE(reply->status.ok()) << reply->status.to_string();
  EXPECT_EQ(reply->report.attempts, 3);
  EXPECT_EQ(reply->values_as<double>()[0], 7);
  EXPECT_FALSE(stream.next());
}

TEST(Stream, ARequestsTimeoutTravelsWithIt) {
  std::atomic<int64_t> nanos{0};
  FakeService service([&](const Seen& s) {
    nanos = s.timeout.value_or(std::chrono::nanoseconds(-1)).count();
    return Answer();
  });
  Client client(options_for(service));
  Stream stream = client.open_stream(stream_options(4, true));
  ASSERT_TRUE(stream.submit(one(matrix(1)), {}, milliseconds(1500)).ok());
  ASSERT_TRUE(stream.next()->status.ok());
  EXPECT_GT(nanos, 0);
  EXPECT_LE(nanos, 1500000000);
  ASSERT_TRUE(stream.submit(one(matrix(1))).ok());
  ASSERT_TRUE(stream.next()->status.ok());
  EXPECT_EQ(nanos, -1);
}

TEST(Stream, WhenItBreaksEveryUnansweredRequestIsTold) {
  FakeService service([](const Seen& s) {
    Answer a;
    a.hold = true;
    if (s.number == 2) {
      a.break_stream = true;
      a.code = 14;
      a.message = "gone";
    }
    return a;
  });
  Client client(options_for(service));
  Stream stream = client.open_stream(stream_options(8, true));
  for (uint64_t i = 1; i <= 3; ++i) ASSERT_TRUE(stream.submit(one(matrix(i))).ok());
  for (uint64_t i = 1; i <= 3; ++i) {
    const auto reply = stream.next();
    ASSERT_TRUE(reply);
    EXPECT_EQ(reply->id, i);
    EXPECT_EQ(reply->status.code, Code::kUnavailable);
    EXPECT_EQ(reply->status.message, "gone");
  }
  EXPECT_FALSE(stream.next());
  EXPECT_EQ(stream.submit(one(matrix(4))).status().code, Code::kUnavailable);
}

TEST(Stream, CancelAnswersWhatIsInFlight) {
  FakeService service([](const Seen& s) {
    eventually(s.is_cancelled);
    return Answer();
  });
  Client client(options_for(service));
  std::stop_source stop;
  for (const bool by_token : {false, true}) {
    StreamOptions o = stream_options(4, true);
    if (by_token) o.call.stop = stop.get_token();
    Stream stream = client.open_stream(o);
    ASSERT_TRUE(stream.submit(one(matrix(1))).ok());
    ASSERT_TRUE(stream.submit(one(matrix(2))).ok());
    if (by_token) {
      stop.request_stop();
    } else {
      stream.cancel();
    }
    EXPECT_EQ(stream.next()->status.code, Code::kCancelled);
    EXPECT_EQ(stream.next()->status.code, Code::kCancelled);
    EXPECT_FALSE(stream.next());
    EXPECT_FALSE(stream.submit(one(matrix(3))).ok());
  }
}

TEST(Stream, ManyCancelledAtAnyMoment) {
  FakeService service;
  Client client(options_for(service));
  for (int i = 0; i < 200; ++i) {
    Stream stream = client.open_stream(stream_options(8, true));
    for (int j = 0; j < i % 8; ++j) ASSERT_TRUE(stream.submit(one(matrix(1))).ok());
    if (i % 3 == 0 && i % 8 != 0) {
      ASSERT_TRUE(stream.next());
    }
    if (i % 5 == 0) stream.finish();
  }  // and here its end cancels the rest
}

TEST(Stream, RefusesWhatFitsNoMessage) {
  FakeService service([](const Seen&) { return Answer(); }, {.max_message_bytes = 16 << 10});
  Client client(options_for(service));
  Stream stream = client.open_stream(stream_options(4, true));
  const std::vector<double> data(4 * 1000);
  const Batch batch{.data = data.data(), .rows = 2, .cols = 2, .count = 1000};
  EXPECT_EQ(stream.submit(batch).status().field, "matrices.count");
  EXPECT_EQ(service.requests(), 0);
}

TEST(Stream, EndsWithoutARequest) {
  FakeService service;
  Client client(options_for(service));
  Stream stream = client.open_stream(stream_options(4, true));
  stream.finish();
  EXPECT_FALSE(stream.next());
  EXPECT_EQ(stream.submit(one(matrix(1))).status().code, Code::kFailedPrecondition);
}

}  // namespace
}  // namespace svdserve::client::testing
