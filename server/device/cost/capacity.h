// How many servers like this one serve a load of equal requests, and what memory each needs. Pure arithmetic.
//
//   c = t + n C b, g = G b   core-seconds and GPU-seconds of one request: t for its transport, n matrices, b the
//                            seconds a matrix takes on all devices of the kind that computes, in a full batch or as
//                            one request, whichever is less; C cores, G GPUs. Without a GPU the cores compute (g = 0); with one they do not (c = t).
//   r = u min(C / c, G / g)  requests a second of one replica whose cores, or GPUs, are utilized to the part u
//   s = T(max(1, r s))       the time of a batch in the middle: T of the requests that come meanwhile, one at least
//   l = t + s (1 + max(1, ln(100 u) / (2 (1 - u) m)))
//                            latency of 99 of 100 requests: their own batch after the one that runs, or after a
//                            backlog of random arrivals, which batches of m requests at most work off. The backlog's
//                            tail is that of heavy traffic with equal times of service, u exp(-2 (1 - u) x / s)
//                            (Kingman 1961, The single server queue in heavy traffic).
//
// u is the largest of 0.7, 0.65, ... 0.05 for which l is at most the latency asked for. Little's law gives the requests
// in flight, r l, and twice that is planned for.
#ifndef SVDSERVE_SERVER_DEVICE_COST_CAPACITY_H_
#define SVDSERVE_SERVER_DEVICE_COST_CAPACITY_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/time/time.h"

namespace svdserve::server {

// The measured costs of one device for a request, and for a full batch of such.
struct DeviceCost {
  std::string device;
  bool is_gpu = false;
  int threads = 0;  // of the host that compute; 0 for a GPU
  absl::Duration request;
  int64_t batch_matrices = 1;
  absl::Duration batch;
  bool measured = false;  // its shape ran there
};

struct Demand {
  double requests_per_second = 1;                 // > 0
  absl::Duration latency = absl::ZeroDuration();  // of 99 of 100; zero: any
};

// One request.
struct RequestSize {
  int64_t matrices = 1;       // >= 1
  int64_t operand_bytes = 0;  // of all matrices
  int64_t result_bytes = 0;
  int64_t ledger_bytes = 0;  // that admission counts
};

// The proto says more of each.
struct CapacityPlan {
  std::vector<DeviceCost> devices;
  double core_seconds = 0, gpu_seconds = 0;  // for one request
  double utilization = 0;
  absl::Duration latency;
  bool reachable = true;
  double replica_requests_per_second = 0;
  int64_t replicas = 1;
  double cores = 0, gpus = 0;
  int64_t replica_cores = 0, replica_gpus = 0;
  int64_t max_inflight_requests = 0, max_inflight_bytes = 0, max_message_bytes = 0, memory_bytes = 0;
};

// Limits of the server that asks, which a plan does not lower.
struct LeastLimits {
  int64_t message_bytes = 0;  // --max-message-bytes
  int64_t batch_bytes = 0;    // --max-batch-bytes
};

// `devices`: one at least, and with matrices in each batch.
CapacityPlan plan_capacity(std::vector<DeviceCost> devices, const RequestSize& request, const Demand& demand,
                           const LeastLimits& least);

}  // namespace svdserve::server
#endif  // SVDSERVE_SERVER_DEVICE_COST_CAPACITY_H_
