#include "server/limits.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/planner.h"

namespace svdserve::server {
namespace {

constexpr int64_t kKiB = int64_t{1} << 10, kMiB = int64_t{1} << 20, kGiB = int64_t{1} << 30;

int64_t whole_mib(int64_t bytes) { return std::max<int64_t>(bytes / kMiB, 1) * kMiB; }

void at_most(int64_t bound, std::string reason, Limit* limit) {
  if (limit->value > bound) *limit = {limit->flag, bound, std::move(reason)};
}

void at_least(int64_t bound, std::string reason, Limit* limit) {
  if (limit->value < bound) *limit = {limit->flag, bound, std::move(reason)};
}

Limit given_or(std::optional<int64_t> given, Limit derived) {
  if (given) return {derived.flag, *given, absl::StrCat("given by --", derived.flag)};
  return derived;
}

Limit derive_inflight(const Config& config, int64_t memory, int gpus) {
  Limit limit{"max-inflight-bytes", whole_mib(memory / 8), "an eighth of memory"};
  if (gpus > 0) {
    at_most(4 * kGiB * gpus, absl::StrCat("4GiB for each of ", gpus, " GPUs"), &limit);
  } else {
    at_most(4 * kGiB, "4GiB without a GPU", &limit);
    at_least(std::min(kGiB, whole_mib(memory / 4)), "1GiB, or a quarter of memory where that is less", &limit);
  }
  at_least(2 * config.max_message_bytes, "twice --max-message-bytes", &limit);
  at_least(config.max_batch_bytes, "as --max-batch-bytes", &limit);
  return limit;
}

Limit derive_quota(const Config& config, int64_t memory, int64_t inflight) {
  Limit limit{"memory-quota-bytes", inflight + 2 * config.max_message_bytes,
              "--max-inflight-bytes and twice --max-message-bytes"};
  at_most(whole_mib(memory / 8 * 3), "three eighths of memory", &limit);
  at_least(2 * config.max_message_bytes, "twice --max-message-bytes", &limit);
  return limit;
}

// A message that exceeds the window costs a round trip. gRPC also sends an update of its own for each message of more
// than half a window. On two cores neither is measurable. A GPU computes 1 MiB faster than it is received, so there the
// window is twice that and some.
Limit derive_window(int gpus) {
  if (gpus > 0) return {"call-window-bytes", 2304 * kKiB, "with a GPU messages of 1MiB need no update of the window"};
  return {"call-window-bytes", 64 * kKiB, "the smallest; without a GPU larger ones gain nothing"};
}

Limit derive_pinned(int64_t memory, int64_t inflight) {
  Limit limit{"cuda-pinned-bytes", inflight, "as --max-inflight-bytes"};
  at_most(whole_mib(memory / 8), "an eighth of memory", &limit);
  return limit;
}

Limit derive_large(int64_t memory, int64_t others) {
  return {"max-large-bytes", whole_mib((memory - others) / 2), "half of the memory that the other limits leave"};
}

}  // namespace

WorkerLimits resolve_workers(const Config& config, const Machine& machine) {
  WorkerLimits out;
  out.threads = given_or(config.threads, {"threads", std::min(machine.cores.amount, kMostThreads),
                                          absl::StrCat("cores by ", machine.cores.source)});
  out.large_threads = given_or(config.large_threads, {"large-threads", out.threads.value, "as --threads"});
  const bool small = machine.memory_bytes.amount < 4 * kGiB;
  out.cuda_lanes = given_or(config.cuda_lanes,
                            {"cuda-lanes", small ? 1 : 4, small ? "memory below 4GiB" : "copies overlap kernels"});
  return out;
}

MemoryLimits resolve_memory(const Config& config, const Machine& machine, int gpus) {
  const int64_t memory = machine.memory_bytes.amount;
  MemoryLimits out;
  out.process_bytes = std::min(memory / 4, 256 * kMiB + 512 * kMiB * gpus);
  out.max_inflight_bytes = given_or(config.max_inflight_bytes, derive_inflight(config, memory, gpus));
  const int64_t inflight = out.max_inflight_bytes.value;
  out.memory_quota_bytes = given_or(config.memory_quota_bytes, derive_quota(config, memory, inflight));
  out.call_window_bytes = given_or(config.call_window_bytes, derive_window(gpus));
  out.cuda_pinned_bytes = gpus > 0 ? given_or(config.cuda_pinned_bytes, derive_pinned(memory, inflight))
                                   : Limit{"cuda-pinned-bytes", 0, "no GPU"};
  const int64_t others = out.process_bytes + inflight + out.memory_quota_bytes.value + out.cuda_pinned_bytes.value;
  out.max_large_bytes = given_or(config.max_large_bytes, derive_large(memory, others));
  return out;
}

int64_t MemoryLimits::max_waiting() const {
  constexpr int64_t kFewest = 16;
  return std::max(max_inflight_bytes.value / 4 / call_window_bytes.value, kFewest);
}

int64_t MemoryLimits::sum() const {
  return process_bytes + max_inflight_bytes.value + memory_quota_bytes.value + cuda_pinned_bytes.value +
         max_large_bytes.value;
}

std::vector<std::string> warnings(const Machine& machine, const WorkerLimits& workers, const MemoryLimits& memory,
                                  int gpus) {
  std::vector<std::string> out;
  if (memory.sum() > machine.memory_bytes.amount) {
    out.push_back(absl::StrCat("the limits allow ", memory.sum(),
                               " bytes (--max-inflight-bytes + --memory-quota-bytes + --cuda-pinned-bytes + ",
                               "--max-large-bytes + ", memory.process_bytes,
                               " for the process), but the process may use ", machine.memory_bytes.amount, " (",
                               machine.memory_bytes.source, "): lower one of them or give it more memory"));
  }
  // Pools of threads for kernels and for gRPC, the lanes and lines of each GPU, and the server's own.
  constexpr int64_t kOwnThreads = 32;
  const int64_t threads = workers.threads.value + workers.large_threads.value + 4 * machine.cores.amount +
                          gpus * (workers.cuda_lanes.value + 1) + kOwnThreads;
  if (threads > machine.pids.amount) {
    out.push_back(absl::StrCat("the server may need ", threads, " threads, but ", machine.pids.source, " allows ",
                               machine.pids.amount, ": raise it or lower --threads"));
  }
  return out;
}

int64_t least_large_bytes(const LargeEngine& engine) {
  const int64_t order = kShapeLimits.max_values + 1;
  LargeOptions options;
  options.vectors = Vectors::kNone;
  const LargePlanOrError planned = plan_large({order, order, DType::kF32, Order::kRowMajor}, options);
  if (!planned.plan) return 0;
  return static_cast<int64_t>(planned.plan->operand_bytes() + planned.plan->values_bytes() +
                              engine.memory(*planned.plan).host_bytes);
}

}  // namespace svdserve::server
