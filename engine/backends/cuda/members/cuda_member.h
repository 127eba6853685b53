// A member of a ring (backends/ring/ring_member.h) that is a GPU.
//
// It has room for the whole matrix, and keeps each union at its own place there. So kernels number columns and blocks as
// they do on one GPU. That is 2 D / 3 of the memory that slots would take, and no slot is used.
// A union's columns are contiguous, so it goes to another GPU in one copy of X and one of V, by copy engines. Exponents and
// the versions of blocks go with it. All work is in one stream; members wait for each other by events.
#ifndef SVDSERVE_ENGINE_BACKENDS_CUDA_MEMBERS_CUDA_MEMBER_H_
#define SVDSERVE_ENGINE_BACKENDS_CUDA_MEMBERS_CUDA_MEMBER_H_

#include <cuda_runtime_api.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "engine/backends/cuda/members/device_part.h"
#include "engine/backends/ring/ring_member.h"

namespace svdserve::cuda {

// Device memory beside a member's matrices, for n columns in pairs of blocks.
uint64_t ring_member_bytes(int64_t rows, int64_t v_rows, int64_t n, bool complex);

// E: double or Complex.
template <class E>
class CudaMember {
 public:
  using Element = E;

  explicit CudaMember(int device) : part_(device) {}

  void reserve(const ring::RingShape& shape);
  void take(const ring::UnionPlace& place, const ring::RingColumns<E>& columns);
  void give(const ring::UnionPlace& place, const ring::RingColumns<E>& columns);
  void mark(ring::RingMark mark);
  void await(const CudaMember& member, ring::RingMark mark);
  void send(const ring::UnionPlace& place, CudaMember& to, int to_slot);
  void p_step(const large::PStep<E>& step) { p_steps({step}); }
  void p_steps(std::vector<large::PStep<E>> steps);
  void reset_counters();
  large::PStepCounters read_counters();
  void tell(std::vector<LargePhaseTime>& phases);
  void stop() { stopped_ = true; }

 protected:
  // A part of what goes to another member with a union, at its own place here.
  struct Piece {
    void* data = nullptr;
    size_t bytes = 0;  // 0: nothing goes
  };
  std::array<Piece, 4> pieces(const ring::UnionPlace& place) const;
  int device() const { return part_.device(); }
  cudaStream_t stream() const { return part_.stream(); }
  // Waits for all that was enqueued.
  void wait();

 private:
  using View = large::LargeView<E>;

  std::atomic<bool> stopped_{false};
  const LargeControl control_{.progress = {}, .cancel = &stopped_};
  const LargeWatch watch_{control_};
  DevicePart<E> part_;
  cudaEvent_t marks_[2] = {nullptr, nullptr};
  View x_, v_;  // of all columns
  int32_t* f_ = nullptr;
  int* versions_ = nullptr;  // of all blocks, or null
};

extern template class CudaMember<double>;
extern template class CudaMember<Complex>;

}  // namespace svdserve::cuda
#endif  // SVDSERVE_ENGINE_BACKENDS_CUDA_MEMBERS_CUDA_MEMBER_H_
