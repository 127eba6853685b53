// A rank (backends/ranks/serve_rank.h) that is a GPU, in a process of its own. Its unions come and go by NCCL.
//
// Checkpoints are in memory of the leader's on its first GPU, which ranks open by handles of CUDA. They lose nothing by
// that: home's matrices are there, too.
#ifndef SVDSERVE_ENGINE_BACKENDS_CUDA_MEMBERS_CUDA_RANK_H_
#define SVDSERVE_ENGINE_BACKENDS_CUDA_MEMBERS_CUDA_RANK_H_

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "engine/backends/cuda/members/cuda_member.h"
#include "engine/backends/cuda/members/nccl.h"
#include "engine/backends/ranks/shared_memory.h"

namespace svdserve::cuda {

// Memory on the current device that ranks open by its handle. Throws large::LargeStop.
ranks::SharedBlock share_device_memory(uint64_t bytes);

struct CudaRankKind;

template <class E>
class CudaRank : CudaMember<E> {
 public:
  using Base = CudaMember<E>;

  explicit CudaRank(CudaRankKind& kind);
  using Base::give;
  using Base::p_step;
  using Base::p_steps;
  using Base::read_counters;
  using Base::reset_counters;
  using Base::take;
  using Base::tell;
  void reserve(const ring::RingShape& shape, int own, int members, void* common);
  void offer(const ring::UnionPlace& /*sent*/) { this->wait(); }
  void exchange(int own, int partner, const ring::UnionPlace& sent, const ring::UnionPlace& got,
                const std::string& name, const std::function<void()>& waits);

 private:
  void swap(int partner, const ring::UnionPlace& sent, const ring::UnionPlace& got);

  Communicator& communicator_;
  int members_ = 1;
};

// A process that is such a rank has this.
struct CudaRankKind {
  template <class E>
  using Member = CudaRank<E>;

  explicit CudaRankKind(int device) : device(device) {}
  std::string ring_name(int own, int members);
  static std::shared_ptr<void> open(const ranks::Descriptor& file, const ranks::MemoryHandle& handle, uint64_t bytes);

  const int device;
  Communicator communicator;  // of one ring for the life of the process
};

}  // namespace svdserve::cuda
#endif  // SVDSERVE_ENGINE_BACKENDS_CUDA_MEMBERS_CUDA_RANK_H_
