// JACOBI of one large general matrix through the engine: residuals, traces, pairs and eigenvalues of every family. Sweeps
// of nearly normal matrices and of warm starts are counted. References are prescribed, or sums in long double.
#include <algorithm>
#include <atomic>
#include <cmath>
#include <complex>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "engine/algorithms/large/simultaneous_jacobi.h"
#include "engine/large_engine.h"
#include "gtest/gtest.h"
#include "tests/support/numerics/effort.h"
#include "tests/support/numerics/large_run.h"
#include "tests/support/numerics/matrix_generators.h"
#include "tests/support/numerics/random.h"
#include "tests/support/numerics/unit_columns.h"

namespace svdserve::numerics {
namespace {

using Number = std::complex<double>;
using Wide = std::complex<long double>;

const LargeEngine& engine() {
  static const auto instance = make_host_large_engine(2);
  return *instance;
}

int64_t order() { return is_long_run() ? 256 : kSanitized ? 36 : 64; }

LargePlan plan_of(const Matrix& a, LargeOptions options = {}, Order order = Order::kColumnMajor) {
  options.kind = LargeKind::kGeneral;
  if (options.method == Method::kAuto && !options.starting_vectors) options.method = Method::kJacobi;
  options.certificate = options.vectors != Vectors::kNone;
  return large_plan_of({a.rows, a.cols, a.dtype, order}, options);
}

// --- families ------------------------------------------------------------------------------------------------------

class Families {
 public:
  Families(DType dtype, int64_t n, uint64_t seed = 1) : dtype_(dtype), n_(n), random_(seed) {}

  Number number() {
    const double re = random_.normal();
    return {re, is_complex(dtype_) ? random_.normal() : 0.0};
  }
  Matrix of(const std::function<Number(int64_t, int64_t)>& f) const {
    Matrix a(dtype_, n_, n_);
    for (int64_t j = 0; j < n_; ++j) {
      for (int64_t i = 0; i < n_; ++i) a.at(i, j) = f(i, j);
    }
    round_to_dtype(a);
    return a;
  }
  Matrix random() {
    return of([&](int64_t, int64_t) { return number(); });
  }
  Matrix diagonal() {
    return of([&](int64_t i, int64_t j) { return i == j ? number() : 0; });
  }
  // Gram and Schmidt, twice.
  Matrix unitary() {
    Matrix q = random();
    for (int64_t j = 0; j < n_; ++j) {
      for (int64_t l = 0; l < 2 * j; ++l) {
        Number sum = 0;
        for (int64_t i = 0; i < n_; ++i) sum += std::conj(q.at(i, l % j)) * q.at(i, j);
        for (int64_t i = 0; i < n_; ++i) q.at(i, j) -= sum * q.at(i, l % j);
      }
      double square = 0;
      for (int64_t i = 0; i < n_; ++i) square += std::norm(q.at(i, j));
      for (int64_t i = 0; i < n_; ++i) q.at(i, j) /= std::sqrt(square);
    }
    return q;
  }
  Matrix product(const Matrix& a, const Matrix& b) const {
    Matrix c(dtype_, n_, n_);
    for (int64_t j = 0; j < n_; ++j) {
      for (int64_t l = 0; l < n_; ++l) {
        for (int64_t i = 0; i < n_; ++i) c.at(i, j) += a.at(i, l) * b.at(l, j);
      }
    }
    return c;
  }
  // Q A Q^H.
  Matrix hidden(const Matrix& a) {
    const Matrix q = unitary();
    return product(q, product(a, conjugate_transpose(q)));
  }
  Matrix plus_noise(Matrix a, double size) {
    for (Number& x : a.elements) x += size * number();
    round_to_dtype(a);
    return a;
  }
  Matrix jordan_pairs() {
    return of([&](int64_t i, int64_t j) {
      return i == j ? Number(0.1 * double(i / 2)) : i + 1 == j && i % 2 == 0 ? Number(1) : Number(0);
    });
  }
  Matrix scaled_by_diagonal() {
    Matrix a = random();
    std::vector<double> d;
    for (int64_t i = 0; i < n_; ++i) d.push_back(std::pow(10.0, 12 * random_.uniform() - 6));
    for (int64_t j = 0; j < n_; ++j) {
      for (int64_t i = 0; i < n_; ++i) a.at(i, j) *= d[static_cast<size_t>(i)] / d[static_cast<size_t>(j)];
    }
    round_to_dtype(a);
    return a;
  }

 private:
  const DType dtype_;
  const int64_t n_;
  Random random_;
};

enum class By { kJacobi, kEither };
struct Case {
  std::string name;
  Matrix a;
  By by = By::kJacobi;
  int most_sweeps = 60;
};

std::vector<Case> all_families(DType dtype, int64_t n) {
  Families f(dtype, n);
  const auto clusters = [&](int64_t i, int64_t j) {
    return i == j ? Number(i % 2 == 0 ? 1 : -1) + 1e-8 * f.number() : Number(0);
  };
  std::vector<Case> all;
  all.push_back({"random", f.random(), By::kJacobi, 14});
  all.push_back({"normal", f.hidden(f.diagonal()), By::kJacobi, 12});
  all.push_back({"nearly normal", f.plus_noise(f.hidden(f.diagonal()), 1e-4), By::kJacobi, 12});
  all.push_back({"nearly diagonal", f.plus_noise(f.diagonal(), 1e-5), By::kJacobi, 4});
  all.push_back(
      {"companion", f.of([&](int64_t i, int64_t j) { return i == 0 ? f.number() : Number(i == j + 1); }), By::kEither});
  all.push_back({"Grcar", f.of([](int64_t i, int64_t j) {
                   return Number(i == j + 1 ? -1.0 : i <= j && j <= i + 3 ? 1.0 : 0.0);
                 }),
                 By::kEither});
  all.push_back({"clusters", f.hidden(f.of(clusters)), By::kEither});
  all.push_back({"hidden Jordan pairs", f.hidden(f.jordan_pairs()), By::kEither});
  all.push_back(
      {"rank one", f.of([](int64_t i, int64_t j) { return Number(double(i + 1) * double(j % 7 + 1)); }), By::kEither});
  all.push_back(
      {"Frank", f.of([n](int64_t i, int64_t j) { return i > j + 1 ? 0.0 : double(n - std::max(i, j)); }), By::kEither});
  all.push_back({"graded columns", f.of([&](int64_t, int64_t j) { return f.number() * std::pow(2.0, -double(j) / 2); }),
                 By::kEither});
  all.push_back({"D A D^-1", f.scaled_by_diagonal(), By::kEither});
  all.push_back({"zero", f.of([](int64_t, int64_t) { return Number(0); }), By::kJacobi, 0});
  all.push_back({"identity", f.of([](int64_t i, int64_t j) { return Number(i == j); }), By::kJacobi, 0});
  all.push_back({"upper", f.of([&](int64_t i, int64_t j) { return i <= j ? f.number() : 0; }), By::kJacobi, 0});
  all.push_back({"lower", f.of([&](int64_t i, int64_t j) { return i >= j ? f.number() : 0; }), By::kJacobi, 0});
  all.push_back({"permutation", f.of([n](int64_t i, int64_t j) { return Number(i == (j + 1) % n); }), By::kEither});
  return all;
}

// --- what is promised ----------------------------------------------------------------------------------------------

long double norm_of(const Matrix& a) {
  long double sum = 0;
  for (const auto& x : a.elements) sum += std::norm(Wide(x));
  return std::sqrt(sum);
}

// |A X - X L|_F / |A|_F in long double.
double residual(const Matrix& a, const Matrix& x, const std::vector<Number>& values) {
  const int64_t n = a.rows;
  const long double size = norm_of(a);
  if (size == 0) return 0;
  long double sum = 0;
  for (int64_t j = 0; j < n; ++j) {
    std::vector<Wide> column(static_cast<size_t>(n));
    for (int64_t k = 0; k < n; ++k) {
      for (int64_t i = 0; i < n; ++i) column[static_cast<size_t>(i)] += Wide(a.at(i, k)) * Wide(x.at(k, j));
    }
    for (int64_t i = 0; i < n; ++i) {
      sum += std::norm(column[static_cast<size_t>(i)] - Wide(values[static_cast<size_t>(j)]) * Wide(x.at(i, j)));
    }
  }
  return static_cast<double>(std::sqrt(sum) / size);
}

void expect_conjugate_pairs(const LargeResult& result) {
  const std::vector<Number>& values = result.complex_values;
  for (size_t j = 0; j < values.size(); ++j) {
    const auto column = static_cast<int64_t>(j);
    if (values[j].imag() == 0) {
      for (int64_t i = 0; i < result.left.rows; ++i) ASSERT_EQ(result.left.at(i, column).imag(), 0);
      continue;
    }
    ASSERT_LT(j + 1, values.size());
    EXPECT_GT(values[j].imag(), 0);
    ASSERT_EQ(values[j + 1], std::conj(values[j]));
    for (int64_t i = 0; i < result.left.rows; ++i) {
      ASSERT_EQ(result.left.at(i, column + 1), std::conj(result.left.at(i, column)));
    }
    ++j;
  }
}

void expect_contract(const Matrix& a, const LargePlan& plan, const LargeResult& result) {
  ASSERT_EQ(result.outcome.status, LargeStatus::kOk) << result.outcome.detail;
  const double bound = 10 * static_cast<double>(a.rows) * real_type(a.dtype).unit_roundoff;
  Wide difference = 0;
  for (const auto& x : result.complex_values) difference += Wide(x);
  for (int64_t i = 0; i < a.rows; ++i) difference -= Wide(a.at(i, i));
  EXPECT_LE(std::abs(difference), bound * norm_of(a));
  if (!is_complex(a.dtype)) expect_conjugate_pairs(result);
  if (plan.left_columns == 0) return;
  double worst = residual(a, result.left, result.complex_values);
  expect_unit_columns(result.left, bound);
  if (plan.right_rows > 0) {
    std::vector<Number> conjugates = result.complex_values;
    for (Number& x : conjugates) x = std::conj(x);
    const Matrix w = conjugate_transpose(result.right);
    worst = std::max(worst, residual(conjugate_transpose(a), w, conjugates));
    expect_unit_columns(w, bound);
  }
  EXPECT_LE(worst, bound);
  EXPECT_NEAR(result.outcome.residual, worst, bound / 10);
}

class LargeGeneralJacobiTest : public testing::TestWithParam<DType> {};
INSTANTIATE_TEST_SUITE_P(Types, LargeGeneralJacobiTest, testing::ValuesIn(dtypes_of_run()),
                         [](const auto& info) { return std::string(name(info.param)); });

TEST_P(LargeGeneralJacobiTest, EveryFamilyKeepsTheContract) {
  for (const Case& c : all_families(GetParam(), order())) {
    SCOPED_TRACE(c.name);
    const LargePlan plan = plan_of(c.a, {.vectors = Vectors::kFull});
    const LargeResult result = run_large(engine(), plan, c.a);
    expect_contract(c.a, plan, result);
    if (c.by == By::kEither) continue;
    EXPECT_EQ(result.outcome.method, Method::kJacobi);
    // Twice the order takes two or three sweeps more.
    EXPECT_LE(result.outcome.sweeps, c.most_sweeps == 0 ? 0 : c.most_sweeps + (is_long_run() ? 6 : 0));
  }
}

TEST_P(LargeGeneralJacobiTest, EveryOrderOfFewLinesAndSelection) {
  for (const int64_t n : {1, 2, 3, 5, 16, 17, 31, 33, 50}) {
    SCOPED_TRACE(n);
    const Matrix a = Families(GetParam(), n, static_cast<uint64_t>(n)).random();
    for (const Vectors vectors : {Vectors::kNone, Vectors::kThin, Vectors::kFull}) {
      const LargePlan plan = plan_of(a, {.vectors = vectors}, n % 2 == 0 ? Order::kRowMajor : Order::kColumnMajor);
      const LargeResult result = run_large(engine(), plan, a);
      expect_contract(a, plan, result);
      EXPECT_EQ(result.outcome.method, Method::kJacobi);
    }
  }
}

TEST_P(LargeGeneralJacobiTest, EigenvaluesOfANormalMatrixAreThePrescribedOnes) {
  Families f(GetParam(), order());
  const Matrix values = f.diagonal(), a = f.hidden(values);
  const LargeResult result = run_large(engine(), plan_of(a), a);
  std::vector<Number> found = result.complex_values;
  const double bound = 20 * static_cast<double>(a.rows) * real_type(a.dtype).unit_roundoff;
  for (int64_t i = 0; i < a.rows; ++i) {
    const auto nearest = std::min_element(found.begin(), found.end(), [&](Number x, Number y) {
      return std::abs(x - values.at(i, i)) < std::abs(y - values.at(i, i));
    });
    EXPECT_LE(std::abs(*nearest - values.at(i, i)), bound * static_cast<double>(norm_of(a))) << i;
    found.erase(nearest);
  }
}

TEST_P(LargeGeneralJacobiTest, TheEntryThatIsNotFiniteIsNamed) {
  Matrix a = Families(GetParam(), 40).random();
  a.at(7, 31) = std::numeric_limits<double>::infinity();
  const LargeOutcome outcome = run_large(engine(), plan_of(a), a).outcome;
  EXPECT_EQ(outcome.status, LargeStatus::kNonFinite);
  EXPECT_EQ(outcome.row, 7);
  EXPECT_EQ(outcome.col, 31);
}

TEST(LargeGeneralJacobi, EveryStrategyAndVariant) {
  const Matrix a = Families(DType::kC128, 70).random();
  for (const BlockVariant variant : {BlockVariant::kBlockOriented, BlockVariant::kFullBlock}) {
    for (int s = 1; s <= static_cast<int>(PivotStrategy::kReverseColumnCyclic); ++s) {
      const LargePlan plan = plan_of(a, {.strategy = static_cast<PivotStrategy>(s), .variant = variant});
      SCOPED_TRACE(std::string(name(plan.options.strategy)) + " " + name(variant));
      const LargeResult result = run_large(engine(), plan, a);
      expect_contract(a, plan, result);
      EXPECT_EQ(result.outcome.method, Method::kJacobi);
      EXPECT_LE(result.outcome.sweeps, 20);
    }
  }
}

TEST(LargeGeneralJacobi, TheBitsAreTheSameTwice) {
  const Matrix a = Families(DType::kF64, 90).random();
  const LargePlan plan = plan_of(a, {.vectors = Vectors::kFull});
  const LargeResult first = run_large(engine(), plan, a), second = run_large(engine(), plan, a);
  EXPECT_EQ(first.values_bytes, second.values_bytes);
  EXPECT_EQ(first.left_bytes, second.left_bytes);
  EXPECT_EQ(first.right_bytes, second.right_bytes);
  EXPECT_EQ(first.outcome.rotations, second.outcome.rotations);
}

TEST(LargeGeneralJacobi, TooFewSweepsLeaveTheMatrixToQr) {
  const Matrix a = Families(DType::kC128, 40).random();
  LargePlan plan = plan_of(a, {.max_sweeps = 2});
  const LargeResult stopped = run_large(engine(), plan, a);
  expect_contract(a, plan, stopped);
  EXPECT_EQ(stopped.outcome.method, Method::kQr);
  EXPECT_EQ(stopped.outcome.sweeps, 2);
  plan = plan_of(a, {.method = Method::kQr});
  const LargeResult qr = run_large(engine(), plan, a);
  EXPECT_EQ(qr.left_bytes, stopped.left_bytes);
  EXPECT_EQ(qr.values_bytes, stopped.values_bytes);
}

TEST(LargeGeneralJacobi, ANearerStartTakesFewerSweeps) {
  for (const DType dtype : {DType::kF64, DType::kC128, DType::kC64}) {
    Families f(dtype, order(), 3);
    const Matrix a = f.random();
    const LargeResult before = run_large(engine(), plan_of(a, {.method = Method::kQr}), a);
    const int cold = run_large(engine(), plan_of(a), a).outcome.sweeps;
    int last = cold;
    for (const double size : {1e-2, 1e-4, 1e-6}) {
      SCOPED_TRACE(std::string(name(dtype)) + ", " + std::to_string(size));
      const Matrix b = f.plus_noise(a, size);
      const LargePlan plan = plan_of(b, {.vectors = Vectors::kFull, .starting_vectors = true});
      EXPECT_EQ(plan.options.method, Method::kJacobi);
      const LargeResult result = run_large(engine(), plan, b, {}, {}, &before.left);
      expect_contract(b, plan, result);
      EXPECT_EQ(result.outcome.method, Method::kJacobi);
      EXPECT_TRUE(result.outcome.warm_started);
      EXPECT_LE(result.outcome.sweeps, last);
      last = result.outcome.sweeps;
    }
    EXPECT_LE(last, 4);
    EXPECT_GE(cold, 2 * last);
  }
}

TEST(LargeGeneralJacobi, StartsInEveryOrderAndOfBalancedMatrices) {
  for (const Order order_of : {Order::kRowMajor, Order::kColumnMajor}) {
    for (const bool scaled : {false, true}) {
      Families f(DType::kC128, 40, 4);
      const Matrix a = scaled ? f.scaled_by_diagonal() : f.random();
      const LargeResult before = run_large(engine(), plan_of(a, {.method = Method::kQr}), a);
      const LargePlan plan = plan_of(a, {.starting_vectors = true}, order_of);
      const LargeResult result = run_large(engine(), plan, a, {}, {}, &before.left);
      expect_contract(a, plan, result);
      EXPECT_LE(result.outcome.sweeps, 2);
      EXPECT_TRUE(result.outcome.warm_started);
    }
  }
}

// Rows and columns of some values are isolated in the second matrix, so that balancing moves them.
TEST(LargeGeneralJacobi, EigenvaluesKeepTheOrderOfTheStart) {
  for (const bool isolated : {false, true}) {
    Families f(DType::kC128, 40, 5);
    Matrix a = f.random();
    for (int64_t j = 0; isolated && j < 40; ++j) {
      for (const int64_t i : {7, 8, 31}) a.at(i, j) = i == j ? a.at(i, j) : 0;
    }
    const LargeResult before = run_large(engine(), plan_of(a, {.method = Method::kQr}), a);
    Matrix v = before.left;
    for (int64_t j = 0; j < 40; ++j) {
      for (int64_t i = 0; i < 40; ++i) v.at(i, j) = before.left.at(i, (7 * j + 3) % 40);
    }
    Matrix near = a;
    for (Number& x : near.elements) x *= 1.0 + 1e-8 * f.number();
    const LargePlan plan = plan_of(near, {.starting_vectors = true});
    const LargeResult result = run_large(engine(), plan, near, {}, {}, &v);
    expect_contract(near, plan, result);
    EXPECT_EQ(result.outcome.method, Method::kJacobi);
    for (size_t j = 0; j < 40; ++j) {
      EXPECT_LT(std::abs(result.complex_values[j] - before.complex_values[(7 * j + 3) % 40]), 1e-5) << j;
    }
  }
}

// Blocks are wider from order 257 on. The last of these has five lines.
TEST(LargeGeneralJacobi, WideBlocks) {
  Families f(DType::kC128, 261, 9);
  const Matrix a = f.random();
  const LargeResult before = run_large(engine(), plan_of(a, {.method = Method::kQr}), a);
  const Matrix near = f.plus_noise(a, 1e-6);
  for (const BlockVariant variant : {BlockVariant::kBlockOriented, BlockVariant::kFullBlock}) {
    const LargePlan plan = plan_of(near, {.variant = variant, .starting_vectors = true}, Order::kRowMajor);
    const LargeResult result = run_large(engine(), plan, near, {}, {}, &before.left);
    expect_contract(near, plan, result);
    EXPECT_EQ(result.outcome.method, Method::kJacobi);
    EXPECT_LE(result.outcome.sweeps, 4);
  }
}

// A V_0 with numbers near the ends of the range, and one that is nearly singular.
TEST(LargeGeneralJacobi, ScaledAndIllConditionedStarts) {
  const Matrix a = Families(DType::kC128, 33, 6).random();
  const LargeResult before = run_large(engine(), plan_of(a, {.method = Method::kQr}), a);
  Matrix scaled = before.left, skew = before.left;
  for (int64_t j = 0; j < 33; ++j) {
    for (int64_t i = 0; i < 33; ++i) scaled.at(i, j) *= j % 3 == 0 ? 0x1p+1000 : j % 3 == 1 ? 0x1p-1000 : 1;
    if (j > 0) {
      for (int64_t i = 0; i < 33; ++i) skew.at(i, j) = before.left.at(i, 0) + 1e-9 * before.left.at(i, j);
    }
  }
  const LargePlan plan = plan_of(a, {.vectors = Vectors::kFull, .starting_vectors = true});
  const LargeResult of_scaled = run_large(engine(), plan, a, {}, {}, &scaled);
  expect_contract(a, plan, of_scaled);
  EXPECT_EQ(of_scaled.outcome.method, Method::kJacobi);
  EXPECT_LE(of_scaled.outcome.sweeps, 2);
  expect_contract(a, plan, run_large(engine(), plan, a, {}, {}, &skew));
}

// The largest and the smallest numbers of each type; eigenvalues of the former may leave the range.
TEST_P(LargeGeneralJacobiTest, TinyAndHugeMatrices) {
  const bool single = value_bytes(GetParam()) == sizeof(float);
  for (const int exponent : single ? std::vector<int>{-120, 120} : std::vector<int>{-1000, 1015}) {
    SCOPED_TRACE(exponent);
    Matrix a = Families(GetParam(), 35, 8).random();
    for (Number& x : a.elements) x = {std::ldexp(x.real(), exponent), std::ldexp(x.imag(), exponent)};
    const LargePlan plan = plan_of(a, {.vectors = Vectors::kFull});
    const LargeResult result = run_large(engine(), plan, a);
    ASSERT_EQ(result.outcome.status, LargeStatus::kOk) << result.outcome.detail;
    EXPECT_EQ(result.outcome.method, Method::kJacobi);
    EXPECT_FALSE(result.outcome.out_of_range);
    EXPECT_LE(result.outcome.residual, 10 * 35 * real_type(GetParam()).unit_roundoff);
  }
}

TEST(LargeGeneralJacobi, UselessStartsAreLeftToQr) {
  const Matrix a = Families(DType::kC128, 30).random();
  const LargePlan plan = plan_of(a, {.starting_vectors = true});
  Matrix zero(DType::kC128, 30, 30), infinite = a, same = a;
  infinite.at(3, 4) = std::numeric_limits<double>::quiet_NaN();
  for (int64_t i = 0; i < 30; ++i) same.at(i, 9) = same.at(i, 2);
  for (const Matrix* start : {&zero, &infinite, &same}) {
    const LargeResult result = run_large(engine(), plan, a, {}, {}, start);
    expect_contract(a, plan, result);
    EXPECT_EQ(result.outcome.method, Method::kQr);
    EXPECT_FALSE(result.outcome.warm_started);
  }
}

// Equal columns of eigenvectors have a small residual. The values of the others would be missing.
TEST(LargeGeneralJacobi, EigenvectorsThatAreThereTwiceAreLeftToQr) {
  for (const DType dtype : {DType::kF64, DType::kC64}) {
    const Families families(dtype, 30);
    const Matrix a = families.of([](int64_t i, int64_t j) { return i == j ? Number(static_cast<double>(i + 1)) : 0; });
    Matrix twice = Families(dtype == DType::kF64 ? DType::kC128 : DType::kC64, 30).of([](int64_t i, int64_t j) {
      return i == j ? 1 : 0;
    });
    for (int64_t i = 0; i < 30; ++i) twice.at(i, 4) = twice.at(i, 6) = twice.at(i, 5);  // 6, 6, 6 for 5, 6, 7
    const LargePlan plan = plan_of(a, {.starting_vectors = true});
    const LargeResult result = run_large(engine(), plan, a, {}, {}, &twice);
    expect_contract(a, plan, result);
    EXPECT_EQ(result.outcome.method, Method::kQr);
    std::vector<double> found;
    for (const Number& value : result.complex_values) found.push_back(value.real());
    std::sort(found.begin(), found.end());
    for (size_t j = 0; j < found.size(); ++j) EXPECT_NEAR(found[j], static_cast<double>(j + 1), 1e-3);
  }
}

TEST(LargeGeneralJacobi, ClustersTakeTheStrongestCouplingsUntilTheyAreFull) {
  std::vector<large::Coupling> chain;
  for (int32_t i = 0; i < 19; ++i) chain.push_back({i + 1, i, 1.0});
  chain.push_back({25, 22, 9.0});
  const large::Clusters clusters = large::clusters_of(30, chain);
  ASSERT_EQ(clusters.all.size(), 3u);
  EXPECT_TRUE(clusters.full);
  std::vector<size_t> sizes;
  for (const large::Cluster& c : clusters.all) {
    EXPECT_TRUE(std::is_sorted(c.begin(), c.end()));
    sizes.push_back(c.size());
  }
  std::sort(sizes.begin(), sizes.end());
  EXPECT_EQ(sizes, (std::vector<size_t>{2, 4, large::kLargestCluster}));
  EXPECT_FALSE(large::clusters_of(30, {{25, 22, 9.0}}).full);
}

// Values on a spiral: many have the same real part when it is turned, so clusters are full and V must stay unitary.
TEST(LargeGeneralJacobi, PerturbedSpiralsTakeFewSteps) {
  const int64_t n = kSanitized ? 100 : 200;
  Families f(DType::kC128, n);
  const Matrix spiral = f.of([&](int64_t i, int64_t j) {
    const double t = static_cast<double>(i / 2 + 1) / static_cast<double>(n);
    return i == j ? (i % 2 == 0 ? 1.0 : -1.0) * std::polar(t, 20 * t) : Number(0);
  });
  const Matrix a = f.plus_noise(f.hidden(spiral), 0.006 / std::sqrt(static_cast<double>(n)));
  const LargePlan plan = plan_of(a);
  const LargeResult result = run_large(engine(), plan, a);
  expect_contract(a, plan, result);
  EXPECT_EQ(result.outcome.method, Method::kJacobi);
  EXPECT_LE(result.outcome.sweeps, 15);
  EXPECT_GT(result.outcome.rotations, 0);  // clusters; sweeps over blocks have thousands
  EXPECT_LT(result.outcome.rotations, 10 * n);
}

TEST(LargeGeneralJacobi, OptionsThatItDoesNotTake) {
  const auto field = [](LargeOptions options, LargeKind kind = LargeKind::kGeneral) {
    options.kind = kind;
    return plan_large({9, 9, DType::kF64, Order::kRowMajor}, options).error.field;
  };
  EXPECT_EQ(field({.method = Method::kJacobi}), "");
  EXPECT_EQ(field({.method = Method::kJacobi, .tolerance = 1e-10}), "tolerance");
  EXPECT_EQ(field({.method = Method::kJacobi, .max_sweeps = -1}), "max_sweeps");
  EXPECT_EQ(field({.max_sweeps = 3}), "max_sweeps");
  // No method takes a tolerance, so the message names none that would.
  const auto untaken = plan_large({9, 9, DType::kF64, Order::kRowMajor}, {.kind = LargeKind::kGeneral, .tolerance = 1});
  EXPECT_EQ(untaken.error.field, "tolerance");
  EXPECT_EQ(untaken.error.message.find("JACOBI"), std::string::npos) << untaken.error.message;
  EXPECT_EQ(field({.max_sweeps = 3, .starting_vectors = true}), "");
  EXPECT_EQ(field({.method = Method::kQr, .starting_vectors = true}), "method");
  EXPECT_EQ(field({.starting_vectors = true}, LargeKind::kSvd), "starting_vectors");
  EXPECT_EQ(field({.starting_vectors = true}, LargeKind::kHermitian), "starting_vectors");
  const LargePlan plan =
      large_plan_of({9, 9, DType::kF32, Order::kRowMajor}, {.kind = LargeKind::kGeneral, .starting_vectors = true});
  EXPECT_EQ(plan.matrix_bytes(), 81u * 4);
  EXPECT_EQ(plan.start_bytes(), 81u * 8);
  EXPECT_EQ(plan.operand_bytes(), 81u * 12);
  EXPECT_GT(engine().memory(plan).host_bytes, 0u);
}

TEST(LargeGeneralJacobi, ProgressRisesAndACancelIsObeyed) {
  const Matrix a = Families(DType::kC128, 100).random();
  const LargePlan plan = plan_of(a);
  std::vector<double> fractions;
  int sweeps = 0;
  LargeControl control;
  control.progress = [&](const LargeProgress& p) {
    fractions.push_back(p.fraction);
    sweeps = std::max(sweeps, p.sweep);
  };
  const LargeResult result = run_large(engine(), plan, a, {}, control);
  EXPECT_EQ(sweeps, result.outcome.sweeps);
  EXPECT_TRUE(std::is_sorted(fractions.begin(), fractions.end()));
  EXPECT_GT(fractions.size(), 20u);
  EXPECT_EQ(fractions.back(), 1);
  std::atomic<bool> cancel{false};
  control.cancel = &cancel;
  control.progress = [&](const LargeProgress& p) { cancel = cancel || p.sweep == 2; };
  EXPECT_EQ(run_large(engine(), plan, a, {}, control).outcome.status, LargeStatus::kCancelled);
}

}  // namespace
}  // namespace svdserve::numerics
