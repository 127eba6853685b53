// Pinned memory for the operands and results of requests. Blocks are kept for the next request, because to pin costs more
// than to copy. Small blocks, and those that would exceed the limit, come from the heap; the device copies them.
#ifndef SVDSERVE_SERVER_DEVICE_PINNED_MEMORY_H_
#define SVDSERVE_SERVER_DEVICE_PINNED_MEMORY_H_

#include <cstddef>
#include <cstdint>
#include <deque>
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

  // A block of another size makes room at the limit once it was kept for so many allocations. Blocks of a steady load
  // come back sooner.
  static constexpr int64_t kStaleAfter = 1024;

  // The bytes that are pinned for a block of kLeastPinnedBytes or more. They are quarters of a power of two, so that at
  // most a fifth is unused.
  static size_t pinned_bytes(size_t bytes);

  struct Usage {
    int64_t in_use;  // bytes of blocks that somebody has
    int64_t kept;    // bytes of those that wait for the next request
    int64_t limit;   // of both together
  };
  Usage usage() const;

 private:
  struct Pinned {
    std::shared_ptr<void> buffer;
    size_t bytes = 0;
    int64_t since = 0;  // allocations until it was last given back
  };

  void* take(size_t bytes) override;
  void give(void* data) override;
  void* take_pinned(size_t bytes);
  bool take_kept(size_t bytes, Pinned* block) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  std::vector<Pinned> remove_stale(int64_t wanted) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  bool reserve(size_t bytes) ABSL_LOCKS_EXCLUDED(mu_);

  const int64_t limit_;
  const Pin pin_;
  mutable Mutex mu_;
  int64_t allocations_ ABSL_GUARDED_BY(mu_) = 0;
  int64_t pinned_ ABSL_GUARDED_BY(mu_) = 0;
  int64_t kept_bytes_ ABSL_GUARDED_BY(mu_) = 0;                                // of these, in kept_
  absl::flat_hash_map<size_t, std::deque<Pinned>> kept_ ABSL_GUARDED_BY(mu_);  // by size; the last one is taken first
  absl::flat_hash_map<void*, Pinned> used_ ABSL_GUARDED_BY(mu_);
};

}  // namespace svdserve::server
#endif  // SVDSERVE_SERVER_DEVICE_PINNED_MEMORY_H_
