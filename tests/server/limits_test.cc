#include "server/limits.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace svdserve::server {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr int64_t kMiB = int64_t{1} << 20, kGiB = int64_t{1} << 30;

Machine machine_of(int64_t memory_bytes, int64_t cores = 2, int64_t pids = Resource::kUnlimited) {
  return {{memory_bytes, "physical memory"}, {cores, "sched_getaffinity"}, {pids, "pids.max"}};
}

Config config_of(const std::vector<std::string>& arguments) {
  const ConfigOutcome outcome = read_config(arguments, [](const char*) -> const char* { return nullptr; });
  EXPECT_EQ(outcome.action, ConfigOutcome::Action::kServe) << outcome.text;
  return outcome.config;
}

MemoryLimits limits_of(int64_t memory_bytes, int gpus, const std::vector<std::string>& arguments = {}) {
  return resolve_memory(config_of(arguments), machine_of(memory_bytes), gpus);
}

struct Expected {
  int64_t memory;
  int gpus;
  int64_t inflight, quota, pinned, large;
};

TEST(Limits, FollowTheMachine) {
  const Expected table[] = {
      {512 * kMiB, 0, 128 * kMiB, 192 * kMiB, 0, 32 * kMiB},
      {2 * kGiB, 0, 512 * kMiB, 640 * kMiB, 0, 320 * kMiB},
      {2560 * kMiB, 0, 640 * kMiB, 768 * kMiB, 0, 448 * kMiB},
      {24 * kGiB, 0, 3 * kGiB, 3200 * kMiB, 0, 9024 * kMiB},
      {560 * kGiB, 0, 4 * kGiB, 4224 * kMiB, 0, 282432 * kMiB},
      {128 * kGiB, 1, 4 * kGiB, 4224 * kMiB, 4 * kGiB, 58944 * kMiB},
      {560 * kGiB, 8, 32 * kGiB, 32896 * kMiB, 32 * kGiB, 235328 * kMiB},
  };
  for (const Expected& e : table) {
    const MemoryLimits limits = limits_of(e.memory, e.gpus);
    EXPECT_EQ(limits.max_inflight_bytes.value / kMiB, e.inflight / kMiB) << e.memory;
    EXPECT_EQ(limits.memory_quota_bytes.value / kMiB, e.quota / kMiB) << e.memory;
    EXPECT_EQ(limits.cuda_pinned_bytes.value / kMiB, e.pinned / kMiB) << e.memory;
    EXPECT_EQ(limits.max_large_bytes.value / kMiB, e.large / kMiB) << e.memory;
    EXPECT_LT(limits.sum(), e.memory);
  }
}

TEST(Limits, WindowsOfWaitingCallsAreAQuarterOfTheInflightBytes) {
  EXPECT_EQ(limits_of(24 * kGiB, 0).call_window_bytes.value, 64 << 10);
  EXPECT_EQ(limits_of(24 * kGiB, 0).max_waiting(), 12288);
  EXPECT_EQ(limits_of(24 * kGiB, 0, {"--max-inflight-bytes=64MiB"}).max_waiting(), 256);
  // At least some, whatever is given.
  EXPECT_EQ(limits_of(24 * kGiB, 0, {"--max-inflight-bytes=64MiB", "--call-window-bytes=64MiB"}).max_waiting(), 16);
  EXPECT_EQ(limits_of(128 * kGiB, 1).call_window_bytes.value, 2304 << 10);
  EXPECT_EQ(limits_of(128 * kGiB, 1).max_waiting(), 455);
  EXPECT_EQ(limits_of(128 * kGiB, 1, {"--call-window-bytes=64KiB"}).max_waiting(), 16384);
}

TEST(Limits, TogetherStayBelowTheMemory) {
  for (const int gpus : {0, 1, 4, 8}) {
    for (int64_t memory = (gpus == 0 ? 512 : 2048) * kMiB; memory < 1024 * kGiB; memory = memory * 9 / 8) {
      const MemoryLimits limits = limits_of(memory, gpus);
      EXPECT_LT(limits.sum(), memory) << memory << " bytes, " << gpus << " GPUs";
      EXPECT_THAT(warnings(machine_of(memory), resolve_workers(config_of({}), machine_of(memory)), limits, gpus),
                  IsEmpty());
    }
  }
}

// As the checks of limits that are given ask for.
TEST(Limits, NeverContradictWhatIsGiven) {
  for (const int64_t memory : {256 * kMiB, 512 * kMiB, 4 * kGiB, 24 * kGiB, 560 * kGiB}) {
    for (const int gpus : {0, 8}) {
      const MemoryLimits limits = limits_of(memory, gpus, {"--max-message-bytes=2047MiB", "--max-batch-bytes=5GiB"});
      EXPECT_GE(limits.max_inflight_bytes.value, 5 * kGiB);
      EXPECT_GE(limits.memory_quota_bytes.value, 2 * 2047 * kMiB);
      EXPECT_GE(limits.max_large_bytes.value, kMiB);
    }
  }
}

TEST(Limits, OthersFollowWhatIsGiven) {
  const MemoryLimits limits = limits_of(24 * kGiB, 1, {"--max-inflight-bytes=2GiB"});
  EXPECT_EQ(limits.max_inflight_bytes.reason, "given by --max-inflight-bytes");
  EXPECT_EQ(limits.memory_quota_bytes.value, 2 * kGiB + 128 * kMiB);
  EXPECT_EQ(limits.cuda_pinned_bytes.value, 2 * kGiB);
  const MemoryLimits all =
      limits_of(24 * kGiB, 1, {"--memory-quota-bytes=1GiB", "--cuda-pinned-bytes=0", "--max-large-bytes=7GiB"});
  EXPECT_EQ(all.memory_quota_bytes.value, kGiB);
  EXPECT_EQ(all.cuda_pinned_bytes.value, 0);
  EXPECT_EQ(all.max_large_bytes.value, 7 * kGiB);
  EXPECT_EQ(limits_of(24 * kGiB, 0, {"--cuda-pinned-bytes=1GiB"}).cuda_pinned_bytes.value, 0);
}

TEST(Limits, ReasonsAreThoseOfTheRuleThatDecided) {
  EXPECT_EQ(limits_of(24 * kGiB, 0).max_inflight_bytes.reason, "an eighth of memory");
  EXPECT_EQ(limits_of(560 * kGiB, 8).max_inflight_bytes.reason, "4GiB for each of 8 GPUs");
  EXPECT_EQ(limits_of(2 * kGiB, 0).max_inflight_bytes.reason, "1GiB, or a quarter of memory where that is less");
  EXPECT_EQ(limits_of(2 * kGiB, 1, {"--max-message-bytes=1GiB"}).max_inflight_bytes.reason,
            "twice --max-message-bytes");
  EXPECT_EQ(limits_of(512 * kMiB, 0).memory_quota_bytes.reason, "three eighths of memory");
}

TEST(Limits, WorkersFollowCoresAndMemory) {
  WorkerLimits workers = resolve_workers(config_of({}), machine_of(24 * kGiB, 3));
  EXPECT_EQ(workers.threads.value, 3);
  EXPECT_EQ(workers.threads.reason, "cores by sched_getaffinity");
  EXPECT_EQ(workers.large_threads.value, 3);
  EXPECT_EQ(workers.cuda_lanes.value, 4);
  workers = resolve_workers(config_of({"--threads=5", "--cuda-lanes=4"}), machine_of(kGiB, 10000));
  EXPECT_EQ(workers.threads.value, 5);
  EXPECT_EQ(workers.large_threads.value, 5);
  EXPECT_EQ(workers.cuda_lanes.value, 4);
  workers = resolve_workers(config_of({"--large-threads=1"}), machine_of(kGiB, 10000));
  EXPECT_EQ(workers.threads.value, kMostThreads);
  EXPECT_EQ(workers.large_threads.value, 1);
  EXPECT_EQ(workers.cuda_lanes.value, 1);
}

TEST(Limits, WhatTheMachineCannotKeepIsWarnedOf) {
  const Config config = config_of({"--max-inflight-bytes=20GiB", "--memory-quota-bytes=6GiB", "--threads=100"});
  const Machine machine = machine_of(24 * kGiB, 2, 150);
  const WorkerLimits workers = resolve_workers(config, machine);
  EXPECT_THAT(warnings(machine, workers, resolve_memory(config, machine, 0), 0),
              ElementsAre(HasSubstr("--max-inflight-bytes"), HasSubstr("pids.max allows 150")));
}

TEST(Limits, TheSmallestLargeMatrixFitsADefaultServer) {
  const auto engine = make_host_large_engine(2);
  EXPECT_GT(least_large_bytes(*engine), kMiB);
  EXPECT_LT(least_large_bytes(*engine), limits_of(512 * kMiB, 0).max_large_bytes.value);
}

}  // namespace
}  // namespace svdserve::server
