#include "engine/backends/host/merges/merged_matrix.h"

#include "engine/backends/host/base/simd_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "engine/backends/host/merges/merged_matrix.cc"
#include <cmath>

#include "hwy/foreach_target.h"
#include "hwy/highway.h"

#include "engine/algorithms/lanes/secular_equation.h"

HWY_BEFORE_NAMESPACE();
namespace svdserve::HWY_NAMESPACE {
namespace {

using host::MergedMatrix;
using host::MergedVectors;
using Lane = NarrowLane<double>;
static_assert(host::kMergePadding >= Lane::kLanes && host::kMergePadding % Lane::kLanes == 0);

double root_of(SquaredPoles, double o, double x) { return o + x / (o + std::sqrt(o * o + x)); }
double root_of(PlainPoles, double o, double x) { return o + x; }

template <class Poles>
SecularEquation<Poles> equation_of(const MergedMatrix& m) {
  return {m.d, m.z, m.count};
}
// The arrays of its scratch.
double* array(const MergedMatrix& m, int number) { return m.scratch + number * (m.count + host::kMergePadding); }
SecularRoots roots_of(const MergedMatrix& m) { return {array(m, 0), array(m, 1)}; }
double* weights_of(const MergedMatrix& m) { return array(m, 2); }

template <class Poles>
void find_roots(const MergedMatrix& m, int first, int last) {
  const SecularRoots roots = roots_of(m);
  for (int j = first; j < last; j += Lane::kLanes) secular_roots<Lane>(equation_of<Poles>(m), j, roots);
  for (int j = first; j < last; ++j) m.s[j] = root_of(Poles(), roots.origin[j], roots.x[j]);
}

template <class Poles>
void find_weights(const MergedMatrix& m, int first, int last) {
  for (int i = first; i < last; i += Lane::kLanes) {
    secular_weights<Lane>(equation_of<Poles>(m), roots_of(m), i, weights_of(m));
  }
}

template <class T>
void scale_columns(int rows, int columns, const double* from, const double* by, T* to) {
  const int ld = host::merge_ld(columns);
  for (int i = 0; i < rows; ++i) {
    for (int j = 0; j < columns; ++j) to[j] = static_cast<T>(from[j] * by[j]);
    from += ld;
    to += ld;
  }
}

template <class Poles, class T>
void find_vectors(const MergedMatrix& m, int first, int last, const MergedVectors<T>& to) {
  const int columns = last - first;
  const SecularVectors wide{m.place, host::merge_ld(columns), first, to.wide_u, to.wide_v, array(m, 3), array(m, 4)};
  for (int j = first; j < last; j += Lane::kLanes) {
    secular_vectors<Lane>(equation_of<Poles>(m), roots_of(m), weights_of(m), j, wide);
  }
  scale_columns(m.count, columns, wide.v, wide.v_scale + first, to.v);
  if (to.u != nullptr) scale_columns(m.count, columns, wide.u, wide.u_scale + first, to.u);
}

template <class T>
void decompose(const MergedMatrix& m, const MergedVectors<T>& to) {
  find_roots<SquaredPoles>(m, 0, m.count);
  find_weights<SquaredPoles>(m, 0, m.count);
  find_vectors<SquaredPoles>(m, 0, m.count, to);
}

}  // namespace

void arrow_float(const MergedMatrix& m, const MergedVectors<float>& to) { decompose(m, to); }
void arrow_double(const MergedMatrix& m, const MergedVectors<double>& to) { decompose(m, to); }
void rank_one_roots(const MergedMatrix& m, int first, int last) { find_roots<PlainPoles>(m, first, last); }
void rank_one_weights(const MergedMatrix& m, int first, int last) { find_weights<PlainPoles>(m, first, last); }
void rank_one_vectors_float(const MergedMatrix& m, int first, int last, const MergedVectors<float>& to) {
  find_vectors<PlainPoles>(m, first, last, to);
}
void rank_one_vectors_double(const MergedMatrix& m, int first, int last, const MergedVectors<double>& to) {
  find_vectors<PlainPoles>(m, first, last, to);
}

}  // namespace svdserve::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace svdserve {
HWY_EXPORT(arrow_float);
HWY_EXPORT(arrow_double);
HWY_EXPORT(rank_one_roots);
HWY_EXPORT(rank_one_weights);
HWY_EXPORT(rank_one_vectors_float);
HWY_EXPORT(rank_one_vectors_double);
namespace host {
void decompose_arrow(const MergedMatrix& m, const MergedVectors<float>& to) {
  HWY_DYNAMIC_DISPATCH(arrow_float)(m, to);
}
void decompose_arrow(const MergedMatrix& m, const MergedVectors<double>& to) {
  HWY_DYNAMIC_DISPATCH(arrow_double)(m, to);
}
void find_roots(const MergedMatrix& m, int first, int last) { HWY_DYNAMIC_DISPATCH(rank_one_roots)(m, first, last); }
void find_weights(const MergedMatrix& m, int first, int last) {
  HWY_DYNAMIC_DISPATCH(rank_one_weights)(m, first, last);
}
void find_vectors(const MergedMatrix& m, int first, int last, const MergedVectors<float>& to) {
  HWY_DYNAMIC_DISPATCH(rank_one_vectors_float)(m, first, last, to);
}
void find_vectors(const MergedMatrix& m, int first, int last, const MergedVectors<double>& to) {
  HWY_DYNAMIC_DISPATCH(rank_one_vectors_double)(m, first, last, to);
}
}  // namespace host
}  // namespace svdserve
#endif
