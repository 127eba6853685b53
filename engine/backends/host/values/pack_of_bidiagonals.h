// Values of bidiagonal matrices, a matrix a lane (bidiagonal_values.h).
#if defined(SVDSERVE_ENGINE_BACKENDS_HOST_VALUES_PACK_OF_BIDIAGONALS_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef SVDSERVE_ENGINE_BACKENDS_HOST_VALUES_PACK_OF_BIDIAGONALS_H_
#undef SVDSERVE_ENGINE_BACKENDS_HOST_VALUES_PACK_OF_BIDIAGONALS_H_
#else
#define SVDSERVE_ENGINE_BACKENDS_HOST_VALUES_PACK_OF_BIDIAGONALS_H_
#endif

#include <algorithm>
#include <functional>

#include "engine/algorithms/lanes/matrix_values.h"
#include "engine/backends/host/values/bidiagonal_values.h"

SVD_KERNEL_BEGIN

// q and e of the lanes, which are at least `count` matrices. Lanes beyond the last matrix repeat it.
template <class Lane, class T>
SVD_HD void load_bidiagonals(const host::Bidiagonals<T>& b, Lane* q, Lane* e) {
  double d_of[Lane::kLanes], e_of[Lane::kLanes];
  for (int i = 0; i < b.n; ++i) {
    for (int l = 0; l < Lane::kLanes; ++l) {
      const int at = std::min(l, b.count - 1) * b.n + i;
      d_of[l] = b.d[at];
      e_of[l] = i + 1 < b.n ? b.e[at] : 0;
    }
    const Lane x = Lane::load(d_of), y = Lane::load(e_of);
    q[i] = x * x;
    e[i] = y * y;
  }
}

// b.count <= kLanes.
template <class Lane, class T>
SVD_HD_CALLED void find_values_of_pack(const host::Bidiagonals<T>& b, double* scratch) {
  Lane* const q = reinterpret_cast<Lane*>(scratch);
  Lane *const e = q + b.n, *const backup = e + b.n, *const kept = backup + 2 * b.n;
  load_bidiagonals(b, q, e);
  bidiagonal_values(RuntimeSize{b.n}, q, e, backup, kept, q);
  for (int i = 0; i < b.n; ++i) {
    double values[Lane::kLanes];
    q[i].store(values);
    for (int l = 0; l < b.count; ++l) b.s[l * b.n + i] = static_cast<T>(values[l]);
  }
  for (int m = 0; m < b.count; ++m) std::sort(b.s + m * b.n, b.s + (m + 1) * b.n, std::greater<>());
}

template <class Lane, class T>
void find_values(const host::Bidiagonals<T>& b, double* scratch) {
  static_assert(Lane::kLanes <= host::kMostBidiagonals);
  for (int m = 0; m < b.count; m += Lane::kLanes) {
    const int at = m * b.n;
    find_values_of_pack<Lane>(
        host::Bidiagonals<T>{b.n, std::min(Lane::kLanes, b.count - m), b.d + at, b.e + at, b.s + at}, scratch);
  }
}

SVD_KERNEL_END

#endif
