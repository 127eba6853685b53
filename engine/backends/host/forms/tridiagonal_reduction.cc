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
  explicit Tridiagonalizer(const TridiagonalReduction<T>& task)
      : Pass(task.a, task.n, task.ld, task.work), t_(task), sum_(task.work + 6 * vector_) {}

  void run() {
    std::fill_n(t_.work, reduction_work(ld_, kPlanes), T(0));
    for (int j = 0; j < n_; ++j) {
      t_.d[j] = get(column(j), j).re;
      if (j == n_ - 1) break;
      const Number<T> tau = reflect_column(j, j + 1, t_.e + j);
      put(t_.tau, j, tau, 1);
      multiply(j + 1);
      find_update(j, tau);
      std::swap(v_, previous_v_);
      update_column(j + 1);
    }
  }

 private:
  using Pass::aligned, Pass::column, Pass::get, Pass::kGroup, Pass::lanes, Pass::ld_, Pass::n_, Pass::previous_v_;
  using Pass::put, Pass::reflect_column, Pass::update_column, Pass::v_, Pass::vector_, Pass::w_factor_, Pass::x_;
  using Pass::z_, Pass::z_factor_;

  // The update of the step before, of columns from `first` on, and A v there: conj(z) + sum, z := v^H A from the diagonal
  // block of each column on, sum := A v below it.
  void multiply(int first) {
    for (int p = 0; p < kPlanes; ++p) std::fill(sum_ + p * ld_ + aligned(first), sum_ + (p + 1) * ld_, T(0));
    for (int block = aligned(first); block < n_; block += lanes()) {
      const int end = std::min(block + lanes(), n_);
      int c = std::max(first, block);
      for (; c + kGroup <= end; c += kGroup) take_columns<kGroup>(c, block);
      for (; c < end; ++c) take_columns<1>(c, block);
    }
  }
  template <int kColumns>
  HWY_INLINE void take_columns(int c, int block) {
    Pass::template update_columns<kColumns, true>(c, block);
    Pass::template add_columns<kColumns>(c, block + lanes(), v_, sum_);
  }

  // w, which is x_ of the update that waits.
  void find_update(int j, Number<T> tau) {
    Number<T> product;  // x^H v
    for (int c = j + 1; c < n_; ++c) {
      const Number<T> x = tau * (conj(get(z_, c)) + get(sum_, c));
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
  T* const sum_;
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
