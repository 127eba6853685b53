// The engine on matrices that are on a GPU already: singular values of a million 4 x 4 channel matrices, on a stream.
//   nvcc -std=c++20 cuda_example.cu, linked to svdserve::engine and the CUDA runtime
// The engine itself has no symbol of CUDA: it opens its plugin, libsvdserve_cuda.so, when the first engine is asked
// for.
#include <cuda_runtime.h>

#include <cstdint>
#include <cstdio>
#include <vector>

#include "engine/cuda_engine.h"

namespace {

constexpr int64_t kCount = 1000000;

// Any deterministic numbers. count x 16, each in [-1, 1).
__global__ void fill(float* a, int64_t numbers) {
  const int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i < numbers) a[i] = static_cast<float>(static_cast<uint32_t>(i) * 2654435761u) * 0x1p-31f - 1.0f;
}

bool ok(cudaError_t error, const char* what) {
  if (error == cudaSuccess) return true;
  std::fprintf(stderr, "%s: %s\n", what, cudaGetErrorString(error));
  return false;
}

// Waits for the stream, and prints what is in device memory then. Whether every matrix is OK.
bool print_results(const svdserve::CudaEngine& engine, const svdserve::Plan& plan, const float* values,
                   const uint64_t* exception_counts, cudaStream_t stream) {
  const int64_t k = svdserve::values_per_matrix(plan.problem);
  uint64_t counts[svdserve::kMatrixStatuses];
  std::vector<float> first(static_cast<size_t>(3 * k));
  cudaMemcpyAsync(counts, exception_counts, sizeof(counts), cudaMemcpyDeviceToHost, stream);
  cudaMemcpyAsync(first.data(), values, first.size() * sizeof(float), cudaMemcpyDeviceToHost, stream);
  // An error of a kernel shows here.
  if (!ok(cudaStreamSynchronize(stream), "computing")) return false;

  std::printf("%s, %s\n", engine.description().name.c_str(), name(plan.method));
  for (int64_t m = 0; m < 3; ++m) {
    const float* const s = first.data() + m * k;
    std::printf("matrix %lld: %.9g %.9g %.9g %.9g\n", static_cast<long long>(m), s[0], s[1], s[2], s[3]);
  }
  const uint64_t exceptions = counts[1] + counts[2] + counts[3];
  std::printf("%lld matrices, %llu of them not OK\n", static_cast<long long>(kCount),
              static_cast<unsigned long long>(exceptions));
  return exceptions == 0;
}

}  // namespace

int main() {
  std::string why_not;
  if (svdserve::cuda_device_count(&why_not) == 0) {
    std::printf("no GPU to run on: %s\n", why_not.c_str());
    return 0;
  }
  svdserve::CudaStatus status;
  const auto engine = svdserve::CudaEngine::open({.ordinal = 0}, &status);
  if (engine == nullptr) {
    std::fprintf(stderr, "%s\n", status.text.c_str());
    return 1;
  }

  const svdserve::Problem problem{4, 4, svdserve::DType::kF32, svdserve::Order::kRowMajor};
  const auto [plan, error] = svdserve::make_plan(problem, svdserve::Options{});
  if (!plan) {
    std::fprintf(stderr, "%s %s\n", error.field.c_str(), error.message.c_str());
    return 1;
  }

  // Everything is the caller's: matrices, values, counts and the workspace, all of it in device memory.
  const int64_t numbers = kCount * problem.rows * problem.cols, k = svdserve::values_per_matrix(problem);
  float *matrices = nullptr, *values = nullptr;
  uint64_t* exception_counts = nullptr;  // by MatrixStatus; the one of kOk is left alone
  void* workspace = nullptr;
  cudaStream_t stream = nullptr;
  if (!ok(cudaSetDevice(0), "choosing the device") ||
      !ok(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "creating a stream") ||
      !ok(cudaMalloc(&matrices, numbers * sizeof(float)), "allocating matrices") ||
      !ok(cudaMalloc(&values, kCount * k * sizeof(float)), "allocating values") ||
      !ok(cudaMalloc(&exception_counts, svdserve::kMatrixStatuses * sizeof(uint64_t)), "allocating counts") ||
      !ok(cudaMalloc(&workspace, engine->workspace_bytes(*plan, kCount) + 1), "allocating the workspace")) {
    return 1;
  }

  // One stream, three steps: nothing waits until the host wants to look.
  fill<<<static_cast<unsigned>((numbers + 255) / 256), 256, 0, stream>>>(matrices, numbers);
  cudaMemsetAsync(exception_counts, 0, svdserve::kMatrixStatuses * sizeof(uint64_t), stream);
  const svdserve::DeviceBatch batch{.matrices = matrices,
                                    .count = kCount,
                                    .planes = values,
                                    .statuses = nullptr,  // the counts are enough
                                    .exception_counts = exception_counts,
                                    .workspace = workspace};
  status = engine->launch(*plan, batch, stream);
  if (!status.ok()) {
    std::fprintf(stderr, "%s\n", status.text.c_str());
    return 1;
  }

  const bool all_ok = print_results(*engine, *plan, values, exception_counts, stream);
  cudaFree(workspace);
  cudaFree(exception_counts);
  cudaFree(values);
  cudaFree(matrices);
  cudaStreamDestroy(stream);
  return all_ok ? 0 : 1;
}
