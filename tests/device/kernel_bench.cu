// Kernels on matrices that are on the GPU already, against cuSOLVER's gesvdjBatched without vectors (default tolerance)
// on the same data. Beside them are this service's BISECTION at delta 1e-9, and the memory ceiling. That is a
// device-to-device copy measured in the same run, and the bytes that a matrix and its values must move.
//   device_kernel_bench [MxN|all [quick]]     a table as CSV; M/s: million matrices a second. quick: without the peer
// Random normal matrices, column-major; CUDA events; warm; best of 5, each of several launches over rotating inputs.
#include <cusolverDn.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "engine/cuda_engine.h"
#include "tests/device/device_bench.h"

namespace svdserve {
namespace {

using namespace device_bench;  // NOLINT: what benches share

struct Buffers {
  void* a;
  void* values;
  uint8_t* statuses;
  uint64_t* counts;
  void* workspace;
};

double engine_rate(const CudaEngine& engine, const Problem& problem, const Options& options, int64_t count,
                   const void* a) {
  const Plan plan = *make_plan(problem, options).plan;
  const size_t workspace = engine.workspace_bytes(plan, count);
  Buffers b{const_cast<void*>(a), device_memory(count * values_bytes(problem)),
            static_cast<uint8_t*>(device_memory(count)),
            static_cast<uint64_t*>(device_memory(kMatrixStatuses * sizeof(uint64_t))), device_memory(workspace + 256)};
  check(cudaMemset(b.counts, 0, kMatrixStatuses * sizeof(uint64_t)), "memset");
  const double s = best_seconds(4, [&] {
    const CudaStatus status = engine.launch(plan, {b.a, count, b.values, b.statuses, b.counts, b.workspace}, nullptr);
    if (!status.ok()) {
      std::fprintf(stderr, "%s\n", status.text.c_str());
      std::exit(1);
    }
  });
  cudaFree(b.values);
  cudaFree(b.statuses);
  cudaFree(b.counts);
  cudaFree(b.workspace);
  return static_cast<double>(count) / s;
}

template <class F>
double cusolver_rate(int n, int64_t count, const void* a, size_t bytes, size_t real_bytes, F gesvdj) {
  cusolverDnHandle_t handle;
  gesvdjInfo_t parameters;
  cusolverDnCreate(&handle);
  cusolverDnCreateGesvdjInfo(&parameters);
  void* const copy = device_memory(bytes);
  void* const s = device_memory(count * n * real_bytes);
  int* const info = static_cast<int*>(device_memory(count * sizeof(int)));
  // It overwrites its input: each call computes what the one before left, so the input is restored outside the time.
  double best = 1e30;
  cudaEvent_t begin, end;
  cudaEventCreate(&begin);
  cudaEventCreate(&end);
  for (int round = 0; round < 4; ++round) {
    check(cudaMemcpy(copy, a, bytes, cudaMemcpyDeviceToDevice), "copy");
    cudaEventRecord(begin);
    gesvdj(handle, parameters, copy, s, info);
    cudaEventRecord(end);
    check(cudaEventSynchronize(end), "gesvdjBatched");
    float ms = 0;
    cudaEventElapsedTime(&ms, begin, end);
    if (round > 0) best = std::min(best, ms * 1e-3);
  }
  cudaFree(copy);
  cudaFree(s);
  cudaFree(info);
  cusolverDnDestroyGesvdjInfo(parameters);
  cusolverDnDestroy(handle);
  return static_cast<double>(count) / best;
}

template <class Pointer, class Size, class Run>
double peer_rate_of(int n, int64_t count, const void* a, size_t element, size_t real, Size size, Run run) {
  return cusolver_rate(n, count, a, count * n * n * element, real,
                       [&](cusolverDnHandle_t h, gesvdjInfo_t p, void* copy, void* s, int* info) {
                         auto* const x = static_cast<Pointer>(copy);
                         int work = 0;
                         size(h, n, x, s, count, p, &work);
                         static void* space = nullptr;
                         static size_t have = 0;
                         if (work * element > have) {
                           cudaFree(space);
                           space = device_memory(have = work * element);
                         }
                         run(h, n, x, s, static_cast<Pointer>(space), work, info, p, count);
                       });
}

double peer_rate(DType t, int n, int64_t count, const void* a) {
  constexpr auto kNone = CUSOLVER_EIG_MODE_NOVECTOR;
#define SVD_PEER(Type, Real, call)                                                                                  \
  return peer_rate_of<Type*>(                                                                                       \
      n, count, a, sizeof(Type), sizeof(Real),                                                                      \
      [&](auto h, int k, Type* x, void* s, int64_t c, auto p, int* work) {                                          \
        cusolverDn##call##_bufferSize(h, kNone, k, k, x, k, static_cast<Real*>(s), nullptr, k, nullptr, k, work, p, \
                                      static_cast<int>(c));                                                         \
      },                                                                                                            \
      [&](auto h, int k, Type* x, void* s, Type* space, int work, int* info, auto p, int64_t c) {                   \
        cusolverDn##call(h, kNone, k, k, x, k, static_cast<Real*>(s), nullptr, k, nullptr, k, space, work, info, p, \
                         static_cast<int>(c));                                                                      \
      })
  switch (t) {
    case DType::kF32:
      SVD_PEER(float, float, SgesvdjBatched);
    case DType::kF64:
      SVD_PEER(double, double, DgesvdjBatched);
    case DType::kC64:
      SVD_PEER(cuComplex, float, CgesvdjBatched);
    case DType::kC128:
      SVD_PEER(cuDoubleComplex, double, ZgesvdjBatched);
  }
#undef SVD_PEER
  return 0;
}

const Shapes kUsualShapes = {{1, 1},   {2, 2},   {3, 3},   {4, 4},    {5, 5},    {6, 6},    {7, 7},   {8, 8},
                             {12, 12}, {16, 16}, {24, 24}, {32, 32},  {48, 48},  {64, 64},  {96, 96}, {128, 128},
                             {64, 4},  {4, 64},  {16, 8},  {1024, 8}, {64, 128}, {128, 256}};

int main_of(int argc, char** argv) {
  const std::string only = argc > 1 ? argv[1] : "";
  const bool quick = argc > 2;  // no peers
  const Shapes shapes = shapes_of(only, kUsualShapes);
  if (shapes.empty()) {
    std::fprintf(stderr, "usage: device_kernel_bench [MxN,..|all [quick]], for example 96x96,64x128\n");
    return 2;
  }
  CudaStatus status;
  const auto engine = CudaEngine::open({}, &status);
  if (engine == nullptr) {
    std::fprintf(stderr, "no GPU: %s\n", status.text.c_str());
    return 2;
  }
  const double copy = copy_rate();
  std::printf("# %s, copy %.2f TB/s read and written\n", engine->description().name.c_str(), copy * 1e-12);
  std::printf(
      "shape,dtype,matrices,auto M/s,jacobi M/s,bisection 1e-9 M/s,gesvdjBatched M/s,auto/gesvdj,ceiling M/s,of "
      "ceiling\n");
  for (const auto& [m, n] : shapes) {
    const std::string label = std::to_string(m) + "x" + std::to_string(n);
    for (const DType t : {DType::kF32, DType::kF64, DType::kC64, DType::kC128}) {
      const Problem problem{m, n, t, Order::kColumnMajor};
      const int64_t count =
          std::min<int64_t>((int64_t{512} << 20) / static_cast<int64_t>(matrix_bytes(problem)), 4'000'000);
      const size_t bytes = count * matrix_bytes(problem);
      void* const a = normal_on_device(value_bytes(t) == 4, bytes);
      const double ours = engine_rate(*engine, problem, {}, count, a);
      const double jacobi = engine_rate(*engine, problem, {.method = Method::kJacobi}, count, a);
      const int64_t fewer = std::min<int64_t>(count, 1'000'000);
      const double bisection =
          std::min(m, n) <= kLargestReproducible
              ? engine_rate(*engine, problem, {.method = Method::kBisection, .tolerance = 1e-9}, fewer, a)
              : 0;
      const double peer =
          !quick && m == n && n > 1 && n <= 32 ? peer_rate(t, n, std::min<int64_t>(count, 200'000), a) : 0;
      const double ceiling = copy / static_cast<double>(matrix_bytes(problem) + values_bytes(problem));
      std::printf("%s,%s,%ld,%.3f,%.3f,%.1f,%.3f,%.1f,%.0f,%.3f\n", label.c_str(), name(t), count, ours * 1e-6,
                  jacobi * 1e-6, bisection * 1e-6, peer * 1e-6, peer > 0 ? ours / peer : 0, ceiling * 1e-6,
                  ours / ceiling);
      std::fflush(stdout);
      cudaFree(a);
    }
  }
  return 0;
}

}  // namespace
}  // namespace svdserve

int main(int argc, char** argv) { return svdserve::main_of(argc, argv); }
