// Constants of the two real types. Plain values: shared by every target.
#ifndef SVDSERVE_ENGINE_CORE_FLOAT_TRAITS_H_
#define SVDSERVE_ENGINE_CORE_FLOAT_TRAITS_H_

#include <cstdint>
#include <limits>

namespace svdserve {

template <class T>
struct FloatTraits;

template <>
struct FloatTraits<float> {
  using Bits = uint32_t;
  static constexpr int kMantissaBits = 23;
  static constexpr int kBias = 127;
  static constexpr float kUnitRoundoff = 0x1p-24f;
  static constexpr float kLargest = 0x1.fffffep127f;
  static constexpr float kSmallestNormal = 0x1p-126f;
  // Squares below this count as zero where the largest element of the matrix is about one. The loss is below 2^-45, and
  // the rest has no denormal squares in its norm.
  static constexpr float kNegligibleSquare = 0x1p-90f;
  // Jacobi: a column whose square fell below this within a sweep waits for the next one. That scales it anew, so that
  // the square of a cosine's numerator is never denormal.
  static constexpr float kCollapsedSquare = 0x1p-40f;
  // Jacobi with vectors: the start of the square of a column's scale. The discriminant of a pair that is rotated is at
  // least 4 (2 u)^2 times the square of this times that of the above, no less than kNegligibleSquare.
  static constexpr float kScaleSquare = 0x1p20f;
  // The range of reciprocal()'s and sqrt_in_range()'s arguments (lane.h).
  static constexpr float kReciprocalSmallest = 0x1p-120f;
  static constexpr float kRangeLargest = 0x1p120f;
  // Lifts every denormal into the normal range.
  static constexpr int kLiftExponent = 32;
  static constexpr float kLift = 0x1p32f;
  // An exponent difference of columns beyond which a rotation is the identity on the larger one; twice it is in range.
  static constexpr float kLargestGap = 60;
  // The one NaN that is ever written: 0x7fc00000.
  static constexpr float nan() { return std::numeric_limits<float>::quiet_NaN(); }
};

template <>
struct FloatTraits<double> {
  using Bits = uint64_t;
  static constexpr int kMantissaBits = 52;
  static constexpr int kBias = 1023;
  static constexpr double kUnitRoundoff = 0x1p-53;
  static constexpr double kLargest = 0x1.fffffffffffffp1023;
  static constexpr double kSmallestNormal = 0x1p-1022;
  static constexpr double kNegligibleSquare = 0x1p-900;
  static constexpr double kCollapsedSquare = 0x1p-440;
  static constexpr double kScaleSquare = 1;
  static constexpr double kReciprocalSmallest = 0x1p-1000;
  static constexpr double kRangeLargest = 0x1p1000;
  static constexpr int kLiftExponent = 64;
  static constexpr double kLift = 0x1p64;
  static constexpr double kLargestGap = 500;
  // 0x7ff8000000000000
  static constexpr double nan() { return std::numeric_limits<double>::quiet_NaN(); }
};

}  // namespace svdserve
#endif  // SVDSERVE_ENGINE_CORE_FLOAT_TRAITS_H_
