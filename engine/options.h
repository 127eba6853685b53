// How a batch is to be decomposed. Values only.
#ifndef SVDSERVE_ENGINE_OPTIONS_H_
#define SVDSERVE_ENGINE_OPTIONS_H_

#include <cstdint>

namespace svdserve {

enum class Method : uint8_t {
  kAuto,        // the planner's choice, a function of the problem alone
  kBidiagonal,  // Householder bidiagonalization, then dqds
  kBisection,   // Householder bidiagonalization, then Sturm bisection on B^T B to a chosen tolerance
  kJacobi,      // pivoted QR, then one-sided Jacobi: high relative accuracy
};

constexpr const char* name(Method m) {
  switch (m) {
    case Method::kAuto:
      return "auto";
    case Method::kBidiagonal:
      return "bidiagonal";
    case Method::kBisection:
      return "bisection";
    case Method::kJacobi:
      return "jacobi";
  }
  return "?";
}

struct Options {
  Method method = Method::kAuto;
  // BISECTION: delta, the relative width |b - a| / (|a| + |b|) at which an interval around lambda = s^2 is narrow
  // enough, in (0, 1/2]. JACOBI: the cosine of the angle between two columns below which they count as orthogonal, in
  // (0, 1]. 0 means the method's default. Other methods take none.
  double tolerance = 0;
  // JACOBI: sweeps after which a matrix is given up as NOT_CONVERGED. 0 means the default. Other methods take none.
  int32_t max_sweeps = 0;

  friend bool operator==(const Options&, const Options&) = default;
};

}  // namespace svdserve
#endif  // SVDSERVE_ENGINE_OPTIONS_H_
