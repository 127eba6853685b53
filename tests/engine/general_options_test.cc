// Conditions of eigenvalues against 80 digits, NEAR_DEFECTIVE where it belongs, and JACOBI from starting vectors.
#include <algorithm>
#include <cmath>
#include <complex>
#include <cstdio>
#include <limits>
#include <string>
#include <tuple>
#include <vector>

#include "engine/svd_engine.h"
#include "gtest/gtest.h"
#include "tests/support/numerics/effort.h"
#include "tests/support/numerics/engine_run.h"
#include "tests/support/numerics/general_references.h"
#include "tests/support/numerics/planes_run.h"
#include "tests/support/numerics/random.h"

namespace svdserve::numerics {
namespace {

using Number = std::complex<double>;

constexpr DType kTypes[] = {DType::kF32, DType::kF64, DType::kC64, DType::kC128};

std::vector<Number> complex_numbers(const PlanesResult& result, DType dtype, Plane plane, int64_t first,
                                    int64_t count) {
  const auto numbers = result.numbers(dtype, plane, 2 * first, 2 * count);
  std::vector<Number> all;
  for (size_t x = 0; x < numbers.size(); x += 2) all.emplace_back(numbers[x], numbers[x + 1]);
  return all;
}

double norm_of(const Matrix& a) {
  double square = 0;
  for (const Number& x : a.elements) square += std::norm(x);
  return std::sqrt(square);
}

Matrix random_matrix(DType dtype, int64_t n, Random& random) {
  Matrix a(dtype, n, n);
  for (Number& x : a.elements) x = {random.normal(), is_complex(dtype) ? random.normal() : 0};
  round_to_dtype(a);
  return a;
}

// A plus normal numbers times `size`.
Matrix disturbed(const Matrix& a, double size, Random& random) {
  Matrix b = a;
  for (Number& x : b.elements) x += size * Number(random.normal(), is_complex(a.dtype) ? random.normal() : 0);
  round_to_dtype(b);
  return b;
}

Plan general_plan_of(DType dtype, int64_t n, const Options& options, Order order = Order::kRowMajor) {
  Options general = options;
  general.decomposition = Decomposition::kGeneral;
  return plan_of({n, n, dtype, order}, general);
}

// --- conditions --------------------------------------------------------------------------------------------------

class ConditionTest : public ::testing::TestWithParam<std::tuple<DType, Method>> {
 protected:
  DType dtype() const { return std::get<0>(GetParam()); }
  Method method() const { return std::get<1>(GetParam()); }
  double u() const { return real_type(dtype()).unit_roundoff; }

  // The largest relative error of a condition, in units of the perturbation of vectors, n u |A| c / gap. Eigenvalues that
  // are not well apart are not judged.
  double worst_error(const GeneralReference& reference, const std::vector<Number>& values,
                     const std::vector<double>& conditions) const {
    const auto n = static_cast<double>(reference.matrix.rows);
    double worst = 0;
    const double c_largest = *std::max_element(reference.conditions.begin(), reference.conditions.end());
    for (size_t j = 0; j < values.size(); ++j) {
      const Number exact(reference.eigenvalues[j]);
      double gap = std::numeric_limits<double>::infinity();
      for (size_t i = 0; i < values.size(); ++i) {
        if (i != j) gap = std::min(gap, std::abs(Number(reference.eigenvalues[i]) - exact));
      }
      const double unit = n * u() * (1 + norm_of(reference.matrix) * c_largest / gap);
      if (!(unit <= 1e-2)) continue;
      const auto nearer = [&](const Number& x, const Number& y) { return std::abs(x - exact) < std::abs(y - exact); };
      const auto nearest = std::min_element(values.begin(), values.end(), nearer) - values.begin();
      const double c = conditions[static_cast<size_t>(nearest)], wanted = reference.conditions[j];
      // The references have six digits.
      worst = std::max(worst, std::max(0.0, std::abs(c / wanted - 1) - 1e-5) / unit);
      ++judged_;
    }
    return worst;
  }

  const SvdEngine engine_;
  mutable int judged_ = 0;
};

TEST_P(ConditionTest, AgainstReferences) {
  double worst = 0;
  for (const GeneralReference& reference : general_references(TEST_DATA "/general/batch.txt", dtype())) {
    const int64_t n = reference.matrix.rows;
    for (const Vectors vectors : {Vectors::kNone, Vectors::kFull}) {
      const Plan plan = general_plan_of(dtype(), n, {.method = method(), .vectors = vectors, .condition = true});
      const PlanesResult result = run_planes(engine_, plan, pack({reference.matrix}, Order::kRowMajor).data(), 1);
      const auto conditions = result.numbers(dtype(), Plane::kEigenvalueCondition, 0, n);
      for (const double c : conditions) EXPECT_GE(c, 1);
      const double error = worst_error(reference, complex_numbers(result, dtype(), Plane::kValues, 0, n), conditions);
      EXPECT_LE(error, 10) << "family " << reference.family << ", n = " << n;
      worst = std::max(worst, error);
    }
  }
  EXPECT_GE(judged_, 100);
  std::printf("%s %s: largest error of a condition %.2f of 10 n u |A| c / gap, of %d\n", name(dtype()), name(method()),
              worst, judged_);
}

// The condition of V in the Frobenius norm is the root of n sum c_j^2, and pairs of a real matrix share theirs.
TEST_P(ConditionTest, PairsShareTheirs) {
  Random random(3);
  const int64_t n = 6;
  std::vector<Matrix> matrices;
  for (int i = 0; i < 20; ++i) matrices.push_back(random_matrix(dtype(), n, random));
  const Plan plan = general_plan_of(dtype(), n, {.method = method(), .vectors = Vectors::kThin, .condition = true});
  const PlanesResult result = run_planes(engine_, plan, pack(matrices, Order::kRowMajor).data(), 20);
  const auto conditions = result.numbers(dtype(), Plane::kEigenvalueCondition, 0, 20 * n);
  const auto values = complex_numbers(result, dtype(), Plane::kValues, 0, 20 * n);
  int pairs = 0;
  for (size_t j = 0; j + 1 < values.size(); ++j) {
    if (is_complex(dtype()) || values[j].imag() <= 0) continue;
    EXPECT_EQ(conditions[j], conditions[j + 1]) << j;
    ++pairs;
  }
  EXPECT_TRUE(is_complex(dtype()) || pairs > 10);
}

// A plane that is asked for changes no other, and each instruction set gives its bits.
TEST_P(ConditionTest, TheBitsBelongToTheMatrix) {
  for (const int64_t n : {1, 2, 3, 8, 19}) {
    if (kSanitized && n > 3) continue;
    Random random(n);
    std::vector<Matrix> matrices;
    for (int i = 0; i < 21; ++i) matrices.push_back(random_matrix(dtype(), n, random));
    const auto bytes = pack(matrices, Order::kColumnMajor);
    const Options with{.method = method(), .vectors = Vectors::kFull, .condition = true};
    Options without = with;
    without.condition = false;
    const Plan plan = general_plan_of(dtype(), n, with, Order::kColumnMajor);
    const PlanesResult all = run_planes(engine_, plan, bytes.data(), 21);
    const PlanesResult plain =
        run_planes(engine_, general_plan_of(dtype(), n, without, Order::kColumnMajor), bytes.data(), 21);
    for (const Plane plane : {Plane::kValues, Plane::kLeft, Plane::kRight}) {
      EXPECT_EQ(all.planes[static_cast<size_t>(plane)], plain.planes[static_cast<size_t>(plane)]) << n;
    }
    for (const Simd simd : {Simd::kScalar, Simd::kAvx2, Simd::kAvx512, Simd::kNeon}) {
      const SvdEngine other({.simd = simd});
      if (other.simd() != simd) continue;
      EXPECT_EQ(run_planes(other, plan, bytes.data(), 21), all) << n;
    }
    EXPECT_EQ(run_planes_in_segments(engine_, plan, bytes.data(), 21, random), all) << n;
  }
}

INSTANTIATE_TEST_SUITE_P(Types, ConditionTest,
                         ::testing::Combine(::testing::ValuesIn(kTypes),
                                            ::testing::Values(Method::kQr, Method::kJacobi)),
                         [](const auto& info) {
                           return std::string(name(std::get<0>(info.param))) + "_" + name(std::get<1>(info.param));
                         });

// --- NEAR_DEFECTIVE ----------------------------------------------------------------------------------------------

Matrix by_entries(DType dtype, int64_t n, double (*entry)(int64_t i, int64_t j)) {
  Matrix a(dtype, n, n);
  for (int64_t j = 0; j < n; ++j) {
    for (int64_t i = 0; i < n; ++i) a.at(i, j) = entry(i, j);
  }
  return a;
}

// Q A Q^T for a reflection Q that leaves no small elements: balancing would turn those back, and the pair with them.
Matrix hidden(const Matrix& a, Random& random) {
  const int64_t n = a.rows;
  std::vector<double> x(static_cast<size_t>(n));
  double square = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    x[i] = 1 + 1.4 * static_cast<double>(i % 4) + 0.1 * random.uniform();
    square += x[i] * x[i];
  }
  const auto q = [&](int64_t i, int64_t j) {
    return (i == j ? 1.0 : 0.0) - 2 * x[static_cast<size_t>(i)] * x[static_cast<size_t>(j)] / square;
  };
  Matrix b(a.dtype, n, n);
  for (int64_t j = 0; j < n; ++j) {
    for (int64_t i = 0; i < n; ++i) {
      Number sum = 0;
      for (int64_t l = 0; l < n; ++l) {
        for (int64_t m = 0; m < n; ++m) sum += q(i, l) * a.at(l, m) * q(j, m);
      }
      b.at(i, j) = sum;
    }
  }
  round_to_dtype(b);
  return b;
}

TEST(NearDefectiveTest, DefectiveMatricesAreAndOthersAreNot) {
  const SvdEngine engine;
  for (const DType dtype : kTypes) {
    for (const int64_t n : {2, 3, 5, 8, 16, 32}) {
      if (kSanitized && n > 5) continue;
      Random random(n);
      const Matrix jordan = by_entries(dtype, n, [](int64_t i, int64_t j) { return i == j ? 2.0 : i + 1 == j; });
      const Matrix pair = by_entries(dtype, n, [](int64_t i, int64_t j) {
        return i == j ? static_cast<double>(i < 2 ? 1 : i) : i == 0 && j == 1 ? 1.0 : 0.0;
      });
      const std::vector<Matrix> defective{jordan, pair, hidden(jordan, random), hidden(pair, random)};
      const Matrix symmetric = by_entries(dtype, n, [](int64_t i, int64_t j) { return 1.0 / double(i + j + 1); });
      const Matrix identity = by_entries(dtype, n, [](int64_t i, int64_t j) { return double(i == j); });
      // D A D^-1: ill-conditioned eigenvectors, but by its scale alone.
      const Matrix scaled = by_entries(dtype, n, [](int64_t i, int64_t j) {
        const double a = i == j ? static_cast<double>(i + 1) : 0.25 / static_cast<double>(i + j + 1);
        return std::ldexp(a, static_cast<int>(40 / double(std::max(i, j) + 1)) * (i < j ? 1 : i > j ? -1 : 0));
      });
      const Matrix zero(dtype, n, n);
      const std::vector<Matrix> others{symmetric, identity, scaled, zero};
      for (const Method method : {Method::kQr, Method::kJacobi}) {
        const Plan plan = general_plan_of(dtype, n, {.method = method, .condition = true});
        const auto statuses_of = [&](const std::vector<Matrix>& all) {
          return run_planes(engine, plan, pack(all, Order::kRowMajor).data(), static_cast<int64_t>(all.size()))
              .statuses;
        };
        for (const MatrixStatus status : statuses_of(defective)) {
          EXPECT_EQ(status, MatrixStatus::kNearDefective) << name(dtype) << " " << name(method) << " " << n;
        }
        for (const MatrixStatus status : statuses_of(others)) {
          EXPECT_TRUE(status == MatrixStatus::kOk || status == MatrixStatus::kByQr)
              << static_cast<int>(status) << " " << name(dtype) << " " << name(method) << " " << n;
        }
        // It is asked for by its option.
        const Plan plain = general_plan_of(dtype, n, {.method = method, .vectors = Vectors::kFull});
        for (const MatrixStatus status :
             run_planes(engine, plain, pack(defective, Order::kRowMajor).data(), 4).statuses)
          EXPECT_NE(status, MatrixStatus::kNearDefective);
      }
    }
  }
}

TEST(NearDefectiveTest, NonFiniteMatricesHaveNoConditions) {
  const SvdEngine engine;
  for (const DType dtype : kTypes) {
    Random random(5);
    std::vector<Matrix> matrices{random_matrix(dtype, 4, random), random_matrix(dtype, 4, random)};
    matrices[0].at(1, 2) = std::numeric_limits<double>::infinity();
    const Plan plan = general_plan_of(dtype, 4, {.condition = true});
    const PlanesResult result = run_planes(engine, plan, pack(matrices, Order::kRowMajor).data(), 2);
    EXPECT_EQ(result.statuses[0], MatrixStatus::kNonFinite);
    for (const double c : result.numbers(dtype, Plane::kEigenvalueCondition, 0, 4)) EXPECT_TRUE(std::isnan(c));
    for (const double c : result.numbers(dtype, Plane::kEigenvalueCondition, 4, 4)) EXPECT_GE(c, 1);
  }
}

// --- starting vectors --------------------------------------------------------------------------------------------

class StartTest : public ::testing::TestWithParam<DType> {
 protected:
  static constexpr int64_t kCount = 24;
  // A count of matrices that keeps both kinds of packs busy.
  struct Neighbours {
    std::vector<Matrix> before, after;
  };
  Neighbours neighbours(int64_t n, double distance) const {
    Random random(n);
    Neighbours all;
    for (int64_t m = 0; m < kCount; ++m) {
      all.before.push_back(random_matrix(GetParam(), n, random));
      all.after.push_back(disturbed(all.before.back(), distance, random));
    }
    return all;
  }
  Plan plan(int64_t n, bool start, int32_t max_sweeps = 0) const {
    return general_plan_of(GetParam(), n,
                           {.method = start ? Method::kAuto : Method::kJacobi,
                            .max_sweeps = max_sweeps,
                            .vectors = Vectors::kThin,
                            .certificate = true,
                            .starting_vectors = start});
  }
  // V of each, as the engine takes it.
  std::vector<std::byte> vectors_of(const std::vector<Matrix>& matrices) const {
    const Plan cold = plan(matrices.front().rows, false);
    return run_planes(engine_, cold, pack(matrices, Order::kRowMajor).data(), static_cast<int64_t>(matrices.size()))
        .planes[static_cast<size_t>(Plane::kLeft)];
  }
  // Those that `sweeps` sweeps are too few for.
  int64_t left_to_qr(const std::vector<Matrix>& matrices, int32_t sweeps, const std::byte* starts) const {
    const PlanesResult result =
        run_planes(engine_, plan(matrices.front().rows, starts != nullptr, sweeps),
                   pack(matrices, Order::kRowMajor).data(), static_cast<int64_t>(matrices.size()), starts);
    return std::count(result.statuses.begin(), result.statuses.end(), MatrixStatus::kByQr);
  }
  double u() const { return real_type(GetParam()).unit_roundoff; }

  const SvdEngine engine_;
};

TEST_P(StartTest, ResultsKeepTheContract) {
  for (const int64_t n : {1, 2, 3, 4, 7, 16, 32}) {
    if (kSanitized && n > 4) continue;
    for (const double distance : {0.0, 1e-5, 1e-2, 1.0}) {
      const Neighbours all = neighbours(n, distance);
      const auto starts = vectors_of(all.before);
      const auto bytes = pack(all.after, Order::kRowMajor);
      const Plan warm = plan(n, true);
      const PlanesResult result = run_planes(engine_, warm, bytes.data(), kCount, starts.data());
      for (int64_t m = 0; m < kCount; ++m) {
        const MatrixStatus status = result.statuses[static_cast<size_t>(m)];
        EXPECT_TRUE(status == MatrixStatus::kOk || status == MatrixStatus::kByQr);
        EXPECT_LE(result.numbers(GetParam(), Plane::kCertificate, 3 * m, 1)[0], 10 * double(n) * u()) << n;
      }
      Random random(n);
      for (const Simd simd : {Simd::kScalar, Simd::kAvx2, Simd::kAvx512, Simd::kNeon}) {
        const SvdEngine other({.simd = simd});
        if (other.simd() != simd) continue;
        EXPECT_EQ(run_planes(other, warm, bytes.data(), kCount, starts.data()), result) << n;
      }
      EXPECT_EQ(run_planes(engine_, warm, bytes.data(), {5, 0, 1, 18}, starts.data()), result) << n;
    }
  }
}

// Three sweeps are enough for a neighbour, where a cold start takes twice as many.
TEST_P(StartTest, NeighboursTakeFewSweeps) {
  const int64_t n = 16;
  const Neighbours all = neighbours(n, 1e-3);
  const auto starts = vectors_of(all.before);
  EXPECT_LE(left_to_qr(all.after, 4, starts.data()), kCount / 8);
  EXPECT_GE(left_to_qr(all.after, 4, nullptr), kCount * 7 / 8);
  // Itself.
  EXPECT_EQ(left_to_qr(all.before, 1, starts.data()), 0);
}

// Eigenvalues stay where those of the starting vectors are, so that they can be followed.
TEST_P(StartTest, EigenvaluesKeepTheirOrder) {
  if (!is_complex(GetParam())) GTEST_SKIP() << "pairs of real matrices move together";
  const int64_t n = 8;
  const Neighbours all = neighbours(n, 1e-4);
  const PlanesResult cold = run_planes(engine_, plan(n, false), pack(all.before, Order::kRowMajor).data(), kCount);
  const auto& starts = cold.planes[static_cast<size_t>(Plane::kLeft)];
  const PlanesResult warm =
      run_planes(engine_, plan(n, true), pack(all.after, Order::kRowMajor).data(), kCount, starts.data());
  for (int64_t m = 0; m < kCount; ++m) {
    if (warm.statuses[static_cast<size_t>(m)] != MatrixStatus::kOk) continue;
    const auto before = complex_numbers(cold, GetParam(), Plane::kValues, m * n, n);
    const auto after = complex_numbers(warm, GetParam(), Plane::kValues, m * n, n);
    for (size_t j = 0; j < before.size(); ++j) EXPECT_LT(std::abs(after[j] - before[j]), 0.05) << m << " " << j;
  }
}

TEST_P(StartTest, BadStartsGoToQr) {
  for (const int64_t n : {1, 3, 9}) {
    const Neighbours all = neighbours(n, 1e-3);
    auto starts = vectors_of(all.before);
    const size_t matrix = starts.size() / kCount, number = matrix / static_cast<size_t>(2 * n * n);
    std::fill_n(starts.data() + 2 * matrix, matrix, std::byte{0});     // singular
    std::fill_n(starts.data() + 5 * matrix, number, std::byte{0xff});  // NaN
    const auto bytes = pack(all.after, Order::kRowMajor);
    const PlanesResult result = run_planes(engine_, plan(n, true), bytes.data(), kCount, starts.data());
    const Plan qr = general_plan_of(GetParam(), n, {.vectors = Vectors::kThin, .certificate = true});
    const PlanesResult wanted = run_planes(engine_, qr, bytes.data(), kCount);
    for (const int64_t m : {2, 5}) {
      EXPECT_EQ(result.statuses[static_cast<size_t>(m)], MatrixStatus::kByQr) << n;
      for (const Plane plane : {Plane::kValues, Plane::kLeft}) {
        const auto size = static_cast<int64_t>(plane_bytes(qr, plane, 1) / value_bytes(GetParam()));
        EXPECT_EQ(result.numbers(GetParam(), plane, m * size, size), wanted.numbers(GetParam(), plane, m * size, size));
      }
    }
    EXPECT_EQ(std::count(result.statuses.begin(), result.statuses.end(), MatrixStatus::kOk), kCount - 2) << n;
  }
}

// D A D^-1 is balanced also where it has starting vectors: its eigenvalues have the accuracy of those of A.
TEST_P(StartTest, BadlyScaledMatricesKeepTheirDigits) {
  const int64_t n = 6;
  Neighbours all = neighbours(n, 0);
  const PlanesResult wanted = run_planes(engine_, plan(n, false), pack(all.before, Order::kRowMajor).data(), kCount);
  for (Matrix& a : all.after) {
    for (int64_t j = 0; j < n; ++j) {
      for (int64_t i = 0; i < n; ++i) a.at(i, j) *= std::ldexp(1.0, static_cast<int>(4 * (i * 5 % n - j * 5 % n)));
    }
  }
  const auto starts = vectors_of(all.after);
  const PlanesResult found =
      run_planes(engine_, plan(n, true), pack(all.after, Order::kRowMajor).data(), kCount, starts.data());
  for (int64_t m = 0; m < kCount; ++m) {
    const auto exact = complex_numbers(wanted, GetParam(), Plane::kValues, m * n, n);
    const auto values = complex_numbers(found, GetParam(), Plane::kValues, m * n, n);
    for (const Number& x : exact) {
      double nearest = std::numeric_limits<double>::infinity();
      for (const Number& y : values) nearest = std::min(nearest, std::abs(x - y));
      EXPECT_LE(nearest, 1000 * double(n) * u() * norm_of(all.before[static_cast<size_t>(m)])) << m;
    }
  }
}

// Vectors that mix those of equal real eigenvalues have real parts that are dependent.
TEST_P(StartTest, EqualRealEigenvaluesHaveIndependentVectors) {
  if (is_complex(GetParam())) GTEST_SKIP() << "only real matrices have real vectors";
  const Matrix identity = by_entries(GetParam(), 2, [](int64_t i, int64_t j) { return double(i == j); });
  const double numbers[] = {1, 0, 1, 0, 0, 1, 0, -1};  // (1, i) and (1, -i), by rows
  std::vector<float> single(std::begin(numbers), std::end(numbers));
  const void* const start =
      value_bytes(GetParam()) == sizeof(float) ? static_cast<const void*>(single.data()) : numbers;
  const PlanesResult result = run_planes(engine_, plan(2, true), pack({identity}, Order::kRowMajor).data(), 1,
                                         static_cast<const std::byte*>(start));
  const auto v = complex_numbers(result, GetParam(), Plane::kLeft, 0, 4);
  EXPECT_GE(std::abs(v[0] * v[3] - v[1] * v[2]), 0.5);
}

// Sweeps of rotations from a nearly singular start lose the trace; QR keeps it.
TEST_P(StartTest, TheTraceStays) {
  const int64_t n = kSanitized ? 6 : 32;
  Random random(7);
  std::vector<Matrix> matrices, starts;
  const double size = u() < 1e-10 ? 1e-7 : 1e-4;
  for (int64_t m = 0; m < kCount; ++m) {
    Matrix ones(is_complex(GetParam()) ? GetParam() : GetParam() == DType::kF32 ? DType::kC64 : DType::kC128, n, n);
    Matrix identity(GetParam(), n, n);
    for (int64_t i = 0; i < n; ++i) identity.at(i, i) = 1;
    for (Number& x : ones.elements) x = 1;
    matrices.push_back(disturbed(identity, size, random));
    starts.push_back(disturbed(ones, 100 * size, random));
  }
  const PlanesResult result = run_planes(engine_, plan(n, true), pack(matrices, Order::kRowMajor).data(), kCount,
                                         pack(starts, Order::kRowMajor).data());
  for (int64_t m = 0; m < kCount; ++m) {
    const Matrix& a = matrices[static_cast<size_t>(m)];
    Number sum = 0;
    for (const Number& x : complex_numbers(result, GetParam(), Plane::kValues, m * n, n)) sum += x;
    for (int64_t i = 0; i < n; ++i) sum -= a.at(i, i);
    EXPECT_LE(std::abs(sum), 10 * double(n) * u() * norm_of(a)) << m;
  }
}

// Scales of starting vectors mean nothing.
TEST_P(StartTest, HugeAndTinyStarts) {
  const int64_t n = 4;
  const Neighbours all = neighbours(n, 1e-3);
  const auto starts = vectors_of(all.before);
  const auto bytes = pack(all.after, Order::kRowMajor);
  const PlanesResult wanted = run_planes(engine_, plan(n, true), bytes.data(), kCount, starts.data());
  for (const double scale : {0x1p-100, 0x1p100}) {
    auto scaled = starts;
    const auto by = [&](auto type) {
      using T = decltype(type);
      std::vector<T> numbers(scaled.size() / sizeof(T));
      std::memcpy(numbers.data(), scaled.data(), scaled.size());
      for (T& x : numbers) x *= static_cast<T>(scale);
      std::memcpy(scaled.data(), numbers.data(), scaled.size());
    };
    value_bytes(GetParam()) == sizeof(float) ? by(float()) : by(double());
    EXPECT_EQ(run_planes(engine_, plan(n, true), bytes.data(), kCount, scaled.data()), wanted);
  }
}

INSTANTIATE_TEST_SUITE_P(Types, StartTest, ::testing::ValuesIn(kTypes),
                         [](const auto& info) { return std::string(name(info.param)); });

}  // namespace
}  // namespace svdserve::numerics
