// Rows of vectors (algorithms/blocks/vector_rows.h) as the threads of a GPU make them, on fibers.
#ifndef SVDSERVE_TESTS_SUPPORT_NUMERICS_VECTOR_ROWS_ON_FIBERS_H_
#define SVDSERVE_TESTS_SUPPORT_NUMERICS_VECTOR_ROWS_ON_FIBERS_H_

#include <algorithm>
#include <complex>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "engine/algorithms/blocks/vector_rows.h"
#include "engine/algorithms/lanes/rotation_windows.h"
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
  static constexpr int kSteps = 16;  // 4 threads have room for 256 elements

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

  // The same by products of windows, as matrix units make them: sums of doubles.
  void rotate_in_windows(const std::vector<scalar::PlaneRotation<L>>& rotations, const std::vector<int32_t>& last,
                         int groups) {
    const auto last_of = [&](int group) { return last[size(group)]; };
    for (scalar::RotationCursor at{0, 0}; at.group < groups;) {
      const scalar::RotationRun run(at, groups, last_of);
      for (int w = 0; w < run.windows(); ++w) multiply(run, run.first_window() + w, &rotations[size(at.place)], last);
      at = run.end(last_of);
    }
  }

  int k, pitch;
  std::vector<E> x;

 private:
  static constexpr int kColumns = scalar::RotationWindow::kColumns;

  void multiply(const scalar::RotationRun& run, int window, const scalar::PlaneRotation<L>* rotations,
                const std::vector<int32_t>& last) {
    using T = typename E::Scalar;
    std::vector<Real<T>> w(size(kColumns * kColumns));
    for (int row = 0; row < kColumns; ++row) {
      Real<T>* const of_row = &w[size(row * kColumns)];
      for (int col = 0; col < kColumns; ++col) of_row[col].re = L(row == col ? 1 : 0);
      using RealPieces = typename Rows<Real<T>>::Pieces;
      std::vector<scalar::RotationPiece<L>> slots(RealPieces::kSlots);
      scalar::RotatedWindow<Real<T>, RealPieces> by(RealPieces{rotations, slots.data()});
      by.rotate(
          run, window, [&](int group) { return last[size(run.at.group + group)]; },
          [&](int i) -> Real<T>& { return of_row[i]; });
    }
    const int first = (window - 1) * scalar::RotationWindow::kHalf;
    for (int r = 0; r < k; ++r) {
      std::vector<std::complex<double>> sums(size(kColumns));
      for (int i = 0; i < kColumns; ++i) {
        const int column = first + i;
        if (column < 0 || column >= k) continue;
        for (int c = 0; c < kColumns; ++c) {
          sums[size(c)] += number(x[size(r * pitch + column)]) * static_cast<double>(w[size(i * kColumns + c)].re.v);
        }
      }
      for (int c = std::max(0, -first); c < kColumns && first + c < k; ++c) {
        x[size(r * pitch + first + c)] = element<E>(sums[size(c)]);
      }
    }
  }
};

}  // namespace svdserve::numerics
#endif  // SVDSERVE_TESTS_SUPPORT_NUMERICS_VECTOR_ROWS_ON_FIBERS_H_
