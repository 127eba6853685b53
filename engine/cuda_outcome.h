// A batch in the memory of a GPU, and the outcome of a batch or of a call of CUDA. CudaEngine shares these words with
// its lanes and its plugin.
#ifndef SVDSERVE_ENGINE_CUDA_OUTCOME_H_
#define SVDSERVE_ENGINE_CUDA_OUTCOME_H_

#include <cstdint>
#include <string>

#include "engine/execution.h"

namespace svdserve {

// A batch in device memory, all of it the caller's until the stream has passed it.
struct DeviceBatch {
  const void* matrices =
      nullptr;                  // [in] device; count matrices of plan.problem as they are stored, aligned to an element
  int64_t count = 0;            // >= 0; a multiple of plan.outputs.group
  PlanePointers planes;         // [out] device; those of plan.outputs, each aligned to an element
  uint8_t* statuses = nullptr;  // [out] device; count MatrixStatus, or null
  uint64_t* exception_counts = nullptr;  // [in,out] device; kMatrixStatuses: [s] grows by the matrices of status s > 0
  void* workspace = nullptr;             // device; workspace_bytes(plan, count), aligned to 256
  const void* starting_vectors = nullptr;  // [in] device; as HostSegment's, aligned to a complex element
};

// An error of CUDA with its name and text, or success.
struct CudaStatus {
  int code = 0;         // cudaError_t
  std::string text;     // "cudaErrorMemoryAllocation: out of memory, while allocating 64 bytes"
  bool sticky = false;  // the device's context is dead: no call on it succeeds any more
  bool ok() const { return code == 0; }
  bool out_of_memory() const { return code == 2; }  // cudaErrorMemoryAllocation
};

struct CudaOutcome {
  CudaStatus status;  // not ok: nothing of the outputs is to be used
  ExecutionOutcome execution;
};

}  // namespace svdserve
#endif  // SVDSERVE_ENGINE_CUDA_OUTCOME_H_
