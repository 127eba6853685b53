#include "server/base/machine.h"

#include <gtest/gtest.h>

#include <map>

namespace svdserve::server {
namespace {

constexpr int64_t kGiB = int64_t{1} << 30;

using Files = std::map<std::string, std::string>;

Machine read(const Files& files, int64_t memory_bytes = 64 * kGiB, int64_t cores = 16) {
  return read_machine({memory_bytes, "physical memory"}, {cores, "affinity"},
                      [&](const std::string& path) -> std::optional<std::string> {
                        const auto found = files.find(path);
                        if (found == files.end()) return std::nullopt;
                        return found->second;
                      });
}

TEST(Machine, WithoutControlGroupsItIsAllThereIs) {
  for (const Files& files : {Files{}, Files{{"/proc/self/cgroup", "0::/\n"}}, Files{{"/proc/self/cgroup", ""}}}) {
    const Machine machine = read(files);
    EXPECT_EQ(machine.memory_bytes.amount, 64 * kGiB);
    EXPECT_EQ(machine.memory_bytes.source, "physical memory");
    EXPECT_EQ(machine.cores.amount, 16);
    EXPECT_EQ(machine.cores.source, "affinity");
    EXPECT_EQ(machine.pids.amount, Resource::kUnlimited);
  }
}

TEST(Machine, TheSmallestLimitOfNestedGroupsCounts) {
  const Machine machine = read({{"/proc/self/cgroup", "0::/kubepods.slice/pod1/box\n"},
                                {"/sys/fs/cgroup/kubepods.slice/pod1/box/memory.max", "max\n"},
                                {"/sys/fs/cgroup/kubepods.slice/pod1/memory.max", "2684354560\n"},
                                {"/sys/fs/cgroup/kubepods.slice/memory.max", "34359738368\n"},
                                {"/sys/fs/cgroup/kubepods.slice/pod1/box/cpu.max", "250000 100000\n"},
                                {"/sys/fs/cgroup/kubepods.slice/pod1/cpu.max", "max 100000\n"},
                                {"/sys/fs/cgroup/kubepods.slice/cpu.max", "800000 100000\n"},
                                {"/sys/fs/cgroup/kubepods.slice/pids.max", "100\n"},
                                {"/sys/fs/cgroup/kubepods.slice/pod1/pids.max", "max\n"}});
  EXPECT_EQ(machine.memory_bytes.amount, 2684354560);
  EXPECT_EQ(machine.memory_bytes.source, "/sys/fs/cgroup/kubepods.slice/pod1/memory.max");
  EXPECT_EQ(machine.cores.amount, 3);  // two and a half
  EXPECT_EQ(machine.cores.source, "/sys/fs/cgroup/kubepods.slice/pod1/box/cpu.max");
  EXPECT_EQ(machine.pids.amount, 100);
  EXPECT_EQ(machine.pids.source, "/sys/fs/cgroup/kubepods.slice/pids.max");
}

TEST(Machine, AContainerSeesItsOwnGroupAtTheRoot) {
  for (const char* membership : {"0::/\n", "0::/docker/0123\n", "0::/../../box\n"}) {
    const Machine machine = read({{"/proc/self/cgroup", membership}, {"/sys/fs/cgroup/memory.max", "1073741824"}});
    EXPECT_EQ(machine.memory_bytes.amount, kGiB) << membership;
  }
}

TEST(Machine, VersionOneIsReadToo) {
  const Machine machine =
      read({{"/proc/self/cgroup", "9:name=systemd:/\n8:pids:/box\n4:memory:/a/b\n2:cpu,cpuacct:/box\n0::/\n"},
            {"/sys/fs/cgroup/memory/a/b/memory.limit_in_bytes", "9223372036854771712\n"},
            {"/sys/fs/cgroup/memory/a/memory.limit_in_bytes", "4294967296\n"},
            {"/sys/fs/cgroup/cpu,cpuacct/box/cpu.cfs_quota_us", "400000\n"},
            {"/sys/fs/cgroup/cpu,cpuacct/box/cpu.cfs_period_us", "100000\n"},
            {"/sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us", "-1\n"},
            {"/sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us", "100000\n"},
            {"/sys/fs/cgroup/pids/box/pids.max", "512\n"}});
  EXPECT_EQ(machine.memory_bytes.amount, 4 * kGiB);
  EXPECT_EQ(machine.memory_bytes.source, "/sys/fs/cgroup/memory/a/memory.limit_in_bytes");
  EXPECT_EQ(machine.cores.amount, 4);
  EXPECT_EQ(machine.cores.source, "/sys/fs/cgroup/cpu,cpuacct/box/cpu.cfs_quota_us");
  EXPECT_EQ(machine.pids.amount, 512);
}

TEST(Machine, BothVersionsAtOnce) {
  const Machine machine = read({{"/proc/self/cgroup", "4:memory:/m\n0::/u\n"},
                                {"/sys/fs/cgroup/memory/m/memory.limit_in_bytes", "8589934592\n"},
                                {"/sys/fs/cgroup/unified/u/memory.max", "4294967296\n"}});
  EXPECT_EQ(machine.memory_bytes.amount, 4 * kGiB);
}

TEST(Machine, GarbageSetsNoLimit) {
  for (const char* text : {"", "garbage", "-5", "0", "99999999999999999999999", "1 2 3", "0 0", "100 0", "- -"}) {
    const Machine machine = read({{"/proc/self/cgroup", "garbage\n::\n0\n0:relative\n0::/a//b/\n"},
                                  {"/sys/fs/cgroup/memory.max", text},
                                  {"/sys/fs/cgroup/cpu.max", text},
                                  {"/sys/fs/cgroup/pids.max", text}});
    EXPECT_EQ(machine.memory_bytes.source, "physical memory") << text;
    EXPECT_EQ(machine.cores.amount, 16) << text;
    EXPECT_EQ(machine.pids.amount, Resource::kUnlimited) << text;
  }
}

TEST(Machine, ThisOneHasMemoryAndCores) {
  const Machine machine = this_machine();
  EXPECT_GT(machine.memory_bytes.amount, 0);
  EXPECT_NE(machine.memory_bytes.source, "");
  EXPECT_GE(machine.cores.amount, 1);
  EXPECT_GE(machine.pids.amount, 1);
}

}  // namespace
}  // namespace svdserve::server
