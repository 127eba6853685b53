#include "engine/backends/host/bidiagonal/bidiagonal_reduction.h"

#include "engine/backends/host/base/simd_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "engine/backends/host/bidiagonal/bidiagonal_reduction.cc"
#include <algorithm>
#include <cmath>

#include "engine/core/float_traits.h"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace svdserve::host::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;
namespace {

// A number of the matrix; im is zero where that is real.
template <class T>
struct Number {
  T re = 0, im = 0;
};
template <class T>
Number<T> conj(Number<T> x) {
  return {x.re, -x.im};
}
template <class T>
Number<T> operator*(Number<T> x, Number<T> y) {
  return {x.re * y.re - x.im * y.im, x.re * y.im + x.im * y.re};
}
template <class T>
Number<T> operator-(Number<T> x, Number<T> y) {
  return {x.re - y.re, x.im - y.im};
}
template <class T>
Number<T> operator+(Number<T> x, Number<T> y) {
  return {x.re + y.re, x.im + y.im};
}

// H = I - tau v v^H with v_0 = 1 and H^H x = (beta, 0, .., 0)^T, beta real; v_i = scale x_i. As LAPACK's larfg.
template <class T>
struct RealReflector {
  Number<T> tau, scale;
  T beta;
};
// rest: the sum of |x_i|^2 from i = 1 on.
template <class T>
RealReflector<T> real_reflector(Number<T> x0, T rest) {
  constexpr T kNegligible = FloatTraits<T>::kNegligibleSquare;
  if (rest < kNegligible) rest = 0;
  const T square = rest + x0.re * x0.re + x0.im * x0.im;
  if (square < kNegligible || (rest == 0 && x0.im == 0)) return {{}, {}, x0.re};
  const T beta = -std::copysign(std::sqrt(square), x0.re);
  const Number<T> gap{x0.re - beta, x0.im};
  const T inverse = rest == 0 ? 0 : 1 / (gap.re * gap.re + gap.im * gap.im);
  return {{(beta - x0.re) / beta, -x0.im / beta}, {gap.re * inverse, -gap.im * inverse}, beta};
}

template <class T, int kPlanes>
class Reducer {
 public:
  explicit Reducer(const BidiagonalReduction<T>& task)
      : t_(task),
        n_(task.n),
        ld_(task.ld),
        vector_(static_cast<size_t>(ld_) * kPlanes),
        v_(task.work),
        previous_v_(task.work + vector_),
        x_(task.work + 2 * vector_),
        z_(task.work + 3 * vector_),
        w_(task.work + 4 * vector_),
        z_factor_(task.work + 5 * vector_),
        w_factor_(task.work + 6 * vector_) {}

  void run() {
    std::fill_n(t_.work, reduction_work(ld_, kPlanes), T(0));
    for (int j = 0; j < n_; ++j) {
      const Number<T> tau = conj(reflect_column(j));
      if (j == n_ - 1) break;
      multiply_adjoint(j);
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
  using Tag = hn::CappedTag<T, kReductionAlignment / sizeof(T)>;
  using Vec = hn::Vec<Tag>;
  static constexpr int kGroup = kPlanes == 1 ? 4 : 2;  // columns of a pass that share its loads

  // Vectors of rows and of columns, as two planes.
  Number<T> get(const T* x, int i) const { return {x[i], kPlanes == 2 ? x[ld_ + i] : T(0)}; }
  void put(T* x, int i, Number<T> value) const {
    x[i] = value.re;
    if constexpr (kPlanes == 2) x[ld_ + i] = value.im;
  }
  // Interleaved ones.
  void put(T* x, int i, Number<T> value, int) const {
    x[i * kPlanes] = value.re;
    if constexpr (kPlanes == 2) x[i * kPlanes + 1] = value.im;
  }
  static int lanes() { return static_cast<int>(hn::Lanes(Tag())); }
  static int aligned(int row) { return row / lanes() * lanes(); }

  // Column j, which is up to date, becomes v and d_j. Returns tau.
  Number<T> reflect_column(int j) {
    const Tag d;
    T* const column = t_.column(j);
    Vec sum = hn::Zero(d);
    const int first = aligned(j + 1);
    for (int p = 0; p < kPlanes; ++p) {
      std::copy(column + p * ld_ + first, column + (p + 1) * ld_, v_ + p * ld_ + first);
      std::fill(v_ + p * ld_ + first, v_ + p * ld_ + j + 1, T(0));
      for (int i = first; i < ld_; i += lanes()) {
        const Vec x = hn::Load(d, v_ + p * ld_ + i);
        sum = hn::MulAdd(x, x, sum);
      }
    }
    const RealReflector<T> h = real_reflector(get(column, j), hn::GetLane(hn::SumOfLanes(d, sum)));
    scale_rows(v_, j + 1, h.scale);
    for (int p = 0; p < kPlanes; ++p) std::copy(v_ + p * ld_ + j + 1, v_ + p * ld_ + n_, column + p * ld_ + j + 1);
    if (j > 0) put(v_, j - 1, {});
    put(v_, j, {1, 0});
    t_.d[j] = h.beta;
    put(t_.tau_q, j, h.tau, 1);
    return h.tau;
  }

  // x(first ..) := by x
  void scale_rows(T* x, int first, Number<T> by) const {
    const Tag d;
    const Vec re = hn::Set(d, by.re), im = hn::Set(d, by.im);
    for (int i = aligned(first); i < ld_; i += lanes()) {
      const Vec x_re = hn::Load(d, x + i);
      if constexpr (kPlanes == 1) {
        hn::Store(hn::Mul(x_re, re), d, x + i);
      } else {
        const Vec x_im = hn::Load(d, x + ld_ + i);
        hn::Store(hn::NegMulAdd(x_im, im, hn::Mul(x_re, re)), d, x + i);
        hn::Store(hn::MulAdd(x_im, re, hn::Mul(x_re, im)), d, x + ld_ + i);
      }
    }
  }

  // The update of the step before, of the columns from j + 1 on, and z := A^H v there.
  void multiply_adjoint(int j) {
    int c = j + 1;
    for (; c + kGroup <= n_; c += kGroup) update_columns<kGroup, true>(c, j);
    for (; c < n_; ++c) update_columns<1, true>(c, j);
  }
  void update_column(int c) { update_columns<1, false>(c, c); }

  // Columns c .. c + kColumns - 1, rows from `row` on: A := A - v z'^T - x w'^T; then with kProduct z := A^H v, v the next.
  template <int kColumns, bool kProduct>
  HWY_INLINE void update_columns(int c, int row) {
    if constexpr (kPlanes == 1) {
      update_real<kColumns, kProduct>(c, row);
    } else {
      for (int i = 0; i < kColumns; i += 2) update_complex<std::min(kColumns, 2), kProduct>(c + i, row);
    }
  }
  template <int kColumns, bool kProduct>
  HWY_INLINE void update_real(int c, int row) {
    const Tag d;
    Vec z[kColumns], w[kColumns], sum[kColumns];
    for (int i = 0; i < kColumns; ++i) {
      z[i] = hn::Set(d, z_factor_[c + i]);
      w[i] = hn::Set(d, w_factor_[c + i]);
      sum[i] = hn::Zero(d);
    }
    T* const a = t_.column(c);
    for (int r = aligned(row); r < ld_; r += lanes()) {
      const Vec v = hn::Load(d, previous_v_ + r), x = hn::Load(d, x_ + r), next = hn::Load(d, v_ + r);
      for (int i = 0; i < kColumns; ++i) {
        T* const at = a + i * ld_ + r;
        const Vec updated = hn::NegMulAdd(x, w[i], hn::NegMulAdd(v, z[i], hn::Load(d, at)));
        hn::Store(updated, d, at);
        if constexpr (kProduct) sum[i] = hn::MulAdd(next, updated, sum[i]);
      }
    }
    if constexpr (kProduct) {
      for (int i = 0; i < kColumns; ++i) z_[c + i] = hn::GetLane(hn::SumOfLanes(d, sum[i]));
    }
  }
  template <int kColumns, bool kProduct>
  HWY_INLINE void update_complex(int c, int row) {
    const Tag d;
    Vec z_re[kColumns], z_im[kColumns], w_re[kColumns], w_im[kColumns], sum_re[kColumns], sum_im[kColumns];
    for (int i = 0; i < kColumns; ++i) {
      z_re[i] = hn::Set(d, z_factor_[c + i]);
      z_im[i] = hn::Set(d, z_factor_[ld_ + c + i]);
      w_re[i] = hn::Set(d, w_factor_[c + i]);
      w_im[i] = hn::Set(d, w_factor_[ld_ + c + i]);
      sum_re[i] = sum_im[i] = hn::Zero(d);
    }
    T* const a = t_.column(c);
    for (int r = aligned(row); r < ld_; r += lanes()) {
      const Vec v_re = hn::Load(d, previous_v_ + r), v_im = hn::Load(d, previous_v_ + ld_ + r);
      const Vec x_re = hn::Load(d, x_ + r), x_im = hn::Load(d, x_ + ld_ + r);
      const Vec next_re = hn::Load(d, v_ + r), next_im = hn::Load(d, v_ + ld_ + r);
      for (int i = 0; i < kColumns; ++i) {
        T* const at = a + 2 * i * ld_ + r;
        Vec re = hn::NegMulAdd(v_re, z_re[i], hn::Load(d, at)),
            im = hn::NegMulAdd(v_re, z_im[i], hn::Load(d, at + ld_));
        re = hn::NegMulAdd(x_re, w_re[i], hn::MulAdd(v_im, z_im[i], re));
        im = hn::NegMulAdd(x_re, w_im[i], hn::NegMulAdd(v_im, z_re[i], im));
        re = hn::MulAdd(x_im, w_im[i], re);
        im = hn::NegMulAdd(x_im, w_re[i], im);
        hn::Store(re, d, at);
        hn::Store(im, d, at + ld_);
        if constexpr (kProduct) {
          sum_re[i] = hn::MulAdd(next_re, re, hn::MulAdd(next_im, im, sum_re[i]));
          sum_im[i] = hn::NegMulAdd(next_im, re, hn::MulAdd(next_re, im, sum_im[i]));
        }
      }
    }
    if constexpr (kProduct) {
      for (int i = 0; i < kColumns; ++i) {
        put(z_, c + i, {hn::GetLane(hn::SumOfLanes(d, sum_re[i])), hn::GetLane(hn::SumOfLanes(d, sum_im[i]))});
      }
    }
  }

  // Row j from column j + 1 on becomes w and e_j; `tau` is that of H_j^H. Returns tau of the row.
  Number<T> reflect_row(int j, Number<T> tau) {
    T rest = 0;
    for (int c = j + 1; c < n_; ++c) {
      const Number<T> x = conj(get(t_.column(c), j) - tau * get(z_, c));
      put(w_, c, x);
      if (c > j + 1) rest += x.re * x.re + x.im * x.im;
    }
    const RealReflector<T> h = real_reflector(get(w_, j + 1), rest);
    put(w_, j + 1, {1, 0});
    for (int c = j + 2; c < n_; ++c) {
      const Number<T> x = h.scale * get(w_, c);
      put(w_, c, x);
      put(t_.column(c), j, conj(x));
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
    const T* const a = t_.column(c);
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
  const int n_, ld_;
  const size_t vector_;
  T *v_, *previous_v_;                   // of this step and the one before; zero above their first row
  T* const x_;                           // x of the step before
  T *const z_, *const w_;                // by columns: v^H A; the reflector of the row
  T *const z_factor_, *const w_factor_;  // z' = conj(tau) z and w' = tau_p conj(w) of the update that waits
};

}  // namespace

void bidiagonalize_float(const BidiagonalReduction<float>& task) {
  task.planes == 1 ? Reducer<float, 1>(task).run() : Reducer<float, 2>(task).run();
}
void bidiagonalize_double(const BidiagonalReduction<double>& task) {
  task.planes == 1 ? Reducer<double, 1>(task).run() : Reducer<double, 2>(task).run();
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
