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

template <class T, int kLanes>
void interleave_lanes(const char* const* from, size_t n, T* to) {
  for (size_t e = 0; e < n; ++e) {
    for (int l = 0; l < kLanes; ++l) to[e * kLanes + l] = load_number<T>(from[l] + e * sizeof(T));
  }
}

// to[e * lanes + l] = from[l][e], e < n. Every from[l] holds n numbers at any alignment.
template <class T>
void interleave(const char* const* from, int lanes, size_t n, T* to) {
  switch (lanes) {
    case 1:
      return interleave_lanes<T, 1>(from, n, to);
    case 2:
      return interleave_lanes<T, 2>(from, n, to);
    case 4:
      return interleave_lanes<T, 4>(from, n, to);
    case 8:
      return interleave_lanes<T, 8>(from, n, to);
    case 16:
      return interleave_lanes<T, 16>(from, n, to);
    default:
      return interleave_lanes<T, kMaxLanes>(from, n, to);
  }
}

// to[e] = from[e * lanes + lane], e < n; `to` at any alignment.
template <class T>
void deinterleave_one(const T* from, int lanes, int lane, size_t n, char* to) {
  for (size_t e = 0; e < n; ++e) std::memcpy(to + e * sizeof(T), &from[e * lanes + lane], sizeof(T));
}

}  // namespace svdserve::host
#endif  // SVDSERVE_ENGINE_BACKENDS_HOST_PACKS_PACKING_H_
