// A multishift QR sweep with small bulges over the active block of a Hessenberg matrix, spread over threads.
//
//   H := Q^H H Q, Z := Z Q,   Q e_1 proportional to (H - s_1 I) .. (H - s_2m I) e_1
// Method: m bulges of 3 x 3, each of two shifts, follow one another three rows apart. A window along the diagonal holds
// all of them for as many steps as it has room for. U collects its reflectors, and the rest of H and Z gets them as
// products (window_update.h). Subdiagonal entries that are negligible by Ahues and Tisseur's test become zero.
// Source: Braman, Byers and Mathias, SIAM J. Matrix Anal. Appl. 23 (2002) 929-947.
// Cost: about 20 m n^2 multiplications and additions as products for H and Z, a tenth of it within the windows.
#ifndef SVDSERVE_ENGINE_BACKENDS_HOST_GENERAL_BULGE_SWEEP_H_
#define SVDSERVE_ENGINE_BACKENDS_HOST_GENERAL_BULGE_SWEEP_H_

#include <complex>
#include <vector>

#include "engine/algorithms/large/large_backend.h"
#include "engine/backends/host/base/aligned_array.h"
#include "engine/backends/host/base/large_threads.h"
#include "engine/backends/host/general/window_update.h"

namespace svdserve::host {

template <class E>
class BulgeSweep {
 public:
  BulgeSweep(const LargeThreads& threads, large::LargeView<E> h, WindowUpdate<E>& outside);

  // The active block is low .. high - 1, of two rows at least. shifts: pairs; of a real matrix, each is of two real
  // numbers or a conjugate pair.
  void run(int64_t low, int64_t high, const std::vector<std::complex<double>>& shifts);

 private:
  struct Reflector {  // I - tau v v^H, v = (1, v[1], v[2])
    E v[3];
    E tau;
    int64_t rows;
  };

  void window(int64_t from_step, int64_t to_step);
  void step(int64_t k, int64_t bulge);
  E& h(int64_t i, int64_t j) { return h_.data[i + j * h_.ld]; }
  bool first_column(int64_t row, int64_t rows, int64_t bulge, E* x);
  Reflector chase(int64_t k, int64_t bulge);
  bool restart(int64_t k, int64_t bulge, Reflector& reflector);
  void from_left(const Reflector& reflector, int64_t k);
  void from_right(const Reflector& reflector, E* columns, int64_t ld, int64_t rows);
  void drop_negligible(int64_t k);

  const LargeThreads& threads_;
  const large::LargeView<E> h_;
  WindowUpdate<E>& outside_;
  int64_t low_ = 0, high_ = 0;
  int64_t first_ = 0, last_ = 0;  // rows of the window
  const std::vector<std::complex<double>>* shifts_ = nullptr;
  AlignedArray<E> u_;
};

}  // namespace svdserve::host
#endif  // SVDSERVE_ENGINE_BACKENDS_HOST_GENERAL_BULGE_SWEEP_H_
