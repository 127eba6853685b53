// Every block that this program takes by operator new ends where readable memory ends: at a page that may not be
// touched. A read or write beyond a block is a SIGSEGV, in libraries without instrumentation as well.
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <new>

namespace {

// In front of each block.
struct Mapping {
  void* start;
  size_t bytes;
};

size_t page() {
  static const size_t bytes = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  return bytes;
}

// Clang's UndefinedBehaviorSanitizer holds every block to the alignment that `new` promises.
#if defined(__clang__) && defined(__SANITIZE_ADDRESS__)
constexpr bool kIsAlignmentChecked = true;
#else
constexpr bool kIsAlignmentChecked = false;
#endif

// A block without alignment of its own is aligned as far as its size is, so that no byte separates it from its end. Where
// alignment is checked, up to 15 bytes do. ThreadSanitizer is not told of it (see counted_heap.cc).
__attribute__((no_sanitize("thread"))) void* guarded(size_t bytes, size_t alignment) {
  constexpr size_t kDefault = __STDCPP_DEFAULT_NEW_ALIGNMENT__;
  if (alignment == 0) alignment = kIsAlignmentChecked ? kDefault : std::min(bytes & (~bytes + 1), kDefault);
  if (bytes == 0) alignment = 1;
  const size_t whole = (bytes + alignment - 1) / alignment * alignment;
  const size_t header = sizeof(Mapping) + alignment + alignof(Mapping);
  const size_t readable = (whole + header + page() - 1) / page() * page();
  void* const start = mmap(nullptr, readable + page(), PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (start == MAP_FAILED || mprotect(start, readable, PROT_READ | PROT_WRITE) != 0) throw std::bad_alloc();
  char* const block = static_cast<char*>(start) + readable - whole;
  const Mapping mapping = {start, readable + page()};
  __builtin_memcpy(block - sizeof(Mapping), &mapping, sizeof(Mapping));
  return block;
}

__attribute__((no_sanitize("thread"))) void released(void* block) {
  if (block == nullptr) return;
  Mapping mapping;
  __builtin_memcpy(&mapping, static_cast<char*>(block) - sizeof(Mapping), sizeof(Mapping));
  munmap(mapping.start, mapping.bytes);
}

}  // namespace

// All of them: a sanitizer has its own of those that are left out.
using Alignment = std::align_val_t;

void* operator new(size_t bytes) { return guarded(bytes, 0); }
void* operator new[](size_t bytes) { return guarded(bytes, 0); }
void* operator new(size_t bytes, const std::nothrow_t&) noexcept { return guarded(bytes, 0); }
void* operator new[](size_t bytes, const std::nothrow_t&) noexcept { return guarded(bytes, 0); }
void* operator new(size_t bytes, Alignment a) { return guarded(bytes, static_cast<size_t>(a)); }
void* operator new[](size_t bytes, Alignment a) { return guarded(bytes, static_cast<size_t>(a)); }
void operator delete(void* block) noexcept { released(block); }
void operator delete[](void* block) noexcept { released(block); }
void operator delete(void* block, size_t) noexcept { released(block); }
void operator delete[](void* block, size_t) noexcept { released(block); }
void operator delete(void* block, const std::nothrow_t&) noexcept { released(block); }
void operator delete[](void* block, const std::nothrow_t&) noexcept { released(block); }
void operator delete(void* block, Alignment) noexcept { released(block); }
void operator delete[](void* block, Alignment) noexcept { released(block); }
void operator delete(void* block, size_t, Alignment) noexcept { released(block); }
void operator delete[](void* block, size_t, Alignment) noexcept { released(block); }
