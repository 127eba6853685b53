// The memory, cores and threads that this process may use: those of the machine, as far as its control groups allow.
#ifndef SVDSERVE_SERVER_BASE_MACHINE_H_
#define SVDSERVE_SERVER_BASE_MACHINE_H_

#include <cstdint>
#include <functional>
#include <limits>
#include <optional>
#include <string>

namespace svdserve::server {

struct Resource {
  static constexpr int64_t kUnlimited = std::numeric_limits<int64_t>::max();
  int64_t amount = kUnlimited;
  std::string
      source;  // where the amount comes from: the file of the control group that has the smallest limit, or words
};

struct Machine {
  Resource memory_bytes;
  Resource cores;  // a part of a core counts as one
  Resource pids;   // processes and threads; often kUnlimited
};

// Reads a whole file; nothing where it cannot be read.
using ReadFile = std::function<std::optional<std::string>(const std::string& path)>;

// The part of `memory_bytes` and `cores` that control groups leave. Reads /proc/self/cgroup, and the limits of the
// process's own groups and all groups above them. Version 2 has memory.max, cpu.max and pids.max; version 1
// memory.limit_in_bytes, cpu.cfs_quota_us and pids.max. A file that is missing or holds something else sets no limit.
Machine read_machine(Resource memory_bytes, Resource cores, const ReadFile& read);

// The machine that this process runs on.
Machine this_machine();

}  // namespace svdserve::server
#endif  // SVDSERVE_SERVER_BASE_MACHINE_H_
