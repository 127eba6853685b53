// svdserve's C++ client: singular values, vectors, MIMO capacities and eigenproblems of many small matrices,
// and the decompositions of large ones, computed by a server.
//
//   #include "client/cpp/client.h"        // CMake: find_package(svdserve), target svdserve::client
//
//   svdserve::client::Client client({.address = "127.0.0.1:50051"});
//   auto s = client.singular_values<double>(data, 4, 4, count);   // data: count x 4 x 4, row-major
//   if (!s.ok()) { std::cerr << s.status().to_string(); return; }
//   use((*s)[i]);                                                 // the 4 values of matrix i, descending
//   auto e = client.eigh<double>(data, 4, count);                 // Hermitian: eigenvalues and eigenvectors
//   auto g = client.eig<double>(data, 4, count);                  // general: complex eigenvalues and eigenvectors
#ifndef SVDSERVE_CLIENT_CPP_CLIENT_H_
#define SVDSERVE_CLIENT_CPP_CLIENT_H_

#include <functional>
#include <future>
#include <memory>
#include <span>
#include <string>

#include "client/cpp/large.h"
#include "client/cpp/stream.h"
#include "client/cpp/types.h"

namespace svdserve::client {

namespace internal {
class Core;
}

// PEM texts, not paths. Encryption is on where `enabled` is set.
struct TlsOptions {
  bool enabled = false;
  std::string root_certificates = {};  // whom to trust; empty: the system's roots
  std::string certificate_chain = {};  // mTLS: who we are; both or neither
  std::string private_key = {};
  std::string server_name = {};  // the name the server's certificate must bear, where it is not the address's

  // Reads the files; an empty path leaves its text empty.
  static Result<TlsOptions> from_files(const std::string& root_certificates, const std::string& certificate_chain = {},
                                       const std::string& private_key = {});
};

// INVALID_ARGUMENT where `address` is neither host:port nor a name that gRPC resolves, such as unix:/path or
// dns:///host:1. A Client does not ask: gRPC takes a host without a port for one with port 443.
Status check_address(const std::string& address);

struct ClientOptions {
  std::string address = "127.0.0.1:50051";  // host:port, or unix:/path
  TlsOptions tls = {};
  RetryPolicy retry = {};
  // TCP connections; calls take turns. One carries one or two GB/s.
  int connections = 1;
  // Largest message to send and to accept. The smaller of this and the server's own limit applies.
  int64_t max_message_bytes = 64 << 20;
  // A larger batch is cut into pieces of about this size, so that one piece's upload overlaps another's computation.
  // Results do not depend on it.
  int64_t piece_bytes = 4 << 20;
  // Pieces of one batch in flight at once.
  int pieces_in_flight = 4;
};

// A connection, made on first use and kept until the client is destroyed.
// Thread safety: every member may be called from any number of threads at once.
// Batches of any size. One that exceeds a message, counting the larger of request and reply, is cut into pieces, which
// are sent side by side and joined. One failed piece fails the call.
// Every reply is checked against its request. One that does not fit fails the call with INTERNAL, and one that is
// longer than ClientOptions::max_message_bytes with RESOURCE_EXHAUSTED.
class Client {
 public:
  explicit Client(ClientOptions options = {});
  // Cancels the calls in flight and waits until they have ended. Not to be run by a callback of the client.
  ~Client();
  Client(Client&&) noexcept;
  Client& operator=(Client&&) noexcept;

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

  // Eigenvalues and eigenvectors of count Hermitian matrices of n x n, n <= the server's limits.max_hermitian_order (128).
  // compute.triangle of each is read; compute.problem and compute.vectors are not looked at. data: count * n * n
  // elements. For eigenvalues alone call decompose() with compute.problem = Problem::kHermitian. Errors are relative to
  // the largest eigenvalue of a matrix. For small eigenvalues of graded matrices use Method::kFactored in the eigh() of one matrix.
  template <class T>
  Result<Eigen<T>> eigh(std::span<const T> data, int64_t n, int64_t count, MemoryOrder order = MemoryOrder::kRowMajor,
                        const ComputeOptions& compute = {}, const CallOptions& call = {});

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

  // The untyped face, of everything that can be asked for. out: [out] unspecified where the call fails.
  Result<Report> decompose(const Batch& batch, const Outputs& out, const ComputeOptions& compute = {},
                           const CallOptions& call = {});
  // The same; `done` gets the results, once, on a thread of the network: it must not block, nor destroy the client.
  // batch.data and the memory of `out` must live until then.
  void decompose_async(const Batch& batch, const Outputs& out, const ComputeOptions& compute, const CallOptions& call,
                       std::function<void(Result<Report>)> done);

  // Several batches in as few messages as the server's limits allow, with the same options: cheaper than a call for each
  // where they are small. The reports are in the order of the groups. out: [out] unspecified where the call fails.
  Result<std::vector<Report>> decompose_groups(std::span<const Group> groups, const ComputeOptions& compute = {},
                                               const CallOptions& call = {});

  // One large matrix: A = U S V^H, the hyperbolic G = U S V^H with V^H J V = J, or an eigenproblem, as options.problem
  // says. It is uploaded in chunks, computed with progress, and streamed back into `out`, all on the calling thread. A
  // matrix that the server rejects with a retry delay is sent again, but not once its upload has begun. Results that
  // were damaged on their way are DATA_LOSS. out: [out] unspecified where the call fails.
  Result<LargeReport> decompose_large(const LargeMatrix& matrix, const LargeOutputs& out,
                                      const LargeOptions& options = {}, const CallOptions& call = {});
  // The same into memory of its own. a: rows * cols elements.
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
  // True: serving. False: it replies, but does not serve (draining, or no healthy device).
  // `service` empty: the server as a whole.
  Result<bool> healthy(const std::string& service = {}, const CallOptions& call = {});
  // An empty unary call, its reply not decoded: how long the way there and back takes.
  Result<std::chrono::nanoseconds> ping(const CallOptions& call = {});

 private:
  // Whether data_size elements are what the sizes say.
  static Status check_sizes(size_t data_size, int64_t rows, int64_t cols, int64_t count);
  // Whether there are none, or as many elements of starting vectors as of matrices.
  static Status check_starting_size(size_t starting_size, size_t data_size,
                                    const char* field = "matrices.starting_vectors");
  // Whether the results of the batch have sizes at all.
  static Status check_results(const Batch& batch, const ComputeOptions& compute);
  // Checks that it is a diagonal of J for a matrix of `cols` columns.
  static Status check_signature(std::span<const int8_t> signature, int64_t cols);
  // Checks that no eigenproblem is asked for.
  static Status check_problem(const ComputeOptions& compute);
  static Status check_problem(const LargeOptions& options);
  // The same, and that no MIMO numbers are.
  static Status check_for_svd(const ComputeOptions& compute);
  template <class T>
  Result<LargeDecomposition<T>> decompose_large(const LargeMatrix& matrix, const LargeOptions& options,
                                                const CallOptions& call);
  template <class T>
  Result<LargeEigen<T>> eigen(const LargeMatrix& matrix, LargeProblem problem, LargeOptions options,
                              const CallOptions& call);
  // Makes room for a number of bytes, and for a plane.
  template <class Number>
  static std::span<std::byte> room_of(std::vector<Number>* numbers, int64_t bytes);
  template <class Number>
  static std::span<std::byte> room_for(const Batch& batch, const ComputeOptions& compute, Plane plane,
                                       std::vector<Number>* numbers);

  std::shared_ptr<internal::Core> core_;
};

// --- implementation of the templates ------------------------------------------------------------

template <class T>
Result<SingularValues<RealOf<T>>> Client::singular_values(std::span<const T> data, int64_t rows, int64_t cols,
                                                          int64_t count, MemoryOrder order,
                                                          const ComputeOptions& compute, const CallOptions& call) {
  if (Status bad = check_sizes(data.size(), rows, cols, count); !bad.ok()) return bad;
  if (Status bad = check_problem(compute); !bad.ok()) return bad;
  const Batch batch{data.data(), rows, cols, count, ElementTraits<T>::kDataType, order, nullptr};
  if (Status bad = check_results(batch, compute); !bad.ok()) return bad;
  SingularValues<RealOf<T>> out;
  room_for(batch, compute, Plane::kValues, &out.values);
  Result<Report> report = decompose(batch, std::as_writable_bytes(std::span(out.values)), compute, call);
  if (!report.ok()) return report.status();
  out.report = *std::move(report);
  return out;
}

template <class T>
std::future<Result<SingularValues<RealOf<T>>>> Client::singular_values_async(std::span<const T> data, int64_t rows,
                                                                             int64_t cols, int64_t count,
                                                                             MemoryOrder order,
                                                                             const ComputeOptions& compute,
                                                                             const CallOptions& call) {
  using Answer = Result<SingularValues<RealOf<T>>>;
  struct State {
    std::promise<Answer> promise;
    SingularValues<RealOf<T>> out;
  };
  auto state = std::make_shared<State>();
  std::future<Answer> future = state->promise.get_future();
  if (Status bad = check_sizes(data.size(), rows, cols, count); !bad.ok()) {
    state->promise.set_value(std::move(bad));
    return future;
  }
  const Batch batch{data.data(), rows, cols, count, ElementTraits<T>::kDataType, order, nullptr};
  if (Status bad = check_problem(compute); !bad.ok()) {
    state->promise.set_value(std::move(bad));
    return future;
  }
  if (Status bad = check_results(batch, compute); !bad.ok()) {
    state->promise.set_value(std::move(bad));
    return future;
  }
  room_for(batch, compute, Plane::kValues, &state->out.values);
  decompose_async(batch, std::as_writable_bytes(std::span(state->out.values)), compute, call,
                  [state](Result<Report> report) {
                    if (!report.ok()) return state->promise.set_value(report.status());
                    state->out.report = *std::move(report);
                    state->promise.set_value(std::move(state->out));
                  });
  return future;
}

template <class Number>
std::span<std::byte> Client::room_for(const Batch& batch, const ComputeOptions& compute, Plane plane,
                                      std::vector<Number>* numbers) {
  numbers->resize(static_cast<size_t>(plane_bytes(batch, compute, plane, batch.count)) / sizeof(Number));
  return std::as_writable_bytes(std::span(*numbers));
}

template <class T>
Result<Decomposition<T>> Client::svd(std::span<const T> data, int64_t rows, int64_t cols, int64_t count,
                                     MemoryOrder order, const ComputeOptions& compute, const CallOptions& call) {
  if (Status bad = check_sizes(data.size(), rows, cols, count); !bad.ok()) return bad;
  if (Status bad = check_for_svd(compute); !bad.ok()) return bad;
  const Batch batch{data.data(), rows, cols, count, ElementTraits<T>::kDataType, order, nullptr};
  ComputeOptions wanted = compute;
  if (wanted.vectors == Vectors::kNone) wanted.vectors = Vectors::kThin;
  if (Status bad = check_results(batch, wanted); !bad.ok()) return bad;
  Decomposition<T> d;
  const bool full = wanted.vectors == Vectors::kFull;
  const int64_t leading = wanted.top_k != 0 ? wanted.top_k : batch.values_per_matrix();
  d.left_columns = full ? rows : leading;
  d.right_rows = full ? cols : leading;
  Outputs out;
  out[Plane::kLeft] = room_for(batch, wanted, Plane::kLeft, &d.left);
  out[Plane::kValues] = room_for(batch, wanted, Plane::kValues, &d.values);
  out[Plane::kRight] = room_for(batch, wanted, Plane::kRight, &d.right_adjoint);
  out[Plane::kCertificate] = room_for(batch, wanted, Plane::kCertificate, &d.certificates);
  Result<Report> report = decompose(batch, out, wanted, call);
  if (!report.ok()) return report.status();
  d.report = *std::move(report);
  return d;
}

template <class T>
Result<Eigen<T>> Client::eigh(std::span<const T> data, int64_t n, int64_t count, MemoryOrder order,
                              const ComputeOptions& compute, const CallOptions& call) {
  if (Status bad = check_sizes(data.size(), n, n, count); !bad.ok()) return bad;
  const Batch batch{data.data(), n, n, count, ElementTraits<T>::kDataType, order, nullptr};
  ComputeOptions wanted = compute;
  wanted.problem = Problem::kHermitian;
  wanted.vectors = Vectors::kThin;
  if (Status bad = check_results(batch, wanted); !bad.ok()) return bad;
  Eigen<T> e;
  Outputs out;
  out[Plane::kValues] = room_for(batch, wanted, Plane::kValues, &e.values);
  out[Plane::kLeft] = room_for(batch, wanted, Plane::kLeft, &e.vectors);
  out[Plane::kCertificate] = room_for(batch, wanted, Plane::kCertificate, &e.certificates);
  Result<Report> report = decompose(batch, out, wanted, call);
  if (!report.ok()) return report.status();
  e.report = *std::move(report);
  return e;
}

template <class T>
Result<GeneralEigen<T>> Client::eig(std::span<const T> data, int64_t n, int64_t count, MemoryOrder order,
                                    const ComputeOptions& compute, const CallOptions& call,
                                    std::span<const std::complex<RealOf<T>>> starting_vectors) {
  if (Status bad = check_sizes(data.size(), n, n, count); !bad.ok()) return bad;
  if (Status bad = check_starting_size(starting_vectors.size(), data.size()); !bad.ok()) return bad;
  Batch batch{data.data(), n, n, count, ElementTraits<T>::kDataType, order, nullptr};
  if (!starting_vectors.empty()) batch.starting_vectors = starting_vectors.data();
  ComputeOptions wanted = compute;
  wanted.problem = Problem::kGeneral;
  if (wanted.vectors == Vectors::kNone) wanted.vectors = Vectors::kThin;
  if (Status bad = check_results(batch, wanted); !bad.ok()) return bad;
  GeneralEigen<T> e;
  Outputs out;
  out[Plane::kValues] = room_for(batch, wanted, Plane::kValues, &e.values);
  out[Plane::kLeft] = room_for(batch, wanted, Plane::kLeft, &e.vectors);
  out[Plane::kRight] = room_for(batch, wanted, Plane::kRight, &e.left_adjoint);
  out[Plane::kCertificate] = room_for(batch, wanted, Plane::kCertificate, &e.certificates);
  out[Plane::kEigenvalueCondition] = room_for(batch, wanted, Plane::kEigenvalueCondition, &e.conditions);
  Result<Report> report = decompose(batch, out, wanted, call);
  if (!report.ok()) return report.status();
  e.report = *std::move(report);
  return e;
}

template <class T>
Result<Capacities<T>> Client::capacity(std::span<const T> data, int64_t rows, int64_t cols, int64_t count,
                                       std::vector<double> snr_db, bool water_filling, int64_t group_size,
                                       MemoryOrder order, const CallOptions& call) {
  if (Status bad = check_sizes(data.size(), rows, cols, count); !bad.ok()) return bad;
  const Batch batch{data.data(), rows, cols, count, ElementTraits<T>::kDataType, order, nullptr};
  ComputeOptions wanted;
  wanted.mimo = MimoOptions{.capacity = !water_filling,
                            .water_filling = water_filling,
                            .snr_db = std::move(snr_db),
                            .group_size = group_size};
  if (Status bad = check_results(batch, wanted); !bad.ok()) return bad;
  Capacities<T> c;
  Outputs out;
  const Plane plane = water_filling ? Plane::kWaterFilling : Plane::kCapacity;
  out[plane] = room_for(batch, wanted, plane, &c.values);
  Result<Report> report = decompose(batch, out, wanted, call);
  if (!report.ok()) return report.status();
  c.report = *std::move(report);
  return c;
}

template <class T>
Result<Precoders<T>> Client::precoders(std::span<const T> data, int64_t rows, int64_t cols, int64_t count,
                                       int64_t columns, MemoryOrder order, const CallOptions& call) {
  if (Status bad = check_sizes(data.size(), rows, cols, count); !bad.ok()) return bad;
  const Batch batch{data.data(), rows, cols, count, ElementTraits<T>::kDataType, order, nullptr};
  ComputeOptions wanted;
  wanted.mimo = MimoOptions{.precoder_columns = columns};
  if (Status bad = check_results(batch, wanted); !bad.ok()) return bad;
  Precoders<T> p;
  Outputs out;
  out[Plane::kRight] = room_for(batch, wanted, Plane::kRight, &p.columns);
  Result<Report> report = decompose(batch, out, wanted, call);
  if (!report.ok()) return report.status();
  p.report = *std::move(report);
  return p;
}

template <class T>
Result<LargeDecomposition<T>> Client::svd_large(std::span<const T> a, int64_t rows, int64_t cols, MemoryOrder order,
                                                const LargeOptions& options, const CallOptions& call) {
  if (Status bad = check_sizes(a.size(), rows, cols, 1); !bad.ok()) return bad;
  if (Status bad = check_problem(options); !bad.ok()) return bad;
  return decompose_large<T>({a.data(), rows, cols, ElementTraits<T>::kDataType, order}, options, call);
}

template <class T>
Result<LargeDecomposition<T>> Client::hsvd(std::span<const T> g, int64_t rows, int64_t cols,
                                           std::span<const int8_t> signature, MemoryOrder order,
                                           const LargeOptions& options, const CallOptions& call) {
  if (Status bad = check_sizes(g.size(), rows, cols, 1); !bad.ok()) return bad;
  if (Status bad = check_signature(signature, cols); !bad.ok()) return bad;
  if (Status bad = check_problem(options); !bad.ok()) return bad;
  return decompose_large<T>({g.data(), rows, cols, ElementTraits<T>::kDataType, order, signature}, options, call);
}

template <class T>
Result<LargeEigen<T>> Client::eigh(std::span<const T> a, int64_t n, MemoryOrder order, const LargeOptions& options,
                                   const CallOptions& call) {
  if (Status bad = check_sizes(a.size(), n, n, 1); !bad.ok()) return bad;
  return eigen<T>({a.data(), n, n, ElementTraits<T>::kDataType, order}, LargeProblem::kHermitian, options, call);
}

template <class T>
Result<LargeEigen<T>> Client::eigh_factored(std::span<const T> g, int64_t rows, int64_t cols,
                                            std::span<const int8_t> signature, MemoryOrder order,
                                            const LargeOptions& options, const CallOptions& call) {
  if (Status bad = check_sizes(g.size(), rows, cols, 1); !bad.ok()) return bad;
  if (Status bad = check_signature(signature, cols); !bad.ok()) return bad;
  return eigen<T>({g.data(), rows, cols, ElementTraits<T>::kDataType, order, signature}, LargeProblem::kHermitianFactor,
                  options, call);
}

template <class T>
Result<LargeEigen<T>> Client::eigen(const LargeMatrix& matrix, LargeProblem problem, LargeOptions options,
                                    const CallOptions& call) {
  options.problem = problem;
  Result<LargeDecomposition<T>> found = decompose_large<T>(matrix, options, call);
  if (!found.ok()) return found.status();
  return LargeEigen<T>{std::move(found->values), std::move(found->left), std::move(found->report)};
}

template <class T>
Result<LargeGeneralEigen<T>> Client::eig(std::span<const T> a, int64_t n, MemoryOrder order,
                                         const LargeOptions& options, const CallOptions& call,
                                         std::span<const std::complex<RealOf<T>>> starting_vectors) {
  if (Status bad = check_sizes(a.size(), n, n, 1); !bad.ok()) return bad;
  if (Status bad = check_starting_size(starting_vectors.size(), a.size(), "open.starting_vectors"); !bad.ok())
    return bad;
  LargeMatrix matrix{a.data(), n, n, ElementTraits<T>::kDataType, order};
  if (!starting_vectors.empty()) matrix.starting_vectors = starting_vectors.data();
  LargeOptions wanted = options;
  wanted.problem = LargeProblem::kGeneral;
  const Result<LargeSizes> sizes = large_sizes(matrix, wanted);
  if (!sizes.ok()) return sizes.status();
  LargeGeneralEigen<T> e;
  const LargeOutputs out{room_of(&e.values, sizes->values_bytes), room_of(&e.vectors, sizes->left_bytes),
                         room_of(&e.left_adjoint, sizes->right_bytes)};
  Result<LargeReport> report = decompose_large(matrix, out, wanted, call);
  if (!report.ok()) return report.status();
  e.report = *std::move(report);
  return e;
}

template <class Number>
std::span<std::byte> Client::room_of(std::vector<Number>* numbers, int64_t bytes) {
  numbers->resize(static_cast<size_t>(bytes) / sizeof(Number));
  return std::as_writable_bytes(std::span(*numbers));
}

template <class T>
Result<LargeDecomposition<T>> Client::decompose_large(const LargeMatrix& matrix, const LargeOptions& options,
                                                      const CallOptions& call) {
  const Result<LargeSizes> sizes = large_sizes(matrix, options);
  if (!sizes.ok()) return sizes.status();
  LargeDecomposition<T> d;
  d.left_columns = sizes->left_columns;
  d.right_rows = sizes->right_rows;
  const LargeOutputs out{room_of(&d.values, sizes->values_bytes), room_of(&d.left, sizes->left_bytes),
                         room_of(&d.right_adjoint, sizes->right_bytes)};
  Result<LargeReport> report = decompose_large(matrix, out, options, call);
  if (!report.ok()) return report.status();
  d.report = *std::move(report);
  return d;
}

}  // namespace svdserve::client
#endif  // SVDSERVE_CLIENT_CPP_CLIENT_H_
