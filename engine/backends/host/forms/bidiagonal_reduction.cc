#include "engine/backends/host/forms/bidiagonal_reduction.h"

#include "engine/backends/host/base/simd_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "engine/backends/host/forms/bidiagonal_reduction.cc"
#include <algorithm>
#include <utility>

#include "hwy/foreach_target.h"
#include "hwy/highway.h"

#include "engine/backends/host/forms/reduction_pass.h"

HWY_BEFORE_NAMESPACE();
namespace svdserve::host::HWY_NAMESPACE {
namespace {

template <class T, int kPlanes>
class Bidiagonalizer : ReductionPass<T, kPlanes> {
  using Pass = ReductionPass<T, kPlanes>;

 public:
  explicit Bidiagonalizer(const BidiagonalReduction<T>& task)
      : Pass(task.a, task.n, task.ld, task.work), t_(task), w_(task.work + 6 * vector_), sum_(w_ + vector_) {}

  void run() {
    std::fill_n(t_.work, reduction_work(ld_, kPlanes), T(0));
    for (int j = 0; j < n_; ++j) {
      const Number<T> tau_q = reflect_column(j, j, t_.d + j), tau = conj(tau_q);
      put(t_.tau_q, j, tau_q, 1);
      if (j == n_ - 1) break;
      multiply(j, tau);
      const RealReflector<T> h = reflect_row(j);
      finish_product(j, tau, h.scale);
      for (int c = j + 1; c < n_; ++c) {
        put(z_factor_, c, tau * get(z_, c));
        put(w_factor_, c, h.tau * conj(get(w_, c)));
      }
      std::swap(v_, previous_v_);
      put(previous_v_, j, {});
      update_column(j + 1);
    }
    put(t_.tau_p, n_ - 1, {}, 1);
  }

 private:
  using Pass::aligned, Pass::column, Pass::get, Pass::kGroup, Pass::lanes, Pass::ld_, Pass::n_;
  using Pass::previous_v_, Pass::put, Pass::reflect_column, Pass::update_column, Pass::v_, Pass::vector_;
  using Pass::w_factor_, Pass::x_, Pass::z_, Pass::z_factor_;
  using typename Pass::Tag;
  using typename Pass::Vec;

  // z := A^H v, w := row j of H_j^H A, conjugate, from column j + 1 on, and sum := A w without column j + 1.
  void multiply(int j, Number<T> tau) {
    for (int p = 0; p < kPlanes; ++p) std::fill(sum_ + p * ld_ + aligned(j), sum_ + (p + 1) * ld_, T(0));
    take_columns<1>(j + 1, j, tau);
    int c = j + 2;
    for (; c + kGroup <= n_; c += kGroup) {
      take_columns<kGroup>(c, j, tau);
      Pass::template add_columns<kGroup>(c, j, w_, sum_);
    }
    for (; c < n_; ++c) {
      take_columns<1>(c, j, tau);
      Pass::template add_columns<1>(c, j, w_, sum_);
    }
  }
  template <int kColumns>
  HWY_INLINE void take_columns(int c, int j, Number<T> tau) {
    Pass::template update_columns<kColumns, true>(c, j);
    for (int i = c; i < c + kColumns; ++i) put(w_, i, conj(get(column(i), j) - tau * get(z_, i)));
  }

  // w becomes the reflector of row j, which has it, too, and e_j.
  RealReflector<T> reflect_row(int j) {
    T rest = 0;
    for (int c = j + 2; c < n_; ++c) {
      const Number<T> x = get(w_, c);
      rest += x.re * x.re + x.im * x.im;
    }
    const RealReflector<T> h = real_reflector(get(w_, j + 1), rest);
    put(w_, j + 1, {1, 0});
    for (int c = j + 2; c < n_; ++c) {
      const Number<T> x = h.scale * get(w_, c);
      put(w_, c, x);
      put(column(c), j, conj(x));
    }
    t_.e[j] = h.beta;
    put(t_.tau_p, j, h.tau, 1);
    return h;
  }

  // x := A w - tau v (z^T w) = scale sum + A(:, j + 1) - tau v (z^T w), rows from j + 1 on; the others are zero.
  void finish_product(int j, Number<T> tau, Number<T> scale) {
    Number<T> zw;
    for (int c = j + 1; c < n_; ++c) zw = zw + get(z_, c) * get(w_, c);
    const Number<T> by = tau * zw;
    const Tag d;
    const Vec by_re = hn::Set(d, by.re), by_im = hn::Set(d, by.im);
    const Vec scale_re = hn::Set(d, scale.re), scale_im = hn::Set(d, scale.im);
    const T* const a = column(j + 1);
    for (int r = aligned(j); r < ld_; r += lanes()) {
      const Vec v_re = hn::Load(d, v_ + r), sum_re = hn::Load(d, sum_ + r);
      const Vec re = hn::MulAdd(scale_re, sum_re, hn::NegMulAdd(v_re, by_re, hn::Load(d, a + r)));
      if constexpr (kPlanes == 1) {
        hn::Store(re, d, x_ + r);
      } else {
        const Vec v_im = hn::Load(d, v_ + ld_ + r), sum_im = hn::Load(d, sum_ + ld_ + r);
        const Vec im = hn::NegMulAdd(v_re, by_im, hn::NegMulAdd(v_im, by_re, hn::Load(d, a + ld_ + r)));
        hn::Store(hn::NegMulAdd(scale_im, sum_im, hn::MulAdd(v_im, by_im, re)), d, x_ + r);
        hn::Store(hn::MulAdd(scale_re, sum_im, hn::MulAdd(scale_im, sum_re, im)), d, x_ + ld_ + r);
      }
    }
    for (int p = 0; p < kPlanes; ++p) std::fill(x_ + p * ld_ + aligned(j), x_ + p * ld_ + j + 1, T(0));
  }

  const BidiagonalReduction<T>& t_;
  T* const w_;    // by columns: the reflector of the row
  T* const sum_;  // A w of the step that is being made, in parts
};

}  // namespace

void bidiagonalize_float(const BidiagonalReduction<float>& task) {
  task.planes == 1 ? Bidiagonalizer<float, 1>(task).run() : Bidiagonalizer<float, 2>(task).run();
}
void bidiagonalize_double(const BidiagonalReduction<double>& task) {
  task.planes == 1 ? Bidiagonalizer<double, 1>(task).run() : Bidiagonalizer<double, 2>(task).run();
}

}  // namespace svdserve::host::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace svdserve::host {
HWY_EXPORT(bidiagonalize_float);
HWY_EXPORT(bidiagonalize_double);
void bidiagonalize(const BidiagonalReduction<float>& task) { HWY_DYNAMIC_DISPATCH(bidiagonalize_float)(task); }
void bidiagonalize(const BidiagonalReduction<double>& task) { HWY_DYNAMIC_DISPATCH(bidiagonalize_double)(task); }
}  // namespace svdserve::host
#endif
