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
      : Pass(task.a, task.n, task.ld, task.work), t_(task), w_(task.work + 6 * vector_) {}

  void run() {
    std::fill_n(t_.work, reduction_work(ld_, kPlanes), T(0));
    for (int j = 0; j < n_; ++j) {
      const Number<T> tau_q = reflect_column(j, j, t_.d + j), tau = conj(tau_q);
      put(t_.tau_q, j, tau_q, 1);
      if (j == n_ - 1) break;
      multiply_adjoint(j + 1, j);
      const Number<T> tau_p = reflect_row(j, tau);
      multiply(j, tau);
      for (int c = j + 1; c < n_; ++c) {
        put(z_factor_, c, tau * get(z_, c));
        put(w_factor_, c, tau_p * conj(get(w_, c)));
      }
      std::swap(v_, previous_v_);
      put(previous_v_, j, {});
      update_column(j + 1);
    }
    put(t_.tau_p, n_ - 1, {}, 1);
  }

 private:
  using Pass::aligned, Pass::column, Pass::get, Pass::kGroup, Pass::lanes, Pass::ld_, Pass::multiply_adjoint, Pass::n_;
  using Pass::previous_v_, Pass::put, Pass::reflect_column, Pass::update_column, Pass::v_, Pass::vector_;
  using Pass::w_factor_, Pass::x_, Pass::z_, Pass::z_factor_;
  using typename Pass::Tag;
  using typename Pass::Vec;

  // Row j from column j + 1 on becomes w and e_j; `tau` is that of H_j^H. Returns tau of the row.
  Number<T> reflect_row(int j, Number<T> tau) {
    T rest = 0;
    for (int c = j + 1; c < n_; ++c) {
      const Number<T> x = conj(get(column(c), j) - tau * get(z_, c));
      put(w_, c, x);
      if (c > j + 1) rest += x.re * x.re + x.im * x.im;
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
    return h.tau;
  }

  // x := A w - tau v (z^T w), rows from j + 1 on; the others are zero.
  void multiply(int j, Number<T> tau) {
    Number<T> zw;
    for (int c = j + 1; c < n_; ++c) zw = zw + get(z_, c) * get(w_, c);
    const Number<T> by = tau * zw;
    const Tag d;
    const Vec by_re = hn::Set(d, by.re), by_im = hn::Set(d, by.im);
    for (int r = aligned(j); r < ld_; r += lanes()) {
      const Vec v_re = hn::Load(d, v_ + r);
      if constexpr (kPlanes == 1) {
        hn::Store(hn::Neg(hn::Mul(v_re, by_re)), d, x_ + r);
      } else {
        const Vec v_im = hn::Load(d, v_ + ld_ + r);
        hn::Store(hn::NegMulAdd(v_re, by_re, hn::Mul(v_im, by_im)), d, x_ + r);
        hn::Store(hn::Neg(hn::MulAdd(v_re, by_im, hn::Mul(v_im, by_re))), d, x_ + ld_ + r);
      }
    }
    int c = j + 1;
    for (; c + kGroup <= n_; c += kGroup) add_columns<kGroup>(c, j);
    for (; c < n_; ++c) add_columns<1>(c, j);
    for (int p = 0; p < kPlanes; ++p) std::fill(x_ + p * ld_ + aligned(j), x_ + p * ld_ + j + 1, T(0));
  }
  // x := x + the columns c .. c + kColumns - 1 times w, rows from `row` on.
  template <int kColumns>
  HWY_INLINE void add_columns(int c, int row) {
    const Tag d;
    const T* const a = column(c);
    Vec w_re[kColumns], w_im[kColumns];
    for (int i = 0; i < kColumns; ++i) {
      w_re[i] = hn::Set(d, w_[c + i]);
      if constexpr (kPlanes == 2) w_im[i] = hn::Set(d, w_[ld_ + c + i]);
    }
    for (int r = aligned(row); r < ld_; r += lanes()) {
      Vec re = hn::Load(d, x_ + r);
      if constexpr (kPlanes == 1) {
        for (int i = 0; i < kColumns; ++i) re = hn::MulAdd(w_re[i], hn::Load(d, a + i * ld_ + r), re);
      } else {
        Vec im = hn::Load(d, x_ + ld_ + r);
        for (int i = 0; i < kColumns; ++i) {
          const Vec a_re = hn::Load(d, a + 2 * i * ld_ + r), a_im = hn::Load(d, a + (2 * i + 1) * ld_ + r);
          re = hn::NegMulAdd(w_im[i], a_im, hn::MulAdd(w_re[i], a_re, re));
          im = hn::MulAdd(w_im[i], a_re, hn::MulAdd(w_re[i], a_im, im));
        }
        hn::Store(im, d, x_ + ld_ + r);
      }
      hn::Store(re, d, x_ + r);
    }
  }

  const BidiagonalReduction<T>& t_;
  T* const w_;  // by columns: the reflector of the row
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
