// Threads with a matrix in their registers (algorithms/blocks/register_grid.h), on fibers.
#ifndef SVDSERVE_TESTS_SUPPORT_NUMERICS_REGISTER_GRID_ON_FIBERS_H_
#define SVDSERVE_TESTS_SUPPORT_NUMERICS_REGISTER_GRID_ON_FIBERS_H_

#include <type_traits>
#include <vector>

#include "engine/algorithms/blocks/register_grid.h"
#include "tests/support/numerics/fiber_team.h"
#include "tests/support/numerics/matrix.h"
#include "tests/support/numerics/scalar_elements.h"

namespace svdserve::numerics {

// A grid of R x C threads for matrices of up to K columns, as a parameter of typed tests.
template <class Element_, int K_, int R_, int C_>
struct GridShape {
  using Element = Element_;
  static constexpr int K = K_, R = R_, C = C_;
};

// f(algorithm, x) in each of R C threads, in an order that depends on `seed`: x is the thread's part of the square
// matrix a, of at most K columns.
template <template <class Threads, class E, int K, int R, int C> class Algorithm_, class E, int K, int R, int C,
          class F>
void with_register_grid(const Matrix& a, uint64_t seed, F f) {
  using T = typename E::Scalar;
  const int k = static_cast<int>(a.cols);
  constexpr bool kSeveralWarps = R * C >= 64;
  constexpr size_t kThreads = static_cast<size_t>(R * C), kMail = static_cast<size_t>(K / R * E::kComponents);
  std::vector<T> mail(2 * kThreads * kMail);
  FiberBlock block(kSeveralWarps ? R * C : 32, seed);
  block.run([&](FiberBlock::Thread thread) {
    using Threads = std::conditional_t<kSeveralWarps, FiberWarps<T, kThreads, kMail>, FiberTeam<R * C>>;
    using Algorithm = Algorithm_<Threads, E, K, R, C>;
    const auto threads = [&] {
      if constexpr (kSeveralWarps) {
        return Threads(thread, mail.data());
      } else {
        return Threads(thread);
      }
    };
    Algorithm algorithm(threads(), k);
    E x[Algorithm::kCols][Algorithm::kRows];
    for (int m = 0; m < Algorithm::kCols; ++m) {
      for (int l = 0; l < Algorithm::kRows; ++l) {
        const int row = algorithm.row(l), col = algorithm.col(m);
        x[m][l] = row < k && col < k ? element<E>(a.at(row, col)) : scalar::zero_element<E>();
      }
    }
    f(algorithm, x);
  });
}

}  // namespace svdserve::numerics
#endif  // SVDSERVE_TESTS_SUPPORT_NUMERICS_REGISTER_GRID_ON_FIBERS_H_
