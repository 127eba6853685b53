// Lanes: the number type of the lane kernels. One matrix lives in one lane; a kernel computes as many matrices at once
// as its lane type has lanes, and never branches on their data: it compares, gets a mask, and selects.
//
//   ScalarLane<T>   one lane: a GPU thread, and the reference on the CPU
//   Pack<T>         a vector register of the target's instruction set (Highway)
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
    const auto bits = static_cast<typename F::Bits>(static_cast<int>(e.v) + F::kBias) << F::kMantissaBits;
    T x;
    std::memcpy(&x, &bits, sizeof(T));
    return ScalarLane(x);
  }
};

template <class T>
using NativeLane = ScalarLane<T>;

#else

template <class T>
struct PackMask {
  using D = hn::ScalableTag<T>;
  hn::Mask<D> m;
  friend SVD_HD PackMask operator&(PackMask a, PackMask b) { return {hn::And(a.m, b.m)}; }
  friend SVD_HD PackMask operator|(PackMask a, PackMask b) { return {hn::Or(a.m, b.m)}; }
  friend SVD_HD PackMask operator!(PackMask a) { return {hn::Not(a.m)}; }
  friend SVD_HD bool any_of(PackMask a) { return !hn::AllFalse(D(), a.m); }
};

template <class T>
struct Pack {
  using Scalar = T;
  using Mask = PackMask<T>;
  using D = hn::ScalableTag<T>;
  static constexpr int kLanes = static_cast<int>(hn::MaxLanes(D()));
  hn::Vec<D> v;

  Pack() = default;
  SVD_HD explicit Pack(hn::Vec<D> x) : v(x) {}
  SVD_HD explicit Pack(T x) : v(hn::Set(D(), x)) {}
  static SVD_HD Pack load(const T* p) { return Pack(hn::LoadU(D(), p)); }
  SVD_HD void store(T* p) const { hn::StoreU(v, D(), p); }

  friend SVD_HD Pack operator+(Pack a, Pack b) { return Pack(hn::Add(a.v, b.v)); }
  friend SVD_HD Pack operator-(Pack a, Pack b) { return Pack(hn::Sub(a.v, b.v)); }
  friend SVD_HD Pack operator*(Pack a, Pack b) { return Pack(hn::Mul(a.v, b.v)); }
  friend SVD_HD Pack operator/(Pack a, Pack b) { return Pack(hn::Div(a.v, b.v)); }
  friend SVD_HD Pack operator-(Pack a) { return Pack(hn::Neg(a.v)); }
  friend SVD_HD Mask operator<(Pack a, Pack b) { return {hn::Lt(a.v, b.v)}; }
  friend SVD_HD Mask operator<=(Pack a, Pack b) { return {hn::Le(a.v, b.v)}; }
  friend SVD_HD Mask operator>(Pack a, Pack b) { return {hn::Gt(a.v, b.v)}; }
  friend SVD_HD Mask operator>=(Pack a, Pack b) { return {hn::Ge(a.v, b.v)}; }
  friend SVD_HD Mask operator==(Pack a, Pack b) { return {hn::Eq(a.v, b.v)}; }

  // Highway's MulAdd is fused on every target that kernels are built for: kernel_set.h leaves the others out.
  friend SVD_HD Pack fma(Pack a, Pack b, Pack c) { return Pack(hn::MulAdd(a.v, b.v, c.v)); }
  friend SVD_HD Pack fnma(Pack a, Pack b, Pack c) { return Pack(hn::NegMulAdd(a.v, b.v, c.v)); }
  friend SVD_HD Pack sqrt(Pack a) { return Pack(hn::Sqrt(a.v)); }
  friend SVD_HD Pack abs(Pack a) { return Pack(hn::Abs(a.v)); }
  friend SVD_HD Pack copysign(Pack a, Pack b) { return Pack(hn::CopySign(a.v, b.v)); }
  friend SVD_HD Pack select(Mask m, Pack yes, Pack no) { return Pack(hn::IfThenElse(m.m, yes.v, no.v)); }
  static SVD_HD Mask mask(bool m) { return {hn::FirstN(D(), m ? hn::Lanes(D()) : 0)}; }

  // The integer in the exponent field becomes a number by setting it into the mantissa of 2^kMantissaBits.
  friend SVD_HD Pack exponent(Pack a) {
    using F = FloatTraits<T>;
    const hn::RebindToUnsigned<D> du;
    const auto magic = hn::Set(D(), static_cast<T>(typename F::Bits{1} << F::kMantissaBits));
    const auto field = hn::ShiftRight<F::kMantissaBits>(hn::BitCast(du, a.v));
    const auto number = hn::BitCast(D(), hn::Or(field, hn::BitCast(du, magic)));
    return Pack(hn::Sub(hn::Sub(number, magic), hn::Set(D(), static_cast<T>(F::kBias))));
  }
  friend SVD_HD Pack pow2(Pack e) {
    using F = FloatTraits<T>;
    const hn::RebindToUnsigned<D> du;
    const auto magic = hn::Set(D(), static_cast<T>(typename F::Bits{1} << F::kMantissaBits) + static_cast<T>(F::kBias));
    return Pack(hn::BitCast(D(), hn::ShiftLeft<F::kMantissaBits>(hn::BitCast(du, hn::Add(e.v, magic)))));
  }
};

template <class T>
using NativeLane = Pack<T>;

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
