// Seeded random numbers that are the same with every standard library.
#ifndef SVDSERVE_TESTS_SUPPORT_NUMERICS_RANDOM_H_
#define SVDSERVE_TESTS_SUPPORT_NUMERICS_RANDOM_H_

#include <cmath>
#include <cstdint>
#include <numbers>
#include <random>
#include <type_traits>

namespace svdserve::numerics {

class Random {
 public:
  explicit Random(uint64_t seed) : bits_(seed) {}

  uint64_t bits() { return bits_(); }

  // Uniform in [0, 1), a multiple of 2^-53.
  double uniform() { return static_cast<double>(bits_() >> 11) * 0x1p-53; }
  double uniform(double low, double high) { return low + (high - low) * uniform(); }

  // Uniform in [low, high], both included.
  int64_t integer(int64_t low, int64_t high) {
    return low + static_cast<int64_t>(bits_() % static_cast<uint64_t>(high - low + 1));
  }
  bool coin() { return (bits_() & 1) != 0; }

  // Normal, mean 0, variance 1 (Box and Muller; the standard's distribution differs between libraries).
  double normal() {
    if (has_spare_) {
      has_spare_ = false;
      return spare_;
    }
    const double radius = std::sqrt(-2 * std::log(1 - uniform()));
    const double angle = 2 * std::numbers::pi * uniform();
    spare_ = radius * std::sin(angle);
    has_spare_ = true;
    return radius * std::cos(angle);
  }

 private:
  std::mt19937_64 bits_;
  double spare_ = 0;
  bool has_spare_ = false;
};

// A number whose parts are normal. E: double or std::complex<double>.
template <class E>
E normal_number(Random& random) {
  if constexpr (std::is_same_v<E, double>) {
    return random.normal();
  } else {
    return {random.normal(), random.normal()};
  }
}

}  // namespace svdserve::numerics
#endif  // SVDSERVE_TESTS_SUPPORT_NUMERICS_RANDOM_H_
