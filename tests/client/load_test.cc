#include "client/cli/load/load.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include "client/cli/load/process_usage.h"
#include "tests/client/fake_service.h"

namespace svdserve::cli {
namespace {

using client::testing::Answer;
using client::testing::eventually;
using client::testing::FakeService;
using client::testing::Seen;

// Runs until the service has seen enough requests, half of them while measuring.
LoadTally run(FakeService& service, const LoadOptions& options, std::vector<Workload> mix) {
  client::Client client({.address = service.address(), .retry = {.max_attempts = 1}});
  Load load(client, std::move(mix), options);
  load.start();
  EXPECT_TRUE(eventually([&] { return service.requests() >= 50; }));
  load.measure();
  const int warm = service.requests();
  EXPECT_TRUE(eventually([&] { return service.requests() >= warm + 200; }));
  return load.stop();
}

std::vector<Workload> small_mix() {
  return {make_workload(2, 2, 3, client::DataType::kF64, 1, 1), make_workload(4, 2, 5, client::DataType::kC64, 3, 2)};
}

TEST(Load, ClosedLoopCountsWhatItDid) {
  FakeService service;
  const LoadTally t = run(service, {.concurrency = 3}, small_mix());
  EXPECT_GE(t.ok, 190);
  EXPECT_LE(service.most_at_once(), 3);
  EXPECT_EQ(t.refused + t.expired + t.failed + t.dropped, 0);
  EXPECT_GT(t.matrices, 3 * t.ok);  // both kinds were sent
  EXPECT_LT(t.matrices, 5 * t.ok);
  EXPECT_EQ(t.latency.total(), t.ok);
  EXPECT_GT(t.latency.max_seconds(), 0);
}

TEST(Load, TheRepliesOfGeneralEigenproblemsAreComplex) {
  const client::ComputeOptions general{.problem = client::Problem::kGeneral};
  EXPECT_EQ(make_workload(4, 4, 5, client::DataType::kF32, 1, 1).reply_bytes, 80);
  EXPECT_EQ(make_workload(4, 4, 5, client::DataType::kF32, 1, 1, general).reply_bytes, 160);
  EXPECT_EQ(make_workload(4, 4, 5, client::DataType::kC128, 1, 1, general).reply_bytes, 320);
}

TEST(Load, StreamsKeepTheirWindowsFull) {
  FakeService service;
  const LoadTally t = run(service, {.concurrency = 2, .stream = true, .window = 4}, small_mix());
  EXPECT_GE(t.ok, 150);
  EXPECT_EQ(t.refused + t.expired + t.failed + t.dropped, 0);
}

TEST(Load, OpenLoopSendsWithoutWaiting) {
  FakeService service;
  // Few outstanding: what the service has seen is answered soon, on a busy machine, too.
  const LoadTally t = run(service, {.rate = 2000.0, .max_outstanding = 4}, small_mix());
  EXPECT_GE(t.ok, 150);
  EXPECT_EQ(t.failed, 0);
}

TEST(Load, TellsRefusedFromFailed) {
  FakeService service([](const Seen& s) {
    Answer a;
    a.code = s.number % 2 == 0 ? 8 : 13;
    a.reason = s.number % 2 == 0 ? "OVERLOADED_REQUESTS" : "DEVICE_FAULT";
    return a;
  });
  const LoadTally t = run(service, {.concurrency = 2}, small_mix());
  EXPECT_EQ(t.ok, 0);
  EXPECT_GT(t.refused, 50);
  EXPECT_GT(t.failed, 50);
  EXPECT_EQ(t.errors.at("RESOURCE_EXHAUSTED OVERLOADED_REQUESTS"), t.refused);
  EXPECT_EQ(t.errors.at("INTERNAL DEVICE_FAULT"), t.failed);
}

TEST(ProcessUsage, SeesThisProcessAndNoOther) {
  const auto usage = process_usage(getpid());
  ASSERT_TRUE(usage);
  EXPECT_GT(usage->rss_bytes, 1 << 20);
  EXPECT_GE(usage->cpu_seconds, 0);
  EXPECT_FALSE(process_usage(1 << 30));
}

}  // namespace
}  // namespace svdserve::cli
