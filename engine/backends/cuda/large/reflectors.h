// QR factorization of a matrix on the device, and products with its Q. Panels of reflectors are found by our own kernels
// (reflector_kernels.h), and cuBLAS's products apply them to all that is behind them. Panels of a group of 128 columns
// are applied together: of V = [V_1 V_2] the triangle is T = [T_1 X; 0 T_2] with X = -T_1 V_1^H V_2 T_2.
//
// From the first panel on whose columns depend on each other too much (algorithms/blocks/panel_reflectors.h), the rest
// is cuSOLVER's. T is made from its reflectors as well.
//
// A group's reflectors are applied to the next group first, in a stream that goes ahead. There the next group's panels
// are found, while the lane's own stream applies the reflectors to all that is behind.
//
// The device alone knows whether a panel was taken on. The host asks once, at the end: a wait for each panel would take
// as long as the panel.
//
// Source of X: Schreiber and Van Loan, SIAM J. Sci. Stat. Comput. 10 (1989) 53-57. Why: decisions/0016.
#ifndef SVDSERVE_ENGINE_BACKENDS_CUDA_LARGE_REFLECTORS_H_
#define SVDSERVE_ENGINE_BACKENDS_CUDA_LARGE_REFLECTORS_H_

#include <cstdint>

#include "engine/algorithms/large/large_backend.h"
#include "engine/backends/cuda/device/device_arena.h"
#include "engine/backends/cuda/device/library_loader.h"
#include "engine/backends/cuda/large/large_lane.h"

namespace svdserve::cuda {

template <class E>
struct PanelCall;

// E: double or Complex. Throws large::LargeStop. Work is enqueued on the lane's stream, and that of factor() beside it in
// the stream ahead; factor() waits.
template <class E>
class Reflectors {
 public:
  using View = large::LargeView<E>;
  static constexpr int64_t kGroupColumns = 128;

  // All must outlive the object.
  Reflectors(LargeLane& lane, DeviceArena& arena, const large::LargeWatch& watch);

  // Whether a device has the shared memory that panels take. Else nothing below can be called.
  static bool fits(const LargeLane& lane);
  // How many elements `t` has for n columns: for each group its triangle.
  static int64_t elements(int64_t n);
  // The most bytes of the arena that factor() takes for n columns, without the library's.
  static uint64_t workspace_bytes(int64_t n);

  // a = Q R, a.rows >= a.cols: R in the upper triangle, reflectors below it, and t. Device memory.
  void factor(View a, E* t);
  // t of reflectors that are in `a` already, I - tau_j v_j v_j^H with v_j(j) = 1, whatever stands there. tau: a.cols
  // factors in device memory.
  void take(View a, const E* tau, E* t);
  // c := Q c or Q^H c. The matrix a is as it was afterwards, and written to meanwhile.
  void apply(large::Op op, View a, const E* t, View c);

 private:
  struct Memory;  // beside t
  // A stream, the library's handle for it, and memory for products: two of kGroup x columns elements.
  struct Queue {
    cudaStream_t stream;
    cublasHandle_t cublas;
    E* w;
  };

  PanelCall<E> begin(View a, E* t, const Memory& memory);
  View panel_of(View a, int64_t index) const;
  void allow() const;
  // The panels of the group that begins with column `at`.
  void enqueue_group(const Queue& queue, View a, int64_t at, const PanelCall<E>& all, E* t);
  void enqueue_panel(const Queue& queue, const PanelCall<E>& call);
  void enqueue_gram(const Queue& queue, const PanelCall<E>& call, bool solved);
  void factor_by_library(const Queue& queue, View a, int64_t first, const PanelCall<E>& all, E* t);
  // Panels from `first` on, whose reflectors' factors are tau.
  void take_panels(const Queue& queue, View a, int64_t first, const E* tau, const PanelCall<E>& all, E* t);
  // The panel and its place in its group.
  PanelCall<E> call_of(View a, int64_t index, const PanelCall<E>& all, E* t) const;
  // c := H c or H^H c, for a group's reflectors with their ones and zeros, or the first of them.
  void apply_group(const Queue& queue, large::Op op, View v, const E* t, View c);
  // X of the panel's columns in its group's triangle.
  void join(const Queue& queue, View a, const PanelCall<E>& call);
  void gemm(const Queue& queue, bool adjoint_a, double alpha, View a, View b, double beta, View c);
  // R's parts in the triangles of `count` panels, into the matrix, or out of it and ones and zeros in their place.
  void exchange(View a, E* r, int64_t first, int64_t count, bool into);

  LargeLane& lane_;
  DeviceArena& arena_;
  const large::LargeWatch& watch_;
  const Libraries& l_;
};

extern template class Reflectors<double>;
extern template class Reflectors<Complex>;

}  // namespace svdserve::cuda
#endif  // SVDSERVE_ENGINE_BACKENDS_CUDA_LARGE_REFLECTORS_H_
