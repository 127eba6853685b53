// Tuning values of the CUDA back end. Speed alone: no value here changes a bit of a result.
#ifndef SVDSERVE_ENGINE_POLICIES_CUDA_TUNING_H_
#define SVDSERVE_ENGINE_POLICIES_CUDA_TUNING_H_

namespace svdserve::cuda {

// Threads of a block whose threads have a matrix each, by the bytes of a matrix's slot in shared memory.
constexpr int lane_block(int slot_bytes) { return slot_bytes <= 600 ? 128 : 64; }

// Up to here dqds is unrolled for its size, in registers; beyond, its arrays lie in shared memory. A step in double
// precision is three times the code: 8 x 8 would not fit the instruction cache.
constexpr int largest_register_dqds(int real_bytes) { return real_bytes == 4 ? 8 : 4; }

// A matrix of more bytes does not fit the registers of one thread beside what its kernel needs: a team works on it.
inline constexpr int kLargestRegisterMatrixBytes = 6 * 6 * 16;

// Of those that fit, a larger one leaves room for too few threads to hide the latency of dqds: a second kernel does it.
inline constexpr int kLargestFusedMatrixBytes = 6 * 6 * 8;

// Threads of a team: for matrices of up to so many columns, and of more.
inline constexpr int kSmallTeamColumns = 16, kSmallTeam = 8, kLargeTeam = 16;

// Threads of a block of teams, and the shared memory that it should not pass: four blocks a multiprocessor.
inline constexpr int kTeamBlock = 128;
inline constexpr int kTeamBlockBytes = 56 * 1024;

// Threads of a block of the kernel that finishes what teams began, one matrix each.
inline constexpr int kFinishBlock = 64;

// Vectors: the largest k of which a thread holds X and Y; threads of a block of teams; and those that share a pair of columns of k = 16 and 32 rows, so that four columns
// (two of X, two of Y) take no more than half of a thread's registers. No more than fit a warp.
inline constexpr int kLargestLaneVectors = 4;
inline constexpr int kVectorsBlock = 128;
constexpr int vectors_split(int rows, int element_bytes) {
  return 4 * rows * element_bytes <= 512 ? 1 : 2;
}

}  // namespace svdserve::cuda
#endif  // SVDSERVE_ENGINE_POLICIES_CUDA_TUNING_H_
