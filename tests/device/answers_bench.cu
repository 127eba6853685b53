// MIMO answers of matrices in device memory beside the singular values alone: matrices a second, by events, best of 5.
//   device_answers_bench
#include <cstdio>
#include <string>
#include <utility>
#include <vector>

#include "engine/cuda_engine.h"
#include "tests/device/device_bench.h"

namespace svdserve {
namespace {

using namespace device_bench;

// Matrices a second; the outputs go where there is room.
double rate(const CudaEngine& engine, const Problem& problem, const Options& options, int64_t count, const void* a) {
  const Plan plan = *make_plan(problem, options).plan;
  DeviceBatch batch{a, count, {}, nullptr, nullptr, device_memory(engine.workspace_bytes(plan, count))};
  batch.exception_counts = static_cast<uint64_t*>(device_memory(kMatrixStatuses * sizeof(uint64_t)));
  check(cudaMemset(batch.exception_counts, 0, kMatrixStatuses * sizeof(uint64_t)), "memset");
  for (int p = 0; p < kPlanes; ++p) {
    const size_t bytes = plane_bytes(plan, static_cast<Plane>(p), count);
    if (bytes > 0) batch.planes[static_cast<Plane>(p)] = device_memory(bytes);
  }
  const double seconds = best_seconds(10, [&] {
    if (!engine.launch(plan, batch, nullptr).ok()) std::exit(1);
  });
  for (void* const plane : batch.planes.at) cudaFree(plane);
  cudaFree(batch.exception_counts);
  cudaFree(batch.workspace);
  return static_cast<double>(count) / seconds;
}

int main_of() {
  CudaStatus status;
  const auto engine = CudaEngine::open({}, &status);
  if (engine == nullptr) {
    std::fprintf(stderr, "no GPU: %s\n", status.text.c_str());
    return 2;
  }
  std::vector<double> ten;
  for (int i = 0; i < 10; ++i) ten.push_back(-5 + 4 * i);
  const std::pair<const char*, Options> wants[] = {
      {"values", {}},
      {"vectors", {.vectors = Vectors::kThin}},
      {"capacity and gradient", {.values = false, .mimo = {.capacity = true, .gradient = true, .snr_db = {10}}}},
      {"capacity at 1", {.values = false, .mimo = {.capacity = true, .snr_db = {10}}}},
      {"capacity at 10", {.values = false, .mimo = {.capacity = true, .snr_db = ten}}},
      {"water-filling at 1", {.values = false, .mimo = {.water_filling = true, .snr_db = {10}}}},
      {"water-filling at 10", {.values = false, .mimo = {.water_filling = true, .snr_db = ten}}},
      {"effective rank", {.values = false, .mimo = {.effective_rank = true}}},
      {"capacity at 10 of 100", {.values = false, .mimo = {.capacity = true, .snr_db = ten, .group = 100}}},
      {"water-filling at 10 of 100", {.values = false, .mimo = {.water_filling = true, .snr_db = ten, .group = 100}}}};
  std::printf("# %s, M/s\nshape,dtype", engine->description().name.c_str());
  for (const auto& want : wants) std::printf(",%s", want.first);
  std::printf("\n");
  for (const DType dtype : {DType::kC64, DType::kC128}) {
    for (const int n : {2, 4, 8, 16}) {
      const Problem problem{n, n, dtype, Order::kColumnMajor};
      const int64_t count = 16'000'000 / (n * n) / 100 * 100;
      void* const a = normal_on_device(value_bytes(dtype) == 4, static_cast<size_t>(count) * matrix_bytes(problem));
      std::printf("%dx%d,%s", n, n, name(dtype));
      for (const auto& want : wants) std::printf(",%.1f", rate(*engine, problem, want.second, count, a) * 1e-6);
      std::printf("\n");
      cudaFree(a);
    }
  }
  return 0;
}

}  // namespace
}  // namespace svdserve

int main() { return svdserve::main_of(); }
