// The environment that NCCL reads when it is opened. Variables that an operator has set are kept.
#ifndef SVDSERVE_ENGINE_BACKENDS_CUDA_MEMBERS_NCCL_ENVIRONMENT_H_
#define SVDSERVE_ENGINE_BACKENDS_CUDA_MEMBERS_NCCL_ENVIRONMENT_H_

#include <cstdlib>

namespace svdserve::cuda {

// One thread's, while no other reads the environment.
inline void set_nccl_environment() {
  constexpr int kKeep = 0;
  // Multicast of NVLink is for collectives, which a ring has none of.
  setenv("NCCL_NVLS_ENABLE", "0", kKeep);
  // Ranks of one host find each other by a port that NCCL listens on. It takes connections from this host alone.
  setenv("NCCL_SOCKET_IFNAME", "=lo", kKeep);
}

}  // namespace svdserve::cuda
#endif  // SVDSERVE_ENGINE_BACKENDS_CUDA_MEMBERS_NCCL_ENVIRONMENT_H_
