// U, S and V from a bidiagonal form with its reflectors, as a GPU computes them (backends/cuda/by_rows/), on fibers.
#ifndef SVDSERVE_TESTS_SUPPORT_NUMERICS_BIDIAGONAL_ON_FIBERS_H_
#define SVDSERVE_TESTS_SUPPORT_NUMERICS_BIDIAGONAL_ON_FIBERS_H_

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "engine/algorithms/blocks/vector_rows.h"
#include "engine/algorithms/lanes/golub_kahan.h"
#include "engine/algorithms/lanes/matrix_values.h"
#include "engine/policies/cuda_tuning.h"
#include "tests/support/numerics/contract.h"
#include "tests/support/numerics/engine_run.h"
#include "tests/support/numerics/reference_svd.h"
#include "tests/support/numerics/square_factors.h"
#include "tests/support/numerics/swept_form.h"
#include "tests/support/numerics/vector_rows_on_fibers.h"

namespace svdserve::numerics {

// Q^H A P = B as threads give it.
template <class E>
struct Reduced {
  using L = typename E::Lane;

  explicit Reduced(int k)
      : pitch(scalar::padded_row(k)),
        left(size(k * pitch), scalar::zero_element<E>()),
        right(left),
        g_left(size(k), L(0)),
        g_right(g_left),
        diagonal(size(k), scalar::zero_element<E>()),
        superdiagonal(diagonal) {}
  int pitch;
  std::vector<E> left, right;  // h_j from j * pitch on
  std::vector<L> g_left, g_right;
  std::vector<E> diagonal, superdiagonal;
  L exponent{0};
  bool finite = false;
};

template <class E>
struct ToReduced {
  using L = typename E::Lane;
  static constexpr bool kWanted = true;
  Reduced<E>* to;
  void left(int j, int i, const E& h) const { put(&to->left, j, i, h); }
  void right(int j, int i, const E& h) const { put(&to->right, j, i, h); }
  void left_end(int j, L g, const E& b) const {
    to->g_left[size(j)] = g;
    to->diagonal[size(j)] = b;
  }
  void right_end(int j, L g, const E& b) const {
    to->g_right[size(j)] = g;
    to->superdiagonal[size(j)] = b;
  }
  void put(std::vector<E>* h, int j, int i, const E& x) const {
    if (i < to->pitch) (*h)[size(j * to->pitch + i)] = x;
  }
};

template <class T>
using Form = scalar::BidiagonalForm<scalar::ScalarLane<T>>;

// capacity: room for rotations. rounds: how often it was filled.
template <class Way = VectorsWay<>, class E>
Factors vectors_of(Reduced<E> b, DType dtype, int k, int capacity, int* rounds) {
  using L = typename E::Lane;
  using T = typename E::Scalar;
  std::vector<L> d(size(k)), e(d);
  const L largest = scalar::split_phases(k, b.diagonal.data(), b.superdiagonal.data(), d.data(), e.data());
  Rows<E> x(k, b.left, b.g_left, 0, b.diagonal), y(k, b.right, b.g_right, 1, b.superdiagonal);
  Factors f{Matrix(dtype, k, k), Matrix(dtype, k, k), std::vector<double>(size(k)), MatrixStatus::kNotConverged};
  Swept<Form<T>> swept(std::move(d), std::move(e), largest, capacity);
  for (*rounds = 0; *rounds < 50 && swept.state.high > 0; ++*rounds) {
    sweep_round<Way::kAtOnce>(scalar::OneThread(), &swept);
    if constexpr (Way::kInWindows) {
      x.rotate_in_windows(swept.left, swept.last, swept.groups);
      y.rotate_in_windows(swept.right, swept.last, swept.groups);
    } else {
      x.rotate(swept.left, swept.last, swept.groups);
      y.rotate(swept.right, swept.last, swept.groups);
    }
  }
  const int high = swept.state.high;
  d = swept.d;
  for (int i = 0; i < k; ++i) {
    const int place = scalar::place_of(k, i, d.data());
    for (int r = 0; r < k; ++r) {
      f.u.at(r, place) = number(x.x[size(r * x.pitch + i)]) * (d[size(i)].v < 0 ? -1.0 : 1.0);
      f.v.at(r, place) = number(y.x[size(r * y.pitch + i)]);
    }
  }
  for (L& s : d) s = abs(s);
  const auto exponent = [&](int) { return b.exponent; };
  const L status = scalar::finish_values(scalar::RuntimeSize{k}, exponent, scalar::ScalarMask{b.finite},
                                         scalar::ScalarMask{high != 0}, d.data());
  f.status = static_cast<MatrixStatus>(static_cast<int>(status.v));
  for (int i = 0; i < k; ++i) f.s[size(i)] = d[size(i)].v;
  return f;
}

inline void expect_contract(const Matrix& a, const Factors& f, const std::string& where) {
  const int64_t k = a.cols;
  const RealType real = real_type(a.dtype);
  const Plan plan = plan_of({k, k, a.dtype, Order::kRowMajor}, {.vectors = Vectors::kThin});
  EXPECT_EQ(check(plan, f.s, f.status, reference_singular_values(a)).failure, "") << where;
  const auto units = static_cast<long double>(k) * real.unit_roundoff;
  EXPECT_LE(orthogonality(f.u) / units, 4) << where;  // 10 are promised
  EXPECT_LE(orthogonality(f.v) / units, 4) << where;
  double largest = 0;
  for (const auto& z : a.elements) largest = std::max({largest, std::abs(z.real()), std::abs(z.imag())});
  // Values that overflow, or that denormals round, make no residual.
  if (f.status != MatrixStatus::kOk || largest < real.smallest_normal / real.unit_roundoff) return;
  EXPECT_LE(residual(a, f) / units, 10) << where;
}

}  // namespace svdserve::numerics
#endif
