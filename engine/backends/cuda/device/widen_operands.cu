#include "engine/backends/cuda/device/widen_operands.h"

#include "engine/backends/cuda/device/launch_context.h"
#include "engine/core/widen.h"

namespace svdserve::cuda {
namespace {

// A thread converts kEach numbers, which are kThreads apart. Neighbours read and write together.
constexpr int kThreads = 256, kEach = 4;

template <class Widen>
__global__ void __launch_bounds__(kThreads)
    widen_kernel(const uint16_t* __restrict__ from, int64_t numbers, Widen widen, float* __restrict__ to) {
  const int64_t first = static_cast<int64_t>(blockIdx.x) * kThreads * kEach + threadIdx.x;
#pragma unroll
  for (int i = 0; i < kEach; ++i) {
    const int64_t at = first + i * kThreads;
    if (at < numbers) to[at] = widen(from[at]);
  }
}

template <class Widen>
void enqueue(Launch* launch, const void* from, int64_t numbers, Widen widen, float* to) {
  launch->operator()<widen_kernel<Widen>>(dim3(blocks_for(numbers, kThreads * kEach)), dim3(kThreads), 0,
                                          static_cast<const uint16_t*>(from), numbers, widen, to);
}

}  // namespace

uint64_t widened_bytes(const Plan& plan, int64_t count) {
  if (!is_narrow(plan.problem)) return 0;
  Carver carver(nullptr);
  carver.take<char>(count * static_cast<int64_t>(matrix_bytes(plan.problem)));
  return carver.used();
}

cudaError_t widen_operands(const Plan& plan, DeviceBatch* batch, int device, cudaStream_t stream) {
  const Problem& p = plan.problem;
  const int64_t numbers = batch->count * static_cast<int64_t>(matrix_bytes(p) / sizeof(float));
  const void* const from = batch->matrices;
  auto* const to = static_cast<float*>(batch->workspace);
  Launch launch{device, stream};
  switch (p.storage) {
    case Storage::kNative:
      return cudaSuccess;
    case Storage::kF16:
      enqueue(&launch, from, numbers, WidenF16(), to);
      break;
    case Storage::kBF16:
      enqueue(&launch, from, numbers, WidenBF16(), to);
      break;
    case Storage::kI16:
      enqueue(&launch, from, numbers, WidenI16(p.exponent), to);
      break;
  }
  batch->matrices = to;
  batch->workspace = static_cast<char*>(batch->workspace) + widened_bytes(plan, batch->count);
  return launch.error;
}

}  // namespace svdserve::cuda
