// CPU time and memory of a process, from /proc.
#ifndef SVDSERVE_CLIENT_CLI_LOAD_PROCESS_USAGE_H_
#define SVDSERVE_CLIENT_CLI_LOAD_PROCESS_USAGE_H_

#include <sys/types.h>

#include <cstdint>
#include <optional>

namespace svdserve::cli {

struct ProcessUsage {
  double cpu_seconds = 0;  // user and system, all threads
  int64_t rss_bytes = 0;   // resident
};

// Nothing where there is no such process, or it may not be looked at.
std::optional<ProcessUsage> process_usage(pid_t pid);

}  // namespace svdserve::cli
#endif  // SVDSERVE_CLIENT_CLI_LOAD_PROCESS_USAGE_H_
