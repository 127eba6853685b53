#include "engine/backends/host/forms/merged_matrix.h"

#include "engine/backends/host/base/simd_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "engine/backends/host/forms/merged_matrix.cc"
#include <cmath>

#include "hwy/foreach_target.h"
#include "hwy/highway.h"

#include "engine/algorithms/lanes/secular_equation.h"

HWY_BEFORE_NAMESPACE();
namespace svdserve::HWY_NAMESPACE {
namespace {

static_assert(host::kMergePadding >= NarrowLane<double>::kLanes);

template <class T>
void scale_columns(int count, int ld, const double* from, const double* by, T* to) {
  for (int i = 0; i < count; ++i) {
    for (int j = 0; j < count; ++j) to[j] = static_cast<T>(from[j] * by[j]);
    from += ld;
    to += ld;
  }
}

double root_of(SquaredPoles, double o, double x) { return o + x / (o + std::sqrt(o * o + x)); }
double root_of(PlainPoles, double o, double x) { return o + x; }

template <class Poles, class T>
void decompose(const host::MergedMatrix<T>& m) {
  using Lane = NarrowLane<double>;
  const int k = m.count, size = k + host::kMergePadding;
  const SecularEquation<Poles> equation{m.d, m.z, k};
  const SecularRoots roots{m.scratch, m.scratch + size};
  double* const weights = m.scratch + 2 * size;
  const SecularVectors to{m.place, host::merge_ld(k), m.wide_u, m.wide_v, weights + size, weights + 2 * size};
  for (int j = 0; j < k; j += Lane::kLanes) secular_roots<Lane>(equation, j, roots);
  for (int i = 0; i < k; i += Lane::kLanes) secular_weights<Lane>(equation, roots, i, weights);
  for (int j = 0; j < k; j += Lane::kLanes) secular_vectors<Lane>(equation, roots, weights, j, to);
  scale_columns(k, to.ld, to.v, to.v_scale, m.v);
  if (m.u != nullptr) scale_columns(k, to.ld, to.u, to.u_scale, m.u);
  for (int j = 0; j < k; ++j) m.s[j] = root_of(Poles(), roots.origin[j], roots.x[j]);
}

}  // namespace

void arrow_float(const host::MergedMatrix<float>& m) { decompose<SquaredPoles>(m); }
void arrow_double(const host::MergedMatrix<double>& m) { decompose<SquaredPoles>(m); }
void rank_one_float(const host::MergedMatrix<float>& m) { decompose<PlainPoles>(m); }
void rank_one_double(const host::MergedMatrix<double>& m) { decompose<PlainPoles>(m); }

}  // namespace svdserve::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace svdserve {
HWY_EXPORT(arrow_float);
HWY_EXPORT(arrow_double);
HWY_EXPORT(rank_one_float);
HWY_EXPORT(rank_one_double);
namespace host {
void decompose_arrow(const MergedMatrix<float>& m) { HWY_DYNAMIC_DISPATCH(arrow_float)(m); }
void decompose_arrow(const MergedMatrix<double>& m) { HWY_DYNAMIC_DISPATCH(arrow_double)(m); }
void decompose_rank_one(const MergedMatrix<float>& m) { HWY_DYNAMIC_DISPATCH(rank_one_float)(m); }
void decompose_rank_one(const MergedMatrix<double>& m) { HWY_DYNAMIC_DISPATCH(rank_one_double)(m); }
}  // namespace host
}  // namespace svdserve
#endif
