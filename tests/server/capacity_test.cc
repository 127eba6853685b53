#include "server/device/cost/capacity.h"

#include <gtest/gtest.h>

#include <cmath>

#include "tests/server/pipeline_harness.h"

namespace svdserve::server {
namespace {

constexpr LeastLimits kLeast{64 << 20, 8 << 20};

// A host of four threads: 1 ms for a batch of 10000 matrices, 100 us for one request of 1000.
DeviceCost host() { return {"host:0", false, 4, absl::Microseconds(100), 10000, absl::Milliseconds(1), true}; }
DeviceCost gpu() { return {"cuda:0", true, 0, absl::Microseconds(50), 10000, absl::Microseconds(100), true}; }
RequestSize of_thousand() { return {1000, 128000, 16000, 160000}; }

TEST(Capacity, TheHostComputesWhereThereIsNoGpu) {
  const CapacityPlan p = plan_capacity({host()}, of_thousand(), {10000, {}}, kLeast);
  // A tenth of a batch on four cores, beside the transport of a call and 144 kB.
  EXPECT_NEAR(p.core_seconds, 4 * 1e-4 + 60e-6 + 144e3 * 0.25e-9, 1e-9);
  EXPECT_EQ(p.gpu_seconds, 0);
  EXPECT_DOUBLE_EQ(p.utilization, 0.7);
  EXPECT_NEAR(p.replica_requests_per_second, 0.7 * 4 / p.core_seconds, 1e-6);
  EXPECT_EQ(p.replicas, static_cast<int64_t>(std::ceil(10000 / p.replica_requests_per_second)));
  EXPECT_NEAR(p.cores, 10000 * p.core_seconds / 0.7, 1e-9);
  EXPECT_EQ(p.replica_cores, 4);
  EXPECT_EQ(p.replica_gpus, 0);
}

TEST(Capacity, BesideAGpuTheHostOnlyTransports) {
  const CapacityPlan p = plan_capacity({host(), gpu(), gpu()}, of_thousand(), {1e6, {}}, kLeast);
  EXPECT_NEAR(p.core_seconds, 60e-6 + 144e3 * 0.25e-9, 1e-12);
  EXPECT_NEAR(p.gpu_seconds, 1e-5, 1e-12);  // 1000 of 10000 matrices in 100 us
  EXPECT_EQ(p.replica_gpus, 2);
  EXPECT_NEAR(p.replica_requests_per_second, 0.7 * 4 / p.core_seconds, 1e-6);  // the cores are the limit
  const CapacityPlan alone = plan_capacity({gpu()}, of_thousand(), {1e6, {}}, kLeast);
  EXPECT_NEAR(alone.replica_requests_per_second, 0.7 * 1e5, 1e-6);
  EXPECT_EQ(alone.replica_cores, static_cast<int64_t>(std::ceil(1e5 * 0.7 * alone.core_seconds / 0.7)));
}

TEST(Capacity, AShorterLatencyTakesMoreReplicas) {
  const RequestSize large{40000, 5 << 20, 1 << 20, 7 << 20};  // split into four batches
  double last = 1;
  int64_t replicas = 0;
  for (const double latency : {1.0, 20e-3, 15e-3, 12e-3}) {
    const CapacityPlan p = plan_capacity({host()}, large, {1000, absl::Seconds(latency)}, kLeast);
    EXPECT_TRUE(p.reachable) << latency;
    EXPECT_LE(absl::ToDoubleSeconds(p.latency), latency);
    EXPECT_GE(p.replicas, replicas);
    EXPECT_LE(p.utilization, last);
    last = p.utilization;
    replicas = p.replicas;
  }
  EXPECT_LT(last, 0.7);
  const CapacityPlan none = plan_capacity({host()}, large, {1000, absl::Milliseconds(5)}, kLeast);
  EXPECT_FALSE(none.reachable);
  EXPECT_GE(none.latency, absl::Milliseconds(8));
}

TEST(Capacity, MemoryHoldsTheRequestsInFlight) {
  const CapacityPlan few = plan_capacity({host()}, of_thousand(), {1, {}}, kLeast);
  EXPECT_EQ(few.replicas, 1);
  EXPECT_EQ(few.max_inflight_requests, 16);
  EXPECT_EQ(few.max_message_bytes, 64 << 20);
  EXPECT_EQ(few.max_inflight_bytes, 128 << 20);
  EXPECT_EQ(few.memory_bytes, (256 + 128 + 128 + 128) << 20);
  const RequestSize large{1000000, 128 << 20, 16 << 20, 160 << 20};
  const CapacityPlan many = plan_capacity({host()}, large, {10, {}}, kLeast);
  EXPECT_GT(many.max_message_bytes, 128 << 20);
  EXPECT_GE(many.max_inflight_bytes, many.max_inflight_requests * (int64_t{160} << 20));
}

TEST(Capacity, AnySizesGivePositiveFiniteFigures) {
  for (const int64_t matrices : {1, 7, 10000, 1 << 24}) {
    for (const double rate : {1e-9, 1.0, 1e12}) {
      for (const double seconds : {0.0, 1e-9, 1e6}) {
        const CapacityPlan p = plan_capacity({host(), gpu()}, {matrices, matrices * 128, matrices * 16, matrices * 160},
                                             {rate, absl::Seconds(seconds)}, kLeast);
        EXPECT_GT(p.utilization, 0);
        EXPECT_GT(p.replica_requests_per_second, 0);
        EXPECT_TRUE(std::isfinite(p.replica_requests_per_second));
        EXPECT_GE(p.replicas, 1);
        EXPECT_GT(p.latency, absl::ZeroDuration());
        EXPECT_GT(p.memory_bytes, p.max_inflight_bytes);
      }
    }
  }
}

// The times are those of the pool that places batches by them.
TEST(Capacity, ThePipelineReckonsByItsOwnCosts) {
  PipelineHarness h;
  const auto ticket = std::make_shared<Ticket>();
  const Request shape = make_request(100, 1, ticket);
  CapacityPlan before;
  ASSERT_TRUE(h.pipeline->plan_capacity(shape, {10, {}}, &before).ok());
  ASSERT_EQ(before.devices.size(), 1u);
  EXPECT_FALSE(before.devices[0].measured);
  const TicketPtr first = h.occupy();
  const TicketPtr batch = h.submit(100);
  h.clock.advance(absl::Milliseconds(3));
  h.device().open();
  EXPECT_TRUE(first->wait().error.ok());
  EXPECT_TRUE(batch->wait().error.ok());
  CapacityPlan after;
  ASSERT_TRUE(h.pipeline->plan_capacity(shape, {10, {}}, &after).ok());
  EXPECT_TRUE(after.devices[0].measured);
  EXPECT_GT(after.devices[0].request, before.devices[0].request);
}

TEST(Capacity, MistakesAreThoseOfARequest) {
  PipelineHarness h;
  const auto ticket = std::make_shared<Ticket>();
  CapacityPlan plan;
  const auto field_of = [&](const Request& request) {
    return h.pipeline->plan_capacity(request, {1, {}}, &plan).field;
  };
  Request request = make_request(10, 1, ticket);
  request.count = 0;
  EXPECT_EQ(field_of(request), "matrices.count");
  request.count = -1;
  EXPECT_EQ(field_of(request), "matrices.count");
  request.count = int64_t{1} << 60;
  EXPECT_EQ(field_of(request), "matrices.count");
  request.count = 10;
  request.problem.rows = 0;
  EXPECT_EQ(field_of(request), "matrices.rows");
}

}  // namespace
}  // namespace svdserve::server
