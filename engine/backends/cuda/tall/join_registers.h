// Nodes of the tall-skinny QR tree in registers: the work and the bits of tall_kernels.h's join_kernel and
// apply_join_kernel, for the k of tall_registers.h.
//
//   join_registers_kernel         triangles t and t + d to one, in the place of t
//   expand_join_registers_kernel  the same way back: the k x k part of t becomes the parts of both
//
// A team of 8 kGroups threads has two k x k matrices as tall_registers.h has a tile. Thread (p, q) has the rows p, p + 8,
// .. of the columns q, q + kGroups, and so on. Reflector j consists of row j of the top and of the rows up to j of the
// bottom, in that order. Where it has more than eight elements, row i of the bottom is in partial sum i + 1, and the top
// begins the one of thread p = 7. Up to eight are added one after the other, by every thread.
#ifndef SVDSERVE_ENGINE_BACKENDS_CUDA_TALL_JOIN_REGISTERS_H_
#define SVDSERVE_ENGINE_BACKENDS_CUDA_TALL_JOIN_REGISTERS_H_

#include "engine/backends/cuda/tall/tall_registers.h"

namespace svdserve::cuda {

template <class E, int kGroups, int kColumns>
class RegisterJoin {
 public:
  using T = typename E::Scalar;
  static constexpr int kThreads = 8 * kGroups, kRows = (kGroups * kColumns + 7) / 8;
  static constexpr int kInOrder = 8;  // elements that are added one after the other

  __device__ RegisterJoin() : p_(threadIdx.x % 8), q_(threadIdx.x / 8 % kGroups) {}

  __device__ __forceinline__ int row(int r) const { return 8 * r + p_; }
  __device__ __forceinline__ int column(int c) const { return c * kGroups + q_; }

  // k x k, row-major.
  __device__ __forceinline__ void load(const E* from, int k, E (&to)[kRows][kColumns]) const {
    SVD_UNROLL for (int r = 0; r < kRows; ++r) {
      SVD_UNROLL for (int c = 0; c < kColumns; ++c) {
        const bool inside = row(r) < k && column(c) < k;
        to[r][c] = inside ? load_element(from + row(r) * k + column(c)) : scalar::zero_element<E>();
      }
    }
  }
  __device__ __forceinline__ void store(const E (&from)[kRows][kColumns], int k, bool triangle, E* to) const {
    SVD_UNROLL for (int r = 0; r < kRows; ++r) {
      SVD_UNROLL for (int c = 0; c < kColumns; ++c) {
        const E x = triangle && row(r) > column(c) ? scalar::zero_element<E>() : from[r][c];
        if (row(r) < k && column(c) < k) store_element(x, to + row(r) * k + column(c));
      }
    }
  }

  // [top; bottom] = Q R, R in top, the reflectors in bottom. g and heads: of k numbers and elements, or null.
  template <int c = 0>
  __device__ __forceinline__ void factorize(int k, T* g, E* heads) {
    _Pragma("unroll 1") for (int q = 0; q < kGroups && c * kGroups + q < k; ++q) {
      E x[kRows + 1];
      const E x_top = reflector_of_group(c, q, x);
      const scalar::Reflector<E> h = reflector(c, q, x_top, x);
      SVD_UNROLL for (int other = c; other < kColumns; ++other) {
        if (kGroups > 1 || other > c) subtract_reflection(c, q, h.u0, x, h.g, other, other > c || q_ > q);
      }
      if (q_ == q && p_ == head_of(c, q)) {
        top[first_of(c)][c] = h.beta;
        if (g != nullptr) {
          g[column(c)] = h.g.v;
          store_element(h.u0, heads + column(c));
        }
      }
    }
    if constexpr (c + 1 < kColumns) factorize<c + 1>(k, g, heads);
  }

  // [top; bottom] := Q [top; bottom]; factor: k x k, row-major, where factorize() has left its reflectors.
  template <int c = kColumns - 1>
  __device__ __forceinline__ void apply(int k, const E* factor, const T* g, const E* heads) {
    _Pragma("unroll 1") for (int q = min(kGroups, k - c * kGroups) - 1; q >= 0; --q) {
      const int j = c * kGroups + q;
      E x[kRows];
      SVD_UNROLL for (int r = 0; r <= first_of(c); ++r) {
        x[r] = row(r) <= j ? load_element(factor + row(r) * k + j) : scalar::zero_element<E>();
      }
      const E head = load_element(heads + j);
      SVD_UNROLL for (int other = 0; other < kColumns; ++other) {
        subtract_reflection(c, q, head, x, Lane<T>(g[j]), other, true);
      }
    }
    if constexpr (c > 0) apply<c - 1>(k, factor, g, heads);
  }

  E top[kRows][kColumns], bottom[kRows][kColumns];

 private:
  // Row j = c kGroups + q: its register row, and the thread p that has it.
  static constexpr int first_of(int c) { return c * kGroups / 8; }
  static __device__ __forceinline__ int head_of(int c, int q) { return (c * kGroups + q) % 8; }

  // The sum over reflector j of the top's term and the bottom's: add(sum, x, y) of elements of two columns.
  template <class Sum, class Add, class Join>
  __device__ __forceinline__ Sum sum(int c, int q, const Sum& zero, const E& x_top, const E* x, const E& y_top,
                                     const E* y, Add add, Join join) const {
    const int j = c * kGroups + q;
    const Sum with_top = add(zero, x_top, y_top);
    if (c * kGroups + 2 <= kInOrder && j + 2 <= kInOrder) {
      Sum s = with_top;
      SVD_UNROLL for (int i = 0; i + 2 <= kInOrder; ++i) {
        if (i <= j) s = add(s, from_lane(x[0], i, 8), from_lane(y[0], i, 8));
      }
      return s;
    }
    Sum s = p_ == 7 ? with_top : zero;
    SVD_UNROLL for (int r = 0; r <= first_of(c); ++r) {
      const Sum next = add(s, x[r], y[r]);
      s = r < first_of(c) || p_ <= head_of(c, q) ? next : s;
    }
    return join(s);
  }

  // Column c of group q: x gets this thread's rows of the bottom. Returns the top's element.
  __device__ __forceinline__ E reflector_of_group(int c, int q, E (&x)[kRows + 1]) const {
    const int head = head_of(c, q), end = first_of(c) + 1;
    SVD_UNROLL for (int r = 0; r < end; ++r) x[r] = bottom[r][c];
    if constexpr (kGroups <= kGroupsOfWarp) {
      take_from_group<kGroups, kRows>(x, 0, end, q, q % 2);
      return from_lane(top[first_of(c)][c], 8 * q + head, kThreads);
    }
    x[end] = top[first_of(c)][c];
    take_from_group<kGroups, kRows + 1>(x, 0, end + 1, q, q % 2);
    return from_lane(x[end], head, 8);
  }

  __device__ __forceinline__ scalar::Reflector<E> reflector(int c, int q, const E& x_top, const E* x) const {
    const auto add = [](Lane<T> s, const E& a, const E&) { return scalar::add_square(s, a); };
    const auto join = [](Lane<T> s) { return join_partials(s); };
    return scalar::reflector_of<E>(sum(c, q, Lane<T>(T(0)), x_top, x, x_top, x, add, join), x_top);
  }

  // Column `other` of both minus g (x^H column) x, where wanted; every thread takes part in the sum.
  __device__ __forceinline__ void subtract_reflection(int c, int q, const E& x_top, const E* x, Lane<T> g, int other,
                                                      bool wanted) {
    constexpr auto add = [](const E& s, const E& a, const E& b) { return scalar::add_product(s, a, b); };
    constexpr auto join = [](const E& s) { return join_element_partials(s); };
    const int head = head_of(c, q);
    E y[kRows];
    SVD_UNROLL for (int r = 0; r <= first_of(c); ++r) y[r] = bottom[r][other];
    const E y_top = from_lane(top[first_of(c)][other], head, 8);
    const E w = scalar::scaled(sum(c, q, scalar::zero_element<E>(), x_top, x, y_top, y, add, join), g);
    if (!wanted) return;
    if (p_ == head) top[first_of(c)][other] = scalar::subtract_product(y_top, x_top, w);
    SVD_UNROLL for (int r = 0; r <= first_of(c); ++r) {
      const E z = scalar::subtract_product(y[r], x[r], w);
      bottom[r][other] = r < first_of(c) || p_ <= head ? z : y[r];
    }
  }

  const int p_, q_;
};

// Which pair of which matrix a team has: triangles t and t + distance.
struct JoinNumber {
  int64_t top, bottom;  // numbers of the triangles
  bool is_first, exists;
};
template <class T>
__device__ __forceinline__ JoinNumber join_number(const TallCall<T>& call, int distance, int threads) {
  const int pairs = (call.tiles - distance + 2 * distance - 1) / (2 * distance);
  int64_t number = (static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x) / threads;
  const bool exists = number < call.count * pairs;
  if (!exists) number = 0;
  const int64_t m = number / pairs, t = number % pairs * 2 * distance;
  return {t * call.count + m, (t + distance) * call.count + m, t == 0, exists};
}

template <class E, int kGroups, int kColumns>
__global__ void __launch_bounds__(register_block(kGroups))
    join_registers_kernel(const TallCall<typename E::Scalar> call, int distance) {
  using Join = RegisterJoin<E, kGroups, kColumns>;
  const int k = call.k;
  const JoinNumber at = join_number(call, distance, Join::kThreads);
  E* const top = reinterpret_cast<E*>(call.triangles) + at.top * k * k;
  E* const bottom = reinterpret_cast<E*>(call.triangles) + at.bottom * k * k;
  const auto mark = top[0].re.v;
  // The mark of a matrix that is not finite stays.
  const bool writes = at.exists && (!at.is_first || mark == mark), keeps = call.heads != nullptr;
  Join join;
  join.load(top, k, join.top);
  join.load(bottom, k, join.bottom);
  const bool kept = writes && keeps;
  join.factorize(k, kept ? call.g + at.bottom * 2 * k + k : nullptr,
                 kept ? reinterpret_cast<E*>(call.heads) + at.bottom * k : nullptr);
  if (!writes) return;
  join.store(join.top, k, true, top);
  if (keeps) join.store(join.bottom, k, true, bottom);
}

template <class E, int kGroups, int kColumns>
__global__ void __launch_bounds__(register_block(kGroups))
    expand_join_registers_kernel(const TallCall<typename E::Scalar> call, int distance) {
  using Join = RegisterJoin<E, kGroups, kColumns>;
  const int k = call.k;
  const JoinNumber at = join_number(call, distance, Join::kThreads);
  E* const top = reinterpret_cast<E*>(call.triangles) + at.top * k * k;
  E* const bottom = reinterpret_cast<E*>(call.triangles) + at.bottom * k * k;
  Join join;
  join.load(top, k, join.top);
  SVD_UNROLL for (auto& row : join.bottom) { SVD_UNROLL for (E& x : row) x = scalar::zero_element<E>(); }
  join.apply(k, static_cast<const E*>(bottom), call.g + at.bottom * 2 * k + k,
             reinterpret_cast<const E*>(call.heads) + at.bottom * k);
  kGroups > kGroupsOfWarp ? __syncthreads() : __syncwarp();  // the factor has been read, and gives its place
  if (!at.exists) return;
  join.store(join.top, k, false, top);
  join.store(join.bottom, k, false, bottom);
}

}  // namespace svdserve::cuda
#endif  // SVDSERVE_ENGINE_BACKENDS_CUDA_TALL_JOIN_REGISTERS_H_
