// Batches of 129 <= min(m, n) <= 512 keep the contract on a CPU: values, vectors, full bases, certificates, parts of the
// answer. A reference of high precision would take minutes. So the matrices have known values, or the check is one of
// bits.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "tests/support/numerics/contract.h"
#include "tests/support/numerics/effort.h"
#include "tests/support/numerics/engine_run.h"
#include "tests/support/numerics/known_spectrum.h"
#include "tests/support/numerics/matrix_generators.h"
#include "tests/support/numerics/planes_run.h"
#include "tests/support/numerics/reference_svd.h"
#include "tests/support/numerics/vector_checks.h"

namespace svdserve::numerics {
namespace {

using Shape = std::pair<int64_t, int64_t>;

enum class Spectrum { kSpread, kGraded, kDeficient, kEqual, kClusters, kZero };
constexpr Spectrum kSpectra[] = {Spectrum::kSpread, Spectrum::kGraded,   Spectrum::kDeficient,
                                 Spectrum::kEqual,  Spectrum::kClusters, Spectrum::kZero};

std::vector<double> values_of(Spectrum spectrum, int64_t k, Random& random) {
  std::vector<double> s;
  for (int64_t i = 0; i < k; ++i) {
    const double at = static_cast<double>(i) / static_cast<double>(k - 1);
    switch (spectrum) {
      case Spectrum::kSpread:
        s.push_back(random.uniform(0.01, 3));
        break;
      case Spectrum::kGraded:
        s.push_back(std::pow(10, -12 * at));
        break;
      case Spectrum::kDeficient:
        s.push_back(i < k / 2 ? random.uniform(0.5, 2) : 0);
        break;
      case Spectrum::kEqual:
        s.push_back(0.75);
        break;
      case Spectrum::kClusters:
        s.push_back(i % 3 == 0 ? 1e-3 : 1);
        break;
      case Spectrum::kZero:
        s.push_back(0);
        break;
    }
  }
  std::sort(s.rbegin(), s.rend());
  return s;
}

// Columns or rows of a matrix times a vector, in long double.
std::vector<Wide> product(const Dense& d, const std::vector<Wide>& x, bool adjoint) {
  std::vector<Wide> y(static_cast<size_t>(adjoint ? d.cols : d.rows));
  for (int64_t i = 0; i < d.rows; ++i) {
    for (int64_t j = 0; j < d.cols; ++j) {
      const auto row = static_cast<size_t>(i), column = static_cast<size_t>(j);
      if (adjoint) {
        y[column] += std::conj(d.at(i, j)) * x[row];
      } else {
        y[row] += d.at(i, j) * x[column];
      }
    }
  }
  return y;
}

std::vector<Wide> random_signs(int64_t n, Random& random) {
  std::vector<Wide> x(static_cast<size_t>(n));
  for (Wide& z : x) z = random.coin() ? 1 : -1;
  return x;
}

long double square(const std::vector<Wide>& x) {
  long double sum = 0;
  for (const Wide& z : x) sum += std::norm(z);
  return sum;
}

// The mean of |M x|^2 over vectors x of random signs is |M|_F^2: a few of them estimate the norm of a large M.
constexpr int kProbes = 8;

// |I - U^H U|_F of the columns, or of the rows of V^H.
long double estimate_orthogonality(const Dense& d, bool of_rows, Random& random) {
  long double sum = 0;
  for (int probe = 0; probe < kProbes; ++probe) {
    const std::vector<Wide> x = random_signs(of_rows ? d.rows : d.cols, random);
    std::vector<Wide> y = product(d, product(d, x, of_rows), !of_rows);
    for (size_t i = 0; i < x.size(); ++i) y[i] -= x[i];
    sum += square(y);
  }
  return std::sqrt(sum / kProbes);
}

Dense dense_of(const Matrix& a) {
  Dense d{a.rows, a.cols, std::vector<Wide>(a.elements.size())};
  for (int64_t i = 0; i < a.rows; ++i) {
    for (int64_t j = 0; j < a.cols; ++j) {
      d.at_[static_cast<size_t>(i * a.cols + j)] = {a.at(i, j).real(), a.at(i, j).imag()};
    }
  }
  return d;
}

// |A - U S V^H|_F / |A|_F
long double estimate_residual(const Matrix& matrix, const Dense& u, const std::vector<double>& s, const Dense& vh,
                              Random& random) {
  const Dense a = dense_of(matrix);
  long double sum = 0, size = 0;
  for (const Wide& z : a.at_) size += std::norm(z);
  if (size == 0) return 0;
  for (int probe = 0; probe < kProbes; ++probe) {
    const std::vector<Wide> x = random_signs(a.cols, random);
    std::vector<Wide> y = product(vh, x, false);
    y.resize(static_cast<size_t>(u.cols));  // full bases: more rows of one than of the other
    for (size_t i = 0; i < y.size(); ++i) y[i] *= i < s.size() ? static_cast<long double>(s[i]) : 0;
    const std::vector<Wide> with = product(u, y, false);
    std::vector<Wide> difference = product(a, x, false);
    for (size_t i = 0; i < difference.size(); ++i) difference[i] -= with[i];
    sum += square(difference);
  }
  return std::sqrt(sum / kProbes / size);
}

Matrix scaled_by(Matrix a, int exponent) {
  for (auto& z : a.elements) z = {std::ldexp(z.real(), exponent), std::ldexp(z.imag(), exponent)};
  return a;
}

// Small integers: exact in every type, and times any power of two that leaves them normal.
Matrix integers(DType dtype, int64_t rows, int64_t cols, uint64_t seed) {
  Random random(seed);
  Matrix a(dtype, rows, cols);
  for (auto& z : a.elements) {
    z = {static_cast<double>(random.integer(-127, 127)),
         is_complex(dtype) ? static_cast<double>(random.integer(-127, 127)) : 0};
  }
  return a;
}

class BlockedBatchTest : public ::testing::TestWithParam<DType> {
 protected:
  Plan plan(const Shape& shape, const Options& options = {}, Order order = Order::kRowMajor) const {
    return plan_of({shape.first, shape.second, GetParam(), order}, options);
  }

  PlanesResult run(const Plan& plan, const std::vector<Matrix>& matrices) const {
    return run_planes(engine_, plan, pack(matrices, plan.problem.order).data(), static_cast<int64_t>(matrices.size()));
  }

  // The contract for one matrix whose singular values are known but for the rounding of its entries.
  void judge(const Plan& plan, const PlanesResult& result, int64_t i, const Matrix& a, const std::vector<double>& known,
             const std::string& where) {
    const Problem& p = plan.problem;
    const int64_t k = values_per_matrix(p);
    const double u = real_type(p.dtype).unit_roundoff;
    const auto s = result.numbers(p.dtype, Plane::kValues, i * k, k);
    const std::vector<long double> reference(known.begin(), known.end());
    const Verdict verdict = check(plan, s, result.statuses[static_cast<size_t>(i)], reference);
    EXPECT_EQ(verdict.failure, "") << where;
    worst_value_ = std::max(worst_value_, verdict.ratio());
    if (!plan.outputs.vectors()) return;
    const Dense left = load(p, result, Plane::kLeft, i, p.rows, plan.outputs.left_columns);
    const Dense right = load(p, result, Plane::kRight, i, plan.outputs.right_columns, p.cols);
    const long double of_left = estimate_orthogonality(left, false, random_) / (static_cast<long double>(p.rows) * u);
    const long double of_right = estimate_orthogonality(right, true, random_) / (static_cast<long double>(p.cols) * u);
    const long double of_all =
        estimate_residual(a, left, s, right, random_) / (static_cast<long double>(std::max(p.rows, p.cols)) * u);
    EXPECT_LE(of_left, 10) << where;
    EXPECT_LE(of_right, 10) << where;
    EXPECT_LE(of_all, 10) << where;
    worst_vectors_ = std::max({worst_vectors_, of_left, of_right, of_all});
  }

  void test(const Shape& shape, const std::vector<Spectrum>& spectra, const Options& options, Order order) {
    std::vector<Matrix> matrices;
    std::vector<std::vector<double>> known;
    for (const Spectrum spectrum : spectra) {
      known.push_back(values_of(spectrum, std::min(shape.first, shape.second), random_));
      matrices.push_back(with_known_values(GetParam(), shape.first, shape.second, known.back(), random_));
    }
    const Plan p = plan(shape, options, order);
    const PlanesResult result = run(p, matrices);
    for (size_t i = 0; i < matrices.size(); ++i) {
      const std::string where = std::to_string(shape.first) + "x" + std::to_string(shape.second) + " spectrum " +
                                std::to_string(static_cast<int>(spectra[i])) + " " + name(p.host_method);
      judge(p, result, static_cast<int64_t>(i), matrices[i], known[i], where);
    }
  }

  void print(const char* what) const {
    std::printf("%s, %s: worst value %.3f of its bound, worst vectors %.2Lf of 10\n", name(GetParam()), what,
                worst_value_, worst_vectors_);
  }

  const SvdEngine engine_{EngineOptions{.threads = 2}};
  Random random_{7};
  double worst_value_ = 0;
  long double worst_vectors_ = 0;
};

TEST_P(BlockedBatchTest, ValuesKeepTheContract) {
  const std::vector<Spectrum> all(std::begin(kSpectra), std::end(kSpectra));
  test({129, 129}, all, {}, Order::kRowMajor);
  test({200, 257}, {Spectrum::kGraded, Spectrum::kDeficient}, {}, Order::kColumnMajor);
  test({600, 129}, {Spectrum::kSpread}, {}, Order::kRowMajor);
  if (!kSanitized) test({512, 512}, {Spectrum::kSpread, Spectrum::kGraded}, {}, Order::kColumnMajor);
  print("values");
}

TEST_P(BlockedBatchTest, ThinVectorsKeepTheContract) {
  const Options options{.vectors = Vectors::kThin};
  const std::vector<Spectrum> all(std::begin(kSpectra), std::end(kSpectra));
  test({129, 129}, kSanitized ? std::vector{Spectrum::kDeficient} : all, options, Order::kColumnMajor);
  test({257, 200}, {Spectrum::kGraded}, options, Order::kRowMajor);
  if (kSanitized) return;
  test({200, 300}, {Spectrum::kDeficient}, options, Order::kColumnMajor);
  test({512, 512}, {Spectrum::kSpread, Spectrum::kDeficient}, options, Order::kRowMajor);
  if (is_long_run()) test({512, 700}, all, options, Order::kRowMajor);
  print("thin");
}

TEST_P(BlockedBatchTest, FullBasesKeepTheContract) {
  const Options options{.vectors = Vectors::kFull};
  test({150, 129}, {Spectrum::kDeficient}, options, Order::kRowMajor);
  if (kSanitized) return;
  test({200, 257}, {Spectrum::kSpread, Spectrum::kZero}, options, Order::kColumnMajor);
  test({512, 512}, {Spectrum::kClusters}, options, Order::kRowMajor);
  print("full");
}

// By its name, or by a tolerance.
TEST_P(BlockedBatchTest, JacobiKeepsTheContract) {
  const Options vectors{.method = Method::kJacobi, .vectors = Vectors::kThin};
  test({129, 130}, {Spectrum::kSpread, Spectrum::kDeficient}, {.method = Method::kJacobi}, Order::kRowMajor);
  test({140, 129}, {Spectrum::kGraded}, vectors, Order::kColumnMajor);
  if (kSanitized) return;
  test({257, 257}, {Spectrum::kSpread, Spectrum::kClusters}, vectors, Order::kRowMajor);
  test({200, 200}, {Spectrum::kZero}, {.tolerance = 1e-6, .vectors = Vectors::kThin}, Order::kRowMajor);
  if (is_long_run()) test({512, 512}, {Spectrum::kSpread}, vectors, Order::kRowMajor);
  print("JACOBI");
}

TEST_P(BlockedBatchTest, JacobiHasHighRelativeAccuracyForGradedColumns) {
  const DType dtype = GetParam();
  if (dtype == DType::kC128 && !is_long_run()) GTEST_SKIP() << "its reference takes seconds";
  for (const auto& [rows, cols] : std::vector<Shape>{{129, 129}, {131, 180}}) {
    if (cols > 129 && !is_long_run()) continue;
    const Matrix a = generate(Kind::kColumnGraded, dtype, rows, cols, 1);
    for (const Vectors vectors : {Vectors::kNone, Vectors::kThin}) {
      const Plan p = plan({rows, cols}, {.method = Method::kJacobi, .vectors = vectors});
      const auto s = run(p, {a}).numbers(dtype, Plane::kValues, 0, rows);
      EXPECT_LE(relative_error(dtype, s, reference_singular_values(a)),
                relative_bound(p.problem) * unit_column_condition(a) * real_type(dtype).unit_roundoff);
    }
  }
}

// A power of two changes the values by that, and nothing else, up to the ends of the range.
TEST_P(BlockedBatchTest, HugeAndTinyMatricesAreScaledExactly) {
  const RealType real = real_type(GetParam());
  const int huge = std::ilogb(real.largest) - 20, tiny = std::ilogb(real.smallest_normal);
  for (const Shape& shape : {Shape{129, 129}, Shape{300, 257}}) {
    if (kSanitized && shape.second > 129) continue;
    const Matrix a = integers(GetParam(), shape.first, shape.second, 3);
    const int64_t k = shape.second;
    for (const Vectors vectors : {Vectors::kNone, Vectors::kThin}) {
      const PlanesResult r = run(plan(shape, {.vectors = vectors}), {a, scaled_by(a, huge), scaled_by(a, tiny)});
      const auto s = r.numbers(GetParam(), Plane::kValues, 0, k), large = r.numbers(GetParam(), Plane::kValues, k, k),
                 small = r.numbers(GetParam(), Plane::kValues, 2 * k, k);
      for (size_t i = 0; i < s.size(); ++i) {
        EXPECT_EQ(large[i], std::ldexp(s[i], huge));
        EXPECT_NEAR(small[i], std::ldexp(s[i], tiny), real.smallest_denormal / 2);
      }
      for (const Plane plane : {Plane::kLeft, Plane::kRight}) {
        const auto& bytes = r.planes[index_of(plane)];
        const size_t one = bytes.size() / 3;
        EXPECT_TRUE(std::equal(bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(one),
                               bytes.begin() + static_cast<std::ptrdiff_t>(one)));
        EXPECT_TRUE(std::equal(bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(one),
                               bytes.begin() + static_cast<std::ptrdiff_t>(2 * one)));
      }
    }
  }
}

// Beyond the range one value is infinite, and the others are what they are.
TEST_P(BlockedBatchTest, OutOfRangeIsSaid) {
  const RealType real = real_type(GetParam());
  Matrix a(GetParam(), 200, 129);
  for (auto& z : a.elements) z = real.largest;
  for (const Vectors vectors : {Vectors::kNone, Vectors::kThin}) {
    const PlanesResult r = run(plan({200, 129}, {.vectors = vectors}), {a});
    const auto s = r.numbers(GetParam(), Plane::kValues, 0, 129);
    EXPECT_EQ(r.statuses[0], MatrixStatus::kOutOfRange);
    EXPECT_EQ(s[0], std::numeric_limits<double>::infinity());
    EXPECT_LE(s[1], value_bound({200, 129, GetParam(), Order::kRowMajor}) * real.unit_roundoff * 200 * real.largest);
  }
}

TEST_P(BlockedBatchTest, NotFiniteIsNaNThroughout) {
  for (const auto& [shape, options] : {std::pair{Shape{129, 129}, Options{}},
                                       {Shape{129, 140}, Options{.vectors = Vectors::kFull}},
                                       {Shape{140, 130}, Options{.vectors = Vectors::kThin, .certificate = true}},
                                       {Shape{257, 257}, Options{.method = Method::kJacobi}}}) {
    std::vector<Matrix> matrices(3, integers(GetParam(), shape.first, shape.second, 5));
    matrices[1].elements[matrices[1].elements.size() / 2] = poison_value(Poison::kMinusInfinity);
    const Plan p = plan(shape, options);
    const PlanesResult r = run(p, matrices);
    EXPECT_EQ(r.statuses, (std::vector{MatrixStatus::kOk, MatrixStatus::kNonFinite, MatrixStatus::kOk}));
    for (const Plane plane : {Plane::kValues, Plane::kLeft, Plane::kRight, Plane::kCertificate}) {
      const auto& all = r.planes[index_of(plane)];
      const size_t one = all.size() / 3, number = value_bytes(GetParam());
      for (size_t at = 0; at < one; at += number) EXPECT_TRUE(is_canonical_nan(GetParam(), all.data() + one + at));
      EXPECT_TRUE(std::equal(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(one),
                             all.end() - static_cast<std::ptrdiff_t>(one)));
    }
  }
}

// The certificate agrees with a computation in long double, and changes nothing; neither do leading columns alone.
TEST_P(BlockedBatchTest, CertificatePhasesAndLeadingColumns) {
  const DType dtype = GetParam();
  const Shape shape{140, 129};
  const auto [rows, k] = shape;
  const Matrix a = with_known_values(dtype, rows, k, values_of(Spectrum::kSpread, k, random_), random_);
  const PlanesResult plain = run(plan(shape, {.vectors = Vectors::kThin}), {a});
  const PlanesResult certified = run(plan(shape, {.vectors = Vectors::kThin, .certificate = true}), {a});
  const PlanesResult leading = run(plan(shape, {.vectors = Vectors::kThin, .top_k = 3, .certificate = true}), {a});
  for (const Plane plane : {Plane::kValues, Plane::kLeft, Plane::kRight}) {
    EXPECT_EQ(plain.planes[index_of(plane)], certified.planes[index_of(plane)]);
  }
  EXPECT_EQ(leading.planes[index_of(Plane::kCertificate)], certified.planes[index_of(Plane::kCertificate)]);
  EXPECT_EQ(leading.numbers(dtype, Plane::kValues, 0, 3), plain.numbers(dtype, Plane::kValues, 0, 3));
  const Problem problem{rows, k, dtype, Order::kRowMajor};
  const Dense u = load(problem, plain, Plane::kLeft, 0, rows, k), vh = load(problem, plain, Plane::kRight, 0, k, k);
  const Dense first = load(problem, leading, Plane::kLeft, 0, rows, 3);
  for (int64_t i = 0; i < rows; ++i) {
    for (int64_t j = 0; j < 3; ++j) EXPECT_EQ(first.at(i, j), u.at(i, j));
  }
  const double slack = 2 * real_type(dtype).unit_roundoff;
  const auto c = certified.numbers(dtype, Plane::kCertificate, 0, 3);
  EXPECT_NEAR(c[0], static_cast<double>(residual(a, u, plain.numbers(dtype, Plane::kValues, 0, k), vh)), slack);
  EXPECT_NEAR(c[1], static_cast<double>(orthogonality(u, false)), slack);
  EXPECT_NEAR(c[2], static_cast<double>(orthogonality(vh, true)), slack);

  MimoOptions mimo;
  mimo.precoder_columns = 2;
  const PlanesResult fixed = run(plan(shape, {.vectors = Vectors::kThin, .fix_phases = true}), {a});
  const PlanesResult precoders = run(plan(shape, {.values = false, .fix_phases = true, .mimo = mimo}), {a});
  const Dense of_fixed = load(problem, fixed, Plane::kLeft, 0, rows, k);
  const Dense vh_of_fixed = load(problem, fixed, Plane::kRight, 0, k, k);
  const Dense precoder = load(problem, precoders, Plane::kRight, 0, k, 2);
  for (int64_t j = 0; j < k; ++j) {
    int64_t largest = 0;
    for (int64_t i = 1; i < rows; ++i) {
      if (std::norm(of_fixed.at(i, j)) > std::norm(of_fixed.at(largest, j)) * (1 + 16 * slack)) largest = i;
    }
    EXPECT_GT(of_fixed.at(largest, j).real(), 0);
    EXPECT_LE(std::abs(of_fixed.at(largest, j).imag()), 8 * slack);
  }
  for (int64_t i = 0; i < k; ++i) {
    for (int64_t j = 0; j < 2; ++j) EXPECT_EQ(precoder.at(i, j), std::conj(vh_of_fixed.at(j, i)));
  }
}

// Neither the batch, nor the place in it, nor the threads, nor the first byte's address change a bit.
TEST_P(BlockedBatchTest, MatricesDoNotKnowTheirBatch) {
  const SvdEngine alone_engine{EngineOptions{.threads = 1}};
  for (const auto& [shape, options] : {std::pair{Shape{129, 129}, Options{.vectors = Vectors::kThin}},
                                       {Shape{200, 140}, Options{}},
                                       {Shape{129, 150}, Options{.method = Method::kJacobi}},
                                       {Shape{257, 300}, Options{.vectors = Vectors::kThin, .top_k = 5}}}) {
    if (kSanitized && shape.second > 200) continue;
    std::vector<Matrix> matrices;
    for (const Spectrum spectrum : {Spectrum::kSpread, Spectrum::kZero, Spectrum::kDeficient}) {
      const auto values = values_of(spectrum, std::min(shape.first, shape.second), random_);
      matrices.push_back(with_known_values(GetParam(), shape.first, shape.second, values, random_));
    }
    const Plan p = plan(shape, options);
    const PlanesResult together = run(p, matrices);
    for (size_t i = 0; i < matrices.size(); ++i) {
      const auto bytes = pack({matrices[i]}, Order::kRowMajor);
      std::vector<std::byte> odd(bytes.size() + 1);
      std::copy(bytes.begin(), bytes.end(), odd.begin() + 1);
      const PlanesResult alone = run_planes(alone_engine, p, odd.data() + 1, 1);
      EXPECT_EQ(alone.statuses[0], together.statuses[i]);
      for (const Plane plane : {Plane::kValues, Plane::kLeft, Plane::kRight}) {
        const auto &one = alone.planes[index_of(plane)], &all = together.planes[index_of(plane)];
        EXPECT_TRUE(std::equal(one.begin(), one.end(), all.begin() + static_cast<std::ptrdiff_t>(i * one.size())))
            << shape.first << "x" << shape.second << " matrix " << i << " plane " << index_of(plane);
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(DTypes, BlockedBatchTest,
                         ::testing::Values(DType::kF32, DType::kF64, DType::kC64, DType::kC128),
                         [](const auto& info) { return std::string(name(info.param)); });

}  // namespace
}  // namespace svdserve::numerics
