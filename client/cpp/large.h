// One large matrix, its SVD, hyperbolic SVD, or eigenvalues and eigenvectors: values of Client::decompose_large().
// Values only, as in types.h; DecomposeLarge of the proto says more of each.
#ifndef SVDSERVE_CLIENT_CPP_LARGE_H_
#define SVDSERVE_CLIENT_CPP_LARGE_H_

#include <complex>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <iterator>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "client/cpp/types.h"

namespace svdserve::client {

// The order in which block pairs of columns are rotated in a sweep; kAuto: the server's choice.
enum class PivotStrategy : uint8_t {
  kAuto,
  kRecursive,
  kModifiedModulus,
  kRoundRobin,
  kRowCyclic,
  kColumnCyclic,
  kReverseRowCyclic,
  kReverseColumnCyclic,
  kLast = kReverseColumnCyclic,
};
constexpr const char* name(PivotStrategy s) {
  constexpr const char* kNames[] = {"auto",       "recursive",     "modified-modulus",   "round-robin",
                                    "row-cyclic", "column-cyclic", "reverse-row-cyclic", "reverse-column-cyclic"};
  static_assert(std::size(kNames) == static_cast<size_t>(PivotStrategy::kLast) + 1);
  return kNames[static_cast<int>(s)];
}

// The work on a block pair: one inner sweep, or as many as make its columns orthogonal.
enum class BlockVariant : uint8_t { kAuto, kBlockOriented, kFullBlock, kLast = kFullBlock };
constexpr const char* name(BlockVariant v) {
  constexpr const char* kNames[] = {"auto", "block-oriented", "full-block"};
  return kNames[static_cast<int>(v)];
}

// The decomposition of a large matrix.
enum class LargeProblem : uint8_t {
  kSvd,              // A = U S V^H; with a signature the hyperbolic G = U S V^H
  kHermitian,        // A = U L U^H, A Hermitian
  kHermitianFactor,  // G J G^H = U L U^H, G with the signature J given
  kGeneral,          // A V = V L and W^H A = L W^H, A square: complex results, V in the place of U and W of V
  kLast = kGeneral,
};

enum class LargeStage : uint8_t {
  kUpload,
  kQueued,
  kPrepare,
  kPrecondition,
  kWarmStart,
  kSweep,
  kFinish,
  kSubspace,
  kDownload,
  kLast = kSubspace,  // of those that the server reports
};
constexpr const char* name(LargeStage s) {
  constexpr const char* kNames[] = {"upload", "queued", "prepare",  "precondition", "warm start",
                                    "sweep",  "finish", "subspace", "download"};
  return kNames[static_cast<int>(s)];
}

struct LargeProgress {
  LargeStage stage = LargeStage::kUpload;
  // 0 .. 1: of the upload, of the computation's time (an estimate that never falls), of the download
  double fraction = 0;
  int32_t sweep = 0;             // sweeps begun
  int64_t rotations = 0;         // so far
  int64_t proper_rotations = 0;  // of these, those that changed more than the order of columns
  // The largest cosine between two columns that the last complete sweep met, or the check of all cosines after it. kGeneral:
  // what is below the diagonal relative to the matrix, by norms, before this sweep.
  double off_diagonal = 1;
  double elapsed_seconds = 0;  // since the call began
  double overall = 0;          // 0 .. 1 of the time of the whole call, an estimate that never falls
  double eta_seconds = 0;      // until the call ends, an estimate
  std::string device = {};     // that computes it, several joined by commas; empty until one has taken it
};

struct LargeOptions {
  // kAuto or kJacobi; of kHermitian kTridiagonal (kAuto) or kFactored, too. kGeneral has kQr (kAuto) and kJacobi, which is
  // kAuto with starting vectors; it leaves to kQr what misses its bound.
  Method method = Method::kAuto;
  Vectors vectors = Vectors::kThin;  // of kGeneral: kThin V, kFull V and W
  double tolerance = 0;    // the cosine of two columns below which they count as orthogonal; 0: the method's own; not
                           // of kGeneral
  int32_t max_sweeps = 0;  // 0: the server's default
  PivotStrategy pivot_strategy = PivotStrategy::kAuto;
  BlockVariant block_variant = BlockVariant::kAuto;
  bool certificate = false;  // the report has one
  // Only the leading top_k values and vectors of an SVD: 0 (all) .. k; not with kFull. kAuto without the four options
  // before has them from a subspace where that is as accurate, at a part of the time.
  int64_t top_k = 0;
  LargeProblem problem = LargeProblem::kSvd;
  Triangle triangle = Triangle::kLower;  // of kHermitian
  // Told now and then how far it is, on the calling thread. A stop_source ends the call. So does an exception, which goes
  // to the caller; of an asynchronous call it becomes ABORTED.
  std::function<void(const LargeProgress&)> progress = {};
};

// A dense matrix without gaps. A view: `data` holds rows * cols elements, at any alignment, little-endian, and must
// live until the call has ended.
struct LargeMatrix {
  const void* data = nullptr;
  int64_t rows = 0;  // m >= 1
  int64_t cols = 0;  // n >= 1
  DataType data_type = DataType::kF64;
  MemoryOrder memory_order = MemoryOrder::kRowMajor;  // of the results, too
  // The diagonal of J, n numbers +1 or -1, of the hyperbolic G = U S V^H with U^H U = I and V^H J V = J, or of
  // G J G^H = U L U^H. Then m >= n, and G must have full column rank. Empty without J.
  std::span<const int8_t> signature = {};
  // As Batch::owner: set, it keeps `data` alive, and chunks are sent from where they are; empty, each is copied once.
  std::shared_ptr<const void> owner = {};
  // kGeneral: approximate eigenvectors from which Method::kJacobi starts, or null. n x n of vector_type(), in
  // memory_order, as `data` a view; starting_owner as owner. A matrix with singular or infinite ones is left to kQr.
  const void* starting_vectors = nullptr;
  std::shared_ptr<const void> starting_owner = {};
};

// The elements of vectors: those of the matrix, of kGeneral complex ones of its precision.
SVDSERVE_CLIENT_API DataType vector_type(const LargeMatrix& matrix, const LargeOptions& options);

// Bytes of the operand and of its results; what is not wanted has none. Fails with the field at fault where a size is
// not positive or a product passes int64.
struct LargeSizes {
  int64_t values = 0;        // k = min(m, n), or top_k; of an eigenproblem m
  int64_t left_columns = 0;  // of U, rows x left_columns; of kGeneral of V
  int64_t right_rows = 0;    // of V^H, right_rows x cols; of kGeneral of W^H
  int64_t matrix_bytes = 0;
  int64_t operand_bytes = 0;  // of the matrix with its starting vectors
  int64_t values_bytes = 0;
  int64_t left_bytes = 0;
  int64_t right_bytes = 0;
};
SVDSERVE_CLIENT_API Result<LargeSizes> large_sizes(const LargeMatrix& matrix, const LargeOptions& options);

// Memory for the results, each of exactly the bytes of large_sizes(), any alignment. They are written as they arrive:
// memory that is a mapped file need not fit the machine's.
struct LargeOutputs {
  // k real numbers, descending; hyperbolic: among columns of equal sign; eigenvalues: ascending. kGeneral has complex
  // numbers in no order, but conjugate pairs together.
  std::span<std::byte> values = {};
  std::span<std::byte> left = {};           // U; of kGeneral V
  std::span<std::byte> right_adjoint = {};  // V^H; of kGeneral W^H
};

// Time of a part of the computation.
struct LargePhase {
  std::string name = {};  // such as "qr", "gram", "inner", "postmultiply"
  double seconds = 0;
  double flops = 0;  // real floating-point operations that the mathematics needs
};

// The report of a successful call, besides the results.
struct LargeReport {
  MatrixStatus status = MatrixStatus::kOk;  // kOk, kNotConverged (the results are the best so far) or kOutOfRange
  Method method = Method::kAuto;            // SVDs: kAuto: from an eigenbasis or a subspace; else kJacobi
  std::string device = {};                  // several that computed it together are joined by a comma
  int32_t sweeps = 0;
  int64_t rotations = 0;
  int64_t proper_rotations = 0;
  double upload_seconds = 0;  // of the server's clock, as the next three
  double queue_seconds = 0;
  double compute_seconds = 0;
  double download_seconds = 0;
  std::vector<LargePhase> phases = {};
  std::optional<Certificate> certificate = {};  // of a hyperbolic decomposition right_orthogonality is |J - V^H J V|_F
  int64_t rank = 0;                             // of an eigenproblem: eigenvalues that are not exact zeros
  // With certificate, of kFactored and kJacobi in an eigenproblem: at least the condition number of G with unit
  // columns, A = G J G^H. Relative errors of the eigenvalues are at most 10 max(m, 8) u times this.
  double factor_condition = 0;
  int32_t subspace_steps = 0;  // with top_k: of the subspace that gave the results; 0: all triplets were computed
  // Devices that computed the last sweep together; 1: one device computed all of it; 0: an older server does not say.
  int32_t members = 0;
  int attempts = 1;
};

// A = U S V^H: U has left_columns columns, V^H right_rows rows.
template <class T>
struct LargeDecomposition {
  std::vector<T> left = {};            // rows x left_columns
  std::vector<RealOf<T>> values = {};  // k
  std::vector<T> right_adjoint = {};   // right_rows x cols
  int64_t left_columns = 0;
  int64_t right_rows = 0;
  LargeReport report = {};
  int64_t rows = 0;  // of the matrix, as the next two
  int64_t cols = 0;
  MemoryOrder order = MemoryOrder::kRowMajor;

  MatrixView<T> u() const& { return internal::matrix_of(left, 0, rows, left_columns, order); }
  std::span<const RealOf<T>> s() const& { return values; }
  MatrixView<T> vh() const& { return internal::matrix_of(right_adjoint, 0, right_rows, cols, order); }
  MatrixView<T> u() const&& = delete;
  std::span<const RealOf<T>> s() const&& = delete;
  MatrixView<T> vh() const&& = delete;
};

// A = U L U^H: eigenvalues ascending, eigenvectors in the columns of U.
template <class T>
struct LargeEigen {
  std::vector<RealOf<T>> values = {};  // m
  std::vector<T> vectors = {};         // m x m; none were asked for: empty
  LargeReport report = {};
  int64_t n = 0;  // m
  MemoryOrder order = MemoryOrder::kRowMajor;

  std::span<const RealOf<T>> w() const& { return values; }
  MatrixView<T> u() const& { return internal::matrix_of(vectors, 0, n, n, order); }
  std::span<const RealOf<T>> w() const&& = delete;
  MatrixView<T> u() const&& = delete;
};

// A V = V L, W^H A = L W^H: eigenvalues in no order, but conjugate pairs together. The columns of V and W have norm 1.
template <class T>
struct LargeGeneralEigen {
  using Complex = std::complex<RealOf<T>>;

  std::vector<Complex> values = {};        // n
  std::vector<Complex> vectors = {};       // V, n x n; none were asked for: empty
  std::vector<Complex> left_adjoint = {};  // W^H, n x n, with Vectors::kFull
  LargeReport report = {};
  int64_t n = 0;
  MemoryOrder order = MemoryOrder::kRowMajor;

  std::span<const Complex> w() const& { return values; }
  MatrixView<Complex> v() const& { return internal::matrix_of(vectors, 0, n, n, order); }
  MatrixView<Complex> wh() const& { return internal::matrix_of(left_adjoint, 0, n, n, order); }
  std::span<const Complex> w() const&& = delete;
  MatrixView<Complex> v() const&& = delete;
  MatrixView<Complex> wh() const&& = delete;
};

}  // namespace svdserve::client
#endif  // SVDSERVE_CLIENT_CPP_LARGE_H_
