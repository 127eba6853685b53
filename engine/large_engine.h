// One large matrix: its SVD, its hyperbolic SVD, or its eigenvalues and eigenvectors.
// plan_large(problem, options) -> LargeEngine::decompose().
// algorithms/large/block_jacobi.h has the SVDs' method, hermitian_factored.h reduces eigenproblems to it, and
// hermitian_tridiagonal.h is the fast method of one Hermitian matrix. general_eigenproblem.h of backends/host/large and
// of backends/cuda/large have those that are not Hermitian.
#ifndef SVDSERVE_ENGINE_LARGE_ENGINE_H_
#define SVDSERVE_ENGINE_LARGE_ENGINE_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <iterator>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/options.h"
#include "engine/planner.h"
#include "engine/problem.h"

namespace svdserve {

// In which order the block pairs of a sweep are visited. See algorithms/large/block_pivot_strategy.h.
enum class PivotStrategy : uint8_t {
  kAuto,
  kRecursive,         // pairs i and i xor s, the far half first
  kModifiedModulus,   // quasi-sweeps of n p-steps
  kRoundRobin,        // Brent and Luk
  kRowCyclic,         // the p-strategy nearest to the row-cyclic one
  kColumnCyclic,      // nearest to the column-cyclic one
  kReverseRowCyclic,  // their reverses
  kReverseColumnCyclic,
  kLast = kReverseColumnCyclic,
};
constexpr const char* name(PivotStrategy s) {
  constexpr const char* kNames[] = {"auto",       "recursive",     "modified-modulus",   "round-robin",
                                    "row-cyclic", "column-cyclic", "reverse-row-cyclic", "reverse-column-cyclic"};
  static_assert(std::size(kNames) == static_cast<size_t>(PivotStrategy::kLast) + 1);
  return kNames[static_cast<int>(s)];
}

// The work on a block pair when its turn comes.
enum class BlockVariant : uint8_t {
  kAuto,
  kBlockOriented,  // one inner sweep
  kFullBlock,      // inner sweeps until its columns are orthogonal
  kLast = kFullBlock,
};
constexpr const char* name(BlockVariant v) {
  return v == BlockVariant::kFullBlock ? "full-block" : v == BlockVariant::kBlockOriented ? "block-oriented" : "auto";
}

// The decomposition of a large matrix.
enum class LargeKind : uint8_t {
  kSvd,              // A = U S V^H, m x n
  kHyperbolicSvd,    // G = U S V^H with U^H U = I, V^H J V = J; G m x n, m >= n, of rank n; J its signature
  kHermitian,        // A = U L U^H, n x n Hermitian, one triangle of which is read
  kHermitianFactor,  // G J G^H = U L U^H, G m x n, m >= n, of rank n: m eigenvalues, m - n of them zero
  kGeneral,          // A V = V L and W^H A = L W^H, n x n: complex results, columns of V and W of norm 1
};
constexpr bool is_hermitian(LargeKind k) { return k == LargeKind::kHermitian || k == LargeKind::kHermitianFactor; }
constexpr bool is_eigenproblem(LargeKind k) { return is_hermitian(k) || k == LargeKind::kGeneral; }
constexpr bool has_signature(LargeKind k) { return k == LargeKind::kHyperbolicSvd || k == LargeKind::kHermitianFactor; }

struct LargeOptions {
  LargeKind kind = LargeKind::kSvd;
  Triangle triangle = Triangle::kLower;  // of kHermitian
  // SVDs: kAuto may start from an eigenbasis of the Gram matrix, unless min(m, n) is above 32768; kJacobi never does.
  // kHermitian: kTridiagonal, which is kAuto, or kFactored; kJacobi is kFactored without such a start. kHermitianFactor: kFactored, which is kAuto, or
  // kJacobi. kGeneral: kQr, which is kAuto, or kJacobi; that one leaves to kQr what misses its bound.
  Method method = Method::kAuto;
  // kNone: values alone. kFull: of kSvd the full bases, of kGeneral W beside V, of others none.
  Vectors vectors = Vectors::kThin;
  // Cosine of two columns below which they count as orthogonal, in (0, 1]; 0: the method's own, and 0 alone for
  // kGeneral. kTridiagonal and kQr, which have no sweeps, take neither this nor the next three.
  double tolerance = 0;
  int32_t max_sweeps = 0;  // outer sweeps after which it is NOT_CONVERGED, of kGeneral left to kQr; 0: the default
  PivotStrategy strategy = PivotStrategy::kAuto;
  BlockVariant variant = BlockVariant::kAuto;
  // Only the leading top_k values and vectors of an SVD: 0 (all) .. k; not with kFull. Where the method is kAuto and no
  // option of sweeps is given, a subspace may have them (algorithms/large/leading_triplets.h). Else they are cut off.
  int64_t top_k = 0;
  bool certificate = false;
  bool starting_vectors = false;  // kGeneral: kJacobi, which kAuto is then, starts from LargeOperands::start

  friend bool operator==(const LargeOptions&, const LargeOptions&) = default;
};

inline constexpr int32_t kDefaultLargeSweeps = 60;
// Largest m and n: what 32-bit counts of the BLAS below can name. Memory is the limit long before.
inline constexpr int64_t kMaxLargeDimension = 1 << 20;

// A checked problem with everything decided. Only plan_large() makes one.
struct LargePlan {
  Problem problem;
  LargeOptions options;      // without kAuto but for an SVD's method, and for the sweeps of methods that have none
  int64_t values = 0;        // k = min(m, n), or top_k; of an eigenproblem m
  int64_t left_columns = 0;  // of U, m x left_columns: k, m or 0; of kGeneral of V
  int64_t right_rows = 0;    // of V^H, right_rows x n: k, n or 0; of kGeneral of W^H
  // With top_k: the most columns of a subspace that is searched for the triplets; 0: the full decomposition has them.
  int64_t subspace_columns = 0;

  // The elements of the vectors: the operand's, of kGeneral complex ones of its precision.
  DType vector_type() const;
  // Bytes of the matrix, of its starting vectors, of both together, and of each result, all in the operand's order.
  // Values are of its real type, of kGeneral of vector_type(), as are starting vectors.
  uint64_t matrix_bytes() const;
  uint64_t start_bytes() const;
  uint64_t operand_bytes() const;
  uint64_t left_bytes() const;
  uint64_t values_bytes() const;
  uint64_t right_bytes() const;

  friend bool operator==(const LargePlan&, const LargePlan&) = default;
};
struct LargePlanOrError {
  std::optional<LargePlan> plan;
  PlanError error;  // field: rows, cols, or of LargeOptions
};
LargePlanOrError plan_large(const Problem& problem, const LargeOptions& options);

// Whether a ring of members computes the sweeps of this plan. Else its first member computes all of it. That is so where
// there are no sweeps, where a subspace may have the triplets, and where the strategy's sweep cannot be cut for members.
bool sweeps_on_ring(const LargePlan& plan);

// Bytes of a device's memory that a matrix may take.
inline constexpr uint64_t kAnyRoom = std::numeric_limits<uint64_t>::max();

// The memory that decompose() needs beside the operand and the results, in bytes.
struct LargeWorkspace {
  uint64_t host_bytes = 0;
  uint64_t device_bytes = 0;
};

// In host memory, all of it the caller's until decompose() returns. The operand is only read, so that what one device
// fails another can have. Results overlap nothing; they may be worked in, and without an outcome of results (kOk,
// kNotConverged) mean nothing.
struct LargeOperands {
  const void* matrix = nullptr;       // [in] m x n of plan.problem, without gaps
  const int8_t* signature = nullptr;  // [in] where has_signature(): n numbers, each +1 or -1
  void* left = nullptr;               // [out] U, or null where there is none; kGeneral: V
  void* values = nullptr;             // [out] k values: descending; hyperbolic: descending among those of equal sign;
                                      // eigenvalues: ascending; of kGeneral in no order, conjugate pairs together
  void* right = nullptr;              // [out] V^H, or null; kGeneral: W^H
  const void* start = nullptr;        // [in] with starting_vectors: V_0, n x n of vector_type() in the operand's order
};

enum class LargeStage : uint8_t { kPrepare, kPrecondition, kWarmStart, kSweep, kFinish, kSubspace, kLast = kSubspace };
constexpr const char* name(LargeStage s) {
  constexpr const char* kNames[] = {"prepare", "precondition", "warm_start", "sweep", "finish", "subspace"};
  return kNames[static_cast<int>(s)];
}

struct LargeProgress {
  LargeStage stage = LargeStage::kPrepare;
  int32_t sweep = 0;             // outer sweeps begun
  int64_t rotations = 0;         // so far
  int64_t proper_rotations = 0;  // of these, those that changed more than the order of columns
  // The largest cosine between two columns that the last complete sweep met, or the check of all cosines after it; 1
  // before that. kGeneral: |strict lower triangle|_F / |A|_F before this sweep.
  double off_diagonal = 0;
  double fraction = 0;       // an estimate of the time that has passed, of the whole, never falling, 0 .. 1
  double next_fraction = 0;  // what it will be where the part of the work under way ends
  double next_seconds = 0;   // predicted, from now until then
};

// A point that a decomposition has reached, from which another process may go on.
enum class LargeState : uint8_t {
  kFactors,  // the QR's
  kStart,    // of the sweeps: all that they read and leave as it is
  kSweep,    // all that a sweep changes, as it was before the first sweep or after a later one
  kLast = kSweep,
};
constexpr const char* name(LargeState s) {
  constexpr const char* kNames[] = {"factors", "start", "sweep"};
  return kNames[static_cast<int>(s)];
}

// Keeps the states of one matrix. A decomposition saves them between its parts, and goes on from those that it finds. A
// state is a sequence of bytes, which is there completely or not at all. It says by which build and for which plan it was
// saved, and a decomposition takes no other. Only sweeps of SVDs and of FACTORED have states.
// Thread safety: none. One decomposition at a time has it, on the thread that called decompose(). Nothing throws.
class LargeStateStore {
 public:
  virtual ~LargeStateStore() = default;

  // Whether states are to be saved now. Where they are, those that are begun before it is asked again belong together.
  virtual bool due() = 0;
  // Begins a state of `bytes` bytes. False: it cannot be saved. A state that was begun and has not ended is given up.
  virtual bool begin(LargeState state, uint64_t bytes) = 0;
  // Its next bytes. They are the caller's again when this returns.
  virtual void write(const void* bytes, uint64_t count) = 0;
  // It is complete, and takes the place of the one that was there before.
  virtual void end() = 0;

  // Begins to read a state. Returns how many bytes there are; 0: there is none.
  virtual uint64_t open(LargeState state) = 0;
  // Its next bytes. False: they cannot be read, or are the last ones and some of all were not as they were written.
  virtual bool read(void* bytes, uint64_t count) = 0;
};

struct LargeControl {
  // Called on the computing thread after each group of p-steps and between stages; must not block. May be empty.
  std::function<void(const LargeProgress&)> progress;
  // Polled between groups of p-steps and between stages, so that it is obeyed within a second. May be null.
  const std::atomic<bool>* cancel = nullptr;
  // Null: a decomposition begins with its operand, and leaves nothing behind.
  LargeStateStore* states = nullptr;
  // The device's memory that it may take. Where the plan would like more, matrices that are not used for a while lie in
  // the host's memory meanwhile, with the same bits. Where that is not enough, the device has panels of them at a time.
  // The bits are others then, and depend on neither the room nor the panels that fit it.
  uint64_t device_room = kAnyRoom;
};

enum class LargeStatus : uint8_t {
  kOk,
  kNotConverged,   // the limit of sweeps was reached: the results are the best so far
  kCancelled,      // nothing of the outputs is to be used, from here on down
  kNonFinite,      // at (row, col)
  kRankDeficient,  // with a signature: G does not have full column rank
  kOutOfMemory,
  kFault,  // of the device: `detail` says what
};

// Where the time went.
struct LargePhaseTime {
  std::string name;  // such as "qr", "gram", "inner", "postmultiply"
  double seconds = 0;
  double flops = 0;  // real operations that the mathematics needs
};

// The numbers of an outcome.
struct LargeReport {
  LargeStatus status = LargeStatus::kFault;
  int64_t row = 0, col = 0;   // of kNonFinite
  bool out_of_range = false;  // a value is above the largest finite number of its type, and +inf
  bool device_lost = false;   // with kFault; with results where a ring went on without a member
  Method method = Method::kJacobi;
  bool warm_started = false;   // from an eigenbasis, or from starting vectors
  int32_t sweeps = 0;          // kGeneral: those of kJacobi, even where kQr has the results in the end
  int32_t resumed_sweeps = 0;  // of these, those that came from a state
  int64_t rotations = 0, proper_rotations = 0;
  int32_t subspace_steps = 0;  // with top_k: of the subspace that gave the results; 0: the full decomposition did
  // With certificate; see outputs.h. With top_k residual is that of the triplets that are returned: the larger one of
  // |A V - U S|_F and |A^H U - V S|_F, over |A|_F.
  double residual = 0, left_orthogonality = 0, right_orthogonality = 0;
  // An eigenproblem's own. rank: eigenvalues that are not exact zeros, which kTridiagonal and kQr seldom find.
  // factor_condition, with certificate, of kFactored and kJacobi: at least the condition number of G with unit columns.
  // Eigenvalues of G J G^H have relative errors of some max(n, 8) u times this.
  int64_t rank = 0;
  double factor_condition = 0;
};

struct LargeOutcome : LargeReport {
  std::string detail;
  int32_t members = 1;  // of a ring, that computed the sweeps together; 1: one device did, or the whole host
  std::vector<LargePhaseTime> phases;
};

// A device for large matrices. Same plan and operand, same bits, on the same back end with the same number of threads.
// Thread safety: decompose() from any thread; calls at once share the device.
class LargeEngine {
 public:
  virtual ~LargeEngine() = default;
  // With this room on the device. device_bytes above it: the matrix does not fit.
  virtual LargeWorkspace memory(const LargePlan& plan, uint64_t device_room = kAnyRoom) const = 0;
  // How long decompose() will take, as well as it can be known before. 0: it is not known.
  virtual double predicted_seconds(const LargePlan& /*plan*/) const { return 0; }
  // The most bytes of all states of a plan together, with the one that a new one replaces. 0: it has no states here.
  virtual uint64_t state_bytes(const LargePlan& /*plan*/) const { return 0; }
  // Opens what the first decomposition would open, such as libraries and their handles. It takes up to a second, and may be
  // called beside decompose(). No decomposition needs it, and what fails here fails there again. Never throws.
  virtual void prepare() const {}
  // Blocks until the results are written. Never throws.
  virtual LargeOutcome decompose(const LargePlan& plan, const LargeOperands& operands,
                                 const LargeControl& control = {}) const = 0;
};

// On the processor; threads 0: every core the process may use.
std::unique_ptr<LargeEngine> make_host_large_engine(int threads = 0);

// The members of a ring: in this process, or each a process of its own, called a rank, whose death is survived.
enum class RingMembers : uint8_t { kInProcess, kRanks };

// The first statement of main() in a program whose rings have ranks, since these are this program again. In a process that
// is a rank it serves the leader until this one is gone, and returns the exit status. Else it returns nothing, and the
// process may start ranks from now on, unless the dynamic loader was started with the program as its argument. SIGCHLD is
// no longer ignored then, and is to stay so.
std::optional<int> run_as_rank(int argc, char** argv);

// The same on a ring of `members` shares of the threads, each with memory of its own: 1, 2, 4 or 8; else null. A ring's
// results have the same bits for every number of members and the same number of threads (backends/ring/ring_backend.h).
// It takes more memory, and on most hosts somewhat more time. kRanks: null in a program that may start no ranks.
// Ranks that are idle are kept for a minute, and no longer than the engine.
std::unique_ptr<LargeEngine> make_host_ring_engine(int threads, int members,
                                                   RingMembers kind = RingMembers::kInProcess);

// The kernels that OpenBLAS chose for this processor when it was loaded, such as "Haswell".
std::string blas_kernels();
// Faster ones that this processor has the instructions for; empty: OpenBLAS has chosen well. It gives a processor that is
// newer than itself kernels for SSE3, with a quarter of the speed. A program gets others by the environment variable
// OPENBLAS_CORETYPE, which OpenBLAS reads when it is loaded.
std::string faster_blas_kernels();

}  // namespace svdserve
#endif  // SVDSERVE_ENGINE_LARGE_ENGINE_H_
