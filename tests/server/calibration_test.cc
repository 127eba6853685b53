#include "server/device/cost/calibration.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <set>

#include "server/device/device_pool.h"
#include "server/device/host_device.h"
#include "tests/server/counting_recorder.h"
#include "tests/server/fake_clock.h"
#include "tests/server/fake_device.h"

namespace svdserve::server {
namespace {

TEST(Calibration, AsksForEveryTypeAndSizeFewAndMany) {
  std::set<DType> dtypes;
  std::set<int64_t> sizes;
  std::set<Method> methods;
  int64_t most = 0;
  int runs = 0;
  calibrate([&](const Plan& plan, const HostSegment& segment) {
    dtypes.insert(plan.problem.dtype);
    sizes.insert(plan.problem.rows);
    methods.insert(plan.method);
    most = std::max(most, segment.count);
    ++runs;
    // Every operand is finite and not too small, whatever its precision.
    const bool is_single = value_bytes(plan.problem.dtype) == sizeof(float);
    const char* const bytes = static_cast<const char*>(segment.matrices);
    double last = 0;
    float last_single = 0;
    std::memcpy(&last, bytes + matrix_bytes(plan.problem) - sizeof last, sizeof last);
    std::memcpy(&last_single, bytes + matrix_bytes(plan.problem) - sizeof last_single, sizeof last_single);
    const double x = is_single ? static_cast<double>(last_single) : last;
    EXPECT_TRUE(std::abs(x) <= 1 && std::abs(x) > 1e-6) << x;
    std::memset(segment.planes[Plane::kValues], 0, static_cast<size_t>(segment.count) * values_bytes(plan.problem));
    std::memset(segment.statuses, 0, static_cast<size_t>(segment.count));
    return std::optional(absl::Microseconds(1));
  });
  EXPECT_EQ(dtypes.size(), 4u);
  EXPECT_EQ(sizes, (std::set<int64_t>{4, 8, 16, 32}));
  EXPECT_EQ(methods.size(), 3u);
  EXPECT_GE(most, 32768);
  EXPECT_LT(runs, 250);
}

TEST(Calibration, NoRunIsExpectedToTakeLong) {
  int64_t most = 0;
  calibrate([&](const Plan&, const HostSegment& segment) {
    most = std::max(most, segment.count);
    return std::optional(absl::Milliseconds(1) * segment.count);
  });
  EXPECT_EQ(most, 1);  // 32 would take 32 ms
}

TEST(Calibration, EndsWhenItIsTold) {
  int runs = 0;
  calibrate([&](const Plan&, const HostSegment&) -> std::optional<absl::Duration> {
    if (++runs == 5) return std::nullopt;
    return absl::Microseconds(1);
  });
  EXPECT_EQ(runs, 5);
}

// The real thing, with a real clock: the table knows afterwards, and nothing was counted as served.
TEST(Calibration, OfHostDevicesTeachesAndCountsNothing) {
  const auto clock = make_steady_clock();
  CountingRecorder recorder;
  DevicePool pool(make_host_devices(2, 2, Simd::kBest), clock.get(), &recorder);
  pool.calibrate(absl::Seconds(60));  // as long as it needs: the machine may be busy, the code instrumented
  EXPECT_EQ(recorder.report().total(), 0);
  EXPECT_TRUE(recorder.phase(Phase::kCompute).empty());
  const Plan plan = *make_plan({4, 4, DType::kF64, Order::kRowMajor}, {}).plan;
  const int first = 0, second = 1;
  const auto a = DevicePool::Placement(&pool).place(plan, 1, {&second, 1});
  const auto b = DevicePool::Placement(&pool).place(plan, 1, {&first, 1});
  ASSERT_TRUE(a.has_value() && b.has_value());                               // every lane is free again
  EXPECT_GT(pool.earliest_done(plan, 100, 0, false), absl::ZeroDuration());  // its like has run
  pool.release(*a);
  pool.release(*b);
}

TEST(Calibration, NoRunBeginsAfterItsTime) {
  FakeClock clock;
  NullRecorder recorder;
  std::vector<std::unique_ptr<Device>> devices;
  const auto control = std::make_shared<FakeDeviceControl>();
  devices.push_back(std::make_unique<FakeDevice>("fake:0", 1, control));
  control->fail([&clock] {
    clock.advance(absl::Milliseconds(3));
    return DeviceOutcome{absl::OkStatus(), false, true, {}};
  });
  DevicePool pool(std::move(devices), &clock, &recorder);
  pool.calibrate(absl::Milliseconds(10));
  EXPECT_EQ(control->seen().size(), 4u);
}

// The start goes on without it.
TEST(Calibration, DeviceThatHangsIsTakenOutAndNotWaitedFor) {
  testing::internal::CaptureStderr();
  const auto clock = make_steady_clock();
  CountingRecorder recorder;
  std::vector<std::unique_ptr<Device>> devices;
  const auto control = std::make_shared<FakeDeviceControl>();
  devices.push_back(std::make_unique<FakeDevice>("cuda:0", 1, control, DeviceKind::kCuda));
  control->fail([] { return DeviceOutcome{absl::OkStatus(), false, true, {}}; });
  control->hang();
  {
    DevicePool pool(std::move(devices), clock.get(), &recorder, absl::Milliseconds(20));
    pool.calibrate(absl::Hours(1));
    EXPECT_FALSE(pool.state(0).healthy);
    EXPECT_EQ(recorder.hung(), std::vector<std::string>{"cuda:0"});
    EXPECT_EQ(pool.state(0).outstanding_batches, 1);
    control->answer();
  }
  testing::internal::GetCapturedStderr();
}

TEST(Calibration, DeviceThatFailsIsLostOrGoesOnUnmeasured) {
  FakeClock clock;
  CountingRecorder recorder;
  std::vector<std::unique_ptr<Device>> devices;
  std::vector<std::shared_ptr<FakeDeviceControl>> controls;
  for (const char* name : {"fake:0", "fake:1", "fake:2"}) {
    controls.push_back(std::make_shared<FakeDeviceControl>());
    devices.push_back(std::make_unique<FakeDevice>(name, 1, controls.back()));
  }
  controls[0]->fail([] { return DeviceOutcome{absl::InternalError("illegal address"), true, false, {}}; });
  controls[1]->fail([]() -> DeviceOutcome { throw std::bad_alloc(); });
  controls[2]->fail([] { return DeviceOutcome{absl::OkStatus(), false, true, {}}; });
  DevicePool pool(std::move(devices), &clock, &recorder);
  pool.calibrate(absl::Milliseconds(100));
  EXPECT_FALSE(pool.state(0).healthy);
  EXPECT_TRUE(pool.state(1).healthy);
  EXPECT_TRUE(pool.state(2).healthy);
  EXPECT_EQ(pool.healthy(), 2);
  EXPECT_EQ(recorder.lost(), std::vector<std::string>{"fake:0"});
  EXPECT_EQ(controls[1]->seen().size(), 1u);
  EXPECT_GT(controls[2]->seen().size(), 50u);
}

}  // namespace
}  // namespace svdserve::server
