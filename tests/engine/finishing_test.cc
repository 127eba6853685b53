// The last steps of singular vectors, by the scalar lane: completion of bases, phases, the certificate. References are
// computed in long double; a shuffled team must give the same bits as one in order.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <complex>
#include <cstdint>
#include <cstring>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "engine/algorithms/finish/finish_vectors.h"
#include "engine/backends/host/finish/finishing.h"
#include "tests/support/numerics/matrix_generators.h"
#include "tests/support/numerics/random.h"
#include "tests/support/numerics/shuffled_team.h"

namespace svdserve {
namespace {

using numerics::Matrix;
using numerics::Random;
using numerics::ShuffledTeam;
using scalar::Alone;
using scalar::BasisWorkspace;
using scalar::CertificateWorkspace;
using scalar::FinishOptions;
using scalar::FinishTask;
using scalar::StridedMatrix;
using scalar::VectorMatrix;

template <class T>
using Lane = scalar::ScalarLane<T>;
using Real = long double;
using Number = std::complex<Real>;

size_t size(int64_t n) { return static_cast<size_t>(n); }

template <class E>
DType dtype_of() {
  constexpr bool kSingle = sizeof(typename E::Scalar) == 4;
  return E::kComplex ? (kSingle ? DType::kC64 : DType::kC128) : (kSingle ? DType::kF32 : DType::kF64);
}
template <class E>
Number number(const E& x) {
  if constexpr (E::kComplex) {
    return {x.re.v, x.im.v};
  } else {
    return {x.re.v, 0};
  }
}
template <class E>
E element(std::complex<double> z) {
  E x;
  x.re = Lane<typename E::Scalar>(static_cast<typename E::Scalar>(z.real()));
  if constexpr (E::kComplex) x.im = Lane<typename E::Scalar>(static_cast<typename E::Scalar>(z.imag()));
  return x;
}

// How the bytes of a matrix lie.
struct Storage {
  bool by_rows = false, conjugate = false;
};

// rows x columns elements at an odd address, poisoned.
template <class E>
class Stored {
 public:
  Stored(int rows, int columns, Storage storage = {})
      : rows_(rows),
        columns_(columns),
        storage_(storage),
        bytes_(size(int64_t{rows} * columns) * sizeof(E) + 1, char{0x7b}) {}
  Stored(const Matrix& a, Storage storage = {}) : Stored(static_cast<int>(a.rows), static_cast<int>(a.cols), storage) {
    for (int j = 0; j < columns_; ++j) {
      for (int i = 0; i < rows_; ++i) view().at.set(i, j, element<E>(a.at(i, j)));
    }
  }

  VectorMatrix<E> view() {
    return {{bytes_.data() + 1, row_stride(), col_stride(), storage_.conjugate}, rows_, columns_};
  }
  StridedMatrix<E, const char> source() const {
    return {bytes_.data() + 1, row_stride(), col_stride(), storage_.conjugate};
  }
  Number at(int i, int j) const { return number(source()(i, j)); }
  void zero_column(int j) {
    for (int i = 0; i < rows_; ++i) view().at.set(i, j, scalar::zero_element<E>());
  }
  void copy_columns(const Matrix& from, int count) {
    for (int j = 0; j < count; ++j) {
      for (int i = 0; i < rows_; ++i) view().at.set(i, j, element<E>(from.at(i, j)));
    }
  }
  const std::vector<char>& bytes() const { return bytes_; }
  std::vector<typename E::Scalar> components() const {
    std::vector<typename E::Scalar> all(bytes_.size() / sizeof(typename E::Scalar));
    std::memcpy(all.data(), bytes_.data() + 1, all.size() * sizeof(all[0]));
    return all;
  }
  int rows() const { return rows_; }
  int columns() const { return columns_; }

 private:
  int64_t row_stride() const { return storage_.by_rows ? columns_ : 1; }
  int64_t col_stride() const { return storage_.by_rows ? 1 : rows_; }

  int rows_, columns_;
  Storage storage_;
  std::vector<char> bytes_;
};

template <class E>
struct Scratch {
  Scratch(int rows, int k)
      : elements(size(BasisWorkspace<E>::elements(rows, k))),
        numbers(size(CertificateWorkspace::numbers(rows, k))),
        basis(BasisWorkspace<E>::in(elements.data(), rows, k)),
        sums(CertificateWorkspace::in(numbers.data(), rows, k)) {}
  std::vector<E> elements;
  std::vector<scalar::WideNumber> numbers;
  BasisWorkspace<E> basis;
  CertificateWorkspace sums;
};

// Kernels are inlined wherever they are called, and an instrumented one takes the compiler many seconds.
template <class E>
[[gnu::noinline]] int complete_basis(VectorMatrix<E> x, int k, const Lane<typename E::Scalar>* s,
                                     const BasisWorkspace<E>& workspace) {
  return scalar::complete_basis(Alone(), x, k, s, workspace);
}
template <class E>
[[gnu::noinline]] void fix_phases(VectorMatrix<E> leading, VectorMatrix<E> other, int k) {
  scalar::fix_phases(Alone(), leading, other, k);
}
template <class E>
[[gnu::noinline]] scalar::Certificate certificate_of(StridedMatrix<E, const char> a, VectorMatrix<E> x,
                                                     VectorMatrix<E> y, const Lane<typename E::Scalar>* s, int k,
                                                     bool wide, bool finite, const CertificateWorkspace& workspace) {
  return scalar::certificate(Alone(), scalar::OperandMatrix<E>{a}, x, y, s, k, wide, finite, workspace);
}
template <class Team, class E>
[[gnu::noinline]] void finish(const Team& team, const FinishOptions& options, const FinishTask<E>& task) {
  scalar::finish_vectors(team, options, task);
}

// |I - X^H X|_F
template <class E>
Real orthogonality_of(const Stored<E>& x, int columns) {
  Real sum = 0;
  for (int q = 0; q < columns; ++q) {
    for (int p = 0; p < columns; ++p) {
      Number dot = p == q ? Number(-1) : Number(0);
      for (int i = 0; i < x.rows(); ++i) dot += std::conj(x.at(i, p)) * x.at(i, q);
      sum += std::norm(dot);
    }
  }
  return std::sqrt(sum);
}

// |T - X S Y^H|_F / |T|_F
template <class E, class T>
Real residual_of(const Stored<E>& t, const Stored<E>& x, const Stored<E>& y, const std::vector<T>& s) {
  Real square = 0, norm = 0;
  for (int i = 0; i < t.rows(); ++i) {
    for (int j = 0; j < t.columns(); ++j) {
      Number rest = t.at(i, j);
      norm += std::norm(rest);
      for (int l = 0; l < static_cast<int>(s.size()); ++l) {
        rest -= x.at(i, l) * static_cast<Real>(s[size(l)]) * std::conj(y.at(j, l));
      }
      square += std::norm(rest);
    }
  }
  return std::sqrt(square) / std::sqrt(norm);
}

template <class E>
class Finishing : public testing::Test {
 public:
  using T = typename E::Scalar;
  static constexpr Real kU = FloatTraits<T>::kUnitRoundoff;

  static Matrix orthonormal(int rows, int columns, Random& random) {
    return numerics::orthonormal_columns(dtype_of<E>(), rows, columns, random);
  }
  static std::vector<Lane<T>> lanes(const std::vector<T>& s) {
    std::vector<Lane<T>> all;
    for (const T x : s) all.push_back(Lane<T>(x));
    return all;
  }

  // The first r of k columns known, `columns` wanted.
  static Stored<E> incomplete(int rows, int r, int k, int columns, Storage storage, Random& random) {
    Stored<E> x(rows, columns, storage);
    x.copy_columns(orthonormal(rows, k, random), std::min(r, columns));
    for (int j = r; j < std::min(k, columns); ++j) x.zero_column(j);
    return x;
  }

  static void expect_completed(int rows, int r, int k, int columns, Storage storage, Random& random) {
    SCOPED_TRACE(testing::Message() << rows << " x " << columns << ", k = " << k << ", r = " << r);
    Stored<E> x = incomplete(rows, r, k, columns, storage, random);
    const Stored<E> before = x;
    Scratch<E> scratch(rows, k);
    const int known = complete_basis(x.view(), k, static_cast<const Lane<T>*>(nullptr), scratch.basis);
    ASSERT_EQ(known, std::min(r, columns));
    ASSERT_LE(orthogonality_of(x, columns), 10 * rows * kU);
    for (int j = 0; j < known; ++j) {
      for (int i = 0; i < rows; ++i) ASSERT_EQ(x.at(i, j), before.at(i, j));
    }
  }
};

using Elements = testing::Types<scalar::SVD_TEST_ELEMENT>;  // a unit for each: CMakeLists.txt
struct ElementNames {
  template <class E>
  static std::string GetName(int) {
    return name(dtype_of<E>());
  }
};
TYPED_TEST_SUITE(Finishing, Elements, ElementNames);

// --- completion ----------------------------------------------------------------------------------------------------

TYPED_TEST(Finishing, CompletesThinBases) {
  Random random(1);
  for (int rows = 1; rows <= 70; ++rows) {
    const int k = static_cast<int>(random.integer(1, std::min(rows, 32)));
    const int step = rows <= 16 ? 1 : 5;
    for (int r = 0; r <= k; r += step) {
      this->expect_completed(rows, r, k, k, {random.coin(), random.coin()}, random);
      if (this->HasFatalFailure()) return;
    }
  }
}

TYPED_TEST(Finishing, CompletesFullBases) {
  Random random(2);
  for (int rows = 1; rows <= 70; rows += rows < 16 ? 1 : 9) {
    const int k = static_cast<int>(random.integer(1, std::min(rows, 32)));
    for (const int r : {0, k / 2, k}) {
      this->expect_completed(rows, r, k, rows, {random.coin(), random.coin()}, random);
      if (this->HasFatalFailure()) return;
    }
  }
}

// Fewer columns than values, or more than k but not all.
TYPED_TEST(Finishing, CompletesWhatIsStored) {
  Random random(3);
  this->expect_completed(20, 5, 8, 3, {}, random);
  this->expect_completed(20, 5, 8, 7, {}, random);
  this->expect_completed(20, 5, 8, 13, {true, true}, random);
}

TYPED_TEST(Finishing, NoKnownColumnsGiveTheIdentity) {
  Random random(4);
  Stored<TypeParam> x = this->incomplete(9, 0, 4, 9, {}, random);
  Scratch<TypeParam> scratch(9, 4);
  const Lane<typename TypeParam::Scalar>* const none = nullptr;
  complete_basis(x.view(), 4, none, scratch.basis);
  for (int j = 0; j < 9; ++j) {
    for (int i = 0; i < 9; ++i) EXPECT_EQ(x.at(i, j), Number(i == j));
  }
}

// Unit vectors make reflectors with zeros and with heads of either sign.
TYPED_TEST(Finishing, CompletesUnitVectors) {
  Random random(5);
  for (int rows = 2; rows <= 12; ++rows) {
    Stored<TypeParam> x(rows, rows);
    const int r = rows / 2;
    for (int j = 0; j < rows; ++j) {
      x.zero_column(j);
      const int row = rows % 3 == 0 ? j : rows - 1 - j;
      if (j < r) x.view().at.set(row, j, element<TypeParam>(random.coin() ? 1 : -1));
    }
    Scratch<TypeParam> scratch(rows, rows);
    const Lane<typename TypeParam::Scalar>* const none = nullptr;
    complete_basis(x.view(), rows, none, scratch.basis);
    EXPECT_LE(orthogonality_of(x, rows), 10 * rows * this->kU) << rows;
  }
}

// A positive smallest value says that no column is missing: X is not even read.
TYPED_TEST(Finishing, FullRankIsLeftAlone) {
  using T = typename TypeParam::Scalar;
  Stored<TypeParam> x(10, 3);
  for (int j = 0; j < 3; ++j) x.zero_column(j);
  const auto before = x.bytes();
  Scratch<TypeParam> scratch(10, 3);
  const auto s = this->lanes({T(3), T(2), FloatTraits<T>::kSmallestNormal});
  EXPECT_EQ(complete_basis(x.view(), 3, s.data(), scratch.basis), 3);
  EXPECT_EQ(x.bytes(), before);
}

// A zero column may come before one whose value was rounded to zero.
TYPED_TEST(Finishing, ColumnsAfterAZeroOneAreReplaced) {
  using T = typename TypeParam::Scalar;
  Random random(6);
  Stored<TypeParam> x(10, 4);
  x.copy_columns(this->orthonormal(10, 4, random), 4);
  x.zero_column(2);
  Scratch<TypeParam> scratch(10, 4);
  const auto s = this->lanes({T(3), T(2), T(0), T(0)});
  EXPECT_EQ(complete_basis(x.view(), 4, s.data(), scratch.basis), 2);
  EXPECT_LE(orthogonality_of(x, 4), 100 * this->kU);
}

// Columns that were given up before they converged: the complement is orthonormal in itself, and finite.
TYPED_TEST(Finishing, ComplementOfDependentColumns) {
  Random random(7);
  Stored<TypeParam> x(12, 6);
  const Matrix q = this->orthonormal(12, 1, random);
  for (int j = 0; j < 3; ++j) {
    for (int i = 0; i < 12; ++i) x.view().at.set(i, j, element<TypeParam>(q.at(i, 0)));
  }
  for (int j = 3; j < 6; ++j) x.zero_column(j);
  Scratch<TypeParam> scratch(12, 6);
  const Lane<typename TypeParam::Scalar>* const none = nullptr;
  EXPECT_EQ(complete_basis(x.view(), 6, none, scratch.basis), 3);
  for (int p = 0; p < 6; ++p) {
    for (int q2 = std::max(p, 3); q2 < 6; ++q2) {
      Number dot = p == q2 ? Number(-1) : Number(0);
      for (int i = 0; i < 12; ++i) dot += std::conj(x.at(i, p)) * x.at(i, q2);
      EXPECT_LE(std::abs(dot), 100 * this->kU) << p << ", " << q2;
    }
  }
}

// --- phases --------------------------------------------------------------------------------------------------------

TYPED_TEST(Finishing, PhasesAreFixedAndTheProductStays) {
  using T = typename TypeParam::Scalar;
  Random random(8);
  for (int trial = 0; trial < 200; ++trial) {
    const int k = static_cast<int>(random.integer(1, 9)), rows = static_cast<int>(random.integer(k, 40));
    const bool leads_long = random.coin(), full = random.coin();
    Stored<TypeParam> x(this->orthonormal(rows, full ? rows : k, random), {random.coin(), random.coin()});
    Stored<TypeParam> y(this->orthonormal(k, k, random), {random.coin(), random.coin()});
    const Stored<TypeParam> x_before = x, y_before = y;
    fix_phases(leads_long ? x.view() : y.view(), leads_long ? y.view() : x.view(), k);
    for (int j = 0; j < x.columns(); ++j) {
      const Stored<TypeParam>& u = leads_long || j >= k ? x : y;
      const Stored<TypeParam>& u_before = leads_long || j >= k ? x_before : y_before;
      int largest = 0;
      for (int i = 1; i < u.rows(); ++i) {
        const auto square = [&](int l) {
          const Number z = u_before.at(l, j);
          const T re = static_cast<T>(z.real()), im = static_cast<T>(z.imag());
          return std::fma(im, im, re * re);
        };
        if (square(i) > square(largest)) largest = i;
      }
      const Number z = u.at(largest, j);
      EXPECT_GT(z.real(), 0);
      EXPECT_EQ(z.imag(), 0);
      EXPECT_NEAR(static_cast<double>(z.real()), static_cast<double>(std::abs(u_before.at(largest, j))),
                  static_cast<double>(2 * this->kU));
      if (j >= k) continue;
      for (int i = 0; i < rows; ++i) {
        for (int l = 0; l < k; ++l) {
          const Number change = x.at(i, j) * std::conj(y.at(l, j)) - x_before.at(i, j) * std::conj(y_before.at(l, j));
          EXPECT_LE(std::abs(change), (TypeParam::kComplex ? 20 : 0) * this->kU);
        }
      }
    }
  }
}

TYPED_TEST(Finishing, TheFirstOfEqualsDecides) {
  using E = TypeParam;
  Stored<E> u(3, 1), v(1, 1);
  u.view().at.set(0, 0, element<E>(0));
  u.view().at.set(1, 0, element<E>(-0.5));
  u.view().at.set(2, 0, element<E>(0.5));
  v.view().at.set(0, 0, element<E>(1));
  fix_phases(u.view(), v.view(), 1);
  EXPECT_EQ(u.at(1, 0), Number(0.5));
  EXPECT_EQ(u.at(2, 0), Number(-0.5));
  EXPECT_EQ(v.at(0, 0), Number(-1));
  EXPECT_FALSE(std::signbit(u.at(0, 0).real()));
  if constexpr (E::kComplex) {
    u.view().at.set(1, 0, element<E>({0, 0.5}));
    u.view().at.set(2, 0, element<E>({0.5, 0}));
    v.view().at.set(0, 0, element<E>({0, 1}));
    fix_phases(u.view(), v.view(), 1);
    EXPECT_EQ(u.at(1, 0), Number(0.5));
    EXPECT_EQ(u.at(2, 0), Number(0, -0.5));
    EXPECT_EQ(v.at(0, 0), Number(1));
  }
}

// --- the certificate -----------------------------------------------------------------------------------------------

// A = X S Y^H, rounded, with some power of two in front; the residual is a few u.
template <class E>
struct Decomposed {
  using T = typename E::Scalar;

  Decomposed(int rows, int k, bool graded, int exponent, Random& random)
      : t(rows, k, {random.coin(), false}),
        x(numerics::orthonormal_columns(dtype_of<E>(), rows, k, random), {random.coin(), random.coin()}),
        y(numerics::orthonormal_columns(dtype_of<E>(), k, k, random), {random.coin(), random.coin()}) {
    for (int l = 0; l < k; ++l) {
      const double value = graded ? std::pow(2.0, -3.0 * l) : random.uniform(0.5, 1);
      s.push_back(static_cast<T>(std::ldexp(value, exponent)));
    }
    std::sort(s.begin(), s.end(), std::greater<>());
    for (int i = 0; i < rows; ++i) {
      for (int j = 0; j < k; ++j) {
        Number sum = 0;
        for (int l = 0; l < k; ++l) sum += x.at(i, l) * static_cast<Real>(s[size(l)]) * std::conj(y.at(j, l));
        t.view().at.set(i, j, element<E>(std::complex<double>(sum)));
      }
    }
  }

  scalar::Certificate certificate(bool wide = false, bool finite = true) {
    Scratch<E> scratch(t.rows(), t.columns());
    std::vector<Lane<T>> lanes;
    for (const T value : s) lanes.push_back(Lane<T>(value));
    return certificate_of<E>(t.source(), x.view(), y.view(), lanes.data(), t.columns(), wide, finite, scratch.sums);
  }

  Stored<E> t, x, y;
  std::vector<T> s;
};

void expect_close(Real got, Real wanted, Real error) { EXPECT_LE(std::abs(got - wanted), error) << wanted; }

TYPED_TEST(Finishing, CertificateIsThatOfLongDouble) {
  using T = typename TypeParam::Scalar;
  using Limits = std::numeric_limits<T>;
  Random random(9);
  for (int trial = 0; trial < 120; ++trial) {
    const int k = static_cast<int>(random.integer(1, 12)), rows = static_cast<int>(random.integer(k, 70));
    const int exponents[] = {0, Limits::max_exponent - 1, Limits::min_exponent + 3, Limits::min_exponent - 12, -70, 60};
    Decomposed<TypeParam> d(rows, k, trial % 2 == 0, exponents[trial % 6], random);
    if (trial % 3 == 0) d.s[0] *= T(0.75);
    const bool wide = random.coin();
    const scalar::Certificate c = d.certificate(wide);
    const Real residual = residual_of(d.t, d.x, d.y, d.s);
    const Real of_x = orthogonality_of(d.x, k), of_y = orthogonality_of(d.y, k);
    // Its own rounding errors, in double whatever the type.
    const Real own = (4 + k) * Real(0x1p-53);
    expect_close(c.residual.v, residual, own * (1 + residual));
    expect_close(c.left.v, wide ? of_y : of_x, own);
    expect_close(c.right.v, wide ? of_x : of_y, own);
  }
}

TYPED_TEST(Finishing, CertificateFindsAWrongEntry) {
  Random random(10);
  for (int trial = 0; trial < 50; ++trial) {
    const int k = static_cast<int>(random.integer(2, 12)), rows = static_cast<int>(random.integer(k, 70));
    Decomposed<TypeParam> d(rows, k, false, 0, random);
    const auto before = d.certificate();
    EXPECT_LE(before.residual.v, 10 * rows * this->kU);
    EXPECT_LE(before.left.v, 10 * rows * this->kU);
    EXPECT_LE(before.right.v, 10 * k * this->kU);
    const bool in_x = random.coin();
    Stored<TypeParam>& wrong = in_x ? d.x : d.y;
    const int i = static_cast<int>(random.integer(0, wrong.rows() - 1)), j = static_cast<int>(random.integer(0, k - 1));
    const Number z = wrong.at(i, j);
    wrong.view().at.set(i, j, element<TypeParam>(std::complex<double>(z) + 0.01));
    const auto after = d.certificate();
    EXPECT_GT(after.residual.v, 1e-4);
    EXPECT_GT((in_x ? after.left : after.right).v, 1e-5);
    EXPECT_EQ((in_x ? after.right : after.left).v, (in_x ? before.right : before.left).v);
  }
}

TYPED_TEST(Finishing, CertificateOfTheExtremes) {
  using T = typename TypeParam::Scalar;
  Random random(11);
  Decomposed<TypeParam> d(9, 3, false, 0, random);
  for (int j = 0; j < 3; ++j) d.t.zero_column(j);
  d.s = {0, 0, 0};
  EXPECT_EQ(d.certificate().residual.v, 0);
  d.s = {1, 0, 0};
  EXPECT_EQ(d.certificate().residual.v, std::numeric_limits<double>::infinity());
  Decomposed<TypeParam> huge(9, 3, false, std::numeric_limits<T>::max_exponent - 1, random);
  huge.s[0] = std::numeric_limits<T>::infinity();
  EXPECT_EQ(huge.certificate().residual.v, std::numeric_limits<double>::infinity());
  EXPECT_LE(huge.certificate().left.v, 90 * this->kU);
  const auto none = huge.certificate(false, false);
  EXPECT_TRUE(std::isnan(none.residual.v) && std::isnan(none.left.v) && std::isnan(none.right.v));
}

// --- all of it -----------------------------------------------------------------------------------------------------

// One matrix of rank r with everything asked for.
template <class E>
struct Finished {
  using T = typename E::Scalar;

  Finished(int rows, int r, int k, bool full, bool wide, uint64_t seed)
      : Finished(rows, r, k, full, wide, Random(seed)) {}

  template <class Team>
  void run(const Team& team, bool fix_phases = true, bool finite = true) {
    Scratch<E> scratch(d.t.rows(), k);
    std::vector<Lane<T>> s;
    for (const T value : d.s) s.push_back(Lane<T>(value));
    const FinishOptions options{k, wide, fix_phases, false, true};
    const FinishTask<E> task{x.view(),       d.y.view(),  s.data(),      finite,
                             {d.t.source()}, certificate, scratch.basis, scratch.sums};
    svdserve::finish(team, options, task);
  }
  std::vector<char> bits() const {
    std::vector<char> all = x.bytes();
    all.insert(all.end(), d.y.bytes().begin(), d.y.bytes().end());
    const char* const c = reinterpret_cast<const char*>(certificate);
    all.insert(all.end(), c, c + sizeof(certificate));
    return all;
  }

  int k;
  bool wide;
  Decomposed<E> d;
  Stored<E> x;
  T certificate[3] = {};

 private:
  Finished(int rows, int r, int k, bool full, bool wide, Random random)
      : k(k), wide(wide), d(rows, k, false, 0, random), x(rows, full ? rows : k, {random.coin(), random.coin()}) {
    for (int j = 0; j < k; ++j) {
      for (int i = 0; i < rows; ++i) x.view().at.set(i, j, j < r ? d.x.view().at(i, j) : scalar::zero_element<E>());
      if (j >= r) d.s[size(j)] = 0;
    }
    for (int i = 0; i < rows; ++i) {
      for (int j = 0; j < k; ++j) {
        Number sum = 0;
        for (int l = 0; l < r; ++l) sum += x.at(i, l) * static_cast<Real>(d.s[size(l)]) * std::conj(d.y.at(j, l));
        d.t.view().at.set(i, j, element<E>(std::complex<double>(sum)));
      }
    }
  }
};

TYPED_TEST(Finishing, EverythingAtOnce) {
  using T = typename TypeParam::Scalar;
  Random random(12);
  for (uint64_t seed = 0; seed < 60; ++seed) {
    const int k = static_cast<int>(random.integer(1, 12)), rows = static_cast<int>(random.integer(k, 70));
    const int r = static_cast<int>(random.integer(0, k));
    const bool full = random.coin();
    Finished<TypeParam> f(rows, r, k, full, random.coin(), seed);
    f.run(Alone(), random.coin());
    EXPECT_LE(orthogonality_of(f.x, f.x.columns()), 10 * rows * this->kU);
    EXPECT_LE(f.certificate[0], 10 * rows * this->kU);
    EXPECT_LE(f.certificate[f.wide ? 2 : 1], 10 * rows * this->kU);
    EXPECT_LE(f.certificate[f.wide ? 1 : 2], 10 * k * this->kU);
    if (r == 0) {
      EXPECT_EQ(f.certificate[0], 0);
    }
    for (const auto* m : {&f.x, &f.d.y}) {
      for (const T c : m->components()) EXPECT_FALSE(c == 0 && std::signbit(c));
    }
  }
}

TYPED_TEST(Finishing, NotFiniteIsNanThroughout) {
  using T = typename TypeParam::Scalar;
  for (const bool fix : {false, true}) {
    Finished<TypeParam> f(9, 2, 4, true, false, 13);
    f.run(Alone(), fix, false);
    const T nan = FloatTraits<T>::nan();
    const auto is_nan = [&](const T& c) { return std::memcmp(&c, &nan, sizeof(T)) == 0; };
    for (const auto* m : {&f.x, &f.d.y}) {
      for (const T& c : m->components()) EXPECT_TRUE(is_nan(c));
    }
    for (const T& c : f.certificate) EXPECT_TRUE(is_nan(c));
  }
}

TYPED_TEST(Finishing, TheBitsDoNotDependOnTheTeam) {
  Random random(14);
  for (uint64_t seed = 0; seed < 60; ++seed) {
    const int k = static_cast<int>(random.integer(1, 20)), rows = static_cast<int>(random.integer(k, 70));
    const int r = static_cast<int>(random.integer(0, k));
    const Finished<TypeParam> given(rows, r, k, random.coin(), random.coin(), seed);
    Finished<TypeParam> in_order = given, shuffled = given;
    in_order.run(Alone());
    shuffled.run(ShuffledTeam(seed));
    EXPECT_EQ(in_order.bits(), shuffled.bits()) << rows << ", " << r << ", " << k;
  }
}

// --- the planes of a plan, on the host
// --------------------------------------------------------------------------------

// One matrix of rank `r` < k, decomposed into the planes of a plan.
template <class E>
struct HostPlanes {
  using T = typename E::Scalar;

  HostPlanes(const Problem& p, const Options& options, int r, Random& random)
      : plan(*make_plan(p, options).plan),
        k(static_cast<int>(values_per_matrix(p))),
        left(size(plane_bytes(plan, Plane::kLeft, 1)) + 1, char{0x7b}),
        right(size(plane_bytes(plan, Plane::kRight, 1)) + 1, char{0x7b}),
        a(size(p.rows * p.cols)) {
    for (int l = 0; l < k; ++l) s.push_back(l < r ? static_cast<T>(k - l) : T(0));
    const Matrix u = numerics::orthonormal_columns(p.dtype, p.rows, k, random);
    const Matrix v = numerics::orthonormal_columns(p.dtype, p.cols, k, random);
    for (int64_t i = 0; i < p.rows; ++i) {
      for (int64_t j = 0; j < p.cols; ++j) {
        std::complex<double> sum = 0;
        for (int l = 0; l < r; ++l) sum += u.at(i, l) * static_cast<double>(s[size(l)]) * std::conj(v.at(j, l));
        a[size(p.order == Order::kRowMajor ? i * p.cols + j : j * p.rows + i)] = element<E>(sum);
      }
    }
    const bool wide = p.cols > p.rows;
    write(wide ? v : u, long_layout(p, plan.outputs), r);
    write(wide ? u : v, short_layout(p, plan.outputs), k);
  }

  // X = U, Y = V, or their conjugates where A is wide, as a kernel writes them.
  void write(const Matrix& of_a, const VectorLayout& layout, int known) {
    const bool wide = plan.problem.cols > plan.problem.rows;
    const StridedMatrix<E> to{at(layout.plane), layout.row_stride, layout.col_stride, layout.conjugate};
    for (int j = 0; j < k; ++j) {
      for (int i = 0; i < layout.rows; ++i) {
        const E x = element<E>(j < known ? of_a.at(i, j) : 0.0);
        to.set(i, j, wide ? scalar::conj(x) : x);
      }
    }
  }
  char* at(Plane plane) { return (plane == Plane::kLeft ? left : right).data() + 1; }

  void finish() {
    std::vector<double> workspace(host::finish_workspace_bytes(plan) / sizeof(double) + 1);
    host::FinishCall<T> call;
    call.s = s.data();
    call.x_layout = long_layout(plan.problem, plan.outputs);
    call.y_layout = short_layout(plan.problem, plan.outputs);
    call.x = at(call.x_layout.plane);
    call.y = at(call.y_layout.plane);
    call.status = MatrixStatus::kOk;
    call.a = a.data();
    call.certificate = certificate;
    call.workspace = workspace.data();
    host::finish_vectors(plan, call);
  }

  // As a client reads it: U, and V^H transposed and conjugated.
  Stored<E> u_of_plane() { return of_plane(Plane::kLeft, plan.problem.rows, plan.outputs.left_columns, false); }
  Stored<E> v_of_plane() { return of_plane(Plane::kRight, plan.problem.cols, plan.outputs.right_columns, true); }
  Stored<E> of_plane(Plane plane, int64_t rows, int64_t columns, bool adjoint) {
    Stored<E> x(static_cast<int>(rows), static_cast<int>(columns));
    const bool by_rows = (plan.problem.order == Order::kRowMajor) != adjoint;
    const StridedMatrix<E> from{at(plane), by_rows ? columns : 1, by_rows ? 1 : rows, adjoint};
    for (int j = 0; j < columns; ++j) {
      for (int i = 0; i < rows; ++i) x.view().at.set(i, j, from(i, j));
    }
    return x;
  }

  Plan plan;
  int k;
  std::vector<char> left, right;
  std::vector<E> a;
  std::vector<T> s;
  T certificate[3] = {};
};

TYPED_TEST(Finishing, PlanesOfEveryShapeOnTheHost) {
  using E = TypeParam;
  Random random(15);
  for (const auto& [rows, cols] : {std::pair(1, 1), std::pair(6, 6), std::pair(11, 4), std::pair(3, 9)}) {
    for (const Order order : {Order::kRowMajor, Order::kColumnMajor}) {
      for (const Vectors vectors : {Vectors::kThin, Vectors::kFull}) {
        SCOPED_TRACE(testing::Message() << rows << " x " << cols << (order == Order::kRowMajor ? " by rows" : ""));
        const Problem problem{rows, cols, dtype_of<E>(), order};
        Options options;
        options.vectors = vectors;
        options.fix_phases = options.certificate = true;
        const int k = std::min(rows, cols);
        HostPlanes<E> planes(problem, options, (k + 1) / 2, random);
        planes.finish();
        const Stored<E> u = planes.u_of_plane(), v = planes.v_of_plane();
        EXPECT_LE(orthogonality_of(u, u.columns()), 10 * rows * this->kU);
        EXPECT_LE(orthogonality_of(v, v.columns()), 10 * cols * this->kU);
        Stored<E> a(rows, cols);
        for (int j = 0; j < cols; ++j) {
          for (int i = 0; i < rows; ++i) {
            a.view().at.set(i, j, planes.a[size(order == Order::kRowMajor ? i * cols + j : j * rows + i)]);
          }
        }
        const Real residual = residual_of(a, u, v, planes.s);
        EXPECT_LE(residual, 10 * std::max(rows, cols) * this->kU);
        const Real own = (8 + k) * std::max<Real>(0x1p-53L, this->kU * Real(1e-6));
        expect_close(planes.certificate[0], residual, own);
        expect_close(planes.certificate[1], orthogonality_of(u, k), own);
        expect_close(planes.certificate[2], orthogonality_of(v, k), own);
        for (int j = 0; j < u.columns(); ++j) {
          Number largest = 0;
          for (int i = 0; i < rows; ++i) largest = std::abs(u.at(i, j)) > std::abs(largest) ? u.at(i, j) : largest;
          EXPECT_GT(largest.real(), 0);
          EXPECT_LE(std::abs(largest.imag()), 4 * this->kU);  // moduli that are equal up to rounding
        }
      }
    }
  }
}

}  // namespace
}  // namespace svdserve
