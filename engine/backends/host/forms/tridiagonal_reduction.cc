#include "engine/backends/host/forms/tridiagonal_reduction.h"

#include "engine/backends/host/base/simd_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "engine/backends/host/forms/tridiagonal_reduction.cc"
#include <algorithm>
#include <utility>

#include "hwy/foreach_target.h"
#include "hwy/highway.h"

#include "engine/backends/host/forms/reduction_pass.h"

HWY_BEFORE_NAMESPACE();
namespace svdserve::host::HWY_NAMESPACE {
namespace {

template <class T, int kPlanes>
class Tridiagonalizer : ReductionPass<T, kPlanes> {
  using Pass = ReductionPass<T, kPlanes>;

 public:
  explicit Tridiagonalizer(const TridiagonalReduction<T>& task) : Pass(task.a, task.n, task.ld, task.work), t_(task) {}

  void run() {
    std::fill_n(t_.work, reduction_work(ld_, kPlanes), T(0));
    for (int j = 0; j < n_; ++j) {
      t_.d[j] = get(column(j), j).re;
      if (j == n_ - 1) break;
      const Number<T> tau = reflect_column(j, j + 1, t_.e + j);
      put(t_.tau, j, tau, 1);
      multiply_adjoint(j + 1, j + 1);
      find_update(j, tau);
      std::swap(v_, previous_v_);
      update_column(j + 1);
    }
  }

 private:
  using Pass::column, Pass::get, Pass::ld_, Pass::multiply_adjoint, Pass::n_, Pass::previous_v_, Pass::put;
  using Pass::reflect_column, Pass::update_column, Pass::v_, Pass::w_factor_, Pass::x_, Pass::z_, Pass::z_factor_;

  // w, which is x_ of the update that waits.
  void find_update(int j, Number<T> tau) {
    Number<T> product;  // x^H v
    for (int c = j + 1; c < n_; ++c) {
      const Number<T> x = tau * conj(get(z_, c));
      put(x_, c, x);
      product = product + conj(x) * get(v_, c);
    }
    const Number<T> half_tau{tau.re / 2, tau.im / 2}, by = half_tau * product;
    put(x_, j, {});
    for (int c = j + 1; c < n_; ++c) {
      const Number<T> v = get(v_, c), w = get(x_, c) - by * v;
      put(x_, c, w);
      put(z_factor_, c, conj(w));
      put(w_factor_, c, conj(v));
    }
  }

  const TridiagonalReduction<T>& t_;
};

}  // namespace

void tridiagonalize_float(const TridiagonalReduction<float>& task) {
  task.planes == 1 ? Tridiagonalizer<float, 1>(task).run() : Tridiagonalizer<float, 2>(task).run();
}
void tridiagonalize_double(const TridiagonalReduction<double>& task) {
  task.planes == 1 ? Tridiagonalizer<double, 1>(task).run() : Tridiagonalizer<double, 2>(task).run();
}

}  // namespace svdserve::host::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace svdserve::host {
HWY_EXPORT(tridiagonalize_float);
HWY_EXPORT(tridiagonalize_double);
void tridiagonalize(const TridiagonalReduction<float>& task) { HWY_DYNAMIC_DISPATCH(tridiagonalize_float)(task); }
void tridiagonalize(const TridiagonalReduction<double>& task) { HWY_DYNAMIC_DISPATCH(tridiagonalize_double)(task); }
}  // namespace svdserve::host
#endif
