// The limits that follow the machine. An operator may give each of them; the others are derived, once, at start.
//
//   limit               derived value, for M bytes of memory and G GPUs reason
//   threads             the cores that the process may use             a control group's quota counts
//   large-threads       threads                                        one large matrix at a time
//   cuda-lanes          4; 1 where M < 4 GiB                           each lane pins memory
//   max-inflight-bytes  M / 8, at most 4 GiB a GPU (4 GiB without)     4 GiB keep a device busy
//                       without a GPU at least min(1 GiB, M / 4)       small machines serve, too
//                       at least 2 max-message-bytes, max-batch-bytes  the largest request fits
//   memory-quota-bytes  max-inflight-bytes + 2 max-message-bytes       gRPC cuts connections beyond it
//                       at most 3/8 M                                  a bound for small machines
//                       at least 2 max-message-bytes                   a single message is not dropped
//   call-window-bytes   64 KiB; with a GPU 2304 KiB                    see derive_window() in limits.cc
//   cuda-pinned-bytes   max-inflight-bytes, at most M / 8; 0 if G = 0  one copy less, each way
//   max-large-bytes     half of what all others leave of M             room for the system and the heap
//
// The process itself counts as 256 MiB and 512 MiB for each GPU, at most M / 4. From 512 MiB of memory on (2 GiB with
// GPUs) and with the default --max-message-bytes, the sum of all is below M.
#ifndef SVDSERVE_SERVER_LIMITS_H_
#define SVDSERVE_SERVER_LIMITS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "engine/large_engine.h"
#include "server/base/machine.h"
#include "server/config.h"

namespace svdserve::server {

struct Limit {
  const char* flag;  // without the dashes
  int64_t value = 0;
  std::string reason;
};

// Needed before there are devices.
struct WorkerLimits {
  Limit threads;
  Limit large_threads;
  Limit cuda_lanes;  // of each GPU
};
WorkerLimits resolve_workers(const Config& config, const Machine& machine);

struct MemoryLimits {
  Limit max_inflight_bytes;
  Limit memory_quota_bytes;
  Limit call_window_bytes;
  Limit cuda_pinned_bytes;
  Limit max_large_bytes;
  int64_t process_bytes = 0;  // what the program takes besides

  int64_t sum() const;
  // How many calls may wait for memory: their windows are at most a quarter of max-inflight-bytes, but 16 may always.
  int64_t max_waiting() const;
};
// gpus: how many devices of the server are GPUs.
MemoryLimits resolve_memory(const Config& config, const Machine& machine, int gpus);

// One sentence for each limit that this machine cannot keep.
std::vector<std::string> warnings(const Machine& machine, const WorkerLimits& workers, const MemoryLimits& memory,
                                  int gpus);

// The host's memory that the smallest matrix takes which only DecomposeLarge accepts, in bytes.
int64_t least_large_bytes(const LargeEngine& engine);

}  // namespace svdserve::server
#endif  // SVDSERVE_SERVER_LIMITS_H_
