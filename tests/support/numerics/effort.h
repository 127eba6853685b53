// How much a test does. Every run computes the same kinds of matrices; smaller runs compute fewer of each.
//
//   long       everything: `./test.sh long`, which sets SVDSERVE_TEST_SIZE=long
//   ordinary   a tenth of the matrices, and a sample of the shapes
//   sanitized  builds with a sanitizer, whatever the variable says: each code path once or twice
#ifndef SVDSERVE_TESTS_SUPPORT_NUMERICS_EFFORT_H_
#define SVDSERVE_TESTS_SUPPORT_NUMERICS_EFFORT_H_

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <string_view>
#include <vector>

#include "engine/problem.h"

namespace svdserve::numerics {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr bool kSanitized = true;
#else
inline constexpr bool kSanitized = false;
#endif

inline bool is_long_run() {
  static const bool value = [] {
    const char* size = std::getenv("SVDSERVE_TEST_SIZE");
    return !kSanitized && size != nullptr && std::string_view(size) == "long";
  }();
  return value;
}

// `count` in a long run, a tenth of it in an ordinary one, a hundredth in a sanitized one; at least `least` in any.
inline int64_t scaled(int64_t count, int64_t least = 1) {
  return std::max(least, count / (is_long_run() ? 1 : kSanitized ? 100 : 10));
}

// The types of numbers that a test takes: in a sanitized run one real and one complex, of either size.
inline std::vector<DType> dtypes_of_run() {
  if (kSanitized) return {DType::kF64, DType::kC64};
  return {DType::kF32, DType::kF64, DType::kC64, DType::kC128};
}

// Whether an ordinary or sanitized run leaves out this number of values, where a long one takes all from 1 to 32. The
// others have small and large, even and odd ones.
inline bool is_left_out(int64_t k) {
  if (is_long_run()) return false;
  return kSanitized ? k > 2 && k != 5 && k != 9 && k != 32 : k > 9 && k % 7 != 3 && k != 16 && k != 32;
}

}  // namespace svdserve::numerics
#endif  // SVDSERVE_TESTS_SUPPORT_NUMERICS_EFFORT_H_
