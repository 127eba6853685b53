#include "tests/support/counted_heap.h"

#include <cstddef>
#include <cstdlib>
#include <new>

namespace svdserve {
std::atomic<int64_t> live_bytes{0}, peak_bytes{0};
}  // namespace svdserve

namespace {

using svdserve::live_bytes;
using svdserve::peak_bytes;

// In front of each block lies its size, as far as it is aligned. ThreadSanitizer is not told of it. It would not see
// how oneTBB, unknown to it, hands a block from the thread that took it to the one that frees it.
__attribute__((no_sanitize("thread"))) void* counted(size_t bytes, size_t alignment) {
  char* const block =
      static_cast<char*>(std::aligned_alloc(alignment, (bytes + 2 * alignment - 1) / alignment * alignment));
  if (block == nullptr) throw std::bad_alloc();
  *reinterpret_cast<size_t*>(block) = bytes;
  const int64_t live = live_bytes += static_cast<int64_t>(bytes);
  for (int64_t peak = peak_bytes; live > peak && !peak_bytes.compare_exchange_weak(peak, live);) {
  }
  return block + alignment;
}
__attribute__((no_sanitize("thread"))) void uncounted(void* memory, size_t alignment) {
  if (memory == nullptr) return;
  char* const block = static_cast<char*>(memory) - alignment;
  live_bytes -= static_cast<int64_t>(*reinterpret_cast<size_t*>(block));
  std::free(block);
}

}  // namespace

// All of them: a sanitizer has its own of those that are left out.
constexpr size_t kUsual = __STDCPP_DEFAULT_NEW_ALIGNMENT__;
using Alignment = std::align_val_t;

void* operator new(size_t bytes) { return counted(bytes, kUsual); }
void* operator new[](size_t bytes) { return counted(bytes, kUsual); }
void* operator new(size_t bytes, const std::nothrow_t&) noexcept { return counted(bytes, kUsual); }
void* operator new[](size_t bytes, const std::nothrow_t&) noexcept { return counted(bytes, kUsual); }
void* operator new(size_t bytes, Alignment a) { return counted(bytes, static_cast<size_t>(a)); }
void* operator new[](size_t bytes, Alignment a) { return counted(bytes, static_cast<size_t>(a)); }
void operator delete(void* memory) noexcept { uncounted(memory, kUsual); }
void operator delete[](void* memory) noexcept { uncounted(memory, kUsual); }
void operator delete(void* memory, size_t) noexcept { uncounted(memory, kUsual); }
void operator delete[](void* memory, size_t) noexcept { uncounted(memory, kUsual); }
void operator delete(void* memory, const std::nothrow_t&) noexcept { uncounted(memory, kUsual); }
void operator delete[](void* memory, const std::nothrow_t&) noexcept { uncounted(memory, kUsual); }
void operator delete(void* memory, Alignment a) noexcept { uncounted(memory, static_cast<size_t>(a)); }
void operator delete[](void* memory, Alignment a) noexcept { uncounted(memory, static_cast<size_t>(a)); }
void operator delete(void* memory, size_t, Alignment a) noexcept { uncounted(memory, static_cast<size_t>(a)); }
void operator delete[](void* memory, size_t, Alignment a) noexcept { uncounted(memory, static_cast<size_t>(a)); }
