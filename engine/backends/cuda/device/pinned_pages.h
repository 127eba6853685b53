// Pinned memory of the host on pages of its own, which the calling thread touches before they are pinned.
//
// cudaHostAlloc() touches pages inside the driver, one thread after the other, and launches of others wait. Here threads
// touch huge pages at the same time, and the driver only pins them. BENCHMARKS.md has the first requests of 64 callers,
// which pin 3.5 GiB.
#ifndef SVDSERVE_ENGINE_BACKENDS_CUDA_DEVICE_PINNED_PAGES_H_
#define SVDSERVE_ENGINE_BACKENDS_CUDA_DEVICE_PINNED_PAGES_H_

#include <cuda_runtime_api.h>
#include <sys/mman.h>

#include <cstddef>
#include <cstdint>

namespace svdserve::cuda {

// Lies before the memory.
struct PinnedHead {
  void* mapping;  // null: of cudaHostAlloc(), kPinnedPage before the memory
  size_t mapped;  // bytes
};
inline constexpr uintptr_t kPinnedPage = 4096, kPinnedHugePage = uintptr_t{2} << 20;

constexpr uintptr_t rounded_up(uintptr_t n, uintptr_t to) { return (n + to - 1) / to * to; }

inline PinnedHead* pinned_head(void* memory) { return static_cast<PinnedHead*>(memory) - 1; }

// For systems that do not pin pages of a program.
inline cudaError_t allocate_in_driver(uint64_t bytes, void** memory) {
  void* pages = nullptr;
  const cudaError_t error = cudaHostAlloc(&pages, bytes + kPinnedPage, cudaHostAllocPortable);
  if (error != cudaSuccess) return error;
  *memory = static_cast<char*>(pages) + kPinnedPage;
  *pinned_head(*memory) = {nullptr, 0};
  return cudaSuccess;
}

// Portable memory, aligned to a huge page. Thread-safe.
inline cudaError_t allocate_pinned_pages(uint64_t bytes, void** memory) {
  const size_t pinned = rounded_up(bytes, kPinnedPage), mapped = kPinnedHugePage + pinned;
  void* const mapping =
      mmap(nullptr, mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (mapping == MAP_FAILED) return cudaErrorMemoryAllocation;
  void* const data =
      reinterpret_cast<void*>(rounded_up(reinterpret_cast<uintptr_t>(mapping) + sizeof(PinnedHead), kPinnedHugePage));
  *pinned_head(data) = {mapping, mapped};
  (void)madvise(data, pinned, MADV_HUGEPAGE);        // where it cannot be, small pages do
  (void)madvise(data, pinned, MADV_DONTFORK);        // a child's copy would take the place of what the device writes to
  (void)madvise(data, pinned, MADV_POPULATE_WRITE);  // an older kernel touches them as they are pinned
  if (cudaHostRegister(data, pinned, cudaHostRegisterPortable) == cudaSuccess) {
    *memory = data;
    return cudaSuccess;
  }
  (void)munmap(mapping, mapped);
  (void)cudaGetLastError();  // a later launch would take it for its own
  return allocate_in_driver(bytes, memory);
}

inline cudaError_t release_pinned_pages(void* memory) {
  const PinnedHead head = *pinned_head(memory);
  if (head.mapping == nullptr) return cudaFreeHost(static_cast<char*>(memory) - kPinnedPage);
  const cudaError_t error = cudaHostUnregister(memory);
  // While they are pinned a device may write to them.
  if (error == cudaSuccess) (void)munmap(head.mapping, head.mapped);
  return error;
}

}  // namespace svdserve::cuda
#endif  // SVDSERVE_ENGINE_BACKENDS_CUDA_DEVICE_PINNED_PAGES_H_
