// Between natural storage (one matrix after the other) and packed storage (element by element, one lane a matrix), one
// pack at a time. Packed storage is the "interlaced" layout of Capozzoli et al., Electronics 2025, 14(16), 3217,
// section 3.1.
#ifndef SVDSERVE_ENGINE_BACKENDS_HOST_PACKS_PACKING_H_
#define SVDSERVE_ENGINE_BACKENDS_HOST_PACKS_PACKING_H_

#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>

#include "engine/backends/host/packs/kernel_table.h"

namespace svdserve::host {

inline constexpr int kMaxLanes = 32;

// Uninitialized memory for n numbers, aligned to kAlignment.
template <class T>
class AlignedBuffer {
 public:
  AlignedBuffer() = default;
  explicit AlignedBuffer(size_t n) { reserve(n); }
  // Contents are lost when it grows. std::bad_alloc when there is no memory.
  void reserve(size_t n) {
    if (n <= size_) return;
    const size_t bytes = (n * sizeof(T) + kAlignment - 1) / kAlignment * kAlignment;
    data_.reset(static_cast<T*>(std::aligned_alloc(kAlignment, bytes)));
    size_ = data_ == nullptr ? 0 : n;
    if (data_ == nullptr) throw std::bad_alloc();
  }
  T* data() { return data_.get(); }
  const T* data() const { return data_.get(); }

 private:
  struct Free {
    void operator()(T* p) const { std::free(p); }
  };
  std::unique_ptr<T, Free> data_;
  size_t size_ = 0;
};

// A number at any alignment.
template <class T>
T load_number(const void* p) {
  T x;
  std::memcpy(&x, p, sizeof(T));
  return x;
}

// to[e * lanes + l] = from[l][e], e < n. Every from[l] holds n numbers at any alignment. lanes: a power of two. T: float or
// double.
template <class T>
void interleave(const char* const* from, int lanes, size_t n, T* to);

// The same of the n elements from byte `offset` of each from[l] on. They have `components` numbers each, 1 or 2. In `to`
// an element begins `apart` numbers behind the one before.
template <class T>
void interleave_apart(const char* const* from, size_t offset, int lanes, size_t n, int components, size_t apart, T* to);

extern template void interleave(const char* const*, int, size_t, float*);
extern template void interleave(const char* const*, int, size_t, double*);
extern template void interleave_apart(const char* const*, size_t, int, size_t, int, size_t, float*);
extern template void interleave_apart(const char* const*, size_t, int, size_t, int, size_t, double*);

// to[e] = from[e * lanes + lane], e < n; `to` at any alignment.
template <class T>
void deinterleave_one(const T* from, int lanes, int lane, size_t n, char* to) {
  for (size_t e = 0; e < n; ++e) std::memcpy(to + e * sizeof(T), &from[e * lanes + lane], sizeof(T));
}

}  // namespace svdserve::host
#endif  // SVDSERVE_ENGINE_BACKENDS_HOST_PACKS_PACKING_H_
