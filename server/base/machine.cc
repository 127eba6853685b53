#include "server/base/machine.h"

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"

namespace svdserve::server {
namespace {

constexpr const char* kRoot = "/sys/fs/cgroup";

// One line of /proc/self/cgroup: "5:cpu,cpuacct:/path", or "0::/path" for version 2.
struct Membership {
  std::string controllers;
  std::string path;
};

std::vector<Membership> memberships(const ReadFile& read) {
  std::vector<Membership> out;
  const std::optional<std::string> text = read("/proc/self/cgroup");
  for (const absl::string_view line : absl::StrSplit(text.value_or(""), '\n', absl::SkipEmpty())) {
    const std::vector<std::string> parts = absl::StrSplit(line, absl::MaxSplits(':', 2));
    if (parts.size() == 3 && absl::StartsWith(parts[2], "/")) out.push_back({parts[1], parts[2]});
  }
  return out;
}

// The directories of a group and of all groups above it. The last is `mount` itself: a container may see its own group
// there, although /proc/self/cgroup shows a path of the host.
void append_directories(const std::string& mount, std::string path, std::vector<std::string>* out) {
  if (absl::StrContains(path, "..")) path.clear();  // the group is outside of what this process sees
  while (path.size() > 1) {
    out->push_back(mount + path);
    path.resize(path.rfind('/'));
  }
  out->push_back(mount);
}

// Where limits of `controller` may stand: "memory", "cpu" or "pids".
std::vector<std::string> directories(const std::vector<Membership>& memberships, const std::string& controller) {
  std::vector<std::string> out;
  for (const Membership& membership : memberships) {
    if (membership.controllers.empty()) {
      append_directories(kRoot, membership.path, &out);
      append_directories(absl::StrCat(kRoot, "/unified"), membership.path, &out);
      continue;
    }
    const std::vector<std::string> names = absl::StrSplit(membership.controllers, ',');
    if (std::find(names.begin(), names.end(), controller) == names.end()) continue;
    append_directories(absl::StrCat(kRoot, "/", controller), membership.path, &out);
    append_directories(absl::StrCat(kRoot, "/", membership.controllers), membership.path, &out);
  }
  return out;
}

// A positive whole number. "max", -1 and everything else set no limit.
std::optional<int64_t> number(const std::optional<std::string>& text) {
  int64_t value = 0;
  if (!text || !absl::SimpleAtoi(absl::StripAsciiWhitespace(*text), &value) || value <= 0) return std::nullopt;
  return value;
}

std::optional<int64_t> cores_of(std::optional<int64_t> quota, std::optional<int64_t> period) {
  if (!quota || !period) return std::nullopt;
  return *quota / *period + (*quota % *period != 0 ? 1 : 0);
}

// "200000 100000": microseconds of processor time in each period.
std::optional<int64_t> cores_of_cpu_max(const std::optional<std::string>& text) {
  if (!text) return std::nullopt;
  const std::vector<std::string> parts =
      absl::StrSplit(absl::StripAsciiWhitespace(*text), absl::ByAnyChar(" \t"), absl::SkipEmpty());
  if (parts.size() != 2) return std::nullopt;
  return cores_of(number(parts[0]), number(parts[1]));
}

void lower(std::optional<int64_t> limit, const std::string& source, Resource* resource) {
  if (limit && *limit < resource->amount) *resource = {*limit, source};
}

std::optional<std::string> read_text(const std::string& path) {
  std::ifstream file(path);
  if (!file) return std::nullopt;
  return std::string(std::istreambuf_iterator<char>(file), {});
}

Resource cores_of_affinity() {
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  // Fails on a machine of more than 1024 cores.
  if (sched_getaffinity(0, sizeof allowed, &allowed) == 0) return {CPU_COUNT(&allowed), "sched_getaffinity"};
  return {std::max<int64_t>(std::thread::hardware_concurrency(), 1), "cores of the machine"};
}

}  // namespace

Machine read_machine(Resource memory_bytes, Resource cores, const ReadFile& read) {
  Machine machine{std::move(memory_bytes), std::move(cores), {Resource::kUnlimited, "no limit"}};
  const std::vector<Membership> groups = memberships(read);
  for (const std::string& directory : directories(groups, "memory")) {
    for (const char* name : {"/memory.max", "/memory.limit_in_bytes"}) {
      lower(number(read(directory + name)), directory + name, &machine.memory_bytes);
    }
  }
  for (const std::string& directory : directories(groups, "cpu")) {
    lower(cores_of_cpu_max(read(directory + "/cpu.max")), directory + "/cpu.max", &machine.cores);
    const std::string quota = directory + "/cpu.cfs_quota_us";
    lower(cores_of(number(read(quota)), number(read(directory + "/cpu.cfs_period_us"))), quota, &machine.cores);
  }
  for (const std::string& directory : directories(groups, "pids")) {
    lower(number(read(directory + "/pids.max")), directory + "/pids.max", &machine.pids);
  }
  return machine;
}

Machine this_machine() {
  const int64_t bytes = int64_t{sysconf(_SC_PHYS_PAGES)} * sysconf(_SC_PAGESIZE);
  return read_machine({bytes, "physical memory"}, cores_of_affinity(), read_text);
}

}  // namespace svdserve::server
