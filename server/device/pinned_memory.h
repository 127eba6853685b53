// Pinned memory for the operands of requests: blocks of powers of two, kept for the next request, because to pin costs
// more than to copy. Small blocks, and those that would exceed the limit, come from the heap; the device copies them.
#ifndef SVDSERVE_SERVER_DEVICE_PINNED_MEMORY_H_
#define SVDSERVE_SERVER_DEVICE_PINNED_MEMORY_H_

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "server/base/host_memory.h"
#include "server/base/mutex.h"

namespace svdserve::server {

class PinnedMemory final : public HostMemory {
 public:
  // Pins so many bytes; null where that cannot be.
  using Pin = std::function<std::shared_ptr<void>(size_t bytes)>;
  // limit: bytes that are ever pinned at once. Tests give their own `pin`; null: CUDA's.
  explicit PinnedMemory(int64_t limit, Pin pin = nullptr);

  HostBlock allocate(size_t bytes) override;

  struct Usage {
    int64_t in_use;  // bytes of blocks that somebody has
    int64_t kept;    // bytes of those that wait for the next request
    int64_t limit;   // of both together
  };
  Usage usage() const;

 private:
  static constexpr int kSmallestClass = 18;  // 2^18: below, engine/cuda_engine.h copies anyway
  static constexpr int kClasses = 14;

  void free(void* data, size_t bytes) override;

  const int64_t limit_;
  const Pin pin_;
  mutable Mutex mu_;
  int64_t pinned_ ABSL_GUARDED_BY(mu_) = 0;
  int64_t kept_ ABSL_GUARDED_BY(mu_) = 0;  // of these, what lies in free_
  std::array<std::vector<std::shared_ptr<void>>, kClasses> free_ ABSL_GUARDED_BY(mu_);
  absl::flat_hash_map<void*, std::shared_ptr<void>> used_ ABSL_GUARDED_BY(mu_);
};

}  // namespace svdserve::server
#endif  // SVDSERVE_SERVER_DEVICE_PINNED_MEMORY_H_
