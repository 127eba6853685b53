// The matrices of simultaneous_jacobi.h on the processor, spread over threads.
#ifndef SVDSERVE_ENGINE_BACKENDS_HOST_SHEARS_SIMULTANEOUS_STEPS_H_
#define SVDSERVE_ENGINE_BACKENDS_HOST_SHEARS_SIMULTANEOUS_STEPS_H_

#include <complex>
#include <cstdint>
#include <optional>
#include <vector>

#include "engine/algorithms/large/large_backend.h"
#include "engine/algorithms/large/simultaneous_jacobi.h"
#include "engine/backends/host/base/large_threads.h"

namespace svdserve::host {

class SimultaneousSteps {
 public:
  using Complex = std::complex<double>;
  using View = large::LargeView<Complex>;

  // a: A, n x n, is read. v: [in,out] V, of columns near one. s and more: n x n, overwritten. BlasThreads is the caller's.
  SimultaneousSteps(const LargeThreads& threads, View a, View v, View s, View more);

  // v := unit eigenvectors of the Hermitian part of e^(i kTurn) A, where A is nearly normal. False: it is not.
  bool start_nearly_normal();

  // SimultaneousJacobi asks for these.
  int64_t order() const { return a_.cols; }
  double residual();
  bool similar();
  double least_pivot();
  std::optional<std::vector<large::Coupling>> couplings(double least, int64_t most) const;
  std::vector<Complex> parts(const std::vector<large::Cluster>& clusters) const;
  bool vectors(int k, const Complex* s, Complex* y) const;
  void multiply(const std::vector<large::Cluster>& clusters, const std::vector<Complex>& y);
  void eliminate();
  void orthonormalize();

  // Behind residual(): the Rayleigh quotients, and V. The matrices have changed places.
  const std::vector<Complex>& values() const { return values_; }
  View v() const { return v_; }
  // Behind invert(), or instead of it: memory of n x n that is free.
  View spare() const { return more_; }
  // w := V^-H in the memory of S. False: V is singular.
  bool invert(View* w);

 private:
  void product();          // s_ := A V
  void normalize() const;  // V's columns
  void set_identity(View x) const;
  bool factor();                           // P V = L U in more_
  void solve(large::Op op, View b) const;  // b := V^-1 b or V^-H b, by factor()
  void swap_rows(View b, int64_t first, int64_t last, bool backwards) const;
  template <class F>
  void for_columns(const F& f) const;

  const LargeThreads& threads_;
  View a_, v_, s_, more_;
  std::vector<int64_t> pivots_;
  std::vector<Complex> values_;
};

}  // namespace svdserve::host
#endif  // SVDSERVE_ENGINE_BACKENDS_HOST_SHEARS_SIMULTANEOUS_STEPS_H_
