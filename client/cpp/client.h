// svdserve's C++ client: singular values, vectors, MIMO capacities and eigenproblems of many small matrices,
// and the decompositions of large ones, computed by a server.
//
//   #include <svdserve/client.h>     // CMake: find_package(svdserve), target svdserve::client; pkg-config svdserve-client
//
//   svdserve::client::Client client({.address = "127.0.0.1:50051"});
//   auto d = client.svd(data, {4, 4}, {.timeout = 1s}).value();       // data: std::vector, std::span, std::array ...
//   use(d.s(i), d.u(i)(0, 0), d.vh(i));                               // of matrix i; value() throws where there is none
//   auto f = client.async().eigh(data, {4, 4});                       // a future of the same
//   auto e = f.get();
//   if (!e.ok()) { std::cerr << e.status().to_string(); return; }     // no exceptions: look at the status
//   auto g = client.svd(Eigen::MatrixXd::Random(6, 4));               // with <svdserve/eigen.h>: g->u() is Eigen's, too
//
// verbs.h has the verbs and options.h their options; the results are in types.h and large.h.
#ifndef SVDSERVE_CLIENT_CPP_CLIENT_H_
#define SVDSERVE_CLIENT_CPP_CLIENT_H_

#include <chrono>
#include <cstdint>
#include <functional>
#include <future>
#include <initializer_list>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "client/cpp/caller.h"
#include "client/cpp/large.h"
#include "client/cpp/options.h"
#include "client/cpp/prepared.h"
#include "client/cpp/stream.h"
#include "client/cpp/types.h"
#include "client/cpp/verbs.h"

namespace svdserve::client {

// PEM texts, not paths. Encryption is on where `enabled` is set.
struct TlsOptions {
  bool enabled = false;
  std::string root_certificates = {};  // whom to trust; empty: the system's roots
  std::string certificate_chain = {};  // mTLS: who we are; both or neither
  std::string private_key = {};
  std::string server_name = {};  // the name the server's certificate must bear, where it is not the address's

  // Reads the PEM files; an empty path leaves its text empty. NOT_FOUND for a file that cannot be read. INVALID_ARGUMENT
  // for one of another kind, and for a certificate without its key or the reverse.
  SVDSERVE_CLIENT_API static Result<TlsOptions> from_files(const std::string& root_certificates,
                                                           const std::string& certificate_chain = {},
                                                           const std::string& private_key = {});
};

// INVALID_ARGUMENT where `address`, or one of a list, is neither host:port nor a name that gRPC resolves, such as unix:/path or
// dns:///host:1. A Client does not ask: gRPC takes a host without a port for one with port 443.
SVDSERVE_CLIENT_API Status check_address(const std::string& address);

// Where a server listens: host:port, unix:/path, or a name such as dns:///host:port. Several servers: a list of these,
// {"a:1", "b:2"}, or their names with commas between them.
class Address {
 public:
  Address(const char* text) : text_(text) {}             // NOLINT: converts on purpose
  Address(std::string text) : text_(std::move(text)) {}  // NOLINT: converts on purpose
  Address(std::initializer_list<std::string> replicas) : Address(std::vector<std::string>(replicas)) {}
  Address(const std::vector<std::string>& replicas) {  // NOLINT: converts on purpose
    for (const std::string& replica : replicas) text_ += (text_.empty() ? "" : ",") + replica;
  }
  const std::string& text() const { return text_; }

 private:
  std::string text_;
};

// How much a line of ClientOptions::log matters.
enum class LogLevel : uint8_t { kInfo, kWarning };
constexpr const char* name(LogLevel level) { return level == LogLevel::kInfo ? "info" : "warning"; }

// With several servers calls take turns, and so do the pieces of a batch, each an equal share. A call goes to the next at
// once where one rejects it for load, drains or is out of reach. It waits only when all have failed. A server is left
// while it is out of reach, stopped, or does not serve by its own health check. A large matrix and a stream stay where
// they are; a large matrix whose server goes before its upload is complete is sent to another one.
// dns:///host:port is all servers of the name. Their number is unknown: a call goes to three before it waits. New ones
// are found when a connection ends, which servers do after --max-connection-age.
struct ClientOptions {
  Address address = "127.0.0.1:50051";
  TlsOptions tls = {};
  RetryPolicy retry = {};
  // TCP connections to each server; calls take turns. One carries one or two GB/s.
  int connections = 1;
  // Largest message to send and to accept. The smaller of this and the server's own limit applies.
  int64_t max_message_bytes = 64 << 20;
  // A larger batch is cut into pieces of about this size, so that one piece's upload overlaps another's computation.
  // Results do not depend on it. None: 4 MiB, and up to 32 MiB where 16 matrices have more than 4 MiB. A GPU takes as
  // long for one large matrix as for many. Several servers have fewer matrices each.
  std::optional<int64_t> piece_bytes = {};
  // Pieces of one batch in flight at once, at each server.
  int pieces_in_flight = 4;
  // Gets a line for each retry and failover, and for each server that is left or comes back. An example is
  // "127.0.0.1:1: attempt 2 of 8 follows in 0.02 s, after: UNAVAILABLE". Several threads may call it at once, those of
  // the network among them: it must not block, nor call the client. Where it throws, the line is lost. Null: no lines.
  std::function<void(LogLevel level, const std::string& line)> log = {};
  // Time without a reply to a ping after which a server is left, with the calls that wait for it. None: 4 s with several
  // servers, and 50 s with one.
  std::optional<std::chrono::nanoseconds> silence_timeout = {};
};

// A connection, made on first use and kept until the client is destroyed.
// Thread safety: every member may be called from any number of threads at once.
// Batches of any size. One that exceeds a message, counting the larger of request and reply, is cut into pieces, which
// are sent side by side and joined. One failed piece fails the call.
// Every reply is checked against its request. One that does not fit fails the call with INTERNAL, and one that is
// longer than ClientOptions::max_message_bytes with RESOURCE_EXHAUSTED.
class SVDSERVE_CLIENT_API Client : public Verbs<false> {
 public:
  explicit Client(ClientOptions options = {});
  // Cancels the calls in flight and waits until they have ended. Not to be run by a callback of the client.
  ~Client();
  Client(Client&&) noexcept;
  Client& operator=(Client&&) noexcept;

  // The verbs with futures.
  Verbs<true> async() const { return Verbs<true>(core_); }

  // The verbs with results; Verbs has them all. Those below with the same names take pointers to elements as spans, and
  // sizes, order and options one by one.
  using Verbs<false>::singular_values;
  using Verbs<false>::svd;
  using Verbs<false>::eigh;
  using Verbs<false>::eig;
  using Verbs<false>::capacity;
  using Verbs<false>::precoders;
  using Verbs<false>::svd_large;
  using Verbs<false>::hsvd;
  using Verbs<false>::eigh_factored;

  // Singular values of count matrices of rows x cols. data: count * rows * cols elements. T: float, double, or
  // std::complex of them. compute.problem must be kSvd.
  template <class T>
  Result<SingularValues<RealOf<T>>> singular_values(std::span<const T> data, int64_t rows, int64_t cols, int64_t count,
                                                    MemoryOrder order = MemoryOrder::kRowMajor,
                                                    const ComputeOptions& compute = {}, const CallOptions& call = {});
  // The same with a future. The data must live until then. Dropping the future does not cancel; call.stop does.
  template <class T>
  std::future<Result<SingularValues<RealOf<T>>>> singular_values_async(std::span<const T> data, int64_t rows,
                                                                       int64_t cols, int64_t count,
                                                                       MemoryOrder order = MemoryOrder::kRowMajor,
                                                                       const ComputeOptions& compute = {},
                                                                       const CallOptions& call = {});

  // U, S and V^H of the matrices: thin, unless compute.vectors says full. compute.mimo must be absent, and compute.problem
  // kSvd.
  template <class T>
  Result<Decomposition<T>> svd(std::span<const T> data, int64_t rows, int64_t cols, int64_t count,
                               MemoryOrder order = MemoryOrder::kRowMajor, const ComputeOptions& compute = {},
                               const CallOptions& call = {});

  // Eigenvalues and eigenvectors of count Hermitian matrices of n x n, n <= the server's limits.max_hermitian_order (512).
  // compute.triangle of each is read; compute.problem and compute.vectors are not looked at. data: count * n * n
  // elements. For eigenvalues alone call decompose() with compute.problem = Problem::kHermitian. Errors are relative to
  // the largest eigenvalue of a matrix. For small eigenvalues of graded matrices use Method::kFactored in the eigh() of one matrix.
  template <class T>
  Result<HermitianEigen<T>> eigh(std::span<const T> data, int64_t n, int64_t count,
                                 MemoryOrder order = MemoryOrder::kRowMajor, const ComputeOptions& compute = {},
                                 const CallOptions& call = {});

  // Eigenvalues and eigenvectors of count general matrices, A V = V L. compute.vectors = Vectors::kFull: also left ones,
  // W^H A = L W^H. The matrices are n x n, n <= the server's limits.max_general_order (32); larger ones go one a call, by
  // the eig() of one matrix. compute.problem is not looked at. data: count * n * n elements. For eigenvalues alone call
  // decompose() with compute.problem = Problem::kGeneral. starting_vectors: count * n * n, see Batch; empty: none.
  template <class T>
  Result<GeneralEigen<T>> eig(std::span<const T> data, int64_t n, int64_t count,
                              MemoryOrder order = MemoryOrder::kRowMajor, const ComputeOptions& compute = {},
                              const CallOptions& call = {},
                              std::span<const std::complex<RealOf<T>>> starting_vectors = {});

  // Capacity of MIMO channels H, rows x cols, in bit/s/Hz at each SNR; MimoOptions of the proto defines it.
  // group_size: the number of neighbours (subcarriers) that are summed.
  template <class T>
  Result<Capacities<T>> capacity(std::span<const T> data, int64_t rows, int64_t cols, int64_t count,
                                 std::vector<double> snr_db, bool water_filling = false, int64_t group_size = 1,
                                 MemoryOrder order = MemoryOrder::kRowMajor, const CallOptions& call = {});

  // The `columns` leading right singular vectors of each channel.
  template <class T>
  Result<Precoders<T>> precoders(std::span<const T> data, int64_t rows, int64_t cols, int64_t count, int64_t columns,
                                 MemoryOrder order = MemoryOrder::kRowMajor, const CallOptions& call = {});

  // One large matrix, into memory of its own. a: rows * cols elements.
  template <class T>
  Result<LargeDecomposition<T>> svd_large(std::span<const T> a, int64_t rows, int64_t cols,
                                          MemoryOrder order = MemoryOrder::kRowMajor, const LargeOptions& options = {},
                                          const CallOptions& call = {});
  // signature: the diagonal of J, cols numbers +1 or -1; rows >= cols. Any size.
  template <class T>
  Result<LargeDecomposition<T>> hsvd(std::span<const T> g, int64_t rows, int64_t cols,
                                     std::span<const int8_t> signature, MemoryOrder order = MemoryOrder::kRowMajor,
                                     const LargeOptions& options = {}, const CallOptions& call = {});

  // A = U L U^H, one Hermitian matrix of any size as a large one: one triangle of a, n * n elements, is read. With
  // Method::kFactored small eigenvalues keep their digits where the entries determine them. For eigenvalues alone set
  // options.vectors = Vectors::kNone.
  template <class T>
  Result<LargeEigen<T>> eigh(std::span<const T> a, int64_t n, MemoryOrder order = MemoryOrder::kRowMajor,
                             const LargeOptions& options = {}, const CallOptions& call = {});
  // G J G^H = U L U^H, for G as for hsvd(). The product is never formed.
  template <class T>
  Result<LargeEigen<T>> eigh_factored(std::span<const T> g, int64_t rows, int64_t cols,
                                      std::span<const int8_t> signature, MemoryOrder order = MemoryOrder::kRowMajor,
                                      const LargeOptions& options = {}, const CallOptions& call = {});

  // A V = V L, one square matrix of any size as a large one: a, n * n elements. With options.vectors = Vectors::kFull
  // also W^H, W^H A = L W^H; with Vectors::kNone eigenvalues alone. starting_vectors: n * n, see LargeMatrix; empty: none.
  template <class T>
  Result<LargeGeneralEigen<T>> eig(std::span<const T> a, int64_t n, MemoryOrder order = MemoryOrder::kRowMajor,
                                   const LargeOptions& options = {}, const CallOptions& call = {},
                                   std::span<const std::complex<RealOf<T>>> starting_vectors = {});

  // Opens a pipeline. It may outlive the client.
  Stream open_stream(const StreamOptions& options = {});

  // The server's version, abilities, limits and devices. Asks each time; the limits are remembered for cutting batches.
  Result<ServerInfo> server_info(const CallOptions& call = {});
  // The cores, GPUs, replicas and limits of memory for a load of requests like this batch with these options. The
  // server reckons by the times that it has measured. batch.data is not read. Older servers fail with UNIMPLEMENTED.
  Result<CapacityPlan> plan_capacity(const Batch& batch, const ComputeOptions& compute, const Demand& demand,
                                     const CallOptions& call = {});
  // True: serving. False: it replies, but does not serve (draining, or no healthy device).
  // `service` empty: the server as a whole.
  Result<bool> healthy(const std::string& service = {}, const CallOptions& call = {});
  // An empty unary call, its reply not decoded: how long the way there and back takes.
  Result<std::chrono::nanoseconds> ping(const CallOptions& call = {});
};

// --- implementation of the templates ------------------------------------------------------------

namespace internal {

// A batch of the caller's, whose sizes were checked.
template <class T>
Result<Batch> batch_of(std::span<const T> data, int64_t rows, int64_t cols, int64_t count, MemoryOrder order) {
  if (Status bad = check_sizes(data.size(), rows, cols, count); !bad.ok()) return bad;
  return Batch{data.data(), rows, cols, count, ElementTraits<T>::kDataType, order};
}

}  // namespace internal

template <class T>
Result<SingularValues<RealOf<T>>> Client::singular_values(std::span<const T> data, int64_t rows, int64_t cols,
                                                          int64_t count, MemoryOrder order,
                                                          const ComputeOptions& compute, const CallOptions& call) {
  const Result<Batch> batch = internal::batch_of(data, rows, cols, count, order);
  if (!batch.ok()) return batch.status();
  return send<Stack<T>>(internal::prepare_values<T>(*batch, compute), call);
}

template <class T>
std::future<Result<SingularValues<RealOf<T>>>> Client::singular_values_async(std::span<const T> data, int64_t rows,
                                                                             int64_t cols, int64_t count,
                                                                             MemoryOrder order,
                                                                             const ComputeOptions& compute,
                                                                             const CallOptions& call) {
  using Prepared = Result<internal::Prepared<SingularValues<RealOf<T>>>>;
  const Result<Batch> batch = internal::batch_of(data, rows, cols, count, order);
  return async().template send<Stack<T>>(
      batch.ok() ? internal::prepare_values<T>(*batch, compute) : Prepared(batch.status()), call);
}

template <class T>
Result<Decomposition<T>> Client::svd(std::span<const T> data, int64_t rows, int64_t cols, int64_t count,
                                     MemoryOrder order, const ComputeOptions& compute, const CallOptions& call) {
  const Result<Batch> batch = internal::batch_of(data, rows, cols, count, order);
  if (!batch.ok()) return batch.status();
  return send<Stack<T>>(internal::prepare_svd<T>(*batch, compute), call);
}

template <class T>
Result<HermitianEigen<T>> Client::eigh(std::span<const T> data, int64_t n, int64_t count, MemoryOrder order,
                                       const ComputeOptions& compute, const CallOptions& call) {
  const Result<Batch> batch = internal::batch_of(data, n, n, count, order);
  if (!batch.ok()) return batch.status();
  ComputeOptions wanted = compute;
  wanted.vectors = Vectors::kThin;
  return send<Stack<T>>(internal::prepare_eigh<T>(*batch, wanted), call);
}

template <class T>
Result<GeneralEigen<T>> Client::eig(std::span<const T> data, int64_t n, int64_t count, MemoryOrder order,
                                    const ComputeOptions& compute, const CallOptions& call,
                                    std::span<const std::complex<RealOf<T>>> starting_vectors) {
  Result<Batch> batch = internal::batch_of(data, n, n, count, order);
  if (!batch.ok()) return batch.status();
  if (Status bad = internal::check_starting_size(starting_vectors.size(), data.size()); !bad.ok()) return bad;
  if (!starting_vectors.empty()) batch->starting_vectors = starting_vectors.data();
  ComputeOptions wanted = compute;
  if (wanted.vectors == Vectors::kNone) wanted.vectors = Vectors::kThin;
  return send<Stack<T>>(internal::prepare_eig<T>(*batch, wanted), call);
}

template <class T>
Result<Capacities<T>> Client::capacity(std::span<const T> data, int64_t rows, int64_t cols, int64_t count,
                                       std::vector<double> snr_db, bool water_filling, int64_t group_size,
                                       MemoryOrder order, const CallOptions& call) {
  const Result<Batch> batch = internal::batch_of(data, rows, cols, count, order);
  if (!batch.ok()) return batch.status();
  return send<Stack<T>>(internal::prepare_capacity<T>(*batch, std::move(snr_db), water_filling, group_size), call);
}

template <class T>
Result<Precoders<T>> Client::precoders(std::span<const T> data, int64_t rows, int64_t cols, int64_t count,
                                       int64_t columns, MemoryOrder order, const CallOptions& call) {
  const Result<Batch> batch = internal::batch_of(data, rows, cols, count, order);
  if (!batch.ok()) return batch.status();
  return send<Stack<T>>(internal::prepare_precoders<T>(*batch, columns), call);
}

template <class T>
Result<LargeDecomposition<T>> Client::svd_large(std::span<const T> a, int64_t rows, int64_t cols, MemoryOrder order,
                                                const LargeOptions& options, const CallOptions& call) {
  const Result<LargeMatrix> matrix = internal::large_matrix_of(Stack<T>{a, {rows, cols, order}});
  if (!matrix.ok()) return matrix.status();
  return send_large<Stack<T>>(internal::prepare_large_svd<T>(*matrix, options), call);
}

template <class T>
Result<LargeDecomposition<T>> Client::hsvd(std::span<const T> g, int64_t rows, int64_t cols,
                                           std::span<const int8_t> signature, MemoryOrder order,
                                           const LargeOptions& options, const CallOptions& call) {
  Result<LargeMatrix> matrix = internal::large_matrix_of(Stack<T>{g, {rows, cols, order}});
  if (!matrix.ok()) return matrix.status();
  if (Status bad = internal::check_signature(signature, cols); !bad.ok()) return bad;
  matrix->signature = signature;
  return send_large<Stack<T>>(internal::prepare_large_svd<T>(*matrix, options), call);
}

template <class T>
Result<LargeEigen<T>> Client::eigh(std::span<const T> a, int64_t n, MemoryOrder order, const LargeOptions& options,
                                   const CallOptions& call) {
  const Result<LargeMatrix> matrix = internal::large_matrix_of(Stack<T>{a, {n, n, order}});
  if (!matrix.ok()) return matrix.status();
  return send_large<Stack<T>>(internal::prepare_large_eigh<T>(*matrix, options, LargeProblem::kHermitian), call);
}

template <class T>
Result<LargeEigen<T>> Client::eigh_factored(std::span<const T> g, int64_t rows, int64_t cols,
                                            std::span<const int8_t> signature, MemoryOrder order,
                                            const LargeOptions& options, const CallOptions& call) {
  Result<LargeMatrix> matrix = internal::large_matrix_of(Stack<T>{g, {rows, cols, order}});
  if (!matrix.ok()) return matrix.status();
  if (Status bad = internal::check_signature(signature, cols); !bad.ok()) return bad;
  matrix->signature = signature;
  return send_large<Stack<T>>(internal::prepare_large_eigh<T>(*matrix, options, LargeProblem::kHermitianFactor), call);
}

template <class T>
Result<LargeGeneralEigen<T>> Client::eig(std::span<const T> a, int64_t n, MemoryOrder order,
                                         const LargeOptions& options, const CallOptions& call,
                                         std::span<const std::complex<RealOf<T>>> starting_vectors) {
  Result<LargeMatrix> matrix = internal::large_matrix_of(Stack<T>{a, {n, n, order}});
  if (!matrix.ok()) return matrix.status();
  if (Status bad = internal::check_starting_size(starting_vectors.size(), a.size(), "open.starting_vectors"); !bad.ok())
    return bad;
  if (!starting_vectors.empty()) matrix->starting_vectors = starting_vectors.data();
  return send_large<Stack<T>>(internal::prepare_large_eig<T>(*matrix, options), call);
}

}  // namespace svdserve::client
#endif  // SVDSERVE_CLIENT_CPP_CLIENT_H_
