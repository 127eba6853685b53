// Eigenvalues and eigenvectors from a tridiagonal form with its reflectors, as a GPU computes them (backends/cuda/by_rows/),
// on fibers.
#ifndef SVDSERVE_TESTS_SUPPORT_NUMERICS_TRIDIAGONAL_ON_FIBERS_H_
#define SVDSERVE_TESTS_SUPPORT_NUMERICS_TRIDIAGONAL_ON_FIBERS_H_

#include <gtest/gtest.h>

#include <algorithm>
#include <complex>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "engine/algorithms/blocks/vector_rows.h"
#include "engine/algorithms/lanes/hermitian_eigen.h"
#include "engine/algorithms/lanes/tridiagonal_qr.h"
#include "engine/core/team.h"
#include "tests/support/numerics/hermitian_samples.h"
#include "tests/support/numerics/square_factors.h"
#include "tests/support/numerics/swept_form.h"
#include "tests/support/numerics/vector_rows_on_fibers.h"

namespace svdserve::numerics {

// Q^H A Q = T as threads give it.
template <class E>
struct Reduced {
  using L = typename E::Lane;

  explicit Reduced(int k)
      : pitch(scalar::padded_row(k)),
        reflectors(size(k * pitch), scalar::zero_element<E>()),
        g(size(k), L(0)),
        diagonal(size(k), L(0)),
        off_diagonal(size(k), scalar::zero_element<E>()) {}
  friend bool operator==(const Reduced& a, const Reduced& b) {
    const auto same = [](const auto& x, const auto& y) {
      return x.size() == y.size() && std::memcmp(x.data(), y.data(), x.size() * sizeof(x[0])) == 0;
    };
    return same(a.reflectors, b.reflectors) && same(a.g, b.g) && same(a.diagonal, b.diagonal) &&
           same(a.off_diagonal, b.off_diagonal);
  }

  int pitch;
  std::vector<E> reflectors;  // h_j from j * pitch on
  std::vector<L> g, diagonal;
  std::vector<E> off_diagonal;
  L exponent{0};
  bool finite = false;
};

template <class E>
struct ToReduced {
  using L = typename E::Lane;
  Reduced<E>* to;
  void diagonal(int j, L x) const { to->diagonal[size(j)] = x; }
  void off_diagonal(int j, L g, const E& x) const {
    to->g[size(j)] = g;
    to->off_diagonal[size(j)] = x;
  }
  void reflector(int j, int i, const E& h) const {
    if (i < to->pitch) to->reflectors[size(j * to->pitch + i)] = h;
  }
};

template <class T>
using Form = scalar::TridiagonalForm<scalar::ScalarLane<T>>;

// Ascending, with the vectors in their order.
struct Eigen {
  std::vector<double> values;
  Dense vectors;
  int rounds = 0;
};

// capacity: room for rotations.
template <class Way = VectorsWay<>, class E>
Eigen eigen_of(Reduced<E> t, int k, int capacity) {
  using L = typename E::Lane;
  using T = typename E::Scalar;
  std::vector<L> e(size(k));
  const L largest = scalar::split_hermitian_phases(k, t.off_diagonal.data(), t.diagonal.data(), e.data());
  Rows<E> rows(k, t.reflectors, t.g, 1, t.off_diagonal);
  Swept<Form<T>> swept(t.diagonal, std::move(e), largest, capacity);
  Eigen result{std::vector<double>(size(k)), {k, k, std::vector<Wide>(size(k * k))}};
  for (; result.rounds < 50 && swept.state.high > 0; ++result.rounds) {
    sweep_round<Way::kAtOnce>(scalar::OneThread(), &swept);
    if constexpr (Way::kInWindows) {
      rows.rotate_in_windows(swept.right, swept.last, swept.groups);
    } else {
      rows.rotate(swept.right, swept.last, swept.groups);
    }
  }
  EXPECT_EQ(swept.state.high, 0);
  for (int i = 0; i < k; ++i) {
    const int place = scalar::ascending_place_of(k, i, swept.d.data());
    result.values[size(place)] = scalar::finished_eigenvalue(swept.d[size(i)], t.exponent).v;
    for (int r = 0; r < k; ++r) {
      const std::complex<double> x = number(rows.x[size(r * rows.pitch + i)]);
      result.vectors.at_[size(r * k + place)] = Wide(x.real(), x.imag());
    }
  }
  return result;
}

inline void expect_hermitian_contract(const Matrix& m, const Eigen& e, bool with_reference, const std::string& what) {
  const auto n = static_cast<int>(m.rows);
  const std::string where = std::string(name(m.dtype)) + " " + what + " n = " + std::to_string(n);
  const HermitianErrors errors = hermitian_errors(m, e.vectors, e.values, with_reference);
  // 10 n are promised of each.
  const int units = std::max(n, 8);
  EXPECT_LE(errors.orthogonality, 4 * units) << where;
  EXPECT_LE(errors.residual, 2 * units) << where;
  EXPECT_LE(errors.eigenvalue, units) << where;
}

}  // namespace svdserve::numerics
#endif
