// Memory aligned to a cache line, not initialized, which only grows.
#ifndef SVDSERVE_ENGINE_BACKENDS_HOST_ALIGNED_ARRAY_H_
#define SVDSERVE_ENGINE_BACKENDS_HOST_ALIGNED_ARRAY_H_

#include <cstddef>
#include <memory>
#include <new>

namespace svdserve::host {

inline constexpr size_t kCacheLine = 64;

template <class T>
class AlignedArray {
 public:
  // At least so many elements; what was in it is lost where it grows. std::bad_alloc when there is no memory.
  void reserve(size_t count) {
    if (count <= size_) return;
    memory_.reset();
    size_ = 0;
    memory_.reset(static_cast<T*>(::operator new(count * sizeof(T), std::align_val_t(kCacheLine))));
    size_ = count;
  }
  T* data() { return memory_.get(); }
  T& operator[](size_t i) { return memory_.get()[i]; }

 private:
  struct Free {
    void operator()(T* p) const { ::operator delete(p, std::align_val_t(kCacheLine)); }
  };
  std::unique_ptr<T, Free> memory_;
  size_t size_ = 0;
};

}  // namespace svdserve::host
#endif  // SVDSERVE_ENGINE_BACKENDS_HOST_ALIGNED_ARRAY_H_
