#include "server/device/cost/capacity.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace svdserve::server {
namespace {

// The time of the host's cores that gRPC, decoding and encoding take for a call, and for each byte of its request and
// reply. Measured by svdctl bench --server-pid over loopback. TLS takes more.
constexpr double kSecondsOfCall = 60e-6;
constexpr double kSecondsOfByte = 0.25e-9;

constexpr int kMostTwentieths = 14;  // of utilization: 0.7

constexpr int64_t kMiB = int64_t{1} << 20;

// The cores and GPUs of a replica, and their times for requests of one size.
struct Replica {
  double cores = 0, gpus = 0;                // 0 cores: the server computes on GPUs alone
  double core_seconds = 0, gpu_seconds = 0;  // of a request
  double transport = 0;                      // seconds, within core_seconds
  double devices = 1;                        // of the kind that computes
  double requests_of_batch = 1;              // at most
  double alone = 0, each = 0;                // seconds of a batch of one request, and of each more

  double rate(double utilization) const {
    double least = gpus > 0 ? gpus / gpu_seconds : cores / core_seconds;
    if (gpus > 0 && cores > 0) least = std::min(least, cores / core_seconds);
    return utilization * least;
  }
  double batch_seconds(double rate) const {
    const double busy = each * rate / devices;  // < 1, as a full batch takes longer for a request
    const double requests = busy < 1 ? (alone - each) / (1 - busy) * rate / devices : requests_of_batch;
    return alone + (std::clamp(requests, 1.0, requests_of_batch) - 1) * each;
  }
  double latency(double utilization) const {
    const double backlog = std::log(100 * utilization) / (2 * (1 - utilization) * requests_of_batch);
    return transport + batch_seconds(rate(utilization)) * (1 + std::max(1.0, backlog));
  }
};

double bytes_of(const RequestSize& r) {
  return static_cast<double>(r.operand_bytes) + static_cast<double>(r.result_bytes);
}

Replica replica_of(const std::vector<DeviceCost>& devices, const RequestSize& request) {
  const bool has_gpu = std::ranges::any_of(devices, &DeviceCost::is_gpu);
  const auto matrices = static_cast<double>(request.matrices);
  Replica replica;
  replica.devices = 0;
  replica.requests_of_batch = 1;
  double matrices_per_second = 0;
  for (const DeviceCost& d : devices) {
    replica.cores += d.threads;
    if (d.is_gpu != has_gpu) continue;
    const auto in_batch = static_cast<double>(d.batch_matrices);
    const double batch = absl::ToDoubleSeconds(d.batch);
    const double requests = std::max(1.0, in_batch / matrices);
    const double alone = in_batch < matrices ? batch * matrices / in_batch : absl::ToDoubleSeconds(d.request);
    matrices_per_second += std::max(in_batch / batch, matrices / alone);
    ++replica.devices;
    if (alone < replica.alone) continue;  // latencies are those of the slowest
    replica.requests_of_batch = requests;
    replica.alone = alone;
    replica.each = requests > 1 ? std::max(0.0, batch - alone) / (requests - 1) : 0;
  }
  const double seconds = matrices / matrices_per_second;  // of all devices
  replica.transport = kSecondsOfCall + kSecondsOfByte * bytes_of(request);
  replica.gpus = has_gpu ? replica.devices : 0;
  replica.gpu_seconds = replica.gpus * seconds;
  replica.core_seconds = replica.transport + (has_gpu ? 0 : replica.cores * seconds);
  return replica;
}

int64_t whole(double amount) { return static_cast<int64_t>(std::ceil(std::min(amount, 1e18))); }
int64_t whole_mib(double bytes) { return whole(bytes / static_cast<double>(kMiB)) * kMiB; }

// The limits of a replica with so many requests in flight, and its memory as server/limits.h reckons it.
void add_memory(const RequestSize& request, double in_flight, const LeastLimits& least, CapacityPlan* plan) {
  constexpr double kFixedOfMessage = 64 << 10;
  const double longer = static_cast<double>(std::max(request.operand_bytes, request.result_bytes)) + kFixedOfMessage;
  plan->max_message_bytes = std::max(least.message_bytes, whole_mib(longer));
  plan->max_inflight_requests = whole(in_flight);
  const auto least_bytes = static_cast<double>(std::max(2 * plan->max_message_bytes, least.batch_bytes));
  plan->max_inflight_bytes = whole_mib(std::max(in_flight * static_cast<double>(request.ledger_bytes), least_bytes));
  const int64_t process = 256 * kMiB + 512 * kMiB * plan->replica_gpus;
  const int64_t quota = plan->max_inflight_bytes + 2 * plan->max_message_bytes;
  const int64_t pinned = plan->replica_gpus > 0 ? plan->max_inflight_bytes : 0;
  plan->memory_bytes = process + plan->max_inflight_bytes + quota + pinned;
}

}  // namespace

CapacityPlan plan_capacity(std::vector<DeviceCost> devices, const RequestSize& request, const Demand& demand,
                           const LeastLimits& least) {
  const Replica replica = replica_of(devices, request);
  CapacityPlan plan;
  plan.devices = std::move(devices);
  int twentieths = kMostTwentieths;
  const double bound = absl::ToDoubleSeconds(demand.latency);
  const auto meets = [&] { return bound == 0 || replica.latency(twentieths / 20.0) <= bound; };
  while (twentieths > 1 && !meets()) --twentieths;
  plan.reachable = meets();
  plan.utilization = twentieths / 20.0;
  plan.latency = absl::Seconds(replica.latency(plan.utilization));
  plan.core_seconds = replica.core_seconds;
  plan.gpu_seconds = replica.gpu_seconds;
  plan.replica_requests_per_second = replica.rate(plan.utilization);
  plan.replicas = std::max<int64_t>(1, whole(demand.requests_per_second / plan.replica_requests_per_second));
  plan.cores = demand.requests_per_second * replica.core_seconds / plan.utilization;
  plan.gpus = demand.requests_per_second * replica.gpu_seconds / plan.utilization;
  plan.replica_gpus = whole(replica.gpus);
  const double busy_cores = plan.replica_requests_per_second * replica.core_seconds;
  plan.replica_cores = whole(replica.cores > 0 ? replica.cores : busy_cores / plan.utilization);
  const double share = demand.requests_per_second / static_cast<double>(plan.replicas);
  constexpr double kFewest = 16;  // requests in flight
  add_memory(request, std::max(kFewest, 2 * share * absl::ToDoubleSeconds(plan.latency)), least, &plan);
  return plan;
}

}  // namespace svdserve::server
