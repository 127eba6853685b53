// C := Q C for the reflectors of a reduction of one matrix of moderate order, on the calling thread.
//
//   Q = H_0 H_1 .., H_j = I - tau_j v_j v_j^H, v_j zero above element j, which is one
//   a panel of 16 or 32: I - V T V^H (LAPACK's ?larft);   W := V^H C,  W := T W,  C := C - V W, from the last panel on
//
// V of a panel is written out with its zeros and ones, so there are three products. LAPACK's ?larfb has two with the part
// below the ones and three with triangles, and copies rows of C to and fro.
// Cost: 2 multiplications and additions for each element of V and column of C; four times as many of complex ones.
// Source: Schreiber and Van Loan, SIAM J. Sci. Stat. Comput. 10 (1989) 53-57.
#ifndef SVDSERVE_ENGINE_BACKENDS_HOST_FORMS_REFLECTOR_PRODUCT_H_
#define SVDSERVE_ENGINE_BACKENDS_HOST_FORMS_REFLECTOR_PRODUCT_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "engine/backends/host/base/aligned_array.h"
#include "engine/backends/host/dense/blas.h"

namespace svdserve::host {

// Keeps memory between calls. Thread safety: none. The caller holds a BlasThreads. E: float, double or std::complex of them.
template <class E>
class ReflectorProduct {
 public:
  // Q of `count` reflectors with `rows` elements each, count <= rows. tau: count. c: rows x cols. element(i, j): element i of
  // v_j, i > j. Throws std::bad_alloc.
  template <class Element>
  void multiply(int rows, int count, const E* tau, E* c, int64_t ldc, int cols, Element element) {
    const int most = panel_of(count);
    for (int panel = (count + most - 1) / most - 1; panel >= 0; --panel) {
      const int first = panel * most, width = std::min(most, count - first), height = rows - first;
      v_.reserve(static_cast<size_t>(height) * kMostPanel);
      for (int j = 0; j < width; ++j) {
        E* const column = v_.data() + static_cast<ptrdiff_t>(j) * height;
        std::fill_n(column, j, E(0));
        column[j] = E(1);
        for (int i = j + 1; i < height; ++i) column[i] = element(first + i, first + j);
      }
      multiply_panel(height, width, tau + first, c + first, ldc, cols);
    }
  }

 private:
  // Reflectors of a panel, of so many in all. By 32 U, S and V of f64 and c128 with k = 100 and 128
  // took 1.05 to 1.1 times as long, and of f32 as long. The program is not kept.
  static constexpr int kMostPanel = 32;
  static int panel_of(int count) { return count <= 256 ? kMostPanel / 2 : kMostPanel; }
  // Columns of C at a time: they should stay in a core's own cache from one product to the next.
  static constexpr int kColumns = 128;

  void multiply_panel(int height, int width, const E* tau, E* c, int64_t ldc, int cols) {
    w_.reserve(2 * kMostPanel * kColumns);
    t_.reserve(kMostPanel * kMostPanel);
    E *const v = v_.data(), *const w = w_.data(), *const tw = w + kMostPanel * kColumns, *const t = t_.data();
    std::fill_n(t, kMostPanel * kMostPanel, E(0));
    blas::larft(height, width, v, height, tau, t, kMostPanel);
    for (int first = 0; first < cols; first += kColumns, c += kColumns * ldc) {
      const int count = std::min(kColumns, cols - first);
      blas::gemm(true, false, width, count, height, 1, v, height, c, ldc, 0, w, width);
      blas::gemm(false, false, width, count, width, 1, t, kMostPanel, w, width, 0, tw, width);
      blas::gemm(false, false, height, count, width, -1, v, height, tw, width, 1, c, ldc);
    }
  }

  AlignedArray<E> v_, w_, t_;
};

}  // namespace svdserve::host
#endif  // SVDSERVE_ENGINE_BACKENDS_HOST_FORMS_REFLECTOR_PRODUCT_H_
