// The engine as C functions, so that against_numpy.py can time it in NumPy's own process.
#include "engine/svd_engine.h"

namespace {

int execute(const svdserve::Problem& problem, const svdserve::Options& options, int64_t count, int threads,
            const void* matrices, const svdserve::PlanePointers& planes) {
  static const svdserve::SvdEngine one_thread({1});
  static const svdserve::SvdEngine all_threads;
  const auto plan = svdserve::make_plan(problem, options).plan;
  if (!plan) return 1;
  const svdserve::HostSegment batch{matrices, count, planes, nullptr};
  const auto outcome = (threads == 1 ? one_thread : all_threads).execute(*plan, {&batch, 1});
  return outcome.completed && outcome.report.ok == count ? 0 : 1;
}

}  // namespace

// dtype 0..3: f32 f64 c64 c128; method as svdserve::Method; count row-major matrices of rows x cols.
// Returns 0, or 1 for a bad plan or a matrix that is not OK.
extern "C" __attribute__((visibility("default"))) int svdserve_bench_values(int dtype, int method, int64_t rows,
                                                                            int64_t cols, int64_t count, int threads,
                                                                            const void* matrices, void* values) {
  return execute({rows, cols, static_cast<svdserve::DType>(dtype), svdserve::Order::kRowMajor},
                 {.method = static_cast<svdserve::Method>(method)}, count, threads, matrices, values);
}

// The same with thin vectors: left rows x k, right k x cols (V^H), row-major.
extern "C" __attribute__((visibility("default"))) int svdserve_bench_svd(int dtype, int64_t rows, int64_t cols,
                                                                         int64_t count, int threads,
                                                                         const void* matrices, void* values, void* left,
                                                                         void* right) {
  svdserve::PlanePointers planes(values);
  planes[svdserve::Plane::kLeft] = left;
  planes[svdserve::Plane::kRight] = right;
  return execute({rows, cols, static_cast<svdserve::DType>(dtype), svdserve::Order::kRowMajor},
                 {.vectors = svdserve::Vectors::kThin}, count, threads, matrices, planes);
}

// Eigenvalues and eigenvectors, n x n with vectors as columns, row-major. is_general == 0: the matrices are Hermitian,
// and eigenvalues ascend. Otherwise both are complex, in no order.
extern "C" __attribute__((visibility("default"))) int svdserve_bench_eigen(int dtype, int is_general, int64_t n,
                                                                           int64_t count, int threads,
                                                                           const void* matrices, void* values,
                                                                           void* vectors) {
  svdserve::PlanePointers planes(values);
  planes[svdserve::Plane::kLeft] = vectors;
  const auto decomposition = is_general != 0 ? svdserve::Decomposition::kGeneral : svdserve::Decomposition::kHermitian;
  return execute({n, n, static_cast<svdserve::DType>(dtype), svdserve::Order::kRowMajor},
                 {.decomposition = decomposition, .vectors = svdserve::Vectors::kThin}, count, threads, matrices,
                 planes);
}
