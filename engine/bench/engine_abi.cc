// The engine as one C function, so that against_numpy.py can time it in NumPy's own process.
#include "engine/svd_engine.h"

// dtype 0..3: f32 f64 c64 c128; method as svdserve::Method; count row-major matrices of rows x cols.
// Returns 0, or 1 for a bad plan or a matrix that is not OK.
extern "C" __attribute__((visibility("default"))) int svdserve_bench_values(int dtype, int method, int64_t rows,
                                                                            int64_t cols, int64_t count, int threads,
                                                                            const void* matrices, void* values) {
  static const svdserve::SvdEngine one_thread({1});
  static const svdserve::SvdEngine all_threads;
  const svdserve::Problem problem{rows, cols, static_cast<svdserve::DType>(dtype), svdserve::Order::kRowMajor};
  const auto plan = svdserve::make_plan(problem, {static_cast<svdserve::Method>(method), 0, 0}).plan;
  if (!plan) return 1;
  const svdserve::HostSegment batch{matrices, count, values, nullptr};
  const auto outcome = (threads == 1 ? one_thread : all_threads).execute(*plan, {&batch, 1});
  return outcome.completed && outcome.report.ok == count ? 0 : 1;
}
