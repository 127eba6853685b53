// The boundary between the engine and its CUDA back end, a plugin that is opened only where there is a driver: a table
// of C functions over plain data. No C++ class, exception or allocation crosses it. Layout changes raise the version.
//
// Every function that returns int returns a CUDA error code (cudaError_t; 0: success), and none keeps CUDA's last error
// set. Thread safety: all of them, as far as the caller does not use one buffer, stream or event from two threads.
#ifndef SVDSERVE_ENGINE_BACKENDS_CUDA_DOOR_PLUGIN_ABI_H_
#define SVDSERVE_ENGINE_BACKENDS_CUDA_DOOR_PLUGIN_ABI_H_

#include <cstdint>

// As in cuda.h, so that a CUstream of the caller's can be passed.
struct CUstream_st;
struct CUevent_st;

extern "C" {

enum { kSvdserveCudaAbiVersion = 3, kSvdserveCudaPlanes = 10, kSvdserveCudaMaxSnrs = 64, kSvdserveCudaMaxPhases = 24 };

struct SvdserveCudaDevice {
  char name[256];  // as the driver calls it
  char uuid[48];   // GPU-xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx
  uint64_t memory_bytes;
  int32_t compute_major, compute_minor;
  int32_t multiprocessors;
};

// Outputs (engine/outputs.h) as plain numbers.
struct SvdserveCudaOutputs {
  int64_t values, left_columns, right_columns, group;
  int32_t right_adjoint, fix_phases, certificate;
  int32_t capacity, water_filling, stream_snr, condition_number, effective_rank, threshold_rank;
  int32_t snr_count;
  double rank_threshold;
  double snr[kSvdserveCudaMaxSnrs];
};

// A Plan (engine/planner.h) as plain numbers; enums by their values.
struct SvdserveCudaPlan {
  int64_t rows, cols;
  int32_t dtype, order, method, max_sweeps;
  double tolerance;
  SvdserveCudaOutputs outputs;
};

// Everything in device memory.
struct SvdserveCudaBatch {
  const void* matrices;               // [in] count matrices without gaps; aligned to an element
  int64_t count;                      // >= 0; a multiple of outputs.group
  void* planes[kSvdserveCudaPlanes];  // [out] by the value of Plane; aligned to an element
  uint8_t* statuses;                  // [out] count MatrixStatus, or null
  uint64_t* exception_counts;         // [in,out] 4: [s] grows by the number of matrices with MatrixStatus s, s > 0
  void* workspace;                    // workspace_bytes(plan, count) bytes, aligned to 256
};

// A LargePlan (engine/large_engine.h) as plain numbers; enums by their values.
struct SvdserveCudaLargePlan {
  int64_t rows, cols;
  int32_t dtype, order;
  int32_t method, vectors, max_sweeps, strategy, variant, hyperbolic, certificate;
  double tolerance;
  int64_t values, left_columns, right_rows;
};

// LargeOperands: all in host memory.
struct SvdserveCudaLargeOperands {
  const void* matrix;
  const int8_t* signature;
  void *left, *values, *right;
};

struct SvdserveCudaLargeProgress {
  int32_t stage, sweep;
  int64_t rotations, proper_rotations;
  double off_diagonal, fraction;
};

struct SvdserveCudaLargeControl {
  void (*progress)(void* user, const SvdserveCudaLargeProgress* progress);  // or null
  int32_t (*cancelled)(void* user);                                         // not 0: stop; or null
  void* user;
};

struct SvdserveCudaLargePhase {
  char name[32];
  double seconds, flops;
};

// LargeOutcome.
struct SvdserveCudaLargeOutcome {
  int32_t status;
  char detail[512];
  int64_t row, col;
  int32_t out_of_range, device_lost, method, warm_started, sweeps;
  int64_t rotations, proper_rotations;
  double residual, left_orthogonality, right_orthogonality;
  int32_t phase_count;
  SvdserveCudaLargePhase phases[kSvdserveCudaMaxPhases];
};

struct SvdserveCudaApi {
  uint32_t version;  // kSvdserveCudaAbiVersion

  int (*device_count)(int32_t* count);
  int (*device_info)(int32_t device, SvdserveCudaDevice* info);
  const char* (*error_name)(int error);
  const char* (*error_text)(int error);

  uint64_t (*workspace_bytes)(const SvdserveCudaPlan* plan, int64_t count);
  // Enqueues the decomposition of a batch; returns before it is done.
  int (*launch)(int32_t device, const SvdserveCudaPlan* plan, const SvdserveCudaBatch* batch, CUstream_st* stream);

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

  // Null where there are large factors; else why not, such as which library is missing.
  const char* (*large_refusal)(void);
  // Device memory of a factor while it is decomposed.
  uint64_t (*factor_bytes)(const SvdserveCudaLargePlan* plan);
  // Blocks until the results are written. The outcome says what went wrong. Calls at once share the device.
  void (*decompose_large)(int32_t device, const SvdserveCudaLargePlan* plan, const SvdserveCudaLargeOperands* operands,
                          const SvdserveCudaLargeControl* control, SvdserveCudaLargeOutcome* outcome);
};

// The plugin's one symbol: null where it does not know this version.
typedef const SvdserveCudaApi* (*SvdserveCudaEntry)(uint32_t version);

}  // extern "C"

// The name of that symbol.
inline constexpr char kSvdserveCudaEntryName[] = "svdserve_cuda_plugin";

#endif  // SVDSERVE_ENGINE_BACKENDS_CUDA_DOOR_PLUGIN_ABI_H_
