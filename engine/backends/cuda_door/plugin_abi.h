// The boundary between the engine and its CUDA back end: a table of C functions over plain data. The back end is a
// plugin, opened only where there is a driver. No exception and no allocation crosses the boundary.
//
// Both sides are built from one tree, so the engine's plain structs cross as they are. The version of the table and the
// sizes of all these structs tell a plugin of another build. A change of layout or meaning raises the version. The
// release tells a plugin whose arithmetic may be another.
//
// Every function that returns int returns a CUDA error code (cudaError_t; 0: success), and none keeps CUDA's last error
// set. Thread safety: all of them, as far as the caller does not use one buffer, stream or event from two threads.
#ifndef SVDSERVE_ENGINE_BACKENDS_CUDA_DOOR_PLUGIN_ABI_H_
#define SVDSERVE_ENGINE_BACKENDS_CUDA_DOOR_PLUGIN_ABI_H_

#include <atomic>
#include <cstdint>
#include <type_traits>

#include "engine/cuda_outcome.h"
#include "engine/large_engine.h"
#include "engine/planner.h"

// As in cuda.h, so that a CUstream of the caller's can be passed.
struct CUstream_st;
struct CUevent_st;

extern "C" {

enum { kSvdserveCudaAbiVersion = 16, kSvdserveCudaStructs = 11, kSvdserveCudaMaxPhases = 24 };

struct SvdserveCudaDevice {
  char name[256];  // as the driver calls it
  char uuid[48];   // GPU-xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx
  uint64_t memory_bytes;
  int32_t compute_major, compute_minor;
  int32_t multiprocessors;
};

// LargeStateStore (engine/large_engine.h): its functions, on `store`. Null: there is none.
struct SvdserveCudaStates {
  void* store;
  int32_t (*due)(void* store);
  int32_t (*begin)(void* store, svdserve::LargeState state, uint64_t bytes);
  void (*write)(void* store, const void* bytes, uint64_t count);
  void (*end)(void* store);
  uint64_t (*open)(void* store, svdserve::LargeState state);
  int32_t (*read)(void* store, void* bytes, uint64_t count);
};

// LargeControl (engine/large_engine.h).
struct SvdserveCudaLargeControl {
  void (*progress)(const void* user, const svdserve::LargeProgress* progress);  // or null
  const void* user;
  const std::atomic<bool>* cancel;  // or null
  SvdserveCudaStates states;
  uint64_t device_room;
};

// LargePhaseTime.
struct SvdserveCudaLargePhase {
  char name[32];
  double seconds, flops;
};

// LargeOutcome.
struct SvdserveCudaLargeOutcome {
  svdserve::LargeReport report;
  char detail[512];
  int32_t members;
  int32_t phase_count;
  SvdserveCudaLargePhase phases[kSvdserveCudaMaxPhases];
};

// The table of every version begins with this, from version 9 on with the release.
struct SvdserveCudaBuild {
  uint32_t version;                      // kSvdserveCudaAbiVersion
  char release[16];                      // cuda::kRelease
  uint32_t sizes[kSvdserveCudaStructs];  // in bytes, of cuda::kCrossingStructs
};

struct SvdserveCudaApi {
  SvdserveCudaBuild build;

  int (*device_count)(int32_t* count);
  int (*device_info)(int32_t device, SvdserveCudaDevice* info);
  const char* (*error_name)(int error);
  const char* (*error_text)(int error);

  uint64_t (*workspace_bytes)(const svdserve::Plan* plan, int64_t count);
  // Enqueues the decomposition of a batch; returns before it is done. It waits for sweeps of matrices side by side.
  int (*launch)(int32_t device, const svdserve::Plan* plan, const svdserve::DeviceBatch* batch, CUstream_st* stream);

  int (*allocate)(int32_t device, uint64_t bytes, void** memory);
  int (*release)(int32_t device, void* memory);
  int (*allocate_pinned)(uint64_t bytes, void** memory);
  int (*release_pinned)(void* memory);
  // 1: the copy engines can reach this host memory themselves.
  int32_t (*is_pinned)(const void* memory);
  int (*create_stream)(int32_t device, CUstream_st** stream);
  int (*destroy_stream)(int32_t device, CUstream_st* stream);
  int (*create_event)(int32_t device, CUevent_st** event);  // who waits for it sleeps
  int (*destroy_event)(int32_t device, CUevent_st* event);
  // The following enqueue; the host memory of a copy stays alive until the stream has passed it.
  int (*copy_to_device)(int32_t device, void* to, const void* from, uint64_t bytes, CUstream_st* stream);
  int (*copy_to_host)(int32_t device, void* to, const void* from, uint64_t bytes, CUstream_st* stream);
  int (*clear)(int32_t device, void* memory, uint64_t bytes, CUstream_st* stream);
  int (*record)(int32_t device, CUevent_st* event, CUstream_st* stream);
  // Blocks, asleep, until the event has passed; returns what went wrong on the device before it.
  int (*wait)(int32_t device, CUevent_st* event);

  // Null where large matrices are served; else why not, such as which library is missing.
  const char* (*large_refusal)(void);
  // LargeEngine::memory(). No device's memory is enough for a problem that is not served.
  svdserve::LargeWorkspace (*large_memory)(const svdserve::LargePlan* plan, uint64_t device_room);
  uint64_t (*large_state_bytes)(const svdserve::LargePlan* plan);  // LargeEngine::state_bytes(), of rings as well
  // Blocks until the results are written. The outcome says what went wrong. Calls at once share the device.
  void (*decompose_large)(int32_t device, const svdserve::LargePlan* plan, const svdserve::LargeOperands* operands,
                          const SvdserveCudaLargeControl* control, SvdserveCudaLargeOutcome* outcome);

  // 1: device `from` reaches the memory of device `to`, so that copies do not go through the host.
  int32_t (*reaches)(int32_t from, int32_t to);
  // decompose_large() on 1, 2, 4 or 8 devices together, the first of which needs the memory that the function before says.
  // members: the number of a RingMembers. Ranks run this program again with ranks::kRankArgument.
  svdserve::LargeWorkspace (*ring_memory)(const svdserve::LargePlan* plan, uint64_t device_room);
  void (*decompose_ring)(const int32_t* devices, int32_t count, int32_t members, const svdserve::LargePlan* plan,
                         const svdserve::LargeOperands* operands, const SvdserveCudaLargeControl* control,
                         SvdserveCudaLargeOutcome* outcome);
  // Null where these devices may have ranks; else why not, such as which library is missing. The thread's until its next
  // call.
  const char* (*rank_refusal)(const int32_t* devices, int32_t count);
  // In a process that is a rank: serves its leader until this one is gone. The socket is the callee's.
  void (*serve_rank)(int32_t socket, int32_t device);
};

// The plugin's one symbol: null where it does not know this version.
typedef const SvdserveCudaApi* (*SvdserveCudaEntry)(uint32_t version);

}  // extern "C"

// The name of that symbol.
inline constexpr char kSvdserveCudaEntryName[] = "svdserve_cuda_plugin";

namespace svdserve::cuda {

// The project's version, which a test compares with that of CMakeLists.txt.
inline constexpr char kRelease[] = "0.1.0";

// A struct that crosses the table as it is.
struct CrossingStruct {
  const char* name;
  uint32_t bytes;
};
template <class T>
constexpr CrossingStruct crossing(const char* name) {
  static_assert(std::is_trivially_copyable_v<T> && std::is_standard_layout_v<T>);
  return {name, sizeof(T)};
}
inline constexpr CrossingStruct kCrossingStructs[kSvdserveCudaStructs] = {
    crossing<SvdserveCudaApi>("table"),
    crossing<SvdserveCudaDevice>("SvdserveCudaDevice"),
    crossing<Plan>("Plan"),
    crossing<DeviceBatch>("DeviceBatch"),
    crossing<LargePlan>("LargePlan"),
    crossing<LargeWorkspace>("LargeWorkspace"),
    crossing<LargeOperands>("LargeOperands"),
    crossing<LargeProgress>("LargeProgress"),
    crossing<SvdserveCudaStates>("SvdserveCudaStates"),
    crossing<SvdserveCudaLargeControl>("SvdserveCudaLargeControl"),
    crossing<SvdserveCudaLargeOutcome>("SvdserveCudaLargeOutcome"),
};

inline constexpr SvdserveCudaBuild kBuild = [] {
  SvdserveCudaBuild build{kSvdserveCudaAbiVersion, {}, {}};
  static_assert(sizeof(kRelease) <= sizeof(build.release));
  for (unsigned i = 0; i < sizeof(kRelease); ++i) build.release[i] = kRelease[i];
  for (int i = 0; i < kSvdserveCudaStructs; ++i) build.sizes[i] = kCrossingStructs[i].bytes;
  return build;
}();

}  // namespace svdserve::cuda
#endif  // SVDSERVE_ENGINE_BACKENDS_CUDA_DOOR_PLUGIN_ABI_H_
