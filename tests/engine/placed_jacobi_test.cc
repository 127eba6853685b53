// JACOBI by a thread block (algorithms/blocks/placed_jacobi.h), the source that a GPU runs, on fibers. Values and
// vectors keep the contract in every shape of storage, and the order of the threads changes no bit.
#include <gtest/gtest.h>

#include <algorithm>
#include <complex>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "engine/algorithms/blocks/placed_jacobi.h"
#include "tests/support/numerics/contract.h"
#include "tests/support/numerics/dead_lines.h"
#include "tests/support/numerics/effort.h"
#include "tests/support/numerics/engine_run.h"
#include "tests/support/numerics/fiber_block.h"
#include "tests/support/numerics/matrix_generators.h"
#include "tests/support/numerics/reference_svd.h"
#include "tests/support/numerics/scalar_elements.h"
#include "tests/support/numerics/square_factors.h"

namespace svdserve::numerics {
namespace {

using scalar::ColumnStorage;
using scalar::PlacedShape;
template <class Shape>
Factors decompose(const Matrix& a, const Plan& plan, uint64_t seed) {
  using E = typename Shape::Element;
  using T = typename E::Scalar;
  const int k = static_cast<int>(a.cols);
  Factors f{Matrix(a.dtype, k, k), Matrix(a.dtype, k, k), std::vector<double>(static_cast<size_t>(k), -1)};
  const auto size = [](int n) { return static_cast<size_t>(n); };
  std::vector<T> mail(size(Shape::mail_numbers(k))), values(size(Shape::columns(k)));
  std::vector<T> parts(size(Shape::threads(k) / 32));
  std::vector<E> x(size(Shape::matrix_elements(k))), y(x.size());
  const scalar::PlacedMemory<Shape> memory{mail.data(), values.data(), parts.data(), x.data(), y.data()};
  struct Results {
    Factors* f;
    void value(int r, T s) const { f->s[static_cast<size_t>(r)] = s; }
    void x(int i, int r, const E& u, bool finite) const { put(f->u, i, r, u, finite); }
    void y(int i, int r, const E& v, bool finite) const { put(f->v, i, r, v, finite); }
    void put(Matrix& m, int i, int r, const E& z, bool finite) const {
      m.at(i, r) = number(z);
      f->vectors_finite = finite;
    }
  };
  FiberBlock block(Shape::threads(k), seed);
  block.run([&](FiberBlock::Thread thread) {
    scalar::PlacedJacobi<FiberBlock::Thread, Shape> jacobi(thread, memory, k);
    const auto source = [&](int i, int j) { return element<E>(a.at(i, j)); };
    const MatrixStatus status =
        jacobi.run(source, nullptr, static_cast<T>(plan.tolerance), plan.max_sweeps, Results{&f});
    if (thread.index() == 0) f.status = status;
  });
  return f;
}

// max_sweeps 0: the default.
template <class Shape>
void test_matrix(const Matrix& a, const std::string& what, int32_t max_sweeps = 0) {
  const DType dtype = a.dtype;
  const int64_t k = a.cols;
  const std::string where = std::string(name(dtype)) + " " + what + " k = " + std::to_string(k);
  const bool vectors = Shape::kY != ColumnStorage::kNone;
  const Plan plan = plan_of(
      {k, k, dtype, Order::kRowMajor},
      {.method = Method::kJacobi, .max_sweeps = max_sweeps, .vectors = vectors ? Vectors::kThin : Vectors::kNone});
  const Factors f = decompose<Shape>(a, plan, 0);
  if (is_long_run() || what == name(Kind::kNormal) || what == name(Kind::kLowRank)) {
    EXPECT_EQ(f, decompose<Shape>(a, plan, 7)) << where;  // threads in another order
  }
  EXPECT_EQ(check(plan, f.s, f.status, reference_singular_values(a)).failure, "") << where;
  if (!vectors) return;
  const RealType real = real_type(dtype);
  const auto units = static_cast<long double>(k) * real.unit_roundoff;
  EXPECT_TRUE(f.vectors_finite);
  EXPECT_LE(orthogonality(f.u) / units, 10) << where;
  EXPECT_LE(orthogonality(f.v) / units, 10) << where;
  long double largest = 0;
  for (const auto& z : a.elements) largest = std::max<long double>({largest, std::abs(z.real()), std::abs(z.imag())});
  if (f.status == MatrixStatus::kOutOfRange || largest < real.smallest_normal / real.unit_roundoff) return;
  EXPECT_LE(residual(a, f) / units, 10) << where;
}

template <class Shape>
void test_kind(Kind kind, int k) {
  test_matrix<Shape>(generate(kind, dtype_of<typename Shape::Element>(), k, k, 5), name(kind));
}

// In an ordinary run the first size gets every kind, the others one: a fiber for each thread of a GPU is slow.
template <class Shape>
void test_shape(std::initializer_list<int> sizes) {
  for (const int k : sizes) {
    for (const Kind kind : kinds(dtype_of<typename Shape::Element>())) {
      if (is_long_run() || k == *sizes.begin() || kind == Kind::kNormal) test_kind<Shape>(kind, k);
    }
  }
}

// A size beyond 32: this one in a long run, the least odd or even one otherwise.
int larger(int k) { return is_long_run() ? k : 34 - k % 2; }

constexpr auto kNone = ColumnStorage::kNone, kRegisters = ColumnStorage::kRegisters, kMemory = ColumnStorage::kMemory;

// One warp and several, a last warp that is full or not, even and odd k.
TEST(PlacedJacobi, ColumnsInRegistersKeepTheContract) {
  test_shape<PlacedShape<Real<double>, 4, 8, kRegisters, kRegisters>>({9, 1, 2, 16, 17});
  test_shape<PlacedShape<Real<float>, 2, 8, kRegisters, kRegisters>>({5, 13});
  test_shape<PlacedShape<Complex<float>, 2, 8, kRegisters, kRegisters>>({9, 16});
  test_shape<PlacedShape<Complex<double>, 2, 16, kRegisters, kRegisters>>({6, 11});
}

TEST(PlacedJacobi, ColumnsInMemoryKeepTheContract) {
  test_shape<PlacedShape<Real<double>, 2, 8, kRegisters, kMemory>>({9, 2, 16});
  test_shape<PlacedShape<Complex<float>, 2, 8, kRegisters, kMemory>>({10, 15});
  test_shape<PlacedShape<Complex<double>, 2, 8, kMemory, kMemory>>({8, 13});
}

TEST(PlacedJacobi, ValuesAloneKeepTheContract) {
  test_shape<PlacedShape<Real<float>, 2, 8, kRegisters, kNone>>({10, 1, 16});
  test_shape<PlacedShape<Real<double>, 2, 8, kRegisters, kNone>>({11, 14});
  test_shape<PlacedShape<Complex<double>, 2, 8, kMemory, kNone>>({9, 12});
}

TEST(PlacedJacobi, TheSizesOfGpusKeepTheContract) {
  test_kind<PlacedShape<Real<double>, 8, 8, kRegisters, kRegisters>>(Kind::kNormal, 33);
  test_kind<PlacedShape<Real<float>, 8, 8, kRegisters, kNone>>(Kind::kLowRank, larger(40));
}

// Dependent columns and rows that fall steeply take the most sweeps, the more the larger the matrix.
TEST(PlacedJacobi, WhatConvergesSlowlyConvergesByDefault) {
  test_kind<PlacedShape<Real<double>, 8, 8, kRegisters, kNone>>(Kind::kDuplicates, 34);
  test_kind<PlacedShape<Complex<double>, 4, 16, kRegisters, kNone>>(Kind::kLowRank, 33);
  test_kind<PlacedShape<Real<double>, 8, 8, kRegisters, kNone>>(Kind::kSteepRows, larger(50));
}

// Lines that are zero or repeat others: as many sweeps as other matrices, whatever holds the columns.
template <class Shape>
void test_dead_lines(int k) {
  const Matrix a = generate(Kind::kNormal, dtype_of<typename Shape::Element>(), k, k, 3);
  const int64_t half = (k + 1) / 2;
  test_matrix<Shape>(with_dead_lines(a, {.rows = half}), "dead rows", 20);
  if (!is_long_run() && Shape::kY != ColumnStorage::kRegisters) return;
  test_matrix<Shape>(with_dead_lines(a, {.rows = half, .copies = true}), "repeated rows", 20);
  test_matrix<Shape>(with_dead_lines(a, {.rows = half, .cols = k - 3, .copies = true}), "repeated lines", 20);
}
TEST(PlacedJacobi, DeadLinesTakeTheUsualSweeps) {
  test_dead_lines<PlacedShape<Real<double>, 8, 8, kRegisters, kRegisters>>(33);
  test_dead_lines<PlacedShape<Real<float>, 8, 8, kRegisters, kNone>>(larger(48));
  test_dead_lines<PlacedShape<Complex<float>, 6, 8, kRegisters, kMemory>>(larger(41));
  test_dead_lines<PlacedShape<Complex<double>, 6, 8, kMemory, kMemory>>(larger(40));
}

// The floor of that is below every value of a graded matrix that can be known.
TEST(PlacedJacobi, GradedRowsKeepTheirSmallValues) {
  using Shape = PlacedShape<Real<double>, 8, 8, kRegisters, kRegisters>;
  const int k = 36;
  const Matrix b = generate(Kind::kNormal, DType::kF64, k, k, 3);
  const Plan plan =
      plan_of({k, k, DType::kF64, Order::kRowMajor}, {.method = Method::kJacobi, .vectors = Vectors::kThin});
  for (const auto& [alive, cols] : {std::pair(k, -1), std::pair(k - 3, 0), std::pair(k - 3, 1)}) {
    const Matrix a = with_dead_lines(b, {.rows = alive, .row_step = 4, .col_step = cols});
    auto reference = reference_singular_values(a);
    std::fill(reference.begin() + alive, reference.end(), 0);
    const Factors f = decompose<Shape>(a, plan, 0);
    EXPECT_EQ(f.status, MatrixStatus::kOk);
    EXPECT_LE(relative_error(DType::kF64, f.s, reference),
              relative_bound(plan.problem) * unit_column_condition(b) * 0x1p-53)
        << alive << " rows live, columns by 2^" << cols;
  }
}

TEST(PlacedJacobi, WhatIsNotFiniteIsSaid) {
  using Shape = PlacedShape<Real<double>, 2, 8, kRegisters, kRegisters>;
  Matrix a = generate(Kind::kNormal, DType::kF64, 11, 11, 1);
  const Plan plan = plan_of({11, 11, DType::kF64, Order::kRowMajor}, {.vectors = Vectors::kThin});
  for (const Poison poison : {Poison::kInfinity, Poison::kQuietNan}) {
    a.at(10, 10) = poison_value(poison);
    const Factors f = decompose<Shape>(a, plan, 3);
    EXPECT_EQ(f.status, MatrixStatus::kNonFinite);
    EXPECT_FALSE(f.vectors_finite);
    for (const double s : f.s) EXPECT_TRUE(std::isnan(s));
  }
}

TEST(PlacedJacobi, GivesUpAfterItsSweeps) {
  using Shape = PlacedShape<Real<double>, 2, 8, kRegisters, kRegisters>;
  const Matrix a = generate(Kind::kNormal, DType::kF64, 16, 16, 1);
  Plan plan = plan_of({16, 16, DType::kF64, Order::kRowMajor}, {.vectors = Vectors::kThin});
  plan.max_sweeps = 2;
  EXPECT_EQ(decompose<Shape>(a, plan, 0).status, MatrixStatus::kNotConverged);
}

// Columns that carry exponents: those of a reduction.
TEST(PlacedJacobi, ExponentsAreTaken) {
  using Shape = PlacedShape<Real<double>, 2, 8, kRegisters, kRegisters>;
  const int k = 10;
  Matrix a = generate(Kind::kNormal, DType::kF64, k, k, 1), b = a;
  std::vector<double> given(k);
  for (int j = 0; j < k; ++j) {
    given[static_cast<size_t>(j)] = 20 * j - 90;
    for (int i = 0; i < k; ++i) b.at(i, j) = a.at(i, j) * std::exp2(given[static_cast<size_t>(j)]);
  }
  const Plan plan = plan_of({k, k, DType::kF64, Order::kRowMajor}, {.vectors = Vectors::kThin});
  const Factors whole = decompose<Shape>(b, plan, 0);
  std::vector<double> mail(Shape::mail_numbers(k)), values(Shape::columns(k)), parts(Shape::threads(k) / 32);
  const scalar::PlacedMemory<Shape> memory{mail.data(), values.data(), parts.data(), nullptr, nullptr};
  struct Values {
    std::vector<double>* s;
    void value(int r, double x) const { (*s)[static_cast<size_t>(r)] = x; }
    void x(int, int, const Real<double>&, bool) const {}
    void y(int, int, const Real<double>&, bool) const {}
  };
  std::vector<double> s(k);
  FiberBlock block(Shape::threads(k), 0);
  block.run([&](FiberBlock::Thread thread) {
    scalar::PlacedJacobi<FiberBlock::Thread, Shape> jacobi(thread, memory, k);
    jacobi.run([&](int i, int j) { return element<Real<double>>(a.at(i, j)); }, given.data(), plan.tolerance,
               plan.max_sweeps, Values{&s});
  });
  EXPECT_EQ(s, whole.s);
}

}  // namespace
}  // namespace svdserve::numerics
