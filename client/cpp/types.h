// The values of svdserve's C++ client: what is asked, what comes back, and what can go wrong. Values only; no protobuf
// and no gRPC type appears here or in any other public header of the client.
#ifndef SVDSERVE_CLIENT_CPP_TYPES_H_
#define SVDSERVE_CLIENT_CPP_TYPES_H_

#include <algorithm>
#include <array>
#include <cassert>
#include <chrono>
#include <cmath>
#include <complex>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <memory>
#include <optional>
#include <span>
#include <stdexcept>
#include <stop_token>
#include <string>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#if __cplusplus < 202002L
#error "svdserve's client needs C++20: compile with -std=c++20 or newer"
#endif

// Marks what libsvdserve_client.so offers. Everything else in it is hidden, gRPC's names included.
#define SVDSERVE_CLIENT_API __attribute__((visibility("default")))

namespace svdserve::client {

// --- matrices -----------------------------------------------------------------------------------

// Element type. Complex elements are pairs (real, imaginary), as std::complex stores them. Those of 16-bit numbers are for
// operands of batches: the server converts them exactly, and all results are those of result_type().
enum class DataType : uint8_t {
  kF32,
  kF64,
  kC64,
  kC128,
  kF16,   // IEEE binary16
  kBF16,  // bfloat16, the upper half of a float
  kC32,   // two binary16
  kI16,   // int16_t times 2^exponent of its Batch
  kCI16,  // two such integers
  kLast = kCI16,
};

// How the elements of one matrix follow each other.
enum class MemoryOrder : uint8_t { kRowMajor, kColumnMajor, kLast = kColumnMajor };

constexpr const char* name(DataType t) {
  switch (t) {
    case DataType::kF32:
      return "f32";
    case DataType::kF64:
      return "f64";
    case DataType::kC64:
      return "c64";
    case DataType::kC128:
      return "c128";
    case DataType::kF16:
      return "f16";
    case DataType::kBF16:
      return "bf16";
    case DataType::kC32:
      return "c32";
    case DataType::kI16:
      return "i16";
    case DataType::kCI16:
      return "ci16";
  }
  return "?";
}

// The element type of vectors and gradients: kF32 or kC64 for elements of 16-bit numbers, else that of the matrices.
constexpr DataType result_type(DataType t) {
  if (t <= DataType::kC128) return t;
  return t == DataType::kC32 || t == DataType::kCI16 ? DataType::kC64 : DataType::kF32;
}

// Bytes of one element, and of one singular value: f64 for F64 and C128, f32 for all others.
constexpr size_t element_bytes(DataType t) {
  if (t != result_type(t)) return element_bytes(result_type(t)) / 2;
  return t == DataType::kF32 ? 4 : t == DataType::kC128 ? 16 : 8;
}
constexpr size_t value_bytes(DataType t) { return t == DataType::kF64 || t == DataType::kC128 ? 8 : 4; }

// The element types of a matrix, their DataType and the type of their singular values.
template <class T>
struct ElementTraits;
template <>
struct ElementTraits<float> {
  using Real = float;
  static constexpr DataType kDataType = DataType::kF32;
};
template <>
struct ElementTraits<double> {
  using Real = double;
  static constexpr DataType kDataType = DataType::kF64;
};
template <>
struct ElementTraits<std::complex<float>> {
  using Real = float;
  static constexpr DataType kDataType = DataType::kC64;
};
template <>
struct ElementTraits<std::complex<double>> {
  using Real = double;
  static constexpr DataType kDataType = DataType::kC128;
};
template <class T>
using RealOf = typename ElementTraits<T>::Real;

// A batch of equally shaped dense matrices, one after the other without gaps. A view: `data` holds
// count * rows * cols elements, at any alignment, little-endian.
struct Batch {
  const void* data = nullptr;
  int64_t rows = 0;   // m >= 1
  int64_t cols = 0;   // n >= 1
  int64_t count = 0;  // >= 0
  DataType data_type = DataType::kF64;
  MemoryOrder memory_order = MemoryOrder::kRowMajor;
  // The owner of `data`. Set: the client holds it as long as the network needs the bytes and sends them from where
  // they are. Empty: the client copies each piece once as it sends it. So a cancelled or expired call never leaves the
  // network reading memory that is the caller's again. `data` must live until the call has ended.
  std::shared_ptr<const void> owner = {};
  // Problem::kGeneral: approximate eigenvectors, such as those of matrices nearby, from which Method::kJacobi starts;
  // kAuto then is kJacobi. Null: none. For each matrix n x n complex numbers, the vectors in columns: std::complex<float>
  // but for kF64 and kC128, else std::complex<double>. They are in memory_order and without gaps, at any alignment. Their
  // owner is as that of `data`, and they live as long.
  const void* starting_vectors = nullptr;
  std::shared_ptr<const void> starting_owner = {};
  int32_t exponent = 0;  // of kI16 and kCI16: an element is its integer times 2^exponent, -126 .. 112

  int64_t values_per_matrix() const { return std::min(rows, cols); }
};

// --- how ----------------------------------------------------------------------------------------

enum class Method : uint8_t {
  kAuto,        // the server's choice, a function of shape and type alone
  kBidiagonal,  // Householder bidiagonalization, then dqds; values alone, min(m, n) <= 32
  kBisection,   // the same, then Sturm bisection to a chosen tolerance; values alone, min(m, n) <= 32
  // One-sided Jacobi: high relative accuracy for graded columns, and vectors. Eigenvalues of a batch have errors relative
  // to the largest one of their matrix. General matrices: shears and rotations.
  kJacobi,
  kFactored,     // one large Hermitian matrix: factorization and hyperbolic Jacobi; small eigenvalues keep their digits
  kTridiagonal,  // Hermitian: tridiagonal form; of one large matrix, and what kAuto is of batches up to n = 4
  kQr,           // general matrices: Hessenberg form, then shifted QR
  kLast = kQr,
};

// "jacobi"; for a method of a newer server "method 9", by its number in the contract.
inline std::string name(Method m) {
  constexpr const char* kNames[] = {"auto", "bidiagonal", "bisection", "jacobi", "factored", "tridiagonal", "qr"};
  const auto i = static_cast<size_t>(m);
  return i < std::size(kNames) ? kNames[i] : "method " + std::to_string(i + 1);
}

// The methods of Problem::kSvd.
inline constexpr Method kSvdMethods[] = {Method::kAuto, Method::kBidiagonal, Method::kBisection, Method::kJacobi};

// The decomposition of a batch.
enum class Problem : uint8_t {
  kSvd,        // A = U S V^H
  kHermitian,  // A = U L U^H, A Hermitian, its eigenvalues L ascending: they take the place of the singular values
  // A V = V L and W^H A = L W^H, columns of V and W of norm 1, in no order. L takes the place of the singular values, V
  // that of U, W^H that of V^H; all are complex, whatever the matrices are.
  kGeneral,
  kLast = kGeneral,
};

// The triangle of a Hermitian matrix that is read, as NumPy's UPLO. Imaginary parts of the diagonal are not read.
enum class Triangle : uint8_t { kLower, kUpper, kLast = kUpper };

// Singular vectors of A = U S V^H. Thin: U is m x k, V^H k x n. Full: m x m and n x n. Problem::kGeneral has V
// with thin ones, V and W^H with full ones.
enum class Vectors : uint8_t { kNone, kThin, kFull, kLast = kFull };

// kBatch: the largest numbers of the batch, in Report::certificate. kMatrix: these, and the numbers of each matrix.
enum class CertificateScope : uint8_t { kNone, kBatch, kMatrix, kLast = kMatrix };

// Numbers of MIMO channels y = H x + noise; MimoOptions of the proto defines each.
struct MimoOptions {
  bool capacity = false;       // bit/s/Hz, equal power on every transmit antenna
  bool water_filling = false;  // bit/s/Hz, the power divided best
  bool stream_snr = false;
  bool condition_number = false;
  bool effective_rank = false;
  std::optional<double> rank_threshold = {};  // set: the number of values above it, relative to the largest
  std::vector<double> snr_db = {};            // of the first three
  int64_t group_size = 1;                     // neighbours whose capacities are summed; divides the count
  int64_t precoder_columns = 0;               // leading columns of V
  int64_t combiner_columns = 0;               // leading columns of U
  bool singular_values = false;               // they are wanted, too
  bool gradient = false;  // of each of capacity, water_filling and effective_rank that is wanted, one at least
};

// How to compute, and what is wanted of it.
struct ComputeOptions {
  Problem problem = Problem::kSvd;
  Triangle triangle = Triangle::kLower;  // of kHermitian
  Method method = Method::kAuto;         // of kHermitian: kAuto or kJacobi; of kGeneral: kAuto, kQr or kJacobi
  double tolerance = 0;                  // 0: the method's default; kBisection: in (0, 1/2]; kJacobi: in (0, 1]
  int32_t max_sweeps = 0;                // 0: the default; kJacobi only. With either, kAuto of kHermitian is kJacobi
  Vectors vectors = Vectors::kNone;      // of kHermitian kThin: all eigenvectors
  int64_t top_k = 0;        // only the leading values and vectors; 0: all; not with Vectors::kFull, nor of kHermitian
  bool fix_phases = false;  // the largest component of every column of U is real and positive; V follows
  CertificateScope certificate = CertificateScope::kNone;  // with vectors only
  // kGeneral: also the condition number of each eigenvalue, and the status kNearDefective. Vectors are not needed.
  bool condition = false;
  std::optional<MimoOptions> mimo = {};  // set: these, and values only where it says so; not of kHermitian
};

// The arrays that a reply may have. Matrices in them are in the memory order and of the result_type() of the batch,
// everything else is of its real type.
enum class Plane : uint8_t {
  kValues,           // a matrix: its singular values, descending; or its eigenvalues, ascending, complex of kGeneral
  kLeft,             // a matrix: U, rows x columns; or the combiner; or U or V of eigenvectors
  kRight,            // a matrix: V^H, columns x cols; or the precoder, cols x columns; or W^H
  kCapacity,         // a group: for each SNR a number
  kWaterFilling,     // a group: for each SNR a number
  kStreamSnr,        // a matrix: for each SNR k numbers
  kConditionNumber,  // a matrix: a number
  kEffectiveRank,    // a matrix: a number
  kThresholdRank,    // a matrix: a number
  kCertificate,      // a matrix: residual, orthogonality of U, of V
  kEigenvalueCondition,    // a matrix: the condition number of each eigenvalue
  kCapacityGradient,       // a matrix: for each SNR U diag(dF / ds_i) V^H, rows x cols; F is the capacity
  kWaterFillingGradient,   // a matrix: likewise of the capacity by water-filling
  kEffectiveRankGradient,  // a matrix: the same of the effective rank, once
  kLast = kEffectiveRankGradient,
};
inline constexpr int kPlanes = static_cast<int>(Plane::kLast) + 1;

// The planes that a flag of MimoOptions asks for.
struct MimoFlag {
  Plane plane;
  bool MimoOptions::*flag;
};
inline constexpr MimoFlag kMimoFlags[] = {
    {Plane::kCapacity, &MimoOptions::capacity},
    {Plane::kWaterFilling, &MimoOptions::water_filling},
    {Plane::kStreamSnr, &MimoOptions::stream_snr},
    {Plane::kConditionNumber, &MimoOptions::condition_number},
    {Plane::kEffectiveRank, &MimoOptions::effective_rank},
};

// Bytes of a plane for `count` matrices of the batch's shape, a multiple of the group; 0: it was not asked for.
// INT64_MAX / 64 stands for everything that is larger.
SVDSERVE_CLIENT_API int64_t plane_bytes(const Batch& batch, const ComputeOptions& compute, Plane plane, int64_t count);

// Memory for the planes of a reply, each of exactly plane_bytes(batch, compute, plane, batch.count) bytes, any
// alignment. Values alone convert to it.
struct Outputs {
  std::array<std::span<std::byte>, kPlanes> planes = {};

  Outputs() = default;
  template <class Bytes>
  requires std::convertible_to<Bytes, std::span<std::byte>> Outputs(Bytes&& values)
      : planes{std::span<std::byte>(values)} {}  // NOLINT: converts on purpose
  std::span<std::byte>& operator[](Plane plane) { return planes[static_cast<size_t>(plane)]; }
  std::span<std::byte> operator[](Plane plane) const { return planes[static_cast<size_t>(plane)]; }
};

// A batch that is sent together with others, whose shapes and types may differ, and the memory for its results.
struct Group {
  Batch batch = {};
  Outputs out = {};
};

// One call. Without a timeout a call takes as long as it takes; retries included it never takes longer than the
// timeout.
struct CallOptions {
  std::optional<std::chrono::nanoseconds> timeout = {};
  std::stop_token stop = {};  // a request to stop cancels the call, on the server, too
};

// After a failed attempt the client waits and tries again where that can help. The server was out of reach or
// draining (UNAVAILABLE), or rejected the call for load with a retry delay (RESOURCE_EXHAUSTED). The wait is the
// server's delay, or else the backoff, jittered either way; a wait that would end after the deadline is not begun. A
// delay above max_server_delay is not waited for: the call fails at once, and its status holds the delay.
struct RetryPolicy {
  int max_attempts = 8;  // of each message, but for those at once at another server; 1 never retries
  std::chrono::nanoseconds initial_backoff = std::chrono::milliseconds(20);
  std::chrono::nanoseconds max_backoff = std::chrono::seconds(5);
  double multiplier = 2;  // of the backoff from one attempt to the next
  std::chrono::nanoseconds max_server_delay = std::chrono::minutes(5);
};

// --- what came of it ----------------------------------------------------------------------------

// Canonical codes, with their numbers in gRPC.
enum class Code : uint8_t {
  kOk = 0,
  kCancelled = 1,
  kUnknown = 2,
  kInvalidArgument = 3,
  kDeadlineExceeded = 4,
  kNotFound = 5,
  kAlreadyExists = 6,
  kPermissionDenied = 7,
  kResourceExhausted = 8,
  kFailedPrecondition = 9,
  kAborted = 10,
  kOutOfRange = 11,
  kUnimplemented = 12,
  kInternal = 13,
  kUnavailable = 14,
  kDataLoss = 15,
  kUnauthenticated = 16,
};

// "INVALID_ARGUMENT" and so on.
SVDSERVE_CLIENT_API const char* name(Code code);

struct FieldViolation {
  std::string field = {};        // path below the request, such as "matrices.rows"
  std::string description = {};  // what is wrong with it
};

// How a call ended. [[nodiscard]] because an ignored error is a wrong result.
struct [[nodiscard]] Status {
  Code code = Code::kOk;
  std::string reason = {};   // stable, in capitals, such as "OVERLOADED_BYTES" or "DEADLINE_UNREACHABLE"; empty: none
  std::string field = {};    // of an INVALID_ARGUMENT: the first field at fault; empty otherwise
  std::string message = {};  // for people
  std::optional<std::chrono::nanoseconds> retry_delay = {};  // when the server asks to try again
  std::vector<FieldViolation> violations = {};               // every field at fault
  // The parameter or option at fault in a verb's mistake, such as "rows". Where no server was reached, the member of
  // ClientOptions to look at, such as "address" or "tls.root_certificates". Else empty.
  std::string parameter = {};
  std::string request_id = {};  // of a call that the server failed: its name in the server's log

  bool ok() const { return code == Code::kOk; }
  // "INVALID_ARGUMENT (INVALID_FIELD) matrices.rows: must be at least 1"; of a verb's mistake "rows: ..."
  // Where the caller is not at fault, " [request ID]" follows.
  SVDSERVE_CLIENT_API std::string to_string() const;
};

// Thrown by Result::value() where there is no value. what(): the status as text.
class SVDSERVE_CLIENT_API Error : public std::runtime_error {
 public:
  explicit Error(Status status);
  ~Error() override;
  const Status& status() const noexcept { return *status_; }

 private:
  std::shared_ptr<const Status> status_;  // shared: an exception is copied without throwing
};

// A value, or the status that explains why there is none. Look at ok() and status(), or let value() throw.
template <class T>
class [[nodiscard]] Result {
 public:
  Result(T value) : content_(std::in_place_index<0>, std::move(value)) {}         // NOLINT: converts on purpose
  Result(Status status) : content_(std::in_place_index<1>, std::move(status)) {}  // NOLINT: `status` is not OK

  bool ok() const { return content_.index() == 0; }
  explicit operator bool() const { return ok(); }
  // The value. Where there is none, this and the operators below throw Error, which has the status.
  T& value() & { return throw_unless_ok(), std::get<0>(content_); }
  const T& value() const& { return throw_unless_ok(), std::get<0>(content_); }
  T&& value() && { return throw_unless_ok(), std::get<0>(std::move(content_)); }
  T& operator*() & { return value(); }
  const T& operator*() const& { return value(); }
  T&& operator*() && { return std::move(*this).value(); }
  T* operator->() { return &value(); }
  const T* operator->() const { return &value(); }
  // An OK status where ok().
  Status status() const { return ok() ? Status{} : std::get<1>(content_); }

 private:
  void throw_unless_ok() const {
    if (!ok()) throw Error(std::get<1>(content_));
  }

  std::variant<T, Status> content_;
};

// The outcome of one matrix; everything but kOk leaves the other matrices untouched.
enum class MatrixStatus : uint8_t {
  kOk = 0,
  kNonFinite = 1,      // it holds an infinity or a NaN: all its values are NaN
  kNotConverged = 2,   // the iteration limit was reached: its values are the best known
  kOutOfRange = 3,     // a value is too large: +inf, or an eigenvalue is -inf or has an infinite part; others are right
  kByQr = 4,           // Method::kJacobi of kGeneral missed its bound: the results are those of kQr, and right
  kNearDefective = 5,  // with ComputeOptions::condition: a matrix with a defective eigenvalue is near; all is right
  kLast = kNearDefective,
  kUnknown = 255,  // a status that this client does not know: do not rely on the matrix's results
};

// Whether all results of the matrix are right.
constexpr bool is_right(MatrixStatus s) {
  return s == MatrixStatus::kOk || s == MatrixStatus::kByQr || s == MatrixStatus::kNearDefective;
}

constexpr const char* name(MatrixStatus s) {
  switch (s) {
    case MatrixStatus::kOk:
      return "ok";
    case MatrixStatus::kNonFinite:
      return "non_finite";
    case MatrixStatus::kNotConverged:
      return "not_converged";
    case MatrixStatus::kOutOfRange:
      return "out_of_range";
    case MatrixStatus::kByQr:
      return "by_qr";
    case MatrixStatus::kNearDefective:
      return "near_defective";
    case MatrixStatus::kUnknown:
      return "unknown";
  }
  return "?";
}

struct MatrixException {
  int64_t index = 0;  // of the matrix in the caller's batch
  MatrixStatus status = MatrixStatus::kOk;
};

// How good a decomposition is: |A - U S V^H|_F / |A|_F, |I - U^H U|_F and |I - V^H V|_F, the largest of the batch but
// for matrices that are kNonFinite. The residual of kHermitian is |A U - U L|_F / |A|_F.
struct Certificate {
  double residual = 0;
  double left_orthogonality = 0;
  double right_orthogonality = 0;
};

// The report of a successful call, besides the planes.
struct Report {
  int64_t count = 0;
  int64_t values_per_matrix = 0;                 // k = min(rows, cols), or top_k; 0: not asked for
  std::vector<MatrixException> exceptions = {};  // the matrices that are not kOk, ascending by index
  Method method = Method::kAuto;                 // what was used: never kAuto
  std::string device = {};                       // who computed; several are joined by a comma
  // Seconds of the server's clock. A batch sent in pieces: queue and total of its slowest piece, compute summed.
  double queue_seconds = 0;
  double compute_seconds = 0;
  double total_seconds = 0;
  std::optional<Certificate> certificate = {};
  int64_t pieces = 1;    // messages the batch was sent in
  int64_t attempts = 1;  // over all pieces: above `pieces` by the number of retries

  // The status of matrix i.
  MatrixStatus status(int64_t i = 0) const {
    const auto e = std::ranges::lower_bound(exceptions, i, {}, &MatrixException::index);
    return e != exceptions.end() && e->index == i ? e->status : MatrixStatus::kOk;
  }
  // The number of matrices whose results are not all right.
  int64_t count_wrong() const {
    return std::ranges::count_if(exceptions, [](const MatrixException& e) { return !is_right(e.status); });
  }
};

// One matrix of a result where it lies: a view, valid as long as the result. The results below give views to those who
// keep the result: a temporary one has none.
template <class T>
struct MatrixView {
  const T* data = nullptr;  // rows * cols elements without gaps
  int64_t rows = 0;
  int64_t cols = 0;
  MemoryOrder order = MemoryOrder::kRowMajor;

  const T& operator()(int64_t i, int64_t j) const {
    assert(i >= 0 && i < rows && j >= 0 && j < cols);
    return data[order == MemoryOrder::kRowMajor ? i * cols + j : j * rows + i];
  }
  std::span<const T> elements() const { return {data, static_cast<size_t>(rows * cols)}; }
};

namespace internal {

// Matrix i of those that lie one after the other in `elements`.
template <class T>
MatrixView<T> matrix_of(const std::vector<T>& elements, int64_t i, int64_t rows, int64_t cols, MemoryOrder order) {
  assert(i >= 0 && static_cast<size_t>((i + 1) * rows * cols) <= elements.size());
  return {elements.data() + i * rows * cols, rows, cols, order};
}

// Part i of `length` numbers.
template <class Number>
std::span<const Number> part_of(const std::vector<Number>& numbers, int64_t i, int64_t length) {
  assert(i >= 0 && static_cast<size_t>((i + 1) * length) <= numbers.size());
  return {numbers.data() + i * length, static_cast<size_t>(length)};
}

// The certificate of matrix i.
template <class Real>
Certificate certificate_of(const std::vector<Real>& certificates, int64_t i) {
  const std::span<const Real> c = part_of(certificates, i, 3);
  return {c[0], c[1], c[2]};
}

}  // namespace internal

// values: count x values_per_matrix, descending for each matrix.
template <class Real>
struct SingularValues {
  std::vector<Real> values = {};
  Report report = {};

  // The values of matrix i.
  std::span<const Real> operator[](int64_t i) const {
    return std::span<const Real>(values).subspan(static_cast<size_t>(i * report.values_per_matrix),
                                                 static_cast<size_t>(report.values_per_matrix));
  }
  std::span<const Real> s(int64_t i = 0) const& { return (*this)[i]; }
  std::span<const Real> s(int64_t i = 0) const&& = delete;
};

// A = U S V^H for each matrix: U has left_columns columns, V^H right_rows rows.
template <class T>
struct Decomposition {
  std::vector<T> left = {};                  // count x rows x left_columns
  std::vector<RealOf<T>> values = {};        // count x values_per_matrix
  std::vector<T> right_adjoint = {};         // count x right_rows x cols
  std::vector<RealOf<T>> certificates = {};  // count x 3, with CertificateScope::kMatrix
  int64_t left_columns = 0;
  int64_t right_rows = 0;
  Report report = {};
  int64_t rows = 0;  // of each matrix, as the next two
  int64_t cols = 0;
  MemoryOrder order = MemoryOrder::kRowMajor;

  // U, S and V^H of matrix i.
  MatrixView<T> u(int64_t i = 0) const& { return internal::matrix_of(left, i, rows, left_columns, order); }
  std::span<const RealOf<T>> s(int64_t i = 0) const& { return internal::part_of(values, i, report.values_per_matrix); }
  MatrixView<T> vh(int64_t i = 0) const& { return internal::matrix_of(right_adjoint, i, right_rows, cols, order); }
  MatrixView<T> u(int64_t i = 0) const&& = delete;
  std::span<const RealOf<T>> s(int64_t i = 0) const&& = delete;
  MatrixView<T> vh(int64_t i = 0) const&& = delete;
  // With CertificateScope::kMatrix.
  Certificate certificate(int64_t i = 0) const { return internal::certificate_of(certificates, i); }
};

// A = U L U^H for each matrix: eigenvalues ascending, eigenvectors in the columns of U.
template <class T>
struct HermitianEigen {
  std::vector<RealOf<T>> values = {};        // count x n
  std::vector<T> vectors = {};               // count x n x n; none were asked for: empty
  std::vector<RealOf<T>> certificates = {};  // count x 3, with CertificateScope::kMatrix
  Report report = {};
  int64_t n = 0;
  MemoryOrder order = MemoryOrder::kRowMajor;

  // The eigenvalues of matrix i, and U.
  std::span<const RealOf<T>> w(int64_t i = 0) const& { return internal::part_of(values, i, n); }
  MatrixView<T> u(int64_t i = 0) const& { return internal::matrix_of(vectors, i, n, n, order); }
  std::span<const RealOf<T>> w(int64_t i = 0) const&& = delete;
  MatrixView<T> u(int64_t i = 0) const&& = delete;
  // With CertificateScope::kMatrix.
  Certificate certificate(int64_t i = 0) const { return internal::certificate_of(certificates, i); }
};

// The condition number of V in the Frobenius norm, |V|_F |V^-1|_F, of one matrix's unit eigenvectors. conditions: those
// of its eigenvalues. It is sqrt(n sum c^2); infinite where an eigenvalue has none that is finite.
template <class Real>
double condition_of_vectors(std::span<const Real> conditions) {
  double norm = 0;
  for (const Real c : conditions) norm = std::hypot(norm, static_cast<double>(c));
  return std::sqrt(static_cast<double>(conditions.size())) * norm;
}

// A V = V L for each matrix, with Vectors::kFull also W^H A = L W^H: columns of V and W have norm 1.
template <class T>
struct GeneralEigen {
  using Complex = std::complex<RealOf<T>>;
  std::vector<Complex> values = {};          // count x n
  std::vector<Complex> vectors = {};         // count x n x n: V; none were asked for: empty
  std::vector<Complex> left_adjoint = {};    // count x n x n: W^H; empty where it was not requested
  std::vector<RealOf<T>> certificates = {};  // count x 3, with CertificateScope::kMatrix
  std::vector<RealOf<T>> conditions = {};  // count x n, with ComputeOptions::condition: 1 / |w^H v| of each eigenvalue
  Report report = {};
  int64_t n = 0;
  MemoryOrder order = MemoryOrder::kRowMajor;

  // The eigenvalues of matrix i, V and W^H.
  std::span<const Complex> w(int64_t i = 0) const& { return internal::part_of(values, i, n); }
  MatrixView<Complex> v(int64_t i = 0) const& { return internal::matrix_of(vectors, i, n, n, order); }
  MatrixView<Complex> wh(int64_t i = 0) const& { return internal::matrix_of(left_adjoint, i, n, n, order); }
  std::span<const Complex> w(int64_t i = 0) const&& = delete;
  MatrixView<Complex> v(int64_t i = 0) const&& = delete;
  MatrixView<Complex> wh(int64_t i = 0) const&& = delete;
  // With CertificateScope::kMatrix.
  Certificate certificate(int64_t i = 0) const { return internal::certificate_of(certificates, i); }
  // With ComputeOptions::condition: the condition number of V of matrix i.
  double condition_of_vectors(int64_t i = 0) const {
    return client::condition_of_vectors(internal::part_of(conditions, i, report.values_per_matrix));
  }
};

// Numbers of each channel, or of each group of them.
template <class T>
struct Capacities {
  std::vector<RealOf<T>> values = {};  // count / group_size x number of SNRs, bit/s/Hz
  Report report = {};
  int64_t snrs = 0;

  // The capacities of group i, one for each SNR.
  std::span<const RealOf<T>> operator[](int64_t i) const& { return internal::part_of(values, i, snrs); }
  std::span<const RealOf<T>> operator[](int64_t i) const&& = delete;
};

// The leading columns of V of each channel: count x cols x columns.
template <class T>
struct Precoders {
  std::vector<T> columns = {};
  Report report = {};
  int64_t cols = 0;
  int64_t columns_per_matrix = 0;
  MemoryOrder order = MemoryOrder::kRowMajor;

  // The leading columns of V of channel i.
  MatrixView<T> v(int64_t i = 0) const& { return internal::matrix_of(columns, i, cols, columns_per_matrix, order); }
  MatrixView<T> v(int64_t i = 0) const&& = delete;
};

// The MIMO numbers that were asked for; the others are empty. A group is MimoOptions::group_size matrices.
template <class T>
struct Mimo {
  std::vector<RealOf<T>> capacity = {};          // groups x SNRs
  std::vector<RealOf<T>> water_filling = {};     // groups x SNRs
  std::vector<RealOf<T>> stream_snr = {};        // count x SNRs x k
  std::vector<RealOf<T>> condition_number = {};  // count
  std::vector<RealOf<T>> effective_rank = {};    // count
  std::vector<RealOf<T>> threshold_rank = {};    // count
  std::vector<RealOf<T>> values = {};            // count x k
  std::vector<T> combiners = {};                 // count x rows x combiner_columns
  std::vector<T> precoders = {};                 // count x cols x precoder_columns
  std::vector<T> capacity_gradient = {};         // count x SNRs x rows x cols, as the next one
  std::vector<T> water_filling_gradient = {};
  std::vector<T> effective_rank_gradient = {};  // count x rows x cols
  Report report = {};
};

// --- the server ---------------------------------------------------------------------------------

struct ServerLimits {
  int64_t max_values = 0;
  int64_t max_dimension = 0;
  int64_t max_matrices = 0;
  int64_t max_message_bytes = 0;
  int64_t max_inflight_requests = 0;
  int64_t max_inflight_bytes = 0;
  int64_t max_stream_requests = 0;
  int64_t max_groups = 0;
  int64_t max_general_order = 0;    // largest n of a batch of Problem::kGeneral; 0: the server takes none
  int64_t max_hermitian_order = 0;  // of Problem::kHermitian; an older server does not say it: max_values
  int64_t max_large_bytes = 0;      // operand, results and working memory of one large matrix; 0: it takes none
};

// Whether one matrix of the batch, or one group of them, and its results are no more than a message has room for.
SVDSERVE_CLIENT_API bool fits_a_message(const Batch& batch, const ServerLimits& limits, const ComputeOptions& compute);

// A device of the server, with its state and its work since the server started; the proto says more of each field.
struct ServerDevice {
  std::string name = {};
  std::string backend = {};  // "host" or "cuda"
  std::string instruction_set = {};
  int32_t threads = 0;
  bool healthy = false;
  std::string model = {};  // this, uuid and memory_bytes: of a GPU
  std::string uuid = {};
  int64_t memory_bytes = 0;
  int32_t lanes = 0;
  int64_t outstanding_batches = 0;
  double busy_seconds = 0;
  int64_t uploaded_bytes = 0;
  int64_t downloaded_bytes = 0;
  int64_t running_factors = 0;  // large ones
  int64_t waiting_factors = 0;
};

struct ServerInfo {
  std::string version = {};
  std::vector<DataType> data_types = {};
  std::vector<Method> methods = {};  // those that this client does not know, too
  ServerLimits limits = {};
  std::vector<ServerDevice> devices = {};
  bool draining = false;
};

// A load of equal requests, at random times.
struct Demand {
  double requests_per_second = 1;  // above 0
  // The time that 99 of 100 requests shall not exceed, from their arrival to their reply. Zero: any.
  std::chrono::nanoseconds latency = {};
};

// The time that a request takes on one device of the server.
struct DeviceCost {
  std::string device = {};
  double request_seconds = 0;  // alone on the idle device
  int64_t batch_matrices = 0;  // of the largest batch that such requests share
  double batch_seconds = 0;
  bool measured = false;  // false: reckoned from the times of the nearest shape
};

// The servers like the one that was asked, replicas, that serve a load; the proto says more of each field.
struct CapacityPlan {
  std::vector<DeviceCost> devices = {};
  double core_seconds = 0;  // of the host, for one request
  double gpu_seconds = 0;
  double utilization = 0;
  double latency_seconds = 0;  // predicted for 99 of 100 requests
  bool reachable = false;      // Demand::latency
  double replica_requests_per_second = 0;
  int64_t replicas = 0;
  double cores = 0;  // of all replicas together, as the next one
  double gpus = 0;
  int64_t replica_cores = 0;
  int64_t replica_gpus = 0;
  int64_t max_inflight_requests = 0;  // flags of each replica, as the next two
  int64_t max_inflight_bytes = 0;
  int64_t max_message_bytes = 0;
  int64_t memory_bytes = 0;  // of each, without large matrices
};

}  // namespace svdserve::client
#endif  // SVDSERVE_CLIENT_CPP_TYPES_H_
