// Large matrices on a GPU, as the plugin's table offers them; the contracts are in plugin_abi.h.
#ifndef SVDSERVE_ENGINE_BACKENDS_CUDA_LARGE_DECOMPOSE_LARGE_H_
#define SVDSERVE_ENGINE_BACKENDS_CUDA_LARGE_DECOMPOSE_LARGE_H_

#include <functional>

#include "engine/backends/cuda/device/device_arena.h"
#include "engine/backends/cuda/large/large_lane.h"
#include "engine/backends/cuda_door/plugin_abi.h"
#include "engine/backends/cuda_door/states_across.h"

namespace svdserve::cuda {

const char* large_refusal();
LargeWorkspace large_memory(const LargePlan* plan, uint64_t device_room);
uint64_t large_state_bytes(const LargePlan* plan);
void decompose_large(int32_t device, const LargePlan* plan, const LargeOperands* operands,
                     const SvdserveCudaLargeControl* control, SvdserveCudaLargeOutcome* outcome);

// For the same on several devices. The control must outlive what is made of it.
class OwnControl {
 public:
  explicit OwnControl(const SvdserveCudaLargeControl& control);
  operator const LargeControl&() const { return control_; }

 private:
  StatesAcross states_;
  LargeControl control_;
};

// The memory that a job takes, and how its matrices lie.
struct JobMemory {
  LargeWorkspace workspace;
  bool is_short = false;  // of device memory: matrices that are not used for a while leave
  uint64_t panels = 0;  // not 0: all matrices lie in the host's memory, and these bytes of the device's are for panels
};
JobMemory job_on_device(const LargePlan& plan);
// The most panels that fit the room; the least that are needed where these do not fit.
JobMemory streamed_job(const LargePlan& plan, uint64_t device_room);
// Whether matrices of the plan may lie elsewhere than on the device.
bool may_leave(const LargePlan& plan);
// f() with a lane and the memory. Never throws.
LargeOutcome run_on_lane(int32_t device, const JobMemory& job,
                         const std::function<LargeOutcome(LargeLane&, DeviceArena&)>& f);
void put_outcome(const LargeOutcome& from, SvdserveCudaLargeOutcome& to);

}  // namespace svdserve::cuda
#endif  // SVDSERVE_ENGINE_BACKENDS_CUDA_LARGE_DECOMPOSE_LARGE_H_
