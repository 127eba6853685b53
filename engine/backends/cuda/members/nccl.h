// Columns from GPU to GPU of different processes: NCCL 2, opened when the first ring of ranks is.
#ifndef SVDSERVE_ENGINE_BACKENDS_CUDA_MEMBERS_NCCL_H_
#define SVDSERVE_ENGINE_BACKENDS_CUDA_MEMBERS_NCCL_H_

#include <cuda_runtime_api.h>

#include <cstddef>
#include <string>

namespace svdserve::cuda {

// Null where libnccl.so.2 is there; else why it does not open, with what to install. Thread safe.
const char* nccl_refusal();

// One process of a communicator. Every call may throw large::LargeStop, and may wait for ever for a process that
// is gone. One call at a time, of any thread whose current device is this process's.
class Communicator {
 public:
  // A name for one of `members` processes, which this process makes up at the first call, and all of them join.
  std::string name();
  // Once. Waits for the others.
  void join(const std::string& name, int own, int members);
  bool has_joined() const { return comm_ != nullptr; }

  // Between begin() and end(): what goes to a partner, and what comes from it at the same time, in the stream's order.
  void begin();
  void send(const void* from, size_t bytes, int partner, cudaStream_t stream);
  void receive(void* to, size_t bytes, int partner, cudaStream_t stream);
  void end();

 private:
  std::string name_;
  void* comm_ = nullptr;  // ends with the process: to give it up may wait for a process that is gone
};

}  // namespace svdserve::cuda
#endif  // SVDSERVE_ENGINE_BACKENDS_CUDA_MEMBERS_NCCL_H_
