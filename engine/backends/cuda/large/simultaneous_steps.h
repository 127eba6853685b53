// The matrices of simultaneous_jacobi.h on a GPU.
#ifndef SVDSERVE_ENGINE_BACKENDS_CUDA_LARGE_SIMULTANEOUS_STEPS_H_
#define SVDSERVE_ENGINE_BACKENDS_CUDA_LARGE_SIMULTANEOUS_STEPS_H_

#include <complex>
#include <cstdint>
#include <optional>
#include <vector>

#include "engine/algorithms/large/simultaneous_jacobi.h"
#include "engine/backends/cuda/large/cuda_large_backend.h"
#include "engine/backends/cuda/large/geev.h"
#include "engine/core/complex.h"

namespace svdserve::cuda {

struct SimultaneousMatrices {
  large::LargeView<Complex> a;  // [in] A, n x n
  large::LargeView<Complex> v;  // [in,out] V
  large::LargeView<Complex> s;  // overwritten, as the others
  large::LargeView<Complex> next;
  large::LargeView<Complex> factors;
  int64_t* pivots = nullptr;  // n, overwritten
};

class SimultaneousSteps {
 public:
  // All arguments must outlive the object; it exchanges v and next of `matrices`.
  SimultaneousSteps(LargeLane& lane, DeviceArena& arena, CudaLargeBackend<Complex>& backend,
                    SimultaneousMatrices& matrices);
  ~SimultaneousSteps();
  SimultaneousSteps(const SimultaneousSteps&) = delete;
  SimultaneousSteps& operator=(const SimultaneousSteps&) = delete;

  // V := unit eigenvectors of the Hermitian part of e^(i kTurn) A, where A is nearly normal. False: it is not.
  bool start_nearly_normal();

  // SimultaneousJacobi asks for these.
  int64_t order() const { return n_; }
  double residual();
  bool similar();
  double least_pivot();
  std::optional<std::vector<large::Coupling>> couplings(double least, int64_t most);
  std::vector<std::complex<double>> parts(const std::vector<large::Cluster>& clusters);
  bool vectors(int k, const std::complex<double>* s, std::complex<double>* y) const;
  void multiply(const std::vector<large::Cluster>& clusters, const std::vector<std::complex<double>>& y);
  void eliminate();
  void orthonormalize();

  // Behind residual(): the Rayleigh quotients.
  std::vector<std::complex<double>> values() const;

 private:
  void normalize_and_multiply();  // V's columns of norm 1; s := A V
  template <class F>
  void each(int64_t rows, int64_t cols, F f);

  LargeLane& lane_;
  DeviceArena& arena_;
  CudaLargeBackend<Complex>& backend_;
  SimultaneousMatrices& m_;
  const int64_t n_;
  Complex* values_ = nullptr;    // n: Rayleigh quotients, or the diagonal of S
  double* squares_ = nullptr;    // n
  ColumnKind* kinds_ = nullptr;  // n: complex ones
};

}  // namespace svdserve::cuda
#endif  // SVDSERVE_ENGINE_BACKENDS_CUDA_LARGE_SIMULTANEOUS_STEPS_H_
