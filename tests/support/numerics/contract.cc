#include "tests/support/numerics/contract.h"

#include <algorithm>
#include <cmath>
#include <sstream>

namespace svdserve::numerics {
namespace {

using Wide = long double;

// From here on a value rounds to infinity: half a unit above the largest finite number.
Wide overflow_threshold(const RealType& real) {
  return static_cast<Wide>(real.largest) * (1 + static_cast<Wide>(real.unit_roundoff) / 2);
}

// The error of a value and the error that it may have, as absolute numbers of one kind (s or lambda).
struct Deviation {
  Wide error;
  Wide allowed;
};

Deviation deviation_of_value(const Plan& plan, Wide value, Wide reference, Wide largest, const RealType& real) {
  const Wide u = static_cast<Wide>(real.unit_roundoff);
  const Wide rounding = static_cast<Wide>(real.smallest_denormal) / 2;
  return {std::max(std::abs(value - reference) - rounding, Wide(0)),
          static_cast<Wide>(value_bound(plan.problem)) * u * largest};
}

Deviation deviation_of_lambda(const Plan& plan, Wide value, Wide reference, Wide largest, const RealType& real) {
  const Wide u = static_cast<Wide>(real.unit_roundoff);
  const Wide rounding = static_cast<Wide>(real.smallest_denormal) / 2;  // of s, when lambda's root is stored
  const Wide ratio = largest > 0 ? (reference / largest) * (reference / largest) : 0;
  return {std::max(std::abs(value * value - reference * reference) - rounding * (2 * value + rounding), Wide(0)),
          static_cast<Wide>(lambda_bound(plan, static_cast<double>(ratio))) * u * largest * largest};
}

Deviation deviation(const Plan& plan, Wide value, Wide reference, Wide largest, const RealType& real) {
  return plan.method == Method::kBisection ? deviation_of_lambda(plan, value, reference, largest, real)
                                           : deviation_of_value(plan, value, reference, largest, real);
}

std::string describe(size_t i, double value, Wide reference, const std::string& what) {
  std::ostringstream text;
  text.precision(20);
  text << "value " << i << " is " << value << ", the reference " << reference << ": " << what;
  return text.str();
}

// An infinite value is right where the true one is above the threshold, give or take the bound.
bool may_overflow(const Plan& plan, Wide reference, Wide largest, const RealType& real) {
  const Wide threshold = overflow_threshold(real);
  if (reference >= threshold) return true;
  const Deviation d = deviation(plan, threshold, reference, largest, real);
  return d.error <= d.allowed;
}

}  // namespace

bool is_very_long(const Problem& problem) {
  return std::max(problem.rows, problem.cols) > 64 * std::max<int64_t>(values_per_matrix(problem), 8);
}

double value_bound(const Problem& problem) {
  const double k = static_cast<double>(values_per_matrix(problem));
  return ((is_very_long(problem) ? 32 : 16) + 2 * k) * (is_complex(problem.dtype) ? 2 : 1);
}

double relative_bound(const Problem& problem) {
  return 10 * static_cast<double>(std::max<int64_t>(values_per_matrix(problem), 8));
}

double lambda_bound(const Plan& plan, double ratio) {
  const double u = real_type(plan.problem.dtype).unit_roundoff;
  return 2 * (plan.tolerance / u) * ratio + 16 * static_cast<double>(values_per_matrix(plan.problem));
}

Verdict check(const Plan& plan, const std::vector<double>& values, MatrixStatus status,
              const std::vector<long double>& reference) {
  const RealType real = real_type(plan.problem.dtype);
  const Wide largest = reference.front();
  Verdict verdict;
  verdict.bound = 1;
  bool overflowed = false;
  const auto fail = [&](size_t i, const char* what) {
    if (verdict.failure.empty()) verdict.failure = describe(i, values[i], reference[i], what);
  };
  for (size_t i = 0; i < values.size(); ++i) {
    const double value = values[i];
    if (std::isnan(value)) {
      fail(i, "NaN for a finite matrix");
      continue;
    }
    if (std::signbit(value)) fail(i, "negative, or -0");
    if (i > 0 && value > values[i - 1]) fail(i, "larger than the value before it");
    if (std::isinf(value)) {
      overflowed = true;
      if (!may_overflow(plan, reference[i], largest, real)) fail(i, "infinite, but in range");
      continue;
    }
    const Deviation d = deviation(plan, value, reference[i], largest, real);
    if (d.error > d.allowed) fail(i, "outside the bound");
    const Wide unit =
        static_cast<Wide>(real.unit_roundoff) * (plan.method == Method::kBisection ? largest * largest : largest);
    if (unit > 0 && static_cast<double>(d.error / d.allowed) >= verdict.ratio()) {
      verdict.error = static_cast<double>(d.error / unit);
      verdict.bound = static_cast<double>(d.allowed / unit);
    }
  }
  const MatrixStatus expected = overflowed ? MatrixStatus::kOutOfRange : MatrixStatus::kOk;
  if (status != expected) {
    fail(0, ("status " + std::to_string(static_cast<int>(status)) + " instead of " +
             std::to_string(static_cast<int>(expected)))
                .c_str());
  }
  return verdict;
}

double error_of(const Plan& plan, const std::vector<double>& values, const std::vector<long double>& reference) {
  if (values.size() != reference.size()) return -1;
  const RealType real = real_type(plan.problem.dtype);
  const Wide largest = reference.front();
  const Wide unit =
      static_cast<Wide>(real.unit_roundoff) * (plan.method == Method::kBisection ? largest * largest : largest);
  double worst = 0;
  for (size_t i = 0; i < values.size(); ++i) {
    if (!std::isfinite(values[i])) return -1;
    const Deviation d = deviation(plan, values[i], reference[i], largest, real);
    if (unit > 0) worst = std::max(worst, static_cast<double>(d.error / unit));
  }
  return worst;
}

double relative_error(DType dtype, const std::vector<double>& values, const std::vector<long double>& reference) {
  double worst = 0;
  for (size_t i = 0; i < values.size(); ++i) {
    if (reference[i] < static_cast<Wide>(real_type(dtype).smallest_normal)) continue;
    const Wide error = std::abs(static_cast<Wide>(values[i]) - reference[i]) / reference[i];
    worst = std::max(worst, std::isfinite(error) ? static_cast<double>(error) : HUGE_VAL);
  }
  return worst;
}

}  // namespace svdserve::numerics
