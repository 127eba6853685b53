// Memory aligned to a cache line, not initialized, which only grows.
#ifndef SVDSERVE_ENGINE_BACKENDS_HOST_BASE_ALIGNED_ARRAY_H_
#define SVDSERVE_ENGINE_BACKENDS_HOST_BASE_ALIGNED_ARRAY_H_

#include <sys/mman.h>

#include <cstddef>
#include <memory>
#include <new>

namespace svdserve::host {

inline constexpr size_t kCacheLine = 64;
// Arrays from this size on are mapped, each for itself. All of their memory goes back to the system with them, which a
// heap that is kept warm would not promise. Their pages are huge, for a fault each 4 KiB takes longer than what is
// written there.
inline constexpr size_t kMappedBytes = size_t{4} << 20;

template <class T>
class AlignedArray {
 public:
  // At least so many elements; what was in it is lost where it grows. std::bad_alloc when there is no memory.
  void reserve(size_t count) {
    if (count <= size_) return;
    memory_.reset();
    size_ = 0;
    const size_t bytes = count * sizeof(T);
    if (bytes < kMappedBytes) {
      memory_ = Memory(static_cast<T*>(::operator new(bytes, std::align_val_t(kCacheLine))), Free{0});
    } else {
      void* const pages = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
      if (pages == MAP_FAILED) throw std::bad_alloc();
      madvise(pages, bytes, MADV_HUGEPAGE);  // where it cannot be, small pages do
      memory_ = Memory(static_cast<T*>(pages), Free{bytes});
    }
    size_ = count;
  }
  T* data() { return memory_.get(); }
  T& operator[](size_t i) { return memory_.get()[i]; }

 private:
  struct Free {
    size_t mapped_bytes = 0;  // 0: not mapped
    void operator()(T* p) const {
      if (mapped_bytes > 0) {
        munmap(p, mapped_bytes);
      } else {
        ::operator delete(p, std::align_val_t(kCacheLine));
      }
    }
  };
  using Memory = std::unique_ptr<T, Free>;
  Memory memory_;
  size_t size_ = 0;
};

}  // namespace svdserve::host
#endif  // SVDSERVE_ENGINE_BACKENDS_HOST_BASE_ALIGNED_ARRAY_H_
