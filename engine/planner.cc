#include "engine/planner.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

namespace svdserve {
namespace {

PlanOrError fail(const char* field, std::string message) { return {std::nullopt, {field, std::move(message)}}; }

// Unit roundoff of the real type of `t`.
double unit_roundoff(DType t) { return value_bytes(t) == 4 ? 0x1p-24 : 0x1p-53; }

// The largest tolerance that can be asked for. An interval [a, b] around lambda with b - a <= delta (a + b) has its
// middle within delta / (1 - delta) lambda of it. Up to delta = 1/2 that is the 2 delta lambda which is promised.
constexpr double kLargestBisectionTolerance = 0.5;
constexpr double kLargestJacobiTolerance = 1;

// The default of max_sweeps with vectors, and of k > kLargestReproducible, where no pivoted QR has sorted columns that
// fall over a hundred decades. Such test matrices take about 30 (k = 65: 45), where others take 10. The most that a
// search found are 47 for k <= 16, 67 for k <= 64 and 108 for k <= 128; nothing is gained by a limit near them.
constexpr int32_t kDefaultUnsortedSweeps = kLargestMaxSweeps;

// AUTO that no tolerance and no limit of sweeps makes JACOBI beyond the k of equal bits.
bool is_open(const Options& options) {
  return options.method == Method::kAuto && options.tolerance == 0 && options.max_sweeps == 0;
}

// AUTO: BIDIAGONAL is the fastest within the bound for values alone. Beyond the k of equal bits it is so for vectors, too.
// Hermitian matrices have TRIDIAGONAL there, and where they are small. All others, and those that are too large on a GPU,
// are JACOBI's. So are a tolerance, a limit of sweeps, and m != n where no thread block has room for the QR.
Method resolve(const Options& options, bool vectors, const Problem& problem) {
  const int64_t k = values_per_matrix(problem);
  const bool hermitian = options.decomposition == Decomposition::kHermitian;
  if (hermitian && k > kLargestInGrid) return Method::kTridiagonal;
  if (options.method != Method::kAuto) return options.method;
  const int64_t least = vectors || hermitian ? kLargestReproducible + 1 : 1;
  const int64_t on_gpu = problem.rows == problem.cols ? kLargestInMemory : kLargestInGrid;
  const int64_t largest = is_open(options) ? on_gpu : kLargestReproducible;
  const bool is_small = hermitian && is_open(options) && k <= kLargestTridiagonal;
  if (!is_small && (k < least || k > largest)) return Method::kJacobi;
  return hermitian ? Method::kTridiagonal : Method::kBidiagonal;
}

// The method on a CPU: beyond the k of equal bits AUTO takes the fastest there. A tolerance or a limit of sweeps is
// JACOBI's, and so is the method of which it is given. Hermitian matrices have TRIDIAGONAL, whose results meet any.
Method resolve_on_host(const Options& options, Method method, int64_t k) {
  if (k <= kLargestReproducible) return method;
  if (options.decomposition == Decomposition::kHermitian) return Method::kTridiagonal;
  return is_open(options) ? Method::kBidiagonal : method;
}

std::optional<PlanError> fail_mimo(const char* field, std::string message) {
  return PlanError{std::string("mimo.") + field, std::move(message)};
}

// Resolves MimoOptions into *out. Returns what is wrong.
std::optional<PlanError> resolve_mimo(const Problem& problem, const MimoOptions& mimo, Outputs* out) {
  const int64_t k = values_per_matrix(problem);
  const bool of_snr = mimo.capacity || mimo.water_filling || mimo.stream_snr;
  if (of_snr && mimo.snr_db.empty())
    return fail_mimo("snr_db", "must have at least one SNR for capacity, water_filling and stream_snr");
  if (!of_snr && !mimo.snr_db.empty())
    return fail_mimo("snr_db", "is for capacity, water_filling and stream_snr alone; ask for one of them");
  if (mimo.snr_db.size() > kMaxSnrs) {
    return fail_mimo("snr_db", "must have at most " + std::to_string(kMaxSnrs) + " SNRs, but has " +
                                   std::to_string(mimo.snr_db.size()));
  }
  for (const double db : mimo.snr_db) {
    if (!(std::abs(db) <= kMaxSnrDb)) return fail_mimo("snr_db", "must be finite and within -300 .. 300");
  }
  if (mimo.threshold_rank ? !(mimo.rank_threshold > 0 && mimo.rank_threshold < 1) : mimo.rank_threshold != 0) {
    return fail_mimo("rank_threshold", mimo.threshold_rank ? "must be between 0 and 1, both excluded"
                                                           : "is for the threshold rank alone; ask for it");
  }
  if (mimo.group < 1 || mimo.group > kMaxGroup) {
    return fail_mimo("group_size",
                     "must be between 1 and " + std::to_string(kMaxGroup) + ", but is " + std::to_string(mimo.group));
  }
  if (mimo.group > 1 && !(mimo.capacity || mimo.water_filling)) {
    return fail_mimo("group_size", "is for capacity and water_filling alone; ask for one of them");
  }
  for (const auto& [columns, field] :
       {std::pair(mimo.precoder_columns, "precoder_columns"), std::pair(mimo.combiner_columns, "combiner_columns")}) {
    if (columns < 0 || columns > k) {
      return fail_mimo(field, "must be between 0 and min(rows, cols) = " + std::to_string(k) + ", but is " +
                                  std::to_string(columns));
    }
  }
  if (mimo.gradient && !(mimo.capacity || mimo.water_filling || mimo.effective_rank)) {
    return fail_mimo("gradient", "is of capacity, water_filling and effective_rank; ask for one of them");
  }
  if (mimo.gradient && mimo.water_filling && mimo.group > 1) {
    return fail_mimo("gradient", "of water_filling needs group_size 1; leave one of the two out");
  }
  for (const MimoPlane& m : kMimoPlanes) out->*m.output = mimo.*m.option;
  for (const MimoGradient& g : kMimoGradients) out->*g.output = mimo.gradient && mimo.*g.of;
  out->rank_threshold = mimo.rank_threshold;
  out->group = mimo.group;
  out->snr_count = static_cast<int32_t>(mimo.snr_db.size());
  for (size_t i = 0; i < mimo.snr_db.size(); ++i) out->snr[i] = std::pow(10.0, mimo.snr_db[i] / 10);
  out->right_columns = mimo.precoder_columns;
  out->right_adjoint = mimo.precoder_columns == 0;
  out->left_columns = mimo.combiner_columns;
  return std::nullopt;
}

// Resolves the requested results into *out. Returns what is wrong.
std::optional<PlanError> resolve_outputs(const Problem& problem, const Options& options, Outputs* out) {
  const int64_t k = values_per_matrix(problem);
  if (auto error = resolve_mimo(problem, options.mimo, out)) return error;
  const bool matrices = out->left_columns > 0 || out->right_columns > 0;
  if (options.vectors != Vectors::kNone && matrices) {
    return PlanError{"vectors", "must be none beside precoders and combiners, which are vectors already"};
  }
  if (options.top_k < 0 || options.top_k > k) {
    return PlanError{"top_k", "must be between 0 and min(rows, cols) = " + std::to_string(k) + " (0: all), but is " +
                                  std::to_string(options.top_k)};
  }
  if (options.top_k != 0 && options.vectors == Vectors::kFull) {
    return PlanError{"top_k", "must be 0 with full vectors, which have all columns; ask for thin ones"};
  }
  const int64_t leading = options.top_k != 0 ? options.top_k : k;
  out->values = options.values ? leading : 0;
  if (options.vectors != Vectors::kNone) {
    const bool full = options.vectors == Vectors::kFull;
    out->left_columns = full ? problem.rows : leading;
    out->right_columns = full ? problem.cols : leading;
  }
  const bool vectors = options.vectors != Vectors::kNone || matrices;
  if (options.fix_phases && !vectors)
    return PlanError{"fix_phases", "needs vectors, precoders or combiners; ask for some"};
  if (options.certificate && !vectors)
    return PlanError{"certificate", "needs vectors, precoders or combiners; ask for some"};
  out->fix_phases = options.fix_phases;
  out->certificate = options.certificate;
  if (out->values == 0 && !vectors && !out->answers())
    return PlanError{"values", "no result is requested; ask for values, vectors or MIMO numbers"};
  return std::nullopt;
}

}  // namespace

PlanError bad_max_sweeps() {
  return {"max_sweeps", "must be between 0 and " + std::to_string(kLargestMaxSweeps) + " (0: the default)"};
}

// Checks for options that a Hermitian eigenproblem does not take. Returns what is wrong.
std::optional<PlanError> check_hermitian(const Problem& problem, const Options& options) {
  if (problem.rows != problem.cols) {
    return PlanError{"cols", "must equal rows = " + std::to_string(problem.rows) + " for Hermitian matrices, but is " +
                                 std::to_string(problem.cols)};
  }
  if (options.method != Method::kAuto && options.method != Method::kJacobi) {
    return PlanError{"method", "must be AUTO or JACOBI for Hermitian matrices"};
  }
  if (options.vectors == Vectors::kFull) {
    return PlanError{"vectors",
                     "must be NONE or RIGHT (thin) for Hermitian matrices, whose left eigenvectors are the right ones"};
  }
  for (const auto& [wanted, field] :
       {std::pair(options.fix_phases, "fix_phases"), std::pair(options.certificate, "certificate")}) {
    if (wanted && options.vectors == Vectors::kNone) return PlanError{field, "needs eigenvectors; ask for them"};
  }
  if (options.top_k != 0) return PlanError{"top_k", "must be 0 for Hermitian matrices, which get all eigenvalues"};
  if (!options.values) return PlanError{"values", "must be requested for Hermitian matrices"};
  if (options.mimo != MimoOptions{}) return PlanError{"mimo", "must be absent for Hermitian matrices"};
  return std::nullopt;
}

// Starting vectors are JACOBI's.
bool is_general_jacobi(const Options& options) { return options.method == Method::kJacobi || options.starting_vectors; }

// Checks for options that a general eigenproblem does not take. Returns what is wrong.
std::optional<PlanError> check_general(const Problem& problem, const Options& options) {
  if (problem.rows != problem.cols) {
    return PlanError{"cols", "must equal rows = " + std::to_string(problem.rows) + " for eigenproblems, but is " +
                                 std::to_string(problem.cols)};
  }
  if (options.method != Method::kAuto && options.method != Method::kQr && options.method != Method::kJacobi) {
    return PlanError{"method", "must be AUTO, QR or JACOBI for general matrices"};
  }
  if (options.starting_vectors && options.method == Method::kQr) {
    return PlanError{"method", "must be AUTO or JACOBI with starting vectors, which QR does not take"};
  }
  if (options.tolerance != 0) return PlanError{"tolerance", "must be 0 for general matrices, whose methods take none"};
  if (options.max_sweeps != 0 && !is_general_jacobi(options)) {
    return PlanError{"max_sweeps", "is for JACOBI alone, which counts sweeps"};
  }
  if (options.max_sweeps < 0 || options.max_sweeps > kLargestMaxSweeps) return bad_max_sweeps();
  if (options.fix_phases) return PlanError{"fix_phases", "must be false for general matrices: their phases are fixed"};
  if (options.certificate && options.vectors == Vectors::kNone) {
    return PlanError{"certificate", "needs eigenvectors; ask for them"};
  }
  if (options.top_k != 0) return PlanError{"top_k", "must be 0 for general matrices, which get all eigenvalues"};
  if (!options.values) return PlanError{"values", "must be requested for general matrices"};
  if (options.mimo != MimoOptions{}) return PlanError{"mimo", "must be absent for general matrices"};
  return std::nullopt;
}

// The plan of a general eigenproblem that has passed check_general().
Plan general_plan(const Problem& problem, const Options& options) {
  Outputs outputs;
  outputs.complex = true;
  outputs.values = problem.rows;
  outputs.left_columns = options.vectors != Vectors::kNone ? problem.rows : 0;
  outputs.right_columns = options.vectors == Vectors::kFull ? problem.rows : 0;
  outputs.certificate = options.certificate;
  outputs.condition = options.condition;
  const bool jacobi = is_general_jacobi(options);
  const int32_t max_sweeps = !jacobi ? 0 : options.max_sweeps != 0 ? options.max_sweeps : kDefaultMaxSweeps;
  const Method method = jacobi ? Method::kJacobi : Method::kQr;
  return {problem, options.decomposition,   options.triangle, method, method, 0, max_sweeps,
          outputs, options.starting_vectors};
}

// Checks the order of matrices of eigenproblems, whose limits are lower than that of others. Returns what is wrong.
std::optional<PlanError> check_order(const Problem& problem, const Options& options) {
  if (options.decomposition == Decomposition::kSvd || problem.rows != problem.cols) return std::nullopt;
  const bool general = options.decomposition == Decomposition::kGeneral;
  const int64_t largest = general ? kLargestGeneral : kLargestHermitian;
  if (problem.rows <= largest) return std::nullopt;
  return PlanError{"rows", std::string("of a batch of ") + (general ? "general" : "Hermitian") +
                               " matrices must be at most " + std::to_string(largest) + ", but is " +
                               std::to_string(problem.rows) + "; DecomposeLarge takes one such matrix at a time"};
}

// Checks that the decomposition takes the problem and the options. Returns what is wrong.
std::optional<PlanError> check_decomposition(const Problem& problem, const Options& options) {
  if (options.decomposition != Decomposition::kGeneral) {
    for (const auto& [wanted, field] :
         {std::pair(options.condition, "condition"), std::pair(options.starting_vectors, "starting_vectors")}) {
      if (wanted) return PlanError{field, "is for eigenproblems of general matrices alone"};
    }
  }
  if (options.decomposition == Decomposition::kHermitian) return check_hermitian(problem, options);
  if (options.triangle != Triangle::kLower) {
    return PlanError{"triangle", "must be LOWER (the default) unless matrices are Hermitian: others are read whole"};
  }
  if (options.decomposition == Decomposition::kGeneral) return check_general(problem, options);
  if (options.method == Method::kFactored || options.method == Method::kTridiagonal || options.method == Method::kQr) {
    return PlanError{"method", "FACTORED, TRIDIAGONAL and QR are for eigenproblems of one large matrix; ask for AUTO"};
  }
  return std::nullopt;
}

// Checks how the operands are stored. Returns what is wrong.
std::optional<PlanError> check_storage(const Problem& problem) {
  if (is_narrow(problem) && value_bytes(problem.dtype) != sizeof(float)) {
    return PlanError{"storage", "must be native for f64 and c128: narrow numbers become f32 and c64"};
  }
  if (problem.storage != Storage::kI16) {
    if (problem.exponent == 0) return std::nullopt;
    return PlanError{"exponent", "is for I16 and CI16 alone; leave it 0"};
  }
  if (problem.exponent >= kLeastExponent && problem.exponent <= kLargestExponent) return std::nullopt;
  return PlanError{"exponent",
                   "must be between " + std::to_string(kLeastExponent) + " and " + std::to_string(kLargestExponent) +
                       ", by which f32 has every integer exactly, but is " + std::to_string(problem.exponent)};
}

// Checks that a batch may have the shape. Returns what is wrong.
std::optional<PlanError> check_shape(const Problem& problem) {
  for (const auto& [size, field] : {std::pair(problem.rows, "rows"), std::pair(problem.cols, "cols")}) {
    if (size >= 1 && size <= kShapeLimits.max_dimension) continue;
    return PlanError{field, "must be between 1 and " + std::to_string(kShapeLimits.max_dimension) + ", but is " +
                                std::to_string(size)};
  }
  if (values_per_matrix(problem) <= kShapeLimits.max_values) return std::nullopt;
  return PlanError{problem.rows <= problem.cols ? "rows" : "cols",
                   "min(rows, cols) of a batch must be at most " + std::to_string(kShapeLimits.max_values) +
                       ", but is " + std::to_string(values_per_matrix(problem)) +
                       "; DecomposeLarge takes one such matrix at a time"};
}

PlanOrError make_plan(const Problem& problem, const Options& options) {
  if (auto error = check_order(problem, options)) return {std::nullopt, *std::move(error)};
  if (auto error = check_shape(problem)) return {std::nullopt, *std::move(error)};
  if (auto error = check_storage(problem)) return {std::nullopt, *std::move(error)};
  const bool hermitian = options.decomposition == Decomposition::kHermitian;
  if (auto error = check_decomposition(problem, options)) return {std::nullopt, *std::move(error)};
  if (options.decomposition == Decomposition::kGeneral) return {general_plan(problem, options), {}};
  Outputs outputs;
  if (auto error = resolve_outputs(problem, options, &outputs)) return {std::nullopt, *std::move(error)};
  if (hermitian) outputs.right_columns = 0;  // V = U
  const Method method = resolve(options, outputs.vectors(), problem);
  const bool is_named = options.method == Method::kBidiagonal || options.method == Method::kBisection;
  if (is_named && outputs.vectors()) {
    return fail("method", "BIDIAGONAL and BISECTION by name give values alone; AUTO and JACOBI give vectors");
  }
  if (is_named && values_per_matrix(problem) > kLargestReproducible) {
    return fail("method", "BIDIAGONAL and BISECTION take min(rows, cols) up to " +
                              std::to_string(kLargestReproducible) + "; AUTO and JACOBI take this matrix");
  }
  const bool bisects = method == Method::kBisection;
  const double largest = bisects ? kLargestBisectionTolerance : kLargestJacobiTolerance;
  if (!(options.tolerance >= 0 && options.tolerance <= largest)) {  // refuses NaN, too
    return fail("tolerance",
                std::string("must be between 0 and ") + (bisects ? "1/2 for BISECTION" : "1") + " (0: the default)");
  }
  if (options.tolerance != 0 && method == Method::kBidiagonal) {
    return fail("tolerance", "BIDIAGONAL (and AUTO, which chose it) takes no tolerance; ask for BISECTION or JACOBI");
  }
  if (options.max_sweeps < 0 || options.max_sweeps > kLargestMaxSweeps) return {std::nullopt, bad_max_sweeps()};
  if (options.max_sweeps != 0 && method != Method::kJacobi && !hermitian) {
    return fail("max_sweeps", "is for JACOBI alone, which counts sweeps");
  }
  const double u = unit_roundoff(problem.dtype);
  const bool unsorted = hermitian || outputs.vectors() || values_per_matrix(problem) > kLargestReproducible;
  const int32_t default_sweeps = unsorted ? kDefaultUnsortedSweeps : kDefaultMaxSweeps;
  Plan plan{problem,
            options.decomposition,
            options.triangle,
            method,
            resolve_on_host(options, method, values_per_matrix(problem)),
            0,
            options.max_sweeps != 0 ? options.max_sweeps : default_sweeps,
            outputs,
            false};
  if (bisects) {
    // Below 4 u the midpoint of an interval is one of its ends, and the loop would not end.
    plan.tolerance = std::max(options.tolerance, 4 * u);
  } else if (method == Method::kJacobi) {
    // The computed cosine of two columns of k terms carries about sqrt(k) u: a smaller tolerance is noise. Where the
    // cosines that stay are spread evenly up to t, |U^H U - I|_F = k t / sqrt(3). The contract allows 10 k u, so t ends
    // at 13 u: three quarters of it.
    const double k = static_cast<double>(values_per_matrix(problem));
    plan.tolerance = std::max(options.tolerance, std::min(2 * std::sqrt(k), 13.0) * u);
  }
  return {plan, {}};
}

}  // namespace svdserve
