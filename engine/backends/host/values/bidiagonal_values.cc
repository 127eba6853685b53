#include "engine/backends/host/values/bidiagonal_values.h"

#include "engine/backends/host/base/simd_targets.h"
#include "engine/backends/host/values/lone_bidiagonals.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "engine/backends/host/values/bidiagonal_values.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"

#include "engine/backends/host/values/pack_of_bidiagonals.h"

HWY_BEFORE_NAMESPACE();
namespace svdserve::HWY_NAMESPACE {
void values_of_float(const host::Bidiagonals<float>& b, double* scratch) {
  find_values<NarrowLane<double>>(b, scratch);
}
void values_of_double(const host::Bidiagonals<double>& b, double* scratch) {
  find_values<NarrowLane<double>>(b, scratch);
}
}  // namespace svdserve::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace svdserve {
HWY_EXPORT(values_of_float);
HWY_EXPORT(values_of_double);
namespace host {
void find_values(const Bidiagonals<float>& b, double* scratch) {
  b.count <= kMostLone ? find_lone_values(b, scratch) : HWY_DYNAMIC_DISPATCH(values_of_float)(b, scratch);
}
void find_values(const Bidiagonals<double>& b, double* scratch) {
  b.count <= kMostLone ? find_lone_values(b, scratch) : HWY_DYNAMIC_DISPATCH(values_of_double)(b, scratch);
}
}  // namespace host
}  // namespace svdserve
#endif
