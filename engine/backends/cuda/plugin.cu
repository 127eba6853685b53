// The plugin's table: thin functions around the CUDA runtime, which is linked statically, and the launchers.
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "engine/backends/cuda/device/pinned_pages.h"
#include "engine/backends/cuda/device/widen_operands.h"
#include "engine/backends/cuda/large/decompose_large.h"
#include "engine/backends/cuda/launch.h"
#include "engine/backends/cuda/members/decompose_ring.h"
#include "engine/backends/cuda_door/plugin_abi.h"

namespace svdserve::cuda {
namespace {

// CUDA remembers the last error of a thread until it is asked for; the caller has it already.
int result(cudaError_t error) {
  if (error != cudaSuccess) (void)cudaGetLastError();
  return static_cast<int>(error);
}

// Makes `device` current and runs f.
template <class F>
int on_device(int32_t device, F f) {
  const cudaError_t error = cudaSetDevice(device);
  return result(error != cudaSuccess ? error : f());
}

int device_count(int32_t* count) {
  int n = 0;
  const cudaError_t error = cudaGetDeviceCount(&n);
  *count = error == cudaSuccess ? n : 0;
  return result(error);
}

int device_info(int32_t device, SvdserveCudaDevice* info) {
  cudaDeviceProp p;
  const cudaError_t error = cudaGetDeviceProperties(&p, device);
  if (error != cudaSuccess) return result(error);
  *info = SvdserveCudaDevice{};
  std::snprintf(info->name, sizeof(info->name), "%s", p.name);
  const auto* u = reinterpret_cast<const unsigned char*>(p.uuid.bytes);
  std::snprintf(info->uuid, sizeof(info->uuid),
                "GPU-%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x", u[0], u[1], u[2], u[3],
                u[4], u[5], u[6], u[7], u[8], u[9], u[10], u[11], u[12], u[13], u[14], u[15]);
  info->memory_bytes = p.totalGlobalMem;
  info->compute_major = p.major;
  info->compute_minor = p.minor;
  info->multiprocessors = p.multiProcessorCount;
  return 0;
}

const char* error_name(int error) { return cudaGetErrorName(static_cast<cudaError_t>(error)); }
const char* error_text(int error) { return cudaGetErrorString(static_cast<cudaError_t>(error)); }

TypeLauncher launcher(DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return f32_launcher();
    case DType::kF64:
      return f64_launcher();
    case DType::kC64:
      return c64_launcher();
    case DType::kC128:
      return c128_launcher();
  }
  return {};
}

uint64_t workspace_bytes(const Plan* plan, int64_t count) {
  return widened_bytes(*plan, count) + launcher(plan->problem.dtype).workspace_bytes(*plan, count);
}

int launch(int32_t device, const Plan* plan, const DeviceBatch* batch, CUstream_st* stream) {
  return on_device(device, [&] {
    DeviceBatch wide = *batch;
    const cudaError_t error = widen_operands(*plan, &wide, device, stream);
    return error != cudaSuccess ? error : launcher(plan->problem.dtype).launch(*plan, wide, device, stream);
  });
}

int allocate(int32_t device, uint64_t bytes, void** memory) {
  return on_device(device, [&] {
    cudaError_t error = cudaMalloc(memory, bytes);
    // Planes copied out as one run have gaps between them: the memset initializes these. It runs on the legacy stream,
    // which the slots' streams do not wait for, and cudaMemset() returns before it is done.
    if (error == cudaSuccess) error = cudaMemset(*memory, 0, bytes);
    return error != cudaSuccess ? error : cudaStreamSynchronize(cudaStreamLegacy);
  });
}
int release(int32_t device, void* memory) {
  return on_device(device, [&] { return cudaFree(memory); });
}
int allocate_pinned(uint64_t bytes, void** memory) { return result(allocate_pinned_pages(bytes, memory)); }
int release_pinned(void* memory) { return result(release_pinned_pages(memory)); }

int32_t is_pinned(const void* memory) {
  cudaPointerAttributes attributes;
  const cudaError_t error = cudaPointerGetAttributes(&attributes, memory);
  return result(error) == 0 && attributes.type == cudaMemoryTypeHost;
}

int create_stream(int32_t device, CUstream_st** stream) {
  return on_device(device, [&] {
    int least = 0, greatest = 0;  // batches go before the blocks of a large matrix that have not begun
    const cudaError_t error = cudaDeviceGetStreamPriorityRange(&least, &greatest);
    if (error != cudaSuccess) return error;
    return cudaStreamCreateWithPriority(stream, cudaStreamNonBlocking, greatest);
  });
}
int destroy_stream(int32_t device, CUstream_st* stream) {
  return on_device(device, [&] { return cudaStreamDestroy(stream); });
}
int create_event(int32_t device, CUevent_st** event) {
  return on_device(device,
                   [&] { return cudaEventCreateWithFlags(event, cudaEventBlockingSync | cudaEventDisableTiming); });
}
int destroy_event(int32_t device, CUevent_st* event) {
  return on_device(device, [&] { return cudaEventDestroy(event); });
}
int copy_to_device(int32_t device, void* to, const void* from, uint64_t bytes, CUstream_st* stream) {
  return on_device(device, [&] { return cudaMemcpyAsync(to, from, bytes, cudaMemcpyHostToDevice, stream); });
}
int copy_to_host(int32_t device, void* to, const void* from, uint64_t bytes, CUstream_st* stream) {
  return on_device(device, [&] { return cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToHost, stream); });
}
int clear(int32_t device, void* memory, uint64_t bytes, CUstream_st* stream) {
  return on_device(device, [&] { return cudaMemsetAsync(memory, 0, bytes, stream); });
}
int record(int32_t device, CUevent_st* event, CUstream_st* stream) {
  return on_device(device, [&] { return cudaEventRecord(event, stream); });
}
int wait(int32_t device, CUevent_st* event) {
  return on_device(device, [&] { return cudaEventSynchronize(event); });
}

constexpr SvdserveCudaApi kApi = {
    kBuild,          device_count,   device_info,  error_name,      error_text,     workspace_bytes,
    launch,          allocate,       release,      allocate_pinned, release_pinned, is_pinned,
    create_stream,   destroy_stream, create_event, destroy_event,   copy_to_device, copy_to_host,
    clear,           record,         wait,         large_refusal,   large_memory,   large_state_bytes,
    decompose_large, reaches,        ring_memory,  decompose_ring,  rank_refusal,   serve_rank,
};

}  // namespace
}  // namespace svdserve::cuda

extern "C" __attribute__((visibility("default"))) const SvdserveCudaApi* svdserve_cuda_plugin(uint32_t version) {
  if (version != kSvdserveCudaAbiVersion) return nullptr;
  // Before CUDA starts. By default streams share eight queues of the device, and wait for others of the same queue.
  setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 0);
  return &svdserve::cuda::kApi;
}
