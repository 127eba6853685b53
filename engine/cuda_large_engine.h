// Large matrices on a GPU: the LargeEngine of a device that the CUDA back end's plugin drives.
#ifndef SVDSERVE_ENGINE_CUDA_LARGE_ENGINE_H_
#define SVDSERVE_ENGINE_CUDA_LARGE_ENGINE_H_

#include <memory>
#include <vector>

#include "engine/cuda_engine.h"
#include "engine/large_engine.h"

namespace svdserve {

// GPU `ordinal`, as CUDA counts. Null: *status says why not, such as which library is missing; CudaEngine may work all
// the same, because only large matrices need cuBLAS and cuSOLVER. Its memory belongs to a decomposition, and is freed
// at the end. Handles and 32 MiB of pinned host memory are kept, and the next decomposition takes them over.
std::unique_ptr<LargeEngine> open_cuda_large_engine(int ordinal, CudaStatus* status);

// 1, 2, 4 or 8 different GPUs that compute the sweeps of one matrix together (backends/ring/ring_backend.h). The first one
// has the matrices, so memory() is that one's. It shares its large products with the others, where they are in this
// process and the matrices fit it at once (backends/ring/dealt_home.h). All else it computes alone. Results have the same
// bits for every number of GPUs of one kind, but other bits than those of open_cuda_large_engine(). Decision 0017 has
// figures.
// kRanks: needs NCCL 2, GPUs that reach each other's memory, and a program with run_as_rank(). An error on a GPU is the
// end of all contexts of its process. So with ranks it is survived. Those that are idle are kept for a minute.
std::unique_ptr<LargeEngine> open_cuda_ring_engine(const std::vector<int>& ordinals, CudaStatus* status,
                                                   RingMembers kind = RingMembers::kInProcess);

// Whether two GPUs reach each other's memory. Else what a ring sends goes through the host, which is slow. False where
// there are no such GPUs.
bool gpus_reach_each_other(int ordinal, int other);

}  // namespace svdserve
#endif  // SVDSERVE_ENGINE_CUDA_LARGE_ENGINE_H_
