// Rows of vectors (algorithms/blocks/vector_rows.h) as the threads of a GPU make them, on fibers.
#ifndef SVDSERVE_TESTS_SUPPORT_NUMERICS_VECTOR_ROWS_ON_FIBERS_H_
#define SVDSERVE_TESTS_SUPPORT_NUMERICS_VECTOR_ROWS_ON_FIBERS_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "engine/algorithms/blocks/vector_rows.h"
#include "tests/support/numerics/fiber_team.h"
#include "tests/support/numerics/scalar_elements.h"

namespace svdserve::numerics {

inline size_t size(int n) { return static_cast<size_t>(n); }

// Rows of one side, one after the other.
template <class E>
struct Rows {
  using L = typename E::Lane;
  struct Pieces {
    static constexpr int kSlots = 8;
    const scalar::PlaneRotation<L>* from;
    scalar::RotationPiece<L>* slots;

    void ask(int slot, int place, int steps) const {
      for (int j = 0; j < scalar::RotationGroup::kSweeps; ++j) {
        std::copy_n(from + place + j * steps, scalar::RotationGroup::kPieceSteps, slots[slot].of[j]);
      }
    }
    void ask_nothing() const {}
    void take(int slot, scalar::RotationPiece<L>* to) const { *to = slots[slot]; }
  };
  static constexpr int kSteps = 8;  // 4 threads have room for 128 elements

  Rows(int k, const std::vector<E>& h, const std::vector<L>& g, int side, const std::vector<E>& phases)
      : k(k), pitch(scalar::padded_row(k)), x(size(k * pitch), scalar::zero_element<E>()) {
    constexpr int kThreads = 4, kTeams = 32 / kThreads;
    for (int begin = 0; begin < k; begin += E::kComplex ? kTeams : 2 * kTeams) {
      FiberBlock block(32, 0);
      block.run([&](FiberBlock::Thread thread) {
        // Real rows come in pairs.
        const int r = begin + thread.index() / kThreads, s = E::kComplex ? k : r + kTeams;
        scalar::ReflectedRow<E, FiberTeam<kThreads>, kSteps> row(FiberTeam<kThreads>(thread), r, s);
        const auto read = [&](int j, int i, E(&to)[scalar::kRowStep]) {
          std::copy_n(&h[size(j * pitch + i)], scalar::kRowStep, to);
        };
        row.reflect(k, k - side, side, read, [&](int j) { return g[size(j)]; });
        row.for_each([&](int i, const auto* z) {
          if (i >= k) return;
          if constexpr (E::kComplex) {
            if (r < k) x[size(r * pitch + i)] = *z;
          } else {
            if (r < k) x[size(r * pitch + i)].re = z->re;
            if (s < k) x[size(s * pitch + i)].re = z->im;
          }
        });
      });
    }
    for (int r = 0; r < k; ++r) {
      for (int j = 0; j < k; ++j) {
        E& z = x[size(r * pitch + j)];
        z = scalar::product_of(z, phases[size(j)]);
      }
    }
  }
  void rotate(const std::vector<scalar::PlaneRotation<L>>& rotations, const std::vector<int32_t>& last, int groups) {
    for (int r = 0; r < k; ++r) {
      E* const row = &x[size(r * pitch)];
      std::vector<scalar::RotationPiece<L>> slots(Pieces::kSlots);
      scalar::RowRotations<E, Pieces> by(Pieces{rotations.data(), slots.data()});
      by.rotate(
          groups, [&](int group) { return last[size(group)]; }, [&](int i) -> E& { return row[i]; });
    }
  }

  int k, pitch;
  std::vector<E> x;
};

}  // namespace svdserve::numerics
#endif  // SVDSERVE_TESTS_SUPPORT_NUMERICS_VECTOR_ROWS_ON_FIBERS_H_
