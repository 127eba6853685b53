// Batches that are sent in pieces.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <complex>
#include <mutex>
#include <numeric>

#include "client/cpp/client.h"
#include "svdserve/v1/svd_service.pb.h"
#include "tests/client/fake_service.h"

namespace svdserve::client::testing {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

// Matrix i begins with i + 1: its values are i + 1 and 2 (i + 1).
std::vector<double> numbered(int64_t count) {
  std::vector<double> data(static_cast<size_t>(count) * 4);
  for (size_t i = 0; i < static_cast<size_t>(count); ++i) data[4 * i] = static_cast<double>(i + 1);
  return data;
}

void expect_numbered(const SingularValues<double>& s, int64_t count) {
  ASSERT_EQ(s.values.size(), static_cast<size_t>(2 * count));
  for (int64_t i = 0; i < count; ++i) {
    const double first = static_cast<double>(i + 1);
    ASSERT_EQ(s[i][0], first);
    ASSERT_EQ(s[i][1], 2 * first);
  }
}

TEST(SplitCall, JoinsWhatItCutAndKeepsToItsWindow) {
  FakeService service(
      [](const Seen& s) {
        Answer a;
        if (s.count > 5) a.exceptions = {{5, 1}};
        return a;
      },
      {.max_message_bytes = 16 << 10});
  ClientOptions o = options_for(service);
  o.pieces_in_flight = 3;
  Client client(o);
  constexpr int64_t kCount = 100000;
  const std::vector<double> data = numbered(kCount);
  for (const bool async : {false, true}) {
    auto s = async ? client.singular_values_async<double>(data, 2, 2, kCount, MemoryOrder::kRowMajor, {}, kCall).get()
                   : client.singular_values<double>(data, 2, 2, kCount, MemoryOrder::kRowMajor, {}, kCall);
    ASSERT_TRUE(s.ok()) << s.status().to_string();
    expect_numbered(*s, kCount);
    EXPECT_GE(s->report.pieces, 260);
    EXPECT_EQ(s->report.attempts, s->report.pieces);
    EXPECT_EQ(s->report.count, kCount);
    EXPECT_EQ(s->report.device, "fake:0");
    ASSERT_EQ(s->report.exceptions.size(), static_cast<size_t>(s->report.pieces));
    EXPECT_EQ(s->report.exceptions[0].index, 5);
    EXPECT_TRUE(std::is_sorted(s->report.exceptions.begin(), s->report.exceptions.end(),
                               [](const auto& a, const auto& b) { return a.index < b.index; }));
    EXPECT_GT(s->report.exceptions.back().index, kCount - 400);
  }
  EXPECT_LE(service.most_at_once(), 3);
  EXPECT_EQ(service.info_requests(), 1);  // the limits are remembered
}

// Starting vectors of a matrix begin with its number, as the matrix does.
TEST(SplitCall, EachPieceHasItsStartingVectors) {
  FakeService service(
      [](const Seen& s) {
        v1::EigendecomposeOptions options;
        EXPECT_TRUE(options.ParseFromString(s.eigen_options) && options.starting_vectors() && options.condition());
        EXPECT_EQ(s.starting_vectors.size(), 2 * s.data.size());
        for (size_t i = 0; i < static_cast<size_t>(s.count); ++i) {
          EXPECT_EQ(s.starting_vectors.substr(64 * i, 8), s.data.substr(32 * i, 8));
        }
        return Answer();
      },
      {.max_message_bytes = 16 << 10});
  Client client(options_for(service));
  constexpr int64_t kCount = 1000;
  const std::vector<double> data = numbered(kCount);
  std::vector<std::complex<double>> starts(data.begin(), data.end());
  const ComputeOptions compute{.condition = true};
  const auto e = client.eig<double>(data, 2, kCount, MemoryOrder::kRowMajor, compute, kCall, starts);
  ASSERT_TRUE(e.ok()) << e.status().to_string();
  EXPECT_GE(e->report.pieces, 1000 * 96 / (16 << 10));
  ASSERT_EQ(e->conditions.size(), 2u * kCount);
  for (int64_t i = 0; i < kCount; ++i) {
    const double first = static_cast<double>(i + 1);
    ASSERT_EQ(e->conditions[2 * static_cast<size_t>(i)], first);
    ASSERT_DOUBLE_EQ(e->condition_of_vectors(i), std::sqrt(2 * 5.0) * first);  // of f and 2 f
  }
  starts.pop_back();
  const auto short_of_one = client.eig<double>(data, 2, kCount, MemoryOrder::kRowMajor, compute, kCall, starts);
  EXPECT_EQ(short_of_one.status().field, "matrices.starting_vectors");
}

TEST(SplitCall, BorrowsStartingVectorsThatHaveAnOwner) {
  FakeService service([](const Seen& s) {
    EXPECT_EQ(s.starting_vectors, std::string(s.starting_vectors.size(), 'v'));
    return Answer();
  });
  Client client(options_for(service));
  constexpr int64_t kCount = 2000;
  const std::vector<double> data = numbered(kCount);
  auto starts = std::make_shared<std::string>(64 * kCount, 'v');
  const std::weak_ptr<std::string> watched = starts;
  std::vector<std::byte> values(32 * kCount);
  Batch batch{.data = data.data(), .rows = 2, .cols = 2, .count = kCount};
  batch.starting_vectors = starts->data();
  batch.starting_owner = std::move(starts);
  const auto r = client.decompose(batch, values, {.problem = Problem::kGeneral}, kCall);
  ASSERT_TRUE(r.ok()) << r.status().to_string();
  batch.starting_owner.reset();
  EXPECT_TRUE(eventually([&] { return watched.expired(); }));
}

TEST(SplitCall, GroupsHaveStartingVectorsAllOrNone) {
  FakeService service;
  Client client(options_for(service));
  const std::vector<double> data = numbered(2);
  const std::vector<std::complex<double>> starts(8);
  std::array<std::vector<std::byte>, 3> values;
  std::vector<Group> groups(3);
  for (size_t g = 0; g < 3; ++g) {
    groups[g].batch = {.data = data.data(), .rows = 2, .cols = 2, .count = g == 1 ? 0 : 2};
    values[g].resize(g == 1 ? 0 : 64);
    groups[g].out = values[g];
  }
  groups[2].batch.starting_vectors = starts.data();
  const auto mixed = client.decompose_groups(groups, {.problem = Problem::kGeneral}, kCall);
  EXPECT_EQ(mixed.status().field, "groups[2].starting_vectors");
  EXPECT_EQ(service.requests(), 0);
}

TEST(SplitCall, EachPieceIsRetriedByItself) {
  FakeService service(
      [](const Seen& s) {
        Answer a;
        if (s.number % 3 == 0) {
          a.code = 8;
          a.retry_delay = milliseconds(1);
        }
        return a;
      },
      {.max_message_bytes = 16 << 10});
  ClientOptions o = options_for(service);
  o.retry.max_attempts = 100;
  Client client(o);
  const std::vector<double> data = numbered(5000);
  const auto s = client.singular_values<double>(data, 2, 2, 5000, MemoryOrder::kRowMajor, {}, kCall);
  ASSERT_TRUE(s.ok()) << s.status().to_string();
  expect_numbered(*s, 5000);
  EXPECT_GT(s->report.attempts, s->report.pieces);
  EXPECT_EQ(s->report.attempts, service.requests());
}

TEST(SplitCall, OneFailedPieceFailsTheCallAndStopsTheRest) {
  std::atomic<int> cancelled{0};
  FakeService service(
      [&](const Seen& s) {
        Answer a;
        if (s.number == 2) {
          a.code = 13;
          a.reason = "DEVICE_FAULT";
        } else if (s.number > 2) {
          cancelled += eventually(s.is_cancelled);
        }
        return a;
      },
      {.max_message_bytes = 16 << 10});
  Client client(options_for(service));
  const std::vector<double> data = numbered(100000);
  const Status s = client.singular_values<double>(data, 2, 2, 100000, MemoryOrder::kRowMajor, {}, kCall).status();
  EXPECT_EQ(s.reason, "DEVICE_FAULT");
  EXPECT_LT(service.requests(), 20);
}

TEST(SplitCall, AStopRequestEndsIt) {
  std::stop_source stop;
  FakeService service(
      [&](const Seen& s) {
        if (s.number == 5) stop.request_stop();
        return Answer();
      },
      {.max_message_bytes = 16 << 10});
  Client client(options_for(service));
  const std::vector<double> data = numbered(1000000);
  const CallOptions call{.timeout = seconds(60), .stop = stop.get_token()};
  const Status s = client.singular_values<double>(data, 2, 2, 1000000, MemoryOrder::kRowMajor, {}, call).status();
  EXPECT_EQ(s.code, Code::kCancelled);
  EXPECT_LT(service.requests(), 100);
}

TEST(SplitCall, BorrowsMemoryThatHasAnOwnerAndLetsGoOfIt) {
  FakeService service;
  ClientOptions o = options_for(service);
  o.piece_bytes = 64 << 10;
  Client client(o);
  auto data = std::make_shared<std::vector<double>>(numbered(20000));
  std::vector<double> values(2 * 20000);
  {
    const Batch batch{.data = data->data(), .rows = 2, .cols = 2, .count = 20000, .owner = data};
    const auto report = client.decompose(batch, std::as_writable_bytes(std::span(values)), {}, kCall);
    ASSERT_TRUE(report.ok()) << report.status().to_string();
    EXPECT_EQ(report->pieces, 10);
  }
  EXPECT_EQ(values[39999], 40000);
  EXPECT_TRUE(eventually([&] { return data.use_count() == 1; }));
}

TEST(SplitCall, AsksForTheLimitsAgainAfterARefusedSize) {
  FakeService service([](const Seen& s) {
    Answer a;
    if (s.number == 0) {
      a.code = 3;
      a.reason = "REPLY_TOO_LARGE";
      a.field = "matrices.count";
    }
    return a;
  });
  Client client(options_for(service));
  const std::vector<double> data = numbered(10);
  EXPECT_EQ(client.singular_values<double>(data, 2, 2, 10, MemoryOrder::kRowMajor, {}, kCall).status().reason,
            "REPLY_TOO_LARGE");
  EXPECT_EQ(service.info_requests(), 1);
  service.set_limits({.max_message_bytes = 64 << 20, .max_matrices = 5});
  const auto s = client.singular_values<double>(data, 2, 2, 10, MemoryOrder::kRowMajor, {}, kCall);
  ASSERT_TRUE(s.ok());
  EXPECT_EQ(s->report.pieces, 2);
  EXPECT_EQ(service.info_requests(), 2);
}

TEST(SplitCall, AGroupBeyondTheServersMatricesIsNamed) {
  FakeService service([](const Seen&) { return Answer(); }, {.max_matrices = 5});
  Client client(options_for(service));
  const std::vector<double> data = numbered(12);
  const Status status = client.capacity<double>(data, 2, 2, 12, {10}, false, 6, MemoryOrder::kRowMajor, kCall).status();
  EXPECT_EQ(status.code, Code::kInvalidArgument);
  EXPECT_EQ(status.field, "options.mimo.group_size");
  EXPECT_NE(status.message.find("at most 5 matrices"), std::string::npos) << status.message;
}

TEST(SplitCall, AServerWithoutInfoGetsTheClientsOwnLimits) {
  FakeService service([](const Seen&) { return Answer(); }, {.has_info = false});
  Client client(options_for(service));
  const std::vector<double> data = numbered(10);
  const auto s = client.singular_values<double>(data, 2, 2, 10, MemoryOrder::kRowMajor, {}, kCall);
  ASSERT_TRUE(s.ok()) << s.status().to_string();
  expect_numbered(*s, 10);
}

TEST(SplitCall, ManyCallersAtOnce) {
  FakeService service([](const Seen&) { return Answer(); }, {.max_message_bytes = 16 << 10});
  Client client(options_for(service));
  const std::vector<double> data = numbered(2000);
  std::vector<std::future<Result<SingularValues<double>>>> answers;
  for (int i = 0; i < 50; ++i) {
    answers.push_back(client.singular_values_async<double>(data, 2, 2, 2000, MemoryOrder::kRowMajor, {}, kCall));
  }
  for (auto& a : answers) {
    const auto s = a.get();
    ASSERT_TRUE(s.ok()) << s.status().to_string();
    expect_numbered(*s, 2000);
  }
}

}  // namespace
}  // namespace svdserve::client::testing
