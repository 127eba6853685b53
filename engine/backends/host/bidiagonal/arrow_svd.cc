#include "engine/backends/host/bidiagonal/arrow_svd.h"

#include "engine/backends/host/base/simd_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "engine/backends/host/bidiagonal/arrow_svd.cc"
#include <cmath>

#include "hwy/foreach_target.h"
#include "hwy/highway.h"

#include "engine/algorithms/lanes/bidiagonal_merge.h"

HWY_BEFORE_NAMESPACE();
namespace svdserve::HWY_NAMESPACE {
namespace {

static_assert(host::kArrowPadding >= NarrowLane<double>::kLanes);

template <class T>
void scale_columns(int rows, int cols, int ld, const double* from, const double* by, T* to) {
  for (int i = 0; i < rows; ++i) {
    for (int j = 0; j < cols; ++j) to[j] = static_cast<T>(from[j] * by[j]);
    from += ld;
    to += ld;
  }
}

template <class T>
void decompose(const host::ArrowSvd<T>& m) {
  using Lane = NarrowLane<double>;
  const int k = m.count, ld = host::arrow_ld(k), size = k + host::kArrowPadding;
  const ArrowMatrix a{m.d, m.z, k};
  const ArrowRoots roots{m.scratch, m.scratch + size};
  double *const weights = m.scratch + 2 * size, *const u_scale = weights + size, *const v_scale = u_scale + size;
  for (int j = 0; j < k; j += Lane::kLanes) secular_roots<Lane>(a, j, roots);
  for (int i = 0; i < k; i += Lane::kLanes) secular_weights<Lane>(a, roots, i, weights);
  for (int j = 0; j < k; j += Lane::kLanes) {
    secular_vectors<Lane>(a, roots, weights, m.place, j, ld, m.wide_u, m.wide_v, u_scale, v_scale);
  }
  scale_columns(k, k, ld, m.wide_u, u_scale, m.u);
  scale_columns(k, k, ld, m.wide_v, v_scale, m.v);
  for (int j = 0; j < k; ++j) {
    const double o = roots.origin[j], x = roots.x[j];
    m.s[j] = o + x / (o + std::sqrt(o * o + x));
  }
}

}  // namespace

void decompose_float(const host::ArrowSvd<float>& m) { decompose(m); }
void decompose_double(const host::ArrowSvd<double>& m) { decompose(m); }

}  // namespace svdserve::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace svdserve {
HWY_EXPORT(decompose_float);
HWY_EXPORT(decompose_double);
namespace host {
void decompose_arrow(const ArrowSvd<float>& m) { HWY_DYNAMIC_DISPATCH(decompose_float)(m); }
void decompose_arrow(const ArrowSvd<double>& m) { HWY_DYNAMIC_DISPATCH(decompose_double)(m); }
}  // namespace host
}  // namespace svdserve
#endif
