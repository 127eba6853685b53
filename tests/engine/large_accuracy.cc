// Accuracy and convergence of large matrices, in the form of the figures and tables of the papers behind them. LAPACK
// runs beside us on the same data.
//
//   large_accuracy spectra 128 256 512      the four spectra of Novakovic 2015, section 6, as its figure 8 and table 3
//   large_accuracy hyperbolic 160 288 416   indefinite matrices of Novakovic and Singer 2011, section 5, as its figure 5
//   large_accuracy signs 512                the same with few positive signs, as its table 3
//   large_accuracy values 128 256 512       graded columns, clusters, dense spectra: every singular value
//   large_accuracy hermitian 128 256 512    Hermitian matrices given as M: residuals, orthogonality, trace, eigenvalues
//   large_accuracy times 1024 2048 4096     seconds of the hyperbolic SVD beside one thread, as figures 6 and 7 of 2011
//   large_accuracy sign_times 4096          the same by the number of positive signs, as its table 3
// CSV as it comes, then tables in comments. Sources: V. Novakovic, SIAM J. Sci. Comput. 37 (2015) C1-C30;
// V. Novakovic, S. Singer, BIT 51 (2011) 1009-1030. With --check the exit status says whether every error of ours is
// within its bound. With --cuda the first GPU computes. The options of `hermitian` are --dtype f64 or c128, --matrix with
// a part of a matrix's name, and --solvers tridiagonal,factored,lapack or some of them. With --references N, 256 unless
// given, matrices of unknown spectrum have references up to that order. `times` takes --sequential N: up to that order,
// 1024, one thread is measured, too. `all` leaves out the two reports of times.
//
// Eigenvalues are s^2 j. Their errors are relative to the reference, which is of the matrix as stored, in long double.
// Those of dsyev are relative to the prescribed ones, since it has another matrix. `prescribed` is the largest error
// relative to the eigenvalues that the matrix was generated with (Novakovic 2015, equation 19). It has the rounding of
// the matrix in it.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <initializer_list>
#include <iterator>
#include <limits>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "engine/cuda_large_engine.h"
#include "engine/large_engine.h"
#include "tests/engine/large_reports.h"
#include "tests/support/numerics/contract.h"
#include "tests/support/numerics/lapack_peer.h"
#include "tests/support/numerics/large_run.h"
#include "tests/support/numerics/matrix_generators.h"
#include "tests/support/numerics/quadruple.h"
#include "tests/support/numerics/reference_hyperbolic.h"
#include "tests/support/numerics/reference_svd.h"
#include "tests/support/numerics/symmetric_factor.h"

namespace svdserve::numerics {
namespace {

constexpr double kRoundoff = 0x1p-53;
constexpr double kNone = std::numeric_limits<double>::quiet_NaN();  // prints as nothing

struct Errors {
  double worst = kNone, mean = kNone, least = kNone;  // relative
  double absolute = kNone;                            // the worst in units of u times the largest
};

// The errors of values in the same order as the reference; no errors where LAPACK gave no values.
template <class Reference>
Errors errors_of(const std::vector<double>& found, const std::vector<Reference>& reference) {
  if (found.size() != reference.size()) return {};
  long double sum = 0, worst = 0, least = HUGE_VALL, absolute = 0, largest = 0;
  for (size_t i = 0; i < found.size(); ++i) {
    const long double difference = std::abs(found[i] - static_cast<long double>(reference[i]));
    const long double size = std::abs(static_cast<long double>(reference[i])), relative = difference / size;
    sum += relative;
    worst = std::max(worst, relative);
    least = std::min(least, relative);
    absolute = std::max(absolute, difference);
    largest = std::max(largest, size);
  }
  return {static_cast<double>(worst), static_cast<double>(sum / static_cast<long double>(found.size())),
          static_cast<double>(least), static_cast<double>(absolute / (largest * kRoundoff))};
}

// A line of the CSV.
struct Row {
  std::string report, matrix;
  int64_t n = 0;
  std::string solver, strategy, variant;
  Errors errors;
  double prescribed = kNone;
  double worst_bound = kNone, absolute_bound = kNone;                 // of errors.worst, errors.absolute
  double left_orthogonality = kNone, left_row_orthogonality = kNone;  // |I - U^T U|_F, |I - U U^T|_F
  int64_t sweeps = -1, rotations = -1, proper_rotations = -1;         // -1: does not say
};

class Rows {
 public:
  static void print_header() {
    std::printf(
        "report,n,matrix,solver,strategy,variant,worst,mean,least,prescribed,absolute_u,worst_bound,absolute_bound,"
        "orthogonality,row_orthogonality,sweeps,rotations,proper_rotations\n");
  }

  void add(Row row) {
    std::printf("%s,%lld,%s,%s,%s,%s", row.report.c_str(), static_cast<long long>(row.n), row.matrix.c_str(),
                row.solver.c_str(), row.strategy.c_str(), row.variant.c_str());
    for (const double x : {row.errors.worst, row.errors.mean, row.errors.least, row.prescribed, row.errors.absolute,
                           row.worst_bound, row.absolute_bound, row.left_orthogonality, row.left_row_orthogonality}) {
      std::isnan(x) ? std::printf(",") : std::printf(",%.3g", x);
    }
    for (const int64_t x : {row.sweeps, row.rotations, row.proper_rotations}) {
      x < 0 ? std::printf(",") : std::printf(",%lld", static_cast<long long>(x));
    }
    std::printf("\n");
    std::fflush(stdout);
    const bool failed = row.errors.worst > row.worst_bound || row.errors.absolute > row.absolute_bound;
    if (failed) std::printf("# MISSED: the row above is not within its bound\n");
    ok_ = ok_ && !failed;
    rows_.push_back(std::move(row));
  }

  std::vector<const Row*> where(const std::function<bool(const Row&)>& wanted) const {
    std::vector<const Row*> found;
    for (const Row& row : rows_) {
      if (wanted(row)) found.push_back(&row);
    }
    return found;
  }
  bool ok() const { return ok_; }

 private:
  std::vector<Row> rows_;
  bool ok_ = true;
};

// "3.2e-15", or "3.2e-15 .. 7.1e-15" where they differ, or nothing.
std::string range_of(const std::vector<const Row*>& rows, double (*what)(const Row&), const char* format) {
  if (rows.empty()) return "-";
  double least = HUGE_VAL, most = -HUGE_VAL;
  for (const Row* row : rows) {
    least = std::min(least, what(*row));
    most = std::max(most, what(*row));
  }
  char text[2][32];
  std::snprintf(text[0], sizeof text[0], format, least);
  std::snprintf(text[1], sizeof text[1], format, most);
  return std::strcmp(text[0], text[1]) == 0 ? text[0] : std::string(text[0]) + " .. " + text[1];
}

double worst_of(const Row& row) { return row.errors.worst; }
double prescribed_of(const Row& row) { return row.prescribed; }
double absolute_of(const Row& row) { return row.errors.absolute; }
double sweeps_of(const Row& row) { return static_cast<double>(row.sweeps); }

// --- solvers ------------------------------------------------------------------------------------

// A factor, and what is known of it.
struct Subject {
  std::string report, matrix;
  Matrix g;
  std::vector<int8_t> signs;           // empty: singular values, not eigenvalues, are compared
  std::vector<long double> reference;  // eigenvalues ascending, or values descending
  std::vector<double> prescribed;      // eigenvalues ascending, or none
  double worst_bound = kNone, absolute_bound = kNone;

  bool definite() const { return std::find(signs.begin(), signs.end(), -1) == signs.end(); }
};

Row row_of(const Subject& subject, const std::string& solver) {
  Row row;
  row.report = subject.report;
  row.matrix = subject.matrix;
  row.n = subject.g.cols;
  row.solver = solver;
  return row;
}

// In the order of the reference.
std::vector<double> compared(const Subject& subject, std::vector<double> values) {
  if (subject.signs.empty()) return values;
  for (size_t i = 0; i < values.size(); ++i) values[i] *= values[i] * subject.signs[i];
  std::sort(values.begin(), values.end());
  return values;
}

void add_ours(Rows& rows, const LargeEngine& engine, const Subject& subject, LargeOptions options) {
  options.kind = subject.definite() ? LargeKind::kSvd : LargeKind::kHyperbolicSvd;
  const LargePlan plan = large_plan_of({subject.g.rows, subject.g.cols, DType::kF64, Order::kColumnMajor}, options);
  const LargeResult result =
      run_large(engine, plan, subject.g, has_signature(options.kind) ? subject.signs : std::vector<int8_t>{});
  if (result.outcome.status != LargeStatus::kOk) {
    std::printf("# not decomposed: %s\n", result.outcome.detail.c_str());
    std::exit(1);
  }
  Row row = row_of(subject, options.method == Method::kAuto ? "auto" : "jacobi");
  row.strategy = name(plan.options.strategy);
  row.variant = name(plan.options.variant);
  const auto found = compared(subject, result.values);
  row.errors = errors_of(found, subject.reference);
  row.prescribed = errors_of(found, subject.prescribed).worst;
  row.worst_bound = subject.worst_bound;
  row.absolute_bound = subject.absolute_bound;
  row.left_orthogonality = column_orthogonality(result.left);
  row.left_row_orthogonality = row_orthogonality(result.left);
  row.sweeps = result.outcome.sweeps;
  row.rotations = result.outcome.rotations;
  row.proper_rotations = result.outcome.proper_rotations;
  rows.add(std::move(row));
}

void add_peer(Rows& rows, const Subject& subject, const char* name, std::vector<double> (*peer)(const Matrix&)) {
  Row row = row_of(subject, name);
  const auto found = compared(subject, peer(subject.g));
  row.errors = errors_of(found, subject.reference);
  row.prescribed = errors_of(found, subject.prescribed).worst;
  rows.add(std::move(row));
}
void add_peers(Rows& rows, const Subject& subject) {
  add_peer(rows, subject, "dgesvd", gesvd);
  add_peer(rows, subject, "dgejsv", gejsv);
  add_peer(rows, subject, "dgesvj", gesvj);
}

void add_syev(Rows& rows, const Subject& subject, const Matrix& a) {
  Row row = row_of(subject, "dsyev");
  row.errors = errors_of(syev(a), subject.prescribed);
  row.prescribed = row.errors.worst;
  rows.add(std::move(row));
}

// --- the papers' matrices -----------------------------------------------------------------------

struct Generated {
  Subject subject;
  Matrix a;  // the symmetric matrix itself, rounded
};

// Bound: twice, because of the squares, what the contract allows the singular values of B D with D diagonal.
template <class Real>
Generated generated(std::string report, std::string matrix, std::vector<double> lambda, Random& random) {
  Generated result;
  const auto a = SymmetricEigenvalues<Real>::matrix(lambda, random);
  auto factor = SymmetricFactorization<Real>::factor(a);
  std::sort(lambda.begin(), lambda.end());
  Subject& s = result.subject;
  s.report = std::move(report);
  s.matrix = std::move(matrix);
  s.g = rounded_columns(factor.columns);
  s.signs = std::move(factor.signs);
  s.reference = reference_eigenvalues(s.g, s.signs);
  s.prescribed = std::move(lambda);
  s.worst_bound = 2 * relative_bound({s.g.rows, s.g.cols, DType::kF64, Order::kColumnMajor}) *
                  unit_column_condition(s.g) * kRoundoff;
  result.a = rounded_symmetric(a);
  return result;
}

// Novakovic 2015, section 6: 16 eigenvalues 0.5, the others N(0, 0.1); 1 more than that; +-U(1e-7, 10), of either sign;
// U(1e-7, 10).
std::vector<double> spectrum_of_2015(int type, int64_t n, Random& random) {
  std::vector<double> lambda;
  for (int64_t i = 0; i < n; ++i) {
    const double normal = i < 16 ? 0.5 : 0.1 * random.normal(), uniform = random.uniform(1e-7, 10);
    const bool negative = random.coin();
    lambda.push_back(type == 1 ? normal : type == 2 ? 1 + normal : type == 3 && negative ? -uniform : uniform);
  }
  return lambda;
}

// --- Novakovic 2015: four spectra ---------------------------------------------------------------

void run_spectra(Rows& rows, const LargeEngine& engine, const std::vector<int64_t>& orders) {
  for (const int64_t n : orders) {
    for (int type = 1; type <= 4; ++type) {
      Random random(static_cast<uint64_t>(type));
      const auto [subject, a] = generated<Quadruple>("spectra", "spectrum " + std::to_string(type),
                                                     spectrum_of_2015(type, n, random), random);
      if (subject.definite()) add_ours(rows, engine, subject, {.method = Method::kAuto});
      for (int s = 1; s <= static_cast<int>(PivotStrategy::kLast); ++s) {
        for (const BlockVariant variant : {BlockVariant::kBlockOriented, BlockVariant::kFullBlock}) {
          add_ours(rows, engine, subject,
                   {.method = Method::kJacobi, .strategy = static_cast<PivotStrategy>(s), .variant = variant});
        }
      }
      if (subject.definite()) add_peers(rows, subject);
      add_syev(rows, subject, a);
    }
  }
}

void print_figure_8(const Rows& rows, const std::vector<int64_t>& orders) {
  std::printf(
      "#\n# Novakovic 2015, figure 8: the largest relative error of an eigenvalue; of JACOBI over the seven pivot "
      "strategies.\n"
      "# JACOBI's and LAPACK's SVDs: of the factor. dsyev: of the symmetric matrix.\n"
      "# %-10s %5s | %-8s | %-20s | %-20s | %-8s | %-8s | %-8s | %-8s\n",
      "matrix", "n", "AUTO", "block-oriented", "full-block", "dgesvd", "dgejsv", "dgesvj", "dsyev");
  for (int type = 1; type <= 4; ++type) {
    const std::string matrix = "spectrum " + std::to_string(type);
    for (const int64_t n : orders) {
      const auto cell = [&](const char* solver, const char* variant) {
        return range_of(rows.where([&](const Row& row) {
          return row.matrix == matrix && row.n == n && row.solver == solver && (!*variant || row.variant == variant);
        }),
                        prescribed_of, "%.1e");
      };
      std::printf("# %-10s %5lld | %-8s | %-20s | %-20s | %-8s | %-8s | %-8s | %-8s\n", matrix.c_str(),
                  static_cast<long long>(n), cell("auto", "").c_str(), cell("jacobi", "block-oriented").c_str(),
                  cell("jacobi", "full-block").c_str(), cell("dgesvd", "").c_str(), cell("dgejsv", "").c_str(),
                  cell("dgesvj", "").c_str(), cell("dsyev", "").c_str());
    }
  }
}

// The paper's strategy is the reverse of the one nearest to row-cyclic; its orders are 1024 to 16384.
void print_table_3_of_2015(const Rows& rows) {
  struct Paper {
    double ratio;
    const char *full, *oriented;
  };
  constexpr Paper kPaper[] = {
      {2.29, "8-12", "10-14"}, {2.10, "8-9", "9-12"}, {2.30, "8-11", "9-14"}, {2.08, "7-9", "9-12"}};
  std::printf(
      "#\n# Novakovic 2015, table 3: reverse-row-cyclic; the paper: orders 1024 to 16384, blocks of 16 columns, no "
      "second QR "
      "first\n"
      "# %-10s | %-32s | %-24s | %-24s\n# %-10s | %-10s %-21s | %-10s %-13s | %-10s %s\n",
      "", "rotations, full-block over other", "sweeps, full-block", "sweeps, block-oriented", "matrix", "paper", "ours",
      "paper", "ours", "paper", "ours");
  for (int type = 1; type <= 4; ++type) {
    const std::string matrix = "spectrum " + std::to_string(type);
    const auto of_variant = [&](const char* variant) {
      return rows.where([&](const Row& row) {
        return row.matrix == matrix && row.solver == "jacobi" && row.variant == variant &&
               row.strategy == name(PivotStrategy::kReverseRowCyclic);
      });
    };
    const auto full = of_variant("full-block"), oriented = of_variant("block-oriented");
    double ratio = 0;
    for (size_t i = 0; i < full.size(); ++i) {
      ratio += static_cast<double>(full[i]->rotations) / static_cast<double>(oriented[i]->rotations);
    }
    const Paper& paper = kPaper[type - 1];
    std::printf("# %-10s | %-10.2f %-21.2f | %-10s %-13s | %-10s %s\n", matrix.c_str(), paper.ratio,
                ratio / static_cast<double>(full.size()), paper.full, range_of(full, sweeps_of, "%.0f").c_str(),
                paper.oriented, range_of(oriented, sweeps_of, "%.0f").c_str());
  }
}

// --- Novakovic and Singer 2011: indefinite matrices ---------------------------------------------

// The strategy of the paper, and ours.
void add_hyperbolic(Rows& rows, const LargeEngine& engine, const Generated& generated) {
  for (const PivotStrategy strategy : {PivotStrategy::kModifiedModulus, PivotStrategy::kAuto}) {
    add_ours(rows, engine, generated.subject, {.method = Method::kJacobi, .strategy = strategy});
  }
  add_syev(rows, generated.subject, generated.a);
}

void run_hyperbolic(Rows& rows, const LargeEngine& engine, const std::vector<int64_t>& orders) {
  for (const int64_t n : orders) {
    Random random(5);
    auto lambda = spectrum_of_2011(n, n, random);
    for (double& x : lambda) x = random.coin() ? x : -x;
    add_hyperbolic(rows, engine, generated<long double>("hyperbolic", "indefinite", lambda, random));
  }
}

void print_figure_5(const Rows& rows) {
  std::printf(
      "#\n# Novakovic and Singer 2011, figure 5: relative errors of eigenvalues, and d(U) = |I - U^T U|_F. The paper's "
      "d(U) grows linearly "
      "from\n"
      "# 1.11e-14 (n = 160) to 7.55e-13 (n = 10144); its largest errors reach some 7.5e-12 at the far end.\n"
      "# %5s %-18s | %-8s %-8s %-8s | %-8s %-8s %-8s\n",
      "n", "strategy", "average", "maximal", "minimal", "d(U)", "d(U^T)", "paper's");
  for (const Row* row : rows.where([](const Row& r) { return r.report == "hyperbolic"; })) {
    const std::string solver = row->solver == "jacobi" ? row->strategy : row->solver;
    std::printf("# %5lld %-18s | %-8.1e %-8.1e %-8.1e |", static_cast<long long>(row->n), solver.c_str(),
                row->errors.mean, row->errors.worst, row->errors.least);
    if (row->solver == "jacobi") {
      const double paper = 1.11e-14 + (7.55e-13 - 1.11e-14) * static_cast<double>(row->n - 160) / (10144 - 160);
      std::printf(" %-8.1e %-8.1e %-8.1e", row->left_orthogonality, row->left_row_orthogonality, paper);
    }
    std::printf("\n");
  }
}

struct SignsRow {
  int64_t positive;  // of 4096
  int paper_sweeps;  // with sorting
};
constexpr SignsRow kSigns[] = {{0, 13},   {1, 13},   {5, 13},    {10, 14},  {50, 15},
                               {100, 15}, {500, 16}, {1000, 16}, {2048, 16}};

// Positive signs of an order n: those of the table that fit, and half of them all.
std::vector<int64_t> positive_counts(int64_t n) {
  std::vector<int64_t> counts;
  for (const SignsRow& row : kSigns) {
    if (row.positive < n / 2) counts.push_back(row.positive);
  }
  counts.push_back(n / 2);
  return counts;
}

void run_signs(Rows& rows, const LargeEngine& engine, const std::vector<int64_t>& orders) {
  for (const int64_t n : orders) {
    for (const int64_t positive : positive_counts(n)) {
      Random random(6);
      add_hyperbolic(rows, engine,
                     generated<long double>("signs", std::to_string(positive) + " positive",
                                            spectrum_of_2011(n, positive, random), random));
    }
  }
}

void print_table_3_of_2011(const Rows& rows, const std::vector<int64_t>& orders) {
  std::printf(
      "#\n# Novakovic and Singer 2011, table 3: sweeps by the number of positive signs; the paper: quasi-sweeps of "
      "single columns, n = "
      "4096,\n"
      "# the modified modulus strategy, with sorting\n# %5s %9s | %6s | %16s %10s | %16s %8s\n",
      "n", "positive", "paper", "modified modulus", "default", "largest error", "dsyev's");
  for (const int64_t n : orders) {
    for (const int64_t positive : positive_counts(n)) {
      const auto at = [&](const char* solver, bool modulus) {
        return rows.where([&](const Row& row) {
          return row.report == "signs" && row.n == n && row.matrix == std::to_string(positive) + " positive" &&
                 row.solver == solver &&
                 (row.solver != "jacobi" || (row.strategy == name(PivotStrategy::kModifiedModulus)) == modulus);
        });
      };
      int paper = kSigns[std::size(kSigns) - 1].paper_sweeps;  // of half
      for (const SignsRow& row : kSigns) {
        if (row.positive == positive) paper = row.paper_sweeps;
      }
      std::printf("# %5lld %9lld | %6d | %16s %10s | %16s %8s\n", static_cast<long long>(n),
                  static_cast<long long>(positive), paper, range_of(at("jacobi", true), sweeps_of, "%.0f").c_str(),
                  range_of(at("jacobi", false), sweeps_of, "%.0f").c_str(),
                  range_of(at("jacobi", false), worst_of, "%.1e").c_str(),
                  range_of(at("dsyev", false), worst_of, "%.1e").c_str());
    }
  }
}

// --- singular values of hard matrices -----------------------------------------------------------

// B D: a well-conditioned B, D evenly over 10^+-decades in random order.
Matrix graded(int64_t n, double decades, Random& random) {
  const Matrix basis = orthonormal_columns(DType::kF64, n, n, random);
  std::vector<double> exponents(static_cast<size_t>(n));
  for (size_t j = 0; j < exponents.size(); ++j) {
    exponents[j] = decades * (2 * static_cast<double>(j) / static_cast<double>(n - 1) - 1);
    std::swap(exponents[j], exponents[static_cast<size_t>(random.integer(0, static_cast<int64_t>(j)))]);
  }
  Matrix a(DType::kF64, n, n);
  for (int64_t j = 0; j < n; ++j) {
    const double scale = std::pow(10.0, exponents[static_cast<size_t>(j)]);
    for (int64_t i = 0; i < n; ++i) {
      const double noise = random.normal() / (4 * std::sqrt(static_cast<double>(n)));
      a.at(i, j) = (basis.at(i, j).real() + noise) * scale;
    }
  }
  return a;
}

Matrix dense(int64_t n, const std::function<double(double)>& value, Random& random) {
  std::vector<double> values;
  for (int64_t i = 0; i < n; ++i) values.push_back(value(static_cast<double>(i) / static_cast<double>(n - 1)));
  return with_singular_values(DType::kF64, n, n, values, random);
}

std::vector<std::pair<const char*, Matrix>> hard_matrices(int64_t n) {
  Random random(7);
  return {{"columns 1e+-12", graded(n, 12, random)},
          {"columns 1e+-150", graded(n, 150, random)},
          {"two clusters", dense(
                               n, [](double x) { return x < 0.5 ? 1 : 1e-8; }, random)},
          {"narrow clusters", dense(
                                  n, [](double x) { return std::floor(4 * x) + 1 + 1e-10 * x; }, random)},
          {"condition 1e6", dense(
                                n, [](double x) { return std::pow(10, -6 * x); }, random)},
          {"condition 1e12", dense(
                                 n, [](double x) { return std::pow(10, -12 * x); }, random)}};
}

// Held to the contract: graded columns by the relative errors, all by the absolute ones.
void run_values(Rows& rows, const LargeEngine& engine, const std::vector<int64_t>& orders) {
  for (const int64_t n : orders) {
    for (auto& [what, a] : hard_matrices(n)) {
      const Problem problem{n, n, DType::kF64, Order::kColumnMajor};
      Subject subject;
      subject.report = "values";
      subject.matrix = what;
      subject.reference = reference_singular_values(a);
      subject.absolute_bound = value_bound(problem);
      if (std::strncmp(what, "columns", 7) == 0) {
        subject.worst_bound = relative_bound(problem) * unit_column_condition(a) * kRoundoff;
      }
      subject.g = std::move(a);
      for (const Method method : {Method::kAuto, Method::kJacobi}) add_ours(rows, engine, subject, {.method = method});
      add_peers(rows, subject);
    }
  }
}

void print_values(const Rows& rows) {
  std::printf(
      "#\n# Every singular value: the largest relative error / the largest absolute one in units of u s_max\n"
      "# %-16s %5s | %-16s | %-16s | %-16s | %-16s | %-16s\n",
      "matrix", "n", "AUTO", "JACOBI", "dgesvd", "dgejsv", "dgesvj");
  for (const Row* first : rows.where([](const Row& r) { return r.report == "values" && r.solver == "auto"; })) {
    std::printf("# %-16s %5lld", first->matrix.c_str(), static_cast<long long>(first->n));
    for (const char* solver : {"auto", "jacobi", "dgesvd", "dgejsv", "dgesvj"}) {
      const auto found = rows.where([&](const Row& r) {
        return r.report == "values" && r.n == first->n && r.matrix == first->matrix && r.solver == solver;
      });
      std::printf(" | %-16s",
                  (range_of(found, worst_of, "%.1e") + " / " + range_of(found, absolute_of, "%.1f")).c_str());
    }
    std::printf("\n");
  }
}

// --- program ------------------------------------------------------------------------------------

std::unique_ptr<LargeEngine> engine_of(bool cuda) {
  if (!cuda) return make_host_large_engine();
  CudaStatus status;
  auto engine = open_cuda_large_engine(0, &status);
  if (engine == nullptr) std::fprintf(stderr, "large_accuracy: no GPU for factors: %s\n", status.text.c_str());
  return engine;
}

struct Arguments {
  std::string what = "all", dtype, matrix, solvers;
  std::vector<int64_t> orders;
  int64_t reference_order = 256, sequential_order = 1024;
  bool check = false, cuda = false;

  bool wants(const char* report) const { return what == report || what == "all"; }
  std::vector<int64_t> orders_or(std::vector<int64_t> defaults) const { return orders.empty() ? defaults : orders; }
};

bool report_factors(const LargeEngine& engine, const Arguments& arguments) {
  const auto spectra = arguments.orders_or({128, 256, 512}), hyperbolic = arguments.orders_or({160, 288, 416}),
             signs = arguments.orders_or({512});
  Rows rows;
  Rows::print_header();
  if (arguments.wants("spectra")) run_spectra(rows, engine, spectra);
  if (arguments.wants("hyperbolic")) run_hyperbolic(rows, engine, hyperbolic);
  if (arguments.wants("signs")) run_signs(rows, engine, signs);
  if (arguments.wants("values")) run_values(rows, engine, spectra);
  if (arguments.wants("spectra")) {
    print_figure_8(rows, spectra);
    print_table_3_of_2015(rows);
  }
  if (arguments.wants("hyperbolic")) print_figure_5(rows);
  if (arguments.wants("signs")) print_table_3_of_2011(rows, signs);
  if (arguments.wants("values")) print_values(rows);
  return rows.ok();
}

int run(const Arguments& arguments) {
  const auto is_any_of = [&](std::initializer_list<const char*> names) {
    return std::any_of(names.begin(), names.end(), [&](const char* name) { return arguments.what == name; });
  };
  const bool times = is_any_of({"times", "sign_times"});
  if (!times && !is_any_of({"all", "spectra", "hyperbolic", "signs", "values", "hermitian", "general"})) return 2;
  if (!arguments.dtype.empty() && arguments.dtype != "f64" && arguments.dtype != "c128") return 2;
  const auto engine = engine_of(arguments.cuda);
  if (engine == nullptr) return 1;
  std::printf("# f64 unless said, U and V, %s\n",
              arguments.cuda ? "GPU 0" : (std::to_string(std::thread::hardware_concurrency()) + " threads").c_str());
  if (times) {
    const bool signs = arguments.what == "sign_times";
    report_times(*engine,
                 {arguments.orders_or(signs ? std::vector<int64_t>{4096} : std::vector<int64_t>{1024, 2048, 4096}),
                  arguments.sequential_order, signs});
    return 0;
  }
  bool ok = is_any_of({"hermitian", "general"}) || report_factors(*engine, arguments);
  if (arguments.wants("hermitian")) {
    const HermitianReport report{arguments.orders_or({128, 256, 512}), arguments.dtype, arguments.matrix,
                                 arguments.solvers, arguments.reference_order};
    ok = report_hermitian(*engine, report) && ok;
  }
  if (arguments.wants("general")) {
    ok = report_general(*engine, {arguments.orders_or({256, 512, 1024}), arguments.dtype}) && ok;
  }
  std::printf("#\n# %s\n", ok ? "Every error of ours is within its bound." : "Some errors of ours are MISSED.");
  return arguments.check && !ok ? 1 : 0;
}

}  // namespace
}  // namespace svdserve::numerics

int main(int argc, char** argv) {
  svdserve::numerics::Arguments arguments;
  for (int i = 1; i < argc; ++i) {
    const auto is = [&](const char* option) { return std::strcmp(argv[i], option) == 0; };
    if (is("--check")) {
      arguments.check = true;
    } else if (is("--cuda")) {
      arguments.cuda = true;
    } else if (is("--dtype") && i + 1 < argc) {
      arguments.dtype = argv[++i];
    } else if (is("--matrix") && i + 1 < argc) {
      arguments.matrix = argv[++i];
    } else if (is("--solvers") && i + 1 < argc) {
      arguments.solvers = argv[++i];
    } else if (is("--references") && i + 1 < argc) {
      arguments.reference_order = std::atoll(argv[++i]);
    } else if (is("--sequential") && i + 1 < argc) {
      arguments.sequential_order = std::atoll(argv[++i]);
    } else if (std::atoll(argv[i]) > 0) {
      arguments.orders.push_back(std::max(20LL, std::atoll(argv[i])));
    } else {
      arguments.what = argv[i];
    }
  }
  const int status = svdserve::numerics::run(arguments);
  if (status == 2) {
    std::fprintf(
        stderr,
        "large_accuracy [all | spectra | hyperbolic | signs | values | hermitian | general | times | sign_times] "
        "[ORDER ...] [--check] [--cuda] [--dtype f64|c128] [--matrix NAME] "
        "[--solvers tridiagonal,factored,lapack] [--references N] [--sequential N]\n");
  }
  return status;
}
