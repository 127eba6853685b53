// Large Hermitian eigenproblems M = U L U^H: `large_accuracy hermitian`.
//
// Columns of the CSV, n u being the unit, u = 2^-53:
//   residual |M U - U L|_F / |M|_F   orthogonality |I - U^H U|_F   trace |sum of L - trace of M| / |M|_F
//   absolute: the largest error of an eigenvalue / |M|_2
// and `relative`, the largest relative error of an eigenvalue, in units of one. The contract allows 10 of each unit. For
// D B D it bounds FACTORED's `relative`, by 10 max(n, 8) kappa u.
// References: `prescribed` ones have the rounding of M in them, some u |M|_2. `long double` ones are of M as stored.
// Residual and orthogonality are judged in double, whose own rounding is of the order of sqrt(n) u.
#include <algorithm>
#include <cmath>
#include <complex>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <iterator>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "engine/backends/host/dense/blas.h"
#include "engine/large_engine.h"
#include "tests/engine/large_reports.h"
#include "tests/support/numerics/hermitian.h"
#include "tests/support/numerics/known_spectrum.h"
#include "tests/support/numerics/lapack_peer.h"
#include "tests/support/numerics/matrix.h"
#include "tests/support/numerics/random.h"

namespace svdserve::numerics {
namespace {

using Clock = std::chrono::steady_clock;
constexpr double kRoundoff = 0x1p-53;
constexpr double kBound = 10;
constexpr double kNone = std::numeric_limits<double>::quiet_NaN();  // prints as nothing

// --- matrices -----------------------------------------------------------------------------------

struct Subject {
  std::string name;
  Matrix m;
  std::string reference;           // "prescribed", "long double", or nothing
  std::vector<long double> exact;  // ascending
  bool graded = false;
};

Subject prescribed(std::string name, DType dtype, const std::vector<double>& values, Random& random) {
  Subject s{std::move(name), with_known_spectrum(dtype, values, random), "prescribed", {}};
  s.exact.assign(values.begin(), values.end());
  std::sort(s.exact.begin(), s.exact.end());
  return s;
}

Subject referenced(std::string name, Matrix m, int64_t reference_order) {
  Subject s{std::move(name), std::move(m), "", {}};
  if (s.m.rows > reference_order) return s;
  s.reference = "long double";
  s.exact = accurate_eigenvalues(s.m);
  return s;
}

// D B D: B's eigenvalues in +-[1, 2], D evenly over 1e+-3 in random order.
Matrix graded(DType dtype, int64_t n, Random& random) {
  std::vector<double> values, exponents;
  for (int64_t i = 0; i < n; ++i) {
    values.push_back(random.uniform(1, 2) * (random.coin() ? 1 : -1));
    exponents.push_back(6 * static_cast<double>(i) / static_cast<double>(n - 1) - 3);
    std::swap(exponents.back(), exponents[static_cast<size_t>(random.integer(0, i))]);
  }
  Matrix m = with_known_spectrum(dtype, values, random);
  for (int64_t j = 0; j < n; ++j) {
    for (int64_t i = 0; i < n; ++i) {
      m.at(i, j) *= std::pow(10.0, exponents[static_cast<size_t>(i)] + exponents[static_cast<size_t>(j)]);
    }
  }
  return m;
}

// value(i) of the i-th of n eigenvalues.
std::vector<double> spectrum(int64_t n, const std::function<double(int64_t)>& value) {
  std::vector<double> values;
  for (int64_t i = 0; i < n; ++i) values.push_back(value(i));
  return values;
}

constexpr const char* kFamilies[] = {"random",   "spectrum of 2011", "four clusters",
                                     "rank n/2", "pairs +-x",        "D B D over 1e+-3"};
constexpr const char* kSolvers[] = {"tridiagonal", "factored", "lapack"};

Subject subject_of(int family, DType dtype, int64_t n, int64_t reference_order) {
  Random random(static_cast<uint64_t>(11 + family));
  const char* const name = kFamilies[family];
  switch (family) {
    case 0:
      return referenced(name, random_hermitian(dtype, n, random), reference_order);
    case 1: {
      auto lambda = spectrum_of_2011(n, n, random);
      for (double& x : lambda) x = random.coin() ? x : -x;
      return prescribed(name, dtype, lambda, random);
    }
    case 2: {
      constexpr double kCentres[] = {-3, -1, 1, 2};
      const auto value = [&](int64_t i) { return kCentres[i % 4] + 1e-10 * random.uniform(); };
      return prescribed(name, dtype, spectrum(n, value), random);
    }
    case 3: {
      const auto value = [&](int64_t i) { return i % 2 == 0 ? random.uniform(-1, 1) : 0; };
      return prescribed(name, dtype, spectrum(n, value), random);
    }
    case 4: {
      double last = 0;
      const auto value = [&](int64_t i) { return last = i % 2 == 0 ? random.uniform(1e-3, 1) : -last; };
      return prescribed(name, dtype, spectrum(n, value), random);
    }
    default: {
      Subject s = referenced(name, graded(dtype, n, random), reference_order);
      s.graded = true;
      return s;
    }
  }
}

// --- solutions and their errors -----------------------------------------------------------------

struct Row {
  int64_t n = 0;
  DType dtype = DType::kF64;
  std::string matrix, solver, reference;
  double residual = kNone, orthogonality = kNone, trace = kNone, absolute = kNone;
  double relative = kNone, relative_bound = kNone;
  int64_t rank = -1, sweeps = -1;  // -1: does not say
  bool graded = false;
  double seconds = kNone;

  bool within_bounds() const {
    // NaN, but for errors that have no reference, is within nothing.
    return residual <= kBound && orthogonality <= kBound && trace <= kBound && !(absolute > kBound) &&
           !(relative > relative_bound);
  }
};

// E is the element type.
template <class E>
struct Solution {
  std::vector<double> values;
  std::vector<E> vectors;
};

template <class E>
double norm_of(const std::vector<E>& a) {
  double scale = 0, sum = 0;
  for (const E& x : a) scale = std::max(scale, std::abs(x));
  for (const E& x : a) sum += scale > 0 ? std::norm(x / scale) : 0;
  return scale * std::sqrt(sum);
}

// |M U - U L|_F / |M|_F and |I - U^H U|_F.
template <class E>
std::pair<double, double> residual_and_orthogonality(const std::vector<E>& m, const Solution<E>& found) {
  const size_t n = found.values.size();
  const auto order = static_cast<int64_t>(n);
  const std::vector<E>& u = found.vectors;
  std::vector<E> product(n * n);
  for (size_t j = 0; j < n; ++j) {
    for (size_t i = 0; i < n; ++i) product[j * n + i] = -u[j * n + i] * found.values[j];
  }
  host::blas::gemm(false, false, order, order, order, 1, m.data(), order, u.data(), order, 1, product.data(), order);
  const double residual = norm_of(product) / norm_of(m);
  std::fill(product.begin(), product.end(), E(0));
  for (size_t j = 0; j < n; ++j) product[j * n + j] = -1;
  host::blas::gemm(true, false, order, order, order, 1, u.data(), order, u.data(), order, 1, product.data(), order);
  return {residual, norm_of(product)};
}

template <class E>
void judge(Row& row, const Subject& subject, const std::vector<E>& m, const Solution<E>& found) {
  const double unit = static_cast<double>(row.n) * kRoundoff;
  const auto [residual, orthogonality] = residual_and_orthogonality(m, found);
  row.residual = residual / unit;
  row.orthogonality = orthogonality / unit;
  long double difference = 0, norm = 0, worst = 0, relative = 0;
  for (size_t i = 0; i < found.values.size(); ++i) {
    difference += static_cast<long double>(found.values[i]) - subject.m.elements[i * found.values.size() + i].real();
    norm = std::max(norm, std::abs(static_cast<long double>(found.values[i])));
  }
  row.trace = static_cast<double>(std::abs(difference)) / (unit * norm_of(m));
  if (subject.exact.empty()) return;
  for (size_t i = 0; i < found.values.size(); ++i) {
    const long double error = std::abs(found.values[i] - subject.exact[i]);
    worst = std::max(worst, error);
    relative = std::max(relative, error / std::abs(subject.exact[i]));
  }
  row.absolute = static_cast<double>(worst / (unit * norm));
  const bool has_zero = std::find(subject.exact.begin(), subject.exact.end(), 0) != subject.exact.end();
  row.relative = has_zero ? kNone : static_cast<double>(relative);
}

template <class E>
void add_ours(Row& row, const LargeEngine& engine, const Subject& subject, const std::vector<E>& m, Method method) {
  LargeOptions options;
  options.kind = LargeKind::kHermitian;
  options.method = method;
  options.certificate = method == Method::kFactored && subject.graded && !subject.exact.empty();  // kappa
  const auto plan = plan_large({row.n, row.n, row.dtype, Order::kColumnMajor}, options);
  Solution<E> found;
  found.values.assign(static_cast<size_t>(row.n), kNone);
  found.vectors.assign(m.size(), E(kNone));
  LargeOperands operands;
  operands.matrix = m.data();
  operands.values = found.values.data();
  operands.left = found.vectors.data();
  const auto start = Clock::now();
  const LargeOutcome outcome = engine.decompose(*plan.plan, operands);
  row.seconds = seconds_since(start);
  if (outcome.status != LargeStatus::kOk) {
    std::printf("# not decomposed: %s\n", outcome.detail.c_str());
    std::exit(1);
  }
  row.rank = outcome.rank;
  row.sweeps = outcome.sweeps;
  if (options.certificate) {
    row.relative_bound =
        kBound * static_cast<double>(std::max<int64_t>(row.n, 8)) * outcome.factor_condition * kRoundoff;
  }
  judge(row, subject, m, found);
}

template <class E>
void add_peer(Row& row, const Subject& subject, const std::vector<E>& m) {
  Solution<E> found{{}, m};
  const auto start = Clock::now();
  found.values = syevd_vectors(row.n, found.vectors.data());
  row.seconds = seconds_since(start);
  if (!found.values.empty()) judge(row, subject, m, found);
}

// --- the report ---------------------------------------------------------------------------------

class Rows {
 public:
  // Returns whether a row of ours is within its bounds.
  bool add(Row row) {
    std::printf("hermitian,%lld,%s,%s,%s,%s", static_cast<long long>(row.n), name(row.dtype), row.matrix.c_str(),
                row.solver.c_str(), row.reference.c_str());
    for (const double x :
         {row.residual, row.orthogonality, row.trace, row.absolute, row.relative, row.relative_bound}) {
      std::isnan(x) ? std::printf(",") : std::printf(",%.3g", x);
    }
    for (const int64_t x : {row.rank, row.sweeps}) {
      x < 0 ? std::printf(",") : std::printf(",%lld", static_cast<long long>(x));
    }
    std::printf(",%.3g\n", row.seconds);
    const bool ok = row.solver == "lapack" || row.within_bounds();
    if (!ok) std::printf("# MISSED: the row above is not within its bound\n");
    std::fflush(stdout);
    rows_.push_back(std::move(row));
    return ok;
  }

  // The worst of a kind with its matrix, such as "0.21 random".
  std::string worst(DType dtype, int64_t n, const char* solver, double Row::*what, bool graded) const {
    const Row* found = nullptr;
    for (const Row& row : rows_) {
      if (row.dtype != dtype || row.n != n || row.solver != solver || std::isnan(row.*what)) continue;
      if (what == &Row::relative && row.graded != graded) continue;
      if (found == nullptr || row.*what > found->*what) found = &row;
    }
    if (found == nullptr) return "-";
    char text[32];
    std::snprintf(text, sizeof text, "%.2g ", found->*what);
    return text + found->matrix;
  }

  void print_worst(DType dtype, const std::vector<int64_t>& orders) const {
    struct Line {
      const char* what;
      double Row::*number;
      bool graded;
    };
    constexpr Line kLines[] = {{"residual", &Row::residual, false}, {"orthogonality", &Row::orthogonality, false},
                               {"trace", &Row::trace, false},       {"absolute", &Row::absolute, false},
                               {"relative", &Row::relative, false}, {"relative, D B D", &Row::relative, true},
                               {"seconds", &Row::seconds, false}};
    std::printf("# %-5s %5s %-16s | %-24s | %-24s | %-24s\n", name(dtype), "n", "worst", "TRIDIAGONAL", "FACTORED",
                is_complex(dtype) ? "zheevd" : "dsyevd");
    for (const int64_t n : orders) {
      for (const Line& line : kLines) {
        std::printf("# %-5s %5lld %-16s", "", static_cast<long long>(n), line.what);
        for (const char* solver : kSolvers) {
          std::printf(" | %-24s", worst(dtype, n, solver, line.number, line.graded).c_str());
        }
        std::printf("\n");
      }
    }
  }

 private:
  std::vector<Row> rows_;
};

template <class E>
bool solve(Rows& rows, const LargeEngine& engine, const Subject& subject, const std::string& wanted) {
  std::vector<E> m(subject.m.elements.size());
  store(subject.m, Order::kColumnMajor, m.data());
  bool ok = true;
  for (const char* solver : kSolvers) {
    if (wanted.find(solver) == std::string::npos && !wanted.empty()) continue;
    Row row;
    row.n = subject.m.rows;
    row.dtype = subject.m.dtype;
    row.matrix = subject.name;
    row.solver = solver;
    row.reference = subject.reference;
    row.graded = subject.graded;
    if (row.solver == "lapack") {
      add_peer(row, subject, m);
    } else {
      add_ours(row, engine, subject, m, row.solver == "factored" ? Method::kFactored : Method::kTridiagonal);
    }
    ok = rows.add(std::move(row)) && ok;
  }
  return ok;
}

}  // namespace

bool report_hermitian(const LargeEngine& engine, const HermitianReport& report) {
  const AllCoresForBlas all_cores;
  Rows rows;
  bool ok = true;
  std::printf(
      "report,n,dtype,matrix,solver,reference,residual,orthogonality,trace,absolute,relative,relative_bound,rank,"
      "sweeps,"
      "seconds\n");
  std::vector<DType> dtypes;
  for (const DType dtype : {DType::kF64, DType::kC128}) {
    if (report.dtype.empty() || report.dtype == name(dtype)) dtypes.push_back(dtype);
  }
  for (const DType dtype : dtypes) {
    for (const int64_t n : report.orders) {
      for (int family = 0; family < static_cast<int>(std::size(kFamilies)); ++family) {
        if (std::string(kFamilies[family]).find(report.matrix) == std::string::npos) continue;
        const Subject subject = subject_of(family, dtype, n, report.reference_order);
        const bool within = is_complex(dtype) ? solve<std::complex<double>>(rows, engine, subject, report.solvers)
                                              : solve<double>(rows, engine, subject, report.solvers);
        ok = within && ok;
      }
    }
  }
  std::printf(
      "#\n# Hermitian matrices given as M: the worst of each error over the matrices; see the columns of the CSV\n");
  for (const DType dtype : dtypes) rows.print_worst(dtype, report.orders);
  return ok;
}

}  // namespace svdserve::numerics
