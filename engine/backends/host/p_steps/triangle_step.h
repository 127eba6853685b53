// The block pair level on the host: factorize, orthogonalize the triangle, postmultiply, for one pair of block-columns.
// Its contract is that of p_step() in algorithms/large/large_backend.h; 001 = Novakovic, SIAM J. Sci. Comput.
// 37 (2015) C1-C30, section 4. A GPU has gram_step.h instead (decisions/0014-two-p-steps.md).
#ifndef SVDSERVE_ENGINE_BACKENDS_HOST_P_STEPS_TRIANGLE_STEP_H_
#define SVDSERVE_ENGINE_BACKENDS_HOST_P_STEPS_TRIANGLE_STEP_H_

#include <complex>
#include <cstdint>
#include <vector>

#include "engine/algorithms/large/large_backend.h"
#include "engine/backends/host/base/aligned_array.h"
#include "engine/backends/host/p_steps/pair_rotations.h"

namespace svdserve::host {

// The outcome of one pair, and the time of each part.
struct PairReport {
  RotationCounts counts;
  double largest_cosine = 0;
  bool zero_column = false;
  double gram_seconds = 0, inner_seconds = 0, postmultiply_seconds = 0;
};

// Scratch of one thread, kept from pair to pair. E: double or std::complex<double>.
template <class E>
class TriangleStep {
 public:
  // The pair's columns of step.x, step.f and step.v are this call's alone.
  PairReport run(const large::PStep<E>& step, large::BlockPair pair);

 private:
  struct Columns {
    int64_t p = 0, q = 0;     // first columns, where they lie
    int kp = 0, kq = 0;       // how many
    int positive = 0;         // of both, those with J = 1
    bool neighbours = false;  // blocks p and p + 1
    int k() const { return kp + kq; }
    int64_t at(int j) const { return j < kp ? p + j : q + (j - kp); }
  };
  void reserve(const large::PStep<E>& step, const Columns& c);
  void gram(const large::PStep<E>& step, const Columns& c);
  double largest_cosine(int k);
  void factorize(const large::PStep<E>& step, const Columns& c);
  bool cholesky(int k);
  void gather(const large::PStep<E>& step, const Columns& c);
  void qr(const large::PStep<E>& step, const Columns& c);
  void split_factor(int k);
  void orthogonalize(const large::PStep<E>& step, const Columns& c, PairReport& report);
  void join_transformation(const large::PStep<E>& step, const Columns& c, PairReport& report);
  void postmultiply(large::LargeView<E> x, const Columns& c, const E* w);
  const std::vector<PivotPair>& order_of(int k);

  AlignedArray<E> h_, factor_, tall_, tau_, work_, slab_, w_scaled_, w_true_;
  AlignedArray<double> r_, w_, squares_, inverse_;
  std::vector<int32_t> f_, f_before_;
  std::vector<std::vector<PivotPair>> orders_;  // by the number of columns
};

}  // namespace svdserve::host
#endif  // SVDSERVE_ENGINE_BACKENDS_HOST_P_STEPS_TRIANGLE_STEP_H_
