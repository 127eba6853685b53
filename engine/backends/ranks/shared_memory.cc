#include "engine/backends/ranks/shared_memory.h"

#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <new>

#include "engine/algorithms/large/large_backend.h"

namespace svdserve::ranks {

std::shared_ptr<void> map_host_memory(const Descriptor& file, uint64_t bytes) {
  void* const memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file.get(), 0);
  if (memory == MAP_FAILED) throw std::bad_alloc();
  return {memory, [bytes](void* m) { munmap(m, bytes); }};
}

SharedBlock share_host_memory(uint64_t bytes) {
  SharedBlock block;
  block.bytes = bytes > 0 ? bytes : 1;
  rlimit limit{};  // beyond it, ftruncate() is a signal that ends this process
  if (getrlimit(RLIMIT_FSIZE, &limit) != 0 || block.bytes > limit.rlim_cur) throw std::bad_alloc();
  block.file = std::make_shared<Descriptor>(memfd_create("svdserve ring", MFD_CLOEXEC));
  if (block.file->get() < 0 || ftruncate(block.file->get(), static_cast<off_t>(block.bytes)) != 0) {
    throw std::bad_alloc();
  }
  block.memory = map_host_memory(*block.file, block.bytes);
  return block;
}

std::shared_ptr<void> SharedMemories::allocate(uint64_t bytes) {
  SharedBlock block = allocate_(bytes);
  std::shared_ptr<void> memory = std::move(block.memory);
  const std::lock_guard lock(mutex_);
  std::erase_if(entries_, [](const Entry& entry) { return entry.memory.expired(); });
  entries_.push_back({next_number_++, memory, std::move(block), static_cast<const char*>(memory.get())});
  return memory;
}

SharedMemories::Place SharedMemories::find(const void* address) const {
  const std::lock_guard lock(mutex_);
  for (const Entry& entry : entries_) {
    const auto offset = static_cast<const char*>(address) - entry.first;
    if (entry.memory.expired() || offset < 0 || static_cast<uint64_t>(offset) >= entry.block.bytes) continue;
    return {entry.number, static_cast<uint64_t>(offset), entry.block};
  }
  throw large::LargeStop{LargeStatus::kFault, "these columns are in no memory that ranks reach"};
}

}  // namespace svdserve::ranks
