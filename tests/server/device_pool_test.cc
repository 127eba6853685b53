#include "server/device/device_pool.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <thread>
#include <vector>

#include "server/device/host_device.h"
#include "tests/server/counting_recorder.h"
#include "tests/server/fake_clock.h"
#include "tests/server/fake_device.h"

namespace svdserve::server {
namespace {

const Plan kPlan = *make_plan({2, 2, DType::kF64, Order::kRowMajor}, {}).plan;

struct PoolOfFakes {
  explicit PoolOfFakes(const std::vector<int>& lanes) {
    std::vector<std::unique_ptr<Device>> devices;
    for (size_t i = 0; i < lanes.size(); ++i) {
      controls.push_back(std::make_shared<FakeDeviceControl>());
      devices.push_back(std::make_unique<FakeDevice>("fake:" + std::to_string(i), lanes[i], controls.back()));
    }
    pool = std::make_unique<DevicePool>(std::move(devices), &clock, &recorder);
  }
  std::optional<Lane> place(int64_t matrices = 1) {
    return DevicePool::Placement(pool.get()).place(kPlan, matrices, {});
  }

  FakeClock clock;
  CountingRecorder recorder;
  std::vector<std::shared_ptr<FakeDeviceControl>> controls;
  std::unique_ptr<DevicePool> pool;
};

TEST(DevicePool, ALaneHasOneHolder) {
  PoolOfFakes p({1, 2});
  std::vector<Lane> held;
  while (const auto lane = p.place()) held.push_back(*lane);
  EXPECT_EQ(held.size(), 3u);
  EXPECT_FALSE(DevicePool::Placement(p.pool.get()).lane_free());
  p.pool->release(held[1]);
  EXPECT_TRUE(DevicePool::Placement(p.pool.get()).lane_free());
  const auto again = p.place();
  ASSERT_TRUE(again.has_value());
  EXPECT_EQ(again->device, held[1].device);
  EXPECT_EQ(again->index, held[1].index);
}

TEST(DevicePool, LeastOutstandingWorkFirst) {
  PoolOfFakes p({3, 3});
  EXPECT_EQ(p.place(10000)->device, 0);
  EXPECT_EQ(p.place(4000)->device, 1);
  EXPECT_EQ(p.place(4000)->device, 1);
  EXPECT_EQ(p.place(4000)->device, 1);
  EXPECT_EQ(p.place(4000)->device, 0);
}

TEST(DevicePool, LostDeviceGivesNoLanes) {
  PoolOfFakes p({2, 1});
  p.controls[0]->fail([] { return DeviceOutcome{absl::InternalError("gone"), true, false, {}}; });
  const auto a = p.place();
  const std::atomic<bool> cancel{false};
  EXPECT_FALSE(p.pool->execute(*a, kPlan, {}, &cancel).outcome.status.ok());
  p.pool->release(*a);
  EXPECT_EQ(p.pool->healthy(), 1);
  EXPECT_FALSE(p.pool->state(0).healthy);
  EXPECT_EQ(p.place()->device, 1);
  EXPECT_FALSE(p.place().has_value());
  EXPECT_THAT(p.recorder.lost(), testing::ElementsAre("fake:0"));
  const int first = 0, second = 1;
  EXPECT_TRUE(p.pool->healthy_besides({&first, 1}));
  EXPECT_FALSE(p.pool->healthy_besides({&second, 1}));
}

TEST(DevicePool, TheHostHelpsAGpuWithShortWorkAndReplacesALostOne) {
  FakeClock clock;
  CountingRecorder recorder;
  const auto gpu = std::make_shared<FakeDeviceControl>(), host = std::make_shared<FakeDeviceControl>();
  std::vector<std::unique_ptr<Device>> devices;
  devices.push_back(std::make_unique<FakeDevice>("cuda:0", 1, gpu, DeviceKind::kCuda));
  devices.push_back(std::make_unique<FakeDevice>("host:0", 1, host));
  DevicePool pool(std::move(devices), &clock, &recorder);
  const auto place = [&pool](int64_t matrices) { return DevicePool::Placement(&pool).place(kPlan, matrices, {}); };
  constexpr int64_t kShort = 100, kLong = 10'000'000;

  EXPECT_EQ(pool.shares(kPlan, kLong, 1).size(), 1u);
  const auto on_gpu = place(kLong);
  ASSERT_TRUE(on_gpu.has_value());
  EXPECT_EQ(on_gpu->device, 0);
  EXPECT_FALSE(place(kLong).has_value());  // it waits for the GPU, though the host is free
  const auto on_host = place(kShort);
  ASSERT_TRUE(on_host.has_value());
  EXPECT_EQ(on_host->device, 1);
  pool.release(*on_host);
  // The host takes no work whose bits are a GPU's own while a GPU works, however short the work is.
  const Plan large = *make_plan({33, 33, DType::kF64, Order::kRowMajor}, {}).plan;
  EXPECT_FALSE(DevicePool::Placement(&pool).place(large, 1, {}).has_value());

  gpu->fail([] { return DeviceOutcome{absl::InternalError("gone"), true, false, {}}; });
  const std::atomic<bool> cancel{false};
  EXPECT_FALSE(pool.execute(*on_gpu, kPlan, {}, &cancel).outcome.status.ok());
  pool.release(*on_gpu);
  const auto instead = place(kLong);
  ASSERT_TRUE(instead.has_value());
  EXPECT_EQ(instead->device, 1);
  pool.release(*instead);
  EXPECT_EQ(DevicePool::Placement(&pool).place(large, 1, {})->device, 1);
}

// For who computes on a device beside the lanes.
TEST(DevicePool, TheMonitorTakesOutWhatIsLostOrHangsElsewhere) {
  testing::internal::CaptureStderr();
  FakeClock clock;
  CountingRecorder recorder;
  std::vector<std::unique_ptr<Device>> devices;
  for (const char* name : {"cuda:0", "cuda:1"}) {
    devices.push_back(std::make_unique<FakeDevice>(name, 1, std::make_shared<FakeDeviceControl>(), DeviceKind::kCuda));
  }
  devices.push_back(std::make_unique<FakeDevice>("host:0", 1, std::make_shared<FakeDeviceControl>()));
  DevicePool pool(std::move(devices), &clock, &recorder);
  DeviceMonitor& monitor = pool;
  EXPECT_TRUE(monitor.is_healthy("cuda:0"));
  EXPECT_FALSE(monitor.is_healthy("cuda:7"));
  monitor.lost("cuda:7");
  monitor.lost("cuda:0");
  monitor.lost("cuda:0");
  EXPECT_FALSE(monitor.is_healthy("cuda:0"));
  EXPECT_THAT(recorder.lost(), testing::ElementsAre("cuda:0"));

  EXPECT_EQ(monitor.watch("host:0", absl::Seconds(1), [](absl::Duration) {}), nullptr);
  int hangs = 0;
  const auto watch = monitor.watch("cuda:1", absl::Seconds(1), [&](absl::Duration silent) {
    EXPECT_EQ(silent, absl::Seconds(20));
    EXPECT_FALSE(monitor.is_healthy("cuda:1"));
    ++hangs;
  });
  ASSERT_NE(watch, nullptr);
  clock.advance(absl::Seconds(15));
  watch->progress();
  clock.advance(absl::Seconds(15));
  EXPECT_EQ(hangs, 0);
  clock.advance(absl::Seconds(10));
  EXPECT_EQ(hangs, 1);
  EXPECT_THAT(recorder.hung(), testing::ElementsAre("cuda:1"));
  EXPECT_EQ(pool.census().healthy, 1);
  EXPECT_EQ(pool.census().lost_gpus, 2);
  EXPECT_THAT(
      testing::internal::GetCapturedStderr(),
      testing::HasSubstr("event=device_fault device=cuda:1 uuid=\"\" error=\"did not respond for 20s\" lost=true"));
}

// A GPU may hang, and whoever waits for it with it.
TEST(DevicePool, ShortWorkOnItsCallersThreadIsTheHostsAlone) {
  FakeClock clock;
  NullRecorder recorder;
  std::vector<std::unique_ptr<Device>> devices;
  devices.push_back(
      std::make_unique<FakeDevice>("cuda:0", 1, std::make_shared<FakeDeviceControl>(), DeviceKind::kCuda));
  DevicePool pool(std::move(devices), &clock, &recorder);
  EXPECT_FALSE(pool.place_short(kPlan, 1, absl::Seconds(1)).has_value());
}

// Two lanes that overlap are busy once.
TEST(DevicePool, BusyTimeIsThatOfTheDeviceAndNotOfItsLanes) {
  PoolOfFakes p({2});
  p.controls[0]->close();
  const std::atomic<bool> cancel{false};
  const auto execute = [&](const Lane& lane) {
    return std::thread([&p, &cancel, lane] { p.pool->execute(lane, kPlan, {}, &cancel); });
  };
  const Lane a = *p.place(), b = *p.place();
  EXPECT_EQ(p.pool->state(0).outstanding_batches, 2);
  p.clock.advance(absl::Milliseconds(5));
  EXPECT_EQ(p.pool->state(0).busy, absl::ZeroDuration());  // held, but nothing runs yet
  std::thread first = execute(a);
  p.controls[0]->await_begun(1);
  p.clock.advance(absl::Milliseconds(10));
  std::thread second = execute(b);
  p.controls[0]->await_begun(2);
  p.clock.advance(absl::Milliseconds(20));
  EXPECT_EQ(p.pool->state(0).busy, absl::Milliseconds(30));  // also while they run
  p.controls[0]->open();
  first.join();
  second.join();
  p.pool->release(a);
  p.pool->release(b);
  p.clock.advance(absl::Milliseconds(40));
  EXPECT_EQ(p.pool->state(0).busy, absl::Milliseconds(30));
  EXPECT_EQ(p.pool->state(0).outstanding_batches, 0);
}

TEST(HostDevice, SharesTheThreads) {
  const auto devices = make_host_devices(3, 4, Simd::kScalar);
  ASSERT_EQ(devices.size(), 3u);
  int threads = 0;
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(devices[i]->info().name, "host:" + std::to_string(i));
    EXPECT_EQ(devices[i]->info().kind, DeviceKind::kHost);
    EXPECT_EQ(devices[i]->info().instruction_set, "scalar");
    EXPECT_EQ(devices[i]->info().lanes, 1);
    EXPECT_EQ(devices[i]->info().relief_lanes, 1);
    threads += devices[i]->info().threads;
  }
  EXPECT_EQ(threads, 4);
  EXPECT_EQ(make_host_devices(2, 1, Simd::kBest)[1]->info().threads, 1);
}

TEST(HostDevice, Computes) {
  const auto devices = make_host_devices(1, 1, Simd::kBest);
  const double a[8] = {3, 0, 0, 4, 1, 0, 0, std::nan("")};
  double s[4] = {};
  MatrixStatus statuses[2];
  const HostSegment segment{a, 2, s, statuses};
  const PlanOrError plan = make_plan({2, 2, DType::kF64, Order::kRowMajor}, {});
  const std::atomic<bool> cancel{false};
  const DeviceOutcome outcome = devices[0]->execute(0, *plan.plan, {&segment, 1}, &cancel);
  EXPECT_TRUE(outcome.status.ok());
  EXPECT_TRUE(outcome.completed);
  EXPECT_NEAR(s[0], 4, 1e-14);
  EXPECT_NEAR(s[1], 3, 1e-14);
  EXPECT_TRUE(std::isnan(s[2]));
  EXPECT_EQ(statuses[0], MatrixStatus::kOk);
  EXPECT_EQ(statuses[1], MatrixStatus::kNonFinite);
  EXPECT_EQ(outcome.report.non_finite, 1);
}

TEST(Recorder, ShapeBucketsAreBounded) {
  const auto bucket = [](int64_t m, int64_t n) {
    return std::string(name(shape_bucket({m, n, DType::kF64, Order::kRowMajor})));
  };
  EXPECT_EQ(bucket(1, 1), "k4");
  EXPECT_EQ(bucket(4, 4), "k4");
  EXPECT_EQ(bucket(4, 16), "k4");
  EXPECT_EQ(bucket(4, 17), "k4_long");
  EXPECT_EQ(bucket(5, 8), "k8");
  EXPECT_EQ(bucket(9, 9), "k16");
  EXPECT_EQ(bucket(32, 16384), "k32_long");
  EXPECT_EQ(bucket(33, 33), "k128");
  EXPECT_EQ(bucket(600, 128), "k128_long");
  EXPECT_EQ(bucket(512, 512), "k512");
  EXPECT_EQ(bucket(129, 600), "k512_long");
  for (int64_t bad : {int64_t{0}, int64_t{-1}, int64_t{513}, INT64_MAX, INT64_MIN})
    EXPECT_EQ(bucket(bad, bad), "invalid");
  EXPECT_EQ(bucket(32, INT64_MAX), "k32_long");
}

}  // namespace
}  // namespace svdserve::server
