#include "server/device/make_devices.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "server/device/large/make_large_devices.h"
#include "tests/server/fake_device.h"

namespace svdserve::server {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// A machine with so many GPUs, of which `broken` cannot be used.
struct FakeMachine {
  int gpus = 0;
  int broken = -1;
  std::vector<CudaDeviceOptions> asked;

  CudaDevices make(const CudaDeviceOptions& options) {
    asked.push_back(options);
    CudaDevices made;
    if (gpus == 0) made.refusals.push_back("cuda: no driver: libcuda.so.1 not found");
    for (int ordinal = 0; ordinal < gpus; ++ordinal) {
      const auto& wanted = options.ordinals;
      if (!wanted.empty() && std::find(wanted.begin(), wanted.end(), ordinal) == wanted.end()) continue;
      const std::string name = "cuda:" + std::to_string(ordinal);
      if (ordinal == broken) {
        made.refusals.push_back(name + ": out of memory");
      } else {
        made.devices.push_back(
            std::make_unique<FakeDevice>(name, options.lanes, std::make_shared<FakeDeviceControl>()));
      }
    }
    return made;
  }
};

MadeDevices make_on(FakeMachine* machine, const DeviceSelection& selection) {
  DeviceOptions options;
  options.selection = selection;
  options.host_devices = 2;
  options.threads = 2;
  options.cuda_lanes = 3;
  options.cuda_slot_bytes = 1 << 20;
  return make_devices(options, [machine](const CudaDeviceOptions& o) { return machine->make(o); });
}

std::vector<std::string> names(const MadeDevices& made) {
  std::vector<std::string> names;
  for (const auto& device : made.devices) names.push_back(device->info().name);
  return names;
}

const DeviceSelection kAuto{};
const DeviceSelection kHost{false, true, false, {}};
const DeviceSelection kEveryCuda{false, false, true, {}};

TEST(MakeDevices, AutomaticIsWhateverCanBeUsed) {
  FakeMachine none, two{2, -1, {}}, two_and_a_broken_one{3, 1, {}};
  EXPECT_THAT(names(make_on(&none, kAuto)), ElementsAre("host:0", "host:1"));
  EXPECT_THAT(make_on(&none, kAuto).refusals, ElementsAre(HasSubstr("libcuda")));
  EXPECT_EQ(make_on(&none, kAuto).error, "");
  EXPECT_THAT(names(make_on(&two, kAuto)), ElementsAre("cuda:0", "cuda:1", "host:0", "host:1"));
  EXPECT_THAT(names(make_on(&two_and_a_broken_one, kAuto)), ElementsAre("cuda:0", "cuda:2", "host:0", "host:1"));
  EXPECT_THAT(make_on(&two_and_a_broken_one, kAuto).refusals, ElementsAre("cuda:1: out of memory"));
  EXPECT_THAT(two.asked[0].ordinals, IsEmpty());
  EXPECT_EQ(two.asked[0].lanes, 3);
  EXPECT_EQ(two.asked[0].slot_bytes, 1 << 20);
}

TEST(MakeDevices, HostAloneAsksForNoGpu) {
  FakeMachine two{2, -1, {}};
  EXPECT_THAT(names(make_on(&two, kHost)), ElementsAre("host:0", "host:1"));
  EXPECT_THAT(two.asked, IsEmpty());
}

TEST(MakeDevices, WhatIsNamedMustBeThere) {
  FakeMachine none, two{2, -1, {}}, broken{2, 1, {}};
  EXPECT_THAT(names(make_on(&two, kEveryCuda)), ElementsAre("cuda:0", "cuda:1"));
  EXPECT_THAT(names(make_on(&broken, kEveryCuda)), ElementsAre("cuda:0"));
  EXPECT_THAT(names(make_on(&two, {false, true, false, {1}})), ElementsAre("cuda:1", "host:0", "host:1"));
  const MadeDevices nothing = make_on(&none, kEveryCuda);
  EXPECT_THAT(nothing.devices, IsEmpty());
  EXPECT_EQ(nothing.error, "--devices names cuda, which cannot be used: cuda: no driver: libcuda.so.1 not found");
  EXPECT_THAT(make_on(&broken, {false, true, false, {0, 1}}).error, HasSubstr("names cuda:1, which"));
  EXPECT_THAT(make_on(&two, {false, true, false, {0, 5, 7}}).error, HasSubstr("names cuda:5,cuda:7, which"));
}

TEST(MakeFactorDevices, GpusComeFirstAndTheHostAlways) {
  std::vector<DeviceInfo> infos(4);
  for (int i = 0; i < 3; ++i) {
    infos[i].name = "cuda:" + std::to_string(i + 1);
    infos[i].kind = DeviceKind::kCuda;
    infos[i].ordinal = i + 1;
    infos[i].memory_bytes = 1000;
  }
  infos[3].name = "host:0";
  std::vector<int> asked;
  const auto cuda = [&asked](int ordinal, CudaStatus* status) -> std::unique_ptr<LargeEngine> {
    asked.push_back(ordinal);
    if (ordinal != 2) return make_host_large_engine(1);
    *status = {801, "libcusolver.so.12 is missing", false};
    return nullptr;
  };
  const MadeLargeDevices made = make_large_devices(infos, 1, LargeGpus::kOne, cuda);
  EXPECT_THAT(asked, ElementsAre(1, 2, 3));
  EXPECT_THAT(made.refusals, ElementsAre("cuda:2 computes no large matrices: libcusolver.so.12 is missing"));
  ASSERT_EQ(made.devices.size(), 3u);
  EXPECT_EQ(made.devices[0].name, "cuda:1");
  EXPECT_EQ(made.devices[0].memory_bytes, 900);
  EXPECT_EQ(made.devices[1].name, "cuda:3");
  EXPECT_EQ(made.devices[2].name, "host:0");
  EXPECT_EQ(made.devices[2].memory_bytes, 0);
}

}  // namespace
}  // namespace svdserve::server
