// Lanes: the number type of the lane kernels. One matrix lives in one lane; a kernel computes as many matrices at once
// as its lane type has lanes. It never branches on their data: it compares, gets a mask, and selects.
//
//   ScalarLane<T>   one lane: a GPU thread, and the reference on the CPU
//   Pack<T, N>      N vector registers of the target's instruction set (Highway)
//
// Both have the same operations with the same results, bit for bit: IEEE operations and explicit fused multiply-adds
// only. kLanes is the number of lanes; load and store move kLanes consecutive T of any alignment of T.
#if defined(SVDSERVE_ENGINE_CORE_LANE_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef SVDSERVE_ENGINE_CORE_LANE_H_
#undef SVDSERVE_ENGINE_CORE_LANE_H_
#else
#define SVDSERVE_ENGINE_CORE_LANE_H_
#endif

#include <cmath>
#include <cstdint>
#include <cstring>

#include "engine/core/float_traits.h"
#include "engine/core/kernel_namespace.h"

SVD_KERNEL_BEGIN

#if !defined(HWY_HIGHWAY_INCLUDED)

struct ScalarMask {
  bool m;
  friend SVD_HD ScalarMask operator&(ScalarMask a, ScalarMask b) { return {a.m && b.m}; }
  friend SVD_HD ScalarMask operator|(ScalarMask a, ScalarMask b) { return {a.m || b.m}; }
  friend SVD_HD ScalarMask operator!(ScalarMask a) { return {!a.m}; }
  friend SVD_HD bool any_of(ScalarMask a) { return a.m; }
};

template <class T>
struct ScalarLane {
  using Scalar = T;
  using Mask = ScalarMask;
  static constexpr int kLanes = 1;
  T v;

  ScalarLane() = default;
  SVD_HD explicit ScalarLane(T x) : v(x) {}
  static SVD_HD ScalarLane load(const T* p) { return ScalarLane(*p); }
  SVD_HD void store(T* p) const { *p = v; }

  friend SVD_HD ScalarLane operator+(ScalarLane a, ScalarLane b) { return ScalarLane(a.v + b.v); }
  friend SVD_HD ScalarLane operator-(ScalarLane a, ScalarLane b) { return ScalarLane(a.v - b.v); }
  friend SVD_HD ScalarLane operator*(ScalarLane a, ScalarLane b) { return ScalarLane(a.v * b.v); }
  friend SVD_HD ScalarLane operator/(ScalarLane a, ScalarLane b) { return ScalarLane(a.v / b.v); }
  friend SVD_HD ScalarLane operator-(ScalarLane a) { return ScalarLane(-a.v); }
  friend SVD_HD Mask operator<(ScalarLane a, ScalarLane b) { return {a.v < b.v}; }
  friend SVD_HD Mask operator<=(ScalarLane a, ScalarLane b) { return {a.v <= b.v}; }
  friend SVD_HD Mask operator>(ScalarLane a, ScalarLane b) { return {a.v > b.v}; }
  friend SVD_HD Mask operator>=(ScalarLane a, ScalarLane b) { return {a.v >= b.v}; }
  friend SVD_HD Mask operator==(ScalarLane a, ScalarLane b) { return {a.v == b.v}; }

  friend SVD_HD ScalarLane fma(ScalarLane a, ScalarLane b, ScalarLane c) { return ScalarLane(std::fma(a.v, b.v, c.v)); }
  friend SVD_HD ScalarLane fnma(ScalarLane a, ScalarLane b, ScalarLane c) {
    return ScalarLane(std::fma(-a.v, b.v, c.v));
  }
  friend SVD_HD ScalarLane sqrt(ScalarLane a) { return ScalarLane(std::sqrt(a.v)); }
  friend SVD_HD ScalarLane abs(ScalarLane a) { return ScalarLane(std::fabs(a.v)); }
  friend SVD_HD ScalarLane copysign(ScalarLane a, ScalarLane b) { return ScalarLane(std::copysign(a.v, b.v)); }
  friend SVD_HD ScalarLane select(Mask m, ScalarLane yes, ScalarLane no) { return m.m ? yes : no; }
  static SVD_HD Mask mask(bool m) { return {m}; }

  // 1 / a for kReciprocalSmallest <= a <= kRangeLargest, and sqrt(a) for kNegligibleSquare <= a <= kRangeLargest. Both
  // are rounded correctly, like the general operations. On a GPU those spend half their instructions on numbers out of
  // range. (tests/device/arithmetic.cu compares every float.) What they make of others is for select to throw away.
  friend SVD_HD ScalarLane reciprocal(ScalarLane a) {
#if defined(__CUDA_ARCH__)
    if constexpr (sizeof(T) == 4) {
      float r;
      asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(a.v));
      return ScalarLane(std::fma(r, std::fma(-a.v, r, 1.0f), r));
    } else {
      double r;
      asm("rcp.approx.ftz.f64 %0, %1;" : "=d"(r) : "d"(a.v));
      r = __hiloint2double(__double2hiint(r), 1 << 30);  // not below 1 / a for the largest of its binade
      const double error = std::fma(-a.v, r, 1.0);
      r = std::fma(r, std::fma(error, error, error), r);
      return ScalarLane(std::fma(r, std::fma(-a.v, r, 1.0), r));
    }
#else
    return ScalarLane(T(1) / a.v);
#endif
  }
  friend SVD_HD ScalarLane sqrt_in_range(ScalarLane a) {
#if defined(__CUDA_ARCH__)
    if constexpr (sizeof(T) == 4) {
      float r;
      asm("rsqrt.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(a.v));
      const float y = a.v * r;
      return ScalarLane(std::fma(std::fma(-y, y, a.v), 0.5f * r, y));
    } else {
      double r;
      asm("rsqrt.approx.ftz.f64 %0, %1;" : "=d"(r) : "d"(a.v));
      const double error = std::fma(a.v, -(r * r), 1.0);
      r = std::fma(std::fma(error, 0.375, 0.5), r * error, r);
      const double y = a.v * r;
      return ScalarLane(std::fma(std::fma(-y, y, a.v), 0.5 * r, y));
    }
#else
    return ScalarLane(std::sqrt(a.v));
#endif
  }
  // 1 / sqrt(a) in the range of sqrt_in_range(), to two units of roundoff: a chain of fewer operations than a root and
  // a reciprocal. The last bit differs between CPU and GPU. So it is for matrices beyond kLargestReproducible alone.
  friend SVD_HD ScalarLane inverse_sqrt_in_range(ScalarLane a) {
#if defined(__CUDA_ARCH__)
    if constexpr (sizeof(T) == 4) {
      float r;
      asm("rsqrt.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(a.v));
      return ScalarLane(std::fma(0.5f * r, std::fma(-a.v * r, r, 1.0f), r));
    } else {
      double r;
      asm("rsqrt.approx.ftz.f64 %0, %1;" : "=d"(r) : "d"(a.v));
      const double error = std::fma(a.v, -(r * r), 1.0);
      return ScalarLane(std::fma(std::fma(error, 0.375, 0.5), r * error, r));
    }
#else
    return ScalarLane(T(1) / std::sqrt(a.v));
#endif
  }
  // 1 / a for 1 <= a <= 2, to a unit of roundoff, where the last bit may differ between CPU and GPU.
  friend SVD_HD ScalarLane near_reciprocal(ScalarLane a) {
#if defined(__CUDA_ARCH__)
    if constexpr (sizeof(T) == 8) {
      double r;
      asm("rcp.approx.ftz.f64 %0, %1;" : "=d"(r) : "d"(a.v));
      const double error = std::fma(-a.v, r, 1.0);
      return ScalarLane(std::fma(r, std::fma(error, error, error), r));
    }
#endif
    return reciprocal(a);
  }
  // The larger and the smaller of a and b, b where a is NaN; not for zeros of unlike signs.
  friend SVD_HD ScalarLane at_least(ScalarLane a, ScalarLane b) {
#if defined(__CUDA_ARCH__)
    if constexpr (sizeof(T) == 4) return ScalarLane(fmaxf(a.v, b.v));
#endif
    return a.v > b.v ? a : b;
  }
  friend SVD_HD ScalarLane at_most(ScalarLane a, ScalarLane b) {
#if defined(__CUDA_ARCH__)
    if constexpr (sizeof(T) == 4) return ScalarLane(fminf(a.v, b.v));
#endif
    return a.v < b.v ? a : b;
  }
  // The larger of |a| and b >= 0; where |a| is infinite or NaN, or b is, infinite or NaN, too.
  friend SVD_HD ScalarLane at_least_magnitude(ScalarLane a, ScalarLane b) {
#if defined(__CUDA_ARCH__)
    if constexpr (sizeof(T) == 4) {
      float r;
      asm("max.NaN.f32 %0, %1, %2;" : "=f"(r) : "f"(std::fabs(a.v)), "f"(b.v));
      return ScalarLane(r);
    }
#endif
    const T m = std::fabs(a.v);
    return ScalarLane(m <= FloatTraits<T>::kLargest ? (m > b.v ? m : b.v) : FloatTraits<T>::nan());
  }

  // floor(log2(a)) of a positive normal a.
  friend SVD_HD ScalarLane exponent(ScalarLane a) {
    using F = FloatTraits<T>;
    typename F::Bits bits;
    std::memcpy(&bits, &a.v, sizeof(T));
    return ScalarLane(static_cast<T>(static_cast<int>(bits >> F::kMantissaBits) - F::kBias));
  }
  // 2^e for an integral e in the range of normal exponents.
  friend SVD_HD ScalarLane pow2(ScalarLane e) {
    using F = FloatTraits<T>;
    // As a pack does it: added to 2^kMantissaBits, the integer lies in the mantissa.
    const T number = e.v + (static_cast<T>(typename F::Bits{1} << F::kMantissaBits) + static_cast<T>(F::kBias));
    typename F::Bits bits;
    std::memcpy(&bits, &number, sizeof(T));
    bits <<= F::kMantissaBits;
    T x;
    std::memcpy(&x, &bits, sizeof(T));
    return ScalarLane(x);
  }
};

template <class T>
using WideLane = ScalarLane<T>;
template <class T>
using NarrowLane = ScalarLane<T>;

#else

// Runs a statement for each vector x of a pack. With a loop or a lambda in its place, kernels take twice as long to
// compile: they inline thousands of these operations (tests/support/compile_cost.py).
#define SVD_EACH(...)             \
  do {                            \
    {                             \
      constexpr int x = 0;        \
      __VA_ARGS__;                \
    }                             \
    if constexpr (kVectors > 1) { \
      constexpr int x = 1;        \
      __VA_ARGS__;                \
    }                             \
  } while (false)
// Returns the pack, or the mask, whose vector x is the expression.
#define SVD_EACH_VECTOR(...)      \
  Pack r;                         \
  SVD_EACH(r.v[x] = __VA_ARGS__); \
  return r
#define SVD_EACH_MASK(...)        \
  Mask r;                         \
  SVD_EACH(r.m[x] = __VA_ARGS__); \
  return r

// kVectors vectors side by side. More than one hides the latency of divisions and square roots, on which these kernels
// wait most of their time; what it costs is registers. A tuning value (policies/host_tuning.h): the bits do not change.
template <class T, int kVectors>
struct PackMask {
  using D = hn::ScalableTag<T>;
  using Mask = PackMask;
  static_assert(kVectors == 1 || kVectors == 2);
  hn::Mask<D> m[kVectors];

  friend SVD_HD PackMask operator&(PackMask a, PackMask b) { SVD_EACH_MASK(hn::And(a.m[x], b.m[x])); }
  friend SVD_HD PackMask operator|(PackMask a, PackMask b) { SVD_EACH_MASK(hn::Or(a.m[x], b.m[x])); }
  friend SVD_HD PackMask operator!(PackMask a) { SVD_EACH_MASK(hn::Not(a.m[x])); }
  friend SVD_HD bool any_of(PackMask a) {
    bool any = false;
    SVD_EACH(any = any || !hn::AllFalse(D(), a.m[x]));
    return any;
  }
};

template <class T, int kVectors>
struct Pack {
  using Scalar = T;
  using Mask = PackMask<T, kVectors>;
  using D = hn::ScalableTag<T>;
  static constexpr int kVectorLanes = static_cast<int>(hn::MaxLanes(D()));
  static constexpr int kLanes = kVectors * kVectorLanes;
  hn::Vec<D> v[kVectors];

  Pack() = default;
  SVD_HD explicit Pack(T value) { SVD_EACH(v[x] = hn::Set(D(), value)); }
  static SVD_HD Pack load(const T* p) { SVD_EACH_VECTOR(hn::LoadU(D(), p + x * kVectorLanes)); }
  SVD_HD void store(T* p) const { SVD_EACH(hn::StoreU(v[x], D(), p + x * kVectorLanes)); }

  friend SVD_HD Pack operator+(Pack a, Pack b) { SVD_EACH_VECTOR(hn::Add(a.v[x], b.v[x])); }
  friend SVD_HD Pack operator-(Pack a, Pack b) { SVD_EACH_VECTOR(hn::Sub(a.v[x], b.v[x])); }
  friend SVD_HD Pack operator*(Pack a, Pack b) { SVD_EACH_VECTOR(hn::Mul(a.v[x], b.v[x])); }
  friend SVD_HD Pack operator/(Pack a, Pack b) { SVD_EACH_VECTOR(hn::Div(a.v[x], b.v[x])); }
  friend SVD_HD Pack operator-(Pack a) { SVD_EACH_VECTOR(hn::Neg(a.v[x])); }
  friend SVD_HD Mask operator<(Pack a, Pack b) { SVD_EACH_MASK(hn::Lt(a.v[x], b.v[x])); }
  friend SVD_HD Mask operator<=(Pack a, Pack b) { SVD_EACH_MASK(hn::Le(a.v[x], b.v[x])); }
  friend SVD_HD Mask operator>(Pack a, Pack b) { SVD_EACH_MASK(hn::Gt(a.v[x], b.v[x])); }
  friend SVD_HD Mask operator>=(Pack a, Pack b) { SVD_EACH_MASK(hn::Ge(a.v[x], b.v[x])); }
  friend SVD_HD Mask operator==(Pack a, Pack b) { SVD_EACH_MASK(hn::Eq(a.v[x], b.v[x])); }

  // Highway's MulAdd is fused on every target that kernels are built for: packs/pack_access.h leaves the others out.
  friend SVD_HD Pack fma(Pack a, Pack b, Pack c) { SVD_EACH_VECTOR(hn::MulAdd(a.v[x], b.v[x], c.v[x])); }
  friend SVD_HD Pack fnma(Pack a, Pack b, Pack c) { SVD_EACH_VECTOR(hn::NegMulAdd(a.v[x], b.v[x], c.v[x])); }
  friend SVD_HD Pack sqrt(Pack a) { SVD_EACH_VECTOR(hn::Sqrt(a.v[x])); }
  friend SVD_HD Pack reciprocal(Pack a) { return Pack(T(1)) / a; }
  friend SVD_HD Pack sqrt_in_range(Pack a) { return sqrt(a); }
  friend SVD_HD Pack at_least(Pack a, Pack b) { return select(a > b, a, b); }
  friend SVD_HD Pack at_most(Pack a, Pack b) { return select(a < b, a, b); }
  friend SVD_HD Pack at_least_magnitude(Pack a, Pack b) {
    const Pack m = abs(a);
    return select(m <= Pack(FloatTraits<T>::kLargest), select(m > b, m, b), Pack(FloatTraits<T>::nan()));
  }
  friend SVD_HD Pack abs(Pack a) { SVD_EACH_VECTOR(hn::Abs(a.v[x])); }
  friend SVD_HD Pack copysign(Pack a, Pack b) { SVD_EACH_VECTOR(hn::CopySign(a.v[x], b.v[x])); }
  friend SVD_HD Pack select(Mask m, Pack yes, Pack no) { SVD_EACH_VECTOR(hn::IfThenElse(m.m[x], yes.v[x], no.v[x])); }
  static SVD_HD Mask mask(bool m) { SVD_EACH_MASK(hn::FirstN(D(), m ? hn::Lanes(D()) : 0)); }

  // The integer in the exponent field becomes a number by setting it into the mantissa of 2^kMantissaBits.
  friend SVD_HD Pack exponent(Pack a) {
    using F = FloatTraits<T>;
    const hn::RebindToUnsigned<D> du;
    const auto magic = hn::Set(D(), static_cast<T>(typename F::Bits{1} << F::kMantissaBits));
    const auto bias = hn::Set(D(), static_cast<T>(F::kBias));
    Pack number;
    SVD_EACH(const auto field = hn::ShiftRight<F::kMantissaBits>(hn::BitCast(du, a.v[x]));
             number.v[x] = hn::BitCast(D(), hn::Or(field, hn::BitCast(du, magic))));
    SVD_EACH_VECTOR(hn::Sub(hn::Sub(number.v[x], magic), bias));
  }
  friend SVD_HD Pack pow2(Pack e) {
    using F = FloatTraits<T>;
    const hn::RebindToUnsigned<D> du;
    const auto magic = hn::Set(D(), static_cast<T>(typename F::Bits{1} << F::kMantissaBits) + static_cast<T>(F::kBias));
    SVD_EACH_VECTOR(hn::BitCast(D(), hn::ShiftLeft<F::kMantissaBits>(hn::BitCast(du, hn::Add(e.v[x], magic)))));
  }
};

#undef SVD_EACH_MASK
#undef SVD_EACH_VECTOR
#undef SVD_EACH

// Vector registers that a pack of the sizes known to the compiler holds side by side. Two against one, on one core with
// AVX-512: 1.6 times the matrices a second for 4 x 4 and 8 x 8 f64, 1.25 times for c64.
inline constexpr int kVectorsPerPack = 2;
// Kernels of sizes known to the compiler use the wide lane, those of run-time size the narrow one for large matrices.
template <class T>
using WideLane = Pack<T, kVectorsPerPack>;
template <class T>
using NarrowLane = Pack<T, 1>;

#endif

// The larger and the smaller of two numbers, by comparison: what hardware does with signed zeros and NaN differs.
template <class Lane>
SVD_HD Lane larger(Lane a, Lane b) {
  return select(a > b, a, b);
}
template <class Lane>
SVD_HD Lane smaller(Lane a, Lane b) {
  return select(a < b, a, b);
}

SVD_KERNEL_END

#endif
