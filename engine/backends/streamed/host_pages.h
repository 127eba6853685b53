// Memory of the host for whole matrices: pages that the system gives when they are touched.
#ifndef SVDSERVE_ENGINE_BACKENDS_STREAMED_HOST_PAGES_H_
#define SVDSERVE_ENGINE_BACKENDS_STREAMED_HOST_PAGES_H_

#include <sys/mman.h>

#include <cstdint>
#include <memory>
#include <string>

#include "engine/algorithms/large/large_backend.h"

namespace svdserve {

// Zeros. They go back to the system with the last copy of the pointer. Throws LargeStop{kOutOfMemory}.
template <class E>
std::shared_ptr<E> host_pages(uint64_t bytes) {
  void* const memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) {
    throw large::LargeStop{LargeStatus::kOutOfMemory,
                           "a large matrix needs " + std::to_string(bytes) + " bytes more of the host's memory"};
  }
  (void)madvise(memory, bytes, MADV_HUGEPAGE);
  return {static_cast<E*>(memory), [bytes](E* m) { (void)munmap(m, bytes); }};
}

}  // namespace svdserve
#endif  // SVDSERVE_ENGINE_BACKENDS_STREAMED_HOST_PAGES_H_
