#include "engine/planner.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace svdserve {
namespace {

PlanOrError fail(const char* field, std::string message) { return {std::nullopt, {field, std::move(message)}}; }

// Unit roundoff of the real type of `t`.
double unit_roundoff(DType t) { return value_bytes(t) == 4 ? 0x1p-24 : 0x1p-53; }

// The largest tolerance that can be asked for. An interval [a, b] around lambda with b - a <= delta (a + b) has its
// middle within delta / (1 - delta) lambda of it: up to delta = 1/2 that is the 2 delta lambda which is promised.
constexpr double kLargestBisectionTolerance = 0.5;
constexpr double kLargestJacobiTolerance = 1;

// AUTO: values alone are wanted, and for every k of this version BIDIAGONAL is the fastest within the bound.
constexpr Method resolve(Method asked) { return asked == Method::kAuto ? Method::kBidiagonal : asked; }

}  // namespace

PlanOrError make_plan(const Problem& problem, const Options& options) {
  const auto size_error = [](int64_t size) {
    return "must be between 1 and " + std::to_string(kShapeLimits.max_dimension) + ", is " + std::to_string(size);
  };
  if (problem.rows < 1 || problem.rows > kShapeLimits.max_dimension) return fail("rows", size_error(problem.rows));
  if (problem.cols < 1 || problem.cols > kShapeLimits.max_dimension) return fail("cols", size_error(problem.cols));
  if (values_per_matrix(problem) > kShapeLimits.max_values) {
    return fail(problem.rows <= problem.cols ? "rows" : "cols", "min(rows, cols) must be at most " +
                                                                    std::to_string(kShapeLimits.max_values) + ", is " +
                                                                    std::to_string(values_per_matrix(problem)));
  }
  const Method method = resolve(options.method);
  const bool bisects = method == Method::kBisection;
  const double largest = bisects ? kLargestBisectionTolerance : kLargestJacobiTolerance;
  if (!(options.tolerance >= 0 && options.tolerance <= largest)) {  // refuses NaN, too
    return fail("tolerance",
                std::string("must be between 0 and ") + (bisects ? "1/2 for BISECTION" : "1") + " (0: the default)");
  }
  if (options.tolerance != 0 && method == Method::kBidiagonal) {
    return fail("tolerance", "BIDIAGONAL (and AUTO, which chose it) takes no tolerance; ask for BISECTION or JACOBI");
  }
  if (options.max_sweeps < 0 || options.max_sweeps > kLargestMaxSweeps) {
    return fail("max_sweeps", "must be between 0 and " + std::to_string(kLargestMaxSweeps) + " (0: the default)");
  }
  if (options.max_sweeps != 0 && method != Method::kJacobi) {
    return fail("max_sweeps", "only JACOBI counts sweeps");
  }
  const double u = unit_roundoff(problem.dtype);
  Plan plan{problem, method, 0, options.max_sweeps != 0 ? options.max_sweeps : kDefaultMaxSweeps};
  if (bisects) {
    // Below 4 u the midpoint of an interval is one of its ends, and the loop would not end.
    plan.tolerance = std::max(options.tolerance, 4 * u);
  } else if (method == Method::kJacobi) {
    // The computed cosine of two columns of k terms carries about sqrt(k) u: a smaller tolerance is noise.
    const double k = static_cast<double>(values_per_matrix(problem));
    plan.tolerance = std::max(options.tolerance, 2 * std::sqrt(k) * u);
  }
  return {plan, {}};
}

}  // namespace svdserve
