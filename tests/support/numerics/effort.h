// How much a test does. Sanitized builds run the same cases on fewer matrices: never on none.
#ifndef SVDSERVE_TESTS_SUPPORT_NUMERICS_EFFORT_H_
#define SVDSERVE_TESTS_SUPPORT_NUMERICS_EFFORT_H_

#include <algorithm>
#include <cstdint>
#include <cstdlib>

namespace svdserve::numerics {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr bool kSanitized = true;
#else
inline constexpr bool kSanitized = false;
#endif

// 1 in a plain build; SVDSERVE_TEST_EFFORT overrides it (0.1: a tenth of the matrices; 10: ten times as many).
inline double effort() {
  static const double value = [] {
    const char* text = std::getenv("SVDSERVE_TEST_EFFORT");
    const double asked = text != nullptr ? std::atof(text) : 0;
    return asked > 0 ? asked : (kSanitized ? 0.04 : 1.0);
  }();
  return value;
}

// `count` matrices at full effort, at least `least` at any.
inline int64_t scaled(int64_t count, int64_t least = 1) {
  return std::max(least, static_cast<int64_t>(static_cast<double>(count) * effort()));
}

}  // namespace svdserve::numerics
#endif  // SVDSERVE_TESTS_SUPPORT_NUMERICS_EFFORT_H_
