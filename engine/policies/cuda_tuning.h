// Tuning values of the CUDA back end. Speed alone: no value here changes a bit of a result up to kLargestReproducible.
#ifndef SVDSERVE_ENGINE_POLICIES_CUDA_TUNING_H_
#define SVDSERVE_ENGINE_POLICIES_CUDA_TUNING_H_

#include <cstdint>

namespace svdserve::cuda {

// Threads of a block whose threads have a matrix each, by the bytes of a matrix's slot in shared memory.
constexpr int lane_block(int slot_bytes) { return slot_bytes <= 600 ? 128 : 64; }

// Up to here dqds is unrolled for its size, in registers; beyond, its arrays lie in shared memory. A step in double
// precision is three times the code: 8 x 8 would not fit the instruction cache.
constexpr int largest_register_dqds(int real_bytes) { return real_bytes == 4 ? 8 : 4; }

// A larger matrix leaves a thread that has it alone too few neighbours to hide the latency of dqds: a second kernel does
// it.
inline constexpr int kLargestFusedMatrixBytes = 6 * 6 * 8;

// BIDIAGONAL in the registers of a few threads: sizes are rounded up to multiples of this. Threads for a matrix of so many
// bytes, as few as have the registers: the scalars of a reflector are computed by each. Sums of 256 threads have other
// trees, and other bits (decisions/0019). 256 have no room for the largest matrices, and keep some columns in memory. Those
// of a block.
constexpr int grid_sizes(int k) { return k < 32 ? 4 : k < 64 ? 8 : 16; }
constexpr int grid_registers(int real_bytes) { return real_bytes == 4 ? 512 : 576; }  // bytes of them, a thread
constexpr int grid_threads(int bytes, int real_bytes) {
  int threads = 4;
  while (threads < 256 && bytes > threads * grid_registers(real_bytes)) threads *= threads == 64 ? 4 : 2;
  return threads;
}
inline constexpr int kGridBlock = 128;

// Threads of a team: for matrices of up to so many columns, and of more.
inline constexpr int kSmallTeamColumns = 16, kSmallTeam = 8, kLargeTeam = 16;

// Threads of a block of teams, and the shared memory that it should not pass: four blocks a multiprocessor.
inline constexpr int kTeamBlock = 128;
inline constexpr int kTeamBlockBytes = 56 * 1024;

// Tiles in registers: threads of a block, and the most words of 32 bits that a thread's part of a tile takes. With
// half as many there is room for X beside it.
inline constexpr int kRegisterBlock = 128;
inline constexpr int kRegisterTileWords = 128;

// Threads of a block of the kernel that finishes what teams began, one matrix each, by the bytes of shared memory that a
// thread has. Small blocks fill it better.
constexpr int finish_block(int slot_bytes) { return slot_bytes <= 1032 ? 64 : 32; }
inline constexpr int kFinishBlock = 64;  // at most

// Vectors: the largest k of which a thread holds X and Y; threads of a block of teams. Then threads that share a pair
// of columns of this many rows. Four columns (two of X, two of Y) then take no more than half of a thread's registers.
// No more than fit a warp.
inline constexpr int kLargestLaneVectors = 4;
inline constexpr int kVectorsBlock = 128;
constexpr int vectors_split(int rows, int element_bytes) { return 4 * rows * element_bytes <= 512 ? 1 : 2; }
// Whether Y lies in shared memory: where the four columns take half of a thread's registers or more. Real columns of more
// than 16 rows are faster in registers nevertheless (decisions/0006).
constexpr bool are_vectors_in_shared(int rows, bool complex, int element_bytes) {
  return (complex || rows <= 16) && 4 * rows * element_bytes / vectors_split(rows, element_bytes) >= 512;
}
// The same of eigenvectors of Hermitian matrices, which have no Y: two columns.
constexpr int hermitian_split(int rows, int element_bytes) { return rows * element_bytes <= 128 ? 1 : 2; }

// General matrices: the largest k of which a thread holds all in registers; threads of a block of threads, and of teams.
inline constexpr int kLargestGeneralInRegisters = 4;
inline constexpr int kGeneralLaneBlock = 64, kGeneralTeamBlock = 128;
// JACOBI: blocks of teams a multiprocessor, which leave a thread 128 registers. The compiler takes 72 for single precision
// and spills. QR is 16 % slower by it.
inline constexpr int kGeneralTeamBlocks = 4;
// JACOBI: the largest k of a team of 4. A thread of it has a pair of columns; with 8 half of them wait for transforms.
inline constexpr int kLargestOfFour = 8;
// The largest k of a team of 8: 16 x 16 c64 matrices gain 7 % by it, all others lose.
constexpr int largest_of_small_team(bool complex, int real_bytes) { return complex && real_bytes == 4 ? 16 : 8; }

// k > 32: blocks that have workspace for columns that neither registers nor shared memory hold.
inline constexpr int64_t kWorkspaceBlocks = 264;
// The same before and behind the singular vectors of Hermitian matrices.
inline constexpr int64_t kHermitianBlocks = 528;
// Blocks of the QR of a tall matrix that should share a multiprocessor. The elements of c128 take twice the registers.
constexpr int block_qr_blocks(int element_bytes) { return element_bytes == 16 ? 2 : 4; }

// Matrices side by side: about so many bytes of workspace for those that are decomposed at once.
inline constexpr int64_t kSideBySideBytes = int64_t{2} << 30;

// Large matrices: threads that transfer between the caller's memory and the device, for each matrix under way.
inline constexpr int kLargeTransferThreads = 10;
// Large matrices: a pair of blocks that nothing has changed since it was found orthogonal is not looked at again.
inline constexpr bool kSkipUnchangedPairs = true;

// Vectors by bidiagonalization or tridiagonalization: whether shared memory has rows while they are rotated. About so many
// bytes of workspace for the matrices that are decomposed at once. Room for rotations in a round: half of what a random matrix
// takes, or a seventh. The rounds after which a matrix is given up. From so many matrices on a thread sweeps one by itself;
// threads of a block then, few where all are at work at once.
constexpr bool are_rows_in_shared(int k) { return k <= 128; }
constexpr int64_t by_rows_bytes(int k) { return int64_t{are_rows_in_shared(k) ? 2 : 4} << 30; }
constexpr int rotation_capacity(int k) { return (are_rows_in_shared(k) ? k * k / 2 : k * k / 8) + 16 * k; }
constexpr int rotation_rounds(int k) { return are_rows_in_shared(k) ? 12 : 48; }
inline constexpr int64_t kSweptAlone = 2048;
constexpr int sweep_block(int64_t count) { return count < 16384 ? 8 : 32; }
// Rows: threads of a block, and the blocks that should share a multiprocessor, which decides the registers of a thread. Bytes
// of a reflector that a thread has at once.
inline constexpr int kRowBlock = 32, kRotateBlocks = 8, kReflectBlock = 128;
constexpr int reflect_bytes(int element_bytes, int k) {
  return element_bytes == 4 ? 64 : element_bytes == 16 && k > 256 ? 256 : 128;
}
constexpr int reflect_blocks(bool complex, int element_bytes, int k) {
  return element_bytes == 4 ? 5 : !complex ? 3 : element_bytes == 16 && k > 256 ? 2 : 4;
}
// Rows in memory, which rotations reach as products of windows (by_rows/window_kernels.h): numbers of a product, and the most
// products of a round. A run with 32 sweeps over l columns has 32 (l + 8) rotations or more, and (l + 63) / 32 windows. So
// that is one for 576 rotations, since l >= 64. Columns that are done within a run add k / 32 at most, and so does the last
// run, which may be shorter.
inline constexpr int kWindowElements = 64 * 64;
constexpr int most_windows(int k) { return are_rows_in_shared(k) ? 0 : rotation_capacity(k) / 576 + k / 16 + 5; }
// Blocks of a matrix and side that make them. Threads of a block that multiplies, and its real rows.
inline constexpr int kGatherBlocks = 8;
inline constexpr int kWindowBlock = 256, kWindowRows = kWindowBlock / 32 * 16;
constexpr int window_strips(int k, int components) { return (k * components + kWindowRows - 1) / kWindowRows; }
// Sweeps that are made at once, by kernels for up to k columns. More of them take fewer steps and more rotations.
constexpr int sweeps_at_once(int k) { return k <= 256 ? 8 : 16; }
// Matrices that no registers hold are reduced in memory: warps of a block, likewise.
constexpr int reduction_warps(int element_bytes, int k) { return element_bytes < 16 ? 16 : k <= 256 ? 12 : 8; }
// Bytes of each vector of a step that a thread has in registers, and the steps whose updates are written together. Blocks
// that share a matrix of a small batch, where k needs the larger kernel. The shorter steps of the other one gain no more
// than barriers take.
constexpr int kept_by_block(int element_bytes) { return element_bytes < 16 ? 32 : 48; }
inline constexpr int kWriteEveryByBlock = 2;
inline constexpr int kKeptByCluster = 128, kWriteEveryByCluster = 1, kReductionCluster = 4;
constexpr bool has_reduction_clusters(int k) { return k > 256; }
// Elements that such blocks share in the device's memory.
inline constexpr int kReductionElements = 24 * 512;

// Values alone of such matrices are bisected, a thread each: threads of a block.
inline constexpr int kBisectBlock = 128;

// Threads of a block of the kernels of MIMO answers.
inline constexpr int kAnswerBlock = 128;

// Finishing of vectors: threads of a team for matrices of up to this many elements of X. Up to the next bound it is a
// warp, beyond a block. Teams that run at once have scratch: of so many threads at most and of about so many bytes, but
// never fewer than kFinishLeastTeams.
inline constexpr int kFinishSmallTeam = 8, kFinishBlockTeam = 256;
inline constexpr int kFinishSmallWork = 128, kFinishWarpWork = 8192;
inline constexpr int kLargestTeamCertificate = 32;  // beyond, certificates are written by tiles
inline constexpr int64_t kFinishThreads = 256 * 1024, kFinishScratchBytes = 512 * 1024 * 1024, kFinishLeastTeams = 64;

}  // namespace svdserve::cuda
#endif  // SVDSERVE_ENGINE_POLICIES_CUDA_TUNING_H_
