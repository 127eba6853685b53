// The outcome of a call of CUDA or of a batch on a GPU: the vocabulary that CudaEngine shares with its lanes.
#ifndef SVDSERVE_ENGINE_CUDA_OUTCOME_H_
#define SVDSERVE_ENGINE_CUDA_OUTCOME_H_

#include <string>

#include "engine/execution.h"

namespace svdserve {

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
