#include "engine/backends/host/packs/packing.h"

namespace svdserve::host {
namespace {

// Vectors of 16 bytes, of the compiler's, for every instruction set. Highway has one number a vector in a unit that it does
// not compile for a target of its own.
template <class T>
struct VectorOf {
  typedef T Type __attribute__((vector_size(16)));
};
template <class T>
using Vector = typename VectorOf<T>::Type;
template <class T>
inline constexpr int kWidth = 16 / sizeof(T);

template <class T>
void store_vector(const Vector<T>& x, T* to) {
  std::memcpy(to, &x, sizeof(x));
}

// Numbers from byte `at` on of as many matrices: to[i] gets the i-th number of each.
void transpose(const char* const* from, size_t at, double* const* to) {
  const auto a = load_number<Vector<double>>(from[0] + at), b = load_number<Vector<double>>(from[1] + at);
  store_vector<double>(__builtin_shufflevector(a, b, 0, 2), to[0]);
  store_vector<double>(__builtin_shufflevector(a, b, 1, 3), to[1]);
}
void transpose(const char* const* from, size_t at, float* const* to) {
  const auto load = [&](int l) { return load_number<Vector<float>>(from[l] + at); };
  const Vector<float> a = load(0), b = load(1), c = load(2), d = load(3);
  const Vector<float> low = __builtin_shufflevector(a, b, 0, 4, 1, 5), high = __builtin_shufflevector(a, b, 2, 6, 3, 7);
  const Vector<float> next_low = __builtin_shufflevector(c, d, 0, 4, 1, 5),
                      next_high = __builtin_shufflevector(c, d, 2, 6, 3, 7);
  store_vector<float>(__builtin_shufflevector(low, next_low, 0, 1, 4, 5), to[0]);
  store_vector<float>(__builtin_shufflevector(low, next_low, 2, 3, 6, 7), to[1]);
  store_vector<float>(__builtin_shufflevector(high, next_high, 0, 1, 4, 5), to[2]);
  store_vector<float>(__builtin_shufflevector(high, next_high, 2, 3, 6, 7), to[3]);
}

// place(e): the number of `to`, of a matrix, that number e becomes. By squares of a vector's numbers of as many matrices: to
// take one number after the other takes a load and a store for each.
template <int kLanes, class T, class Place>
void interleave_lanes(const char* const* from, size_t offset, size_t n, const Place& place, T* to) {
  constexpr int kSide = kWidth<T>;
  constexpr auto stride = static_cast<size_t>(kLanes);
  size_t e = 0;
  if constexpr (kLanes % kSide == 0) {
    for (; e + kSide <= n; e += kSide) {
      T* rows[kSide];
      for (int i = 0; i < kSide; ++i) rows[i] = to + place(e + static_cast<size_t>(i)) * stride;
      for (int l = 0; l < kLanes; l += kSide) {
        transpose(from + l, offset + e * sizeof(T), rows);
        for (T*& row : rows) row += kSide;
      }
    }
  }
  for (; e < n; ++e) {
    T* const row = to + place(e) * stride;
    for (int l = 0; l < kLanes; ++l) row[l] = load_number<T>(from[l] + offset + e * sizeof(T));
  }
}

template <class T, class Place>
void interleave_numbers(const char* const* from, size_t offset, int lanes, size_t n, const Place& place, T* to) {
  switch (lanes) {
    case 1:
      return interleave_lanes<1>(from, offset, n, place, to);
    case 2:
      return interleave_lanes<2>(from, offset, n, place, to);
    case 4:
      return interleave_lanes<4>(from, offset, n, place, to);
    case 8:
      return interleave_lanes<8>(from, offset, n, place, to);
    case 16:
      return interleave_lanes<16>(from, offset, n, place, to);
    default:
      return interleave_lanes<kMaxLanes>(from, offset, n, place, to);
  }
}

}  // namespace

template <class T>
void interleave(const char* const* from, int lanes, size_t n, T* to) {
  interleave_numbers(
      from, 0, lanes, n, [](size_t e) { return e; }, to);
}

template <class T>
void interleave_apart(const char* const* from, size_t offset, int lanes, size_t n, int components, size_t apart,
                      T* to) {
  if (components == 1) {
    interleave_numbers(
        from, offset, lanes, n, [=](size_t e) { return e * apart; }, to);
  } else {
    interleave_numbers(
        from, offset, lanes, 2 * n, [=](size_t e) { return e / 2 * apart + e % 2; }, to);
  }
}

template void interleave(const char* const*, int, size_t, float*);
template void interleave(const char* const*, int, size_t, double*);
template void interleave_apart(const char* const*, size_t, int, size_t, int, size_t, float*);
template void interleave_apart(const char* const*, size_t, int, size_t, int, size_t, double*);

}  // namespace svdserve::host
