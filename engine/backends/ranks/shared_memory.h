// Memory that a leader and its ranks reach: a file without a name, or what a kind of ranks has for it.
#ifndef SVDSERVE_ENGINE_BACKENDS_RANKS_SHARED_MEMORY_H_
#define SVDSERVE_ENGINE_BACKENDS_RANKS_SHARED_MEMORY_H_

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "engine/backends/ranks/rank_socket.h"

namespace svdserve::ranks {

// How a rank opens it: by the descriptor, or by the handle where there is none.
using MemoryHandle = std::array<char, 64>;

struct SharedBlock {
  std::shared_ptr<void> memory;  // as the leader reaches it
  uint64_t bytes = 0;
  std::shared_ptr<Descriptor> file;
  MemoryHandle handle{};
};

// Zeros, on the host. Throws std::bad_alloc, also where RLIMIT_FSIZE allows no such file.
SharedBlock share_host_memory(uint64_t bytes);
// The memory of such a block's descriptor in a rank. Throws std::bad_alloc.
std::shared_ptr<void> map_host_memory(const Descriptor& file, uint64_t bytes);

// The blocks of one matrix. Thread safe.
class SharedMemories {
 public:
  using Allocate = std::function<SharedBlock(uint64_t bytes)>;
  explicit SharedMemories(Allocate allocate) : allocate_(std::move(allocate)) {}

  std::shared_ptr<void> allocate(uint64_t bytes);
  struct Place {
    uint64_t number = 0;  // of the block, never used twice
    uint64_t offset = 0;  // of the address, in bytes
    SharedBlock block;
  };
  // The place of an address in a block whose memory is held. Throws large::LargeStop where there is none.
  Place find(const void* address) const;

 private:
  struct Entry {
    uint64_t number = 0;
    std::weak_ptr<void> memory;
    SharedBlock block;  // without its memory
    const char* first = nullptr;
  };

  const Allocate allocate_;
  mutable std::mutex mutex_;
  std::vector<Entry> entries_;
  uint64_t next_number_ = 1;
};

}  // namespace svdserve::ranks
#endif  // SVDSERVE_ENGINE_BACKENDS_RANKS_SHARED_MEMORY_H_
