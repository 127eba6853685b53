// Householder reduction of one matrix of moderate order as vector code: what the reductions to bidiagonal and to
// tridiagonal form share. In each step a reflector v is made of a column, and a product z = v^H A with what is left. The
// update of the step before waits for that product, which makes it in the same pass over A:
//
//   A := A - v z'^T - x w'^T,   z := v^H A of the next v
//
// Columns are planes of ld numbers (bidiagonal_reduction.h). One matrix a call, on the calling thread.
#if defined(SVDSERVE_ENGINE_BACKENDS_HOST_FORMS_REDUCTION_PASS_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef SVDSERVE_ENGINE_BACKENDS_HOST_FORMS_REDUCTION_PASS_H_
#undef SVDSERVE_ENGINE_BACKENDS_HOST_FORMS_REDUCTION_PASS_H_
#else
#define SVDSERVE_ENGINE_BACKENDS_HOST_FORMS_REDUCTION_PASS_H_
#endif

#include <algorithm>
#include <cmath>
#include <cstddef>

#include "engine/backends/host/forms/bidiagonal_reduction.h"
#include "engine/core/float_traits.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace svdserve::host::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

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

// All vectors have `ld` numbers in each plane.
template <class T, int kPlanes>
class ReductionPass {
 protected:
  using Tag = hn::CappedTag<T, kReductionAlignment / sizeof(T)>;
  using Vec = hn::Vec<Tag>;
  static constexpr int kGroup = kPlanes == 1 ? 4 : 2;  // columns of a pass that share its loads

  // work: six vectors, zero.
  ReductionPass(T* a, int n, int ld, T* work)
      : n_(n),
        ld_(ld),
        a_(a),
        vector_(static_cast<size_t>(ld) * kPlanes),
        v_(work),
        previous_v_(work + vector_),
        x_(work + 2 * vector_),
        z_(work + 3 * vector_),
        z_factor_(work + 4 * vector_),
        w_factor_(work + 5 * vector_) {}

  T* column(int j) const { return a_ + static_cast<ptrdiff_t>(j) * kPlanes * ld_; }
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

  // Column j from row `top` on, which is up to date, becomes v, and beta in *beta; below `top` the column has v, too.
  // Returns tau.
  Number<T> reflect_column(int j, int top, T* beta) {
    const Tag d;
    T* const column = this->column(j);
    Vec sum = hn::Zero(d);
    const int first = aligned(top + 1);
    for (int p = 0; p < kPlanes; ++p) {
      std::copy(column + p * ld_ + first, column + (p + 1) * ld_, v_ + p * ld_ + first);
      std::fill(v_ + p * ld_ + first, v_ + p * ld_ + top + 1, T(0));
      for (int i = first; i < ld_; i += lanes()) {
        const Vec x = hn::Load(d, v_ + p * ld_ + i);
        sum = hn::MulAdd(x, x, sum);
      }
    }
    const RealReflector<T> h = real_reflector(get(column, top), hn::GetLane(hn::SumOfLanes(d, sum)));
    scale_rows(v_, top + 1, h.scale);
    for (int p = 0; p < kPlanes; ++p) std::copy(v_ + p * ld_ + top + 1, v_ + p * ld_ + n_, column + p * ld_ + top + 1);
    for (int i = std::max(top - 2, 0); i < top; ++i) put(v_, i, {});  // of two steps before
    put(v_, top, {1, 0});
    *beta = h.beta;
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

  void update_column(int c) { update_columns<1, false>(c, c); }

  // Columns c .. c + kColumns - 1, rows from `row` on: A := A - v z'^T - x w'^T; then with kProduct z := v^H A, v the next.
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
    T* const a = column(c);
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
    T* const a = column(c);
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

  // sum := sum + the columns c .. c + kColumns - 1 times theirs of x, rows from `row` on.
  template <int kColumns>
  HWY_INLINE void add_columns(int c, int row, const T* x, T* sum) const {
    const Tag d;
    const T* const a = column(c);
    Vec x_re[kColumns], x_im[kColumns];
    for (int i = 0; i < kColumns; ++i) {
      x_re[i] = hn::Set(d, x[c + i]);
      if constexpr (kPlanes == 2) x_im[i] = hn::Set(d, x[ld_ + c + i]);
    }
    for (int r = aligned(row); r < ld_; r += lanes()) {
      Vec re = hn::Load(d, sum + r);
      if constexpr (kPlanes == 1) {
        for (int i = 0; i < kColumns; ++i) re = hn::MulAdd(x_re[i], hn::Load(d, a + i * ld_ + r), re);
      } else {
        Vec im = hn::Load(d, sum + ld_ + r);
        for (int i = 0; i < kColumns; ++i) {
          const Vec a_re = hn::Load(d, a + 2 * i * ld_ + r), a_im = hn::Load(d, a + (2 * i + 1) * ld_ + r);
          re = hn::NegMulAdd(x_im[i], a_im, hn::MulAdd(x_re[i], a_re, re));
          im = hn::MulAdd(x_im[i], a_re, hn::MulAdd(x_re[i], a_im, im));
        }
        hn::Store(im, d, sum + ld_ + r);
      }
      hn::Store(re, d, sum + r);
    }
  }

  const int n_, ld_;
  T* const a_;
  const size_t vector_;
  T *v_, *previous_v_;                   // of this step and the one before; zero above their first row
  T* const x_;                           // x of the update that waits
  T* const z_;                           // by columns: v^H A
  T *const z_factor_, *const w_factor_;  // z' and w' of the update that waits
};

}  // namespace svdserve::host::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
