#include "tests/client/fake_service.h"

#include <grpcpp/generic/async_generic_service.h>
#include <grpcpp/server.h>
#include <grpcpp/server_builder.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <mutex>
#include <numeric>
#include <thread>
#include <type_traits>

#include "google/rpc/error_details.pb.h"
#include "svdserve/v1/svd_service.grpc.pb.h"
#include "wire/crc32c.h"
#include "wire/metadata.h"

namespace svdserve::client::testing {
namespace {

template <class Real>
std::string fake_values(const v1::MatrixBatch& b, bool is_complex) {
  const int64_t k = std::min(b.rows(), b.cols());
  const size_t matrix_bytes = b.count() > 0 ? b.data().size() / static_cast<size_t>(b.count()) : 0;
  std::vector<Real> values;
  for (int64_t i = 0; i < b.count(); ++i) {
    Real first;
    std::memcpy(&first, b.data().data() + static_cast<size_t>(i) * matrix_bytes, sizeof first);
    for (int64_t j = 0; j < k; ++j) {
      values.push_back(first * static_cast<Real>(j + 1));
      if (is_complex) values.push_back(-values.back());
    }
  }
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(Real)};
}

google::rpc::Status to_rpc(const Answer& a) {
  google::rpc::Status s;
  s.set_code(a.code);
  s.set_message(a.message);
  if (!a.field.empty()) {
    google::rpc::BadRequest bad;
    auto* v = bad.add_field_violations();
    v->set_field(a.field);
    v->set_description(a.message);
    s.add_details()->PackFrom(bad);
  }
  if (!a.reason.empty()) {
    google::rpc::ErrorInfo info;
    info.set_domain("svdserve");
    info.set_reason(a.reason);
    s.add_details()->PackFrom(info);
  }
  if (a.retry_delay) {
    google::rpc::RetryInfo retry;
    retry.mutable_retry_delay()->set_seconds(a.retry_delay->count() / 1000);
    retry.mutable_retry_delay()->set_nanos(static_cast<int32_t>(a.retry_delay->count() % 1000) * 1000000);
    s.add_details()->PackFrom(retry);
  }
  if (!a.request_id.empty()) {
    google::rpc::RequestInfo request;
    request.set_request_id(a.request_id);
    s.add_details()->PackFrom(request);
  }
  return s;
}

grpc::Status to_grpc(const Answer& a) {
  return {static_cast<grpc::StatusCode>(a.code), a.message, to_rpc(a).SerializeAsString()};
}

// The size that the metadata of a call tell; empty: they do not.
std::string announced(const grpc::ServerContextBase& context) {
  const auto found = context.client_metadata().find(kRequestBytesKey);
  return found == context.client_metadata().end() ? "" : std::string(found->second.begin(), found->second.end());
}

// A message of the same bytes: those of Eigendecompose have the numbers of those of Decompose.
template <class To>
To as(const google::protobuf::Message& from) {
  To to;
  to.ParseFromString(from.SerializeAsString());
  return to;
}

std::string eigen_options(const v1::DecomposeRequest&) { return {}; }
std::string eigen_options(const v1::EigendecomposeRequest& r) { return r.options().SerializeAsString(); }

template <class Request>
Seen to_seen(int number, const Request& r) {
  const v1::MatrixBatch& b = r.matrices();
  Seen s;
  s.eigen_options = eigen_options(r);
  s.number = number;
  s.rows = b.rows();
  s.cols = b.cols();
  s.count = b.count();
  s.data_type = b.data_type();
  s.memory_order = b.memory_order();
  s.method = r.options().method();
  s.vectors = r.options().vectors();
  s.tolerance = r.options().tolerance();
  s.max_sweeps = r.options().max_sweeps();
  s.data = b.data();
  s.starting_vectors = b.starting_vectors();
  s.request_bytes = r.ByteSizeLong();
  return s;
}

bool is_general(const v1::DecomposeRequest&) { return false; }
bool is_general(const v1::EigendecomposeRequest& r) { return r.options().problem() == v1::EIGEN_PROBLEM_GENERAL; }

void fill(const v1::MatrixBatch& b, const Answer& a, bool is_complex, v1::DecomposeResponse* out) {
  const bool is_float = b.data_type() == v1::DATA_TYPE_F32 || b.data_type() == v1::DATA_TYPE_C64;
  out->set_singular_values(is_float ? fake_values<float>(b, is_complex) : fake_values<double>(b, is_complex));
  out->set_values_per_matrix(std::min(b.rows(), b.cols()));
  out->set_count(b.count());
  for (const auto& [index, status] : a.exceptions) {
    out->add_exception_indices(index);
    out->add_exception_statuses(static_cast<v1::MatrixStatus>(status));
  }
  out->set_method(v1::METHOD_BIDIAGONAL);
  out->set_device("fake:0");
  out->mutable_timing()->set_compute_seconds(0.5);
  if (a.tamper) a.tamper(out);
}

// Eigenvectors of zeros, where they are asked for.
void add_vectors(const v1::DecomposeRequest&, v1::DecomposeResponse*) {}
void add_vectors(const v1::EigendecomposeRequest& r, v1::DecomposeResponse* out) {
  const v1::DataType type = r.matrices().data_type();
  const bool is_widened = is_general(r) && (type == v1::DATA_TYPE_F32 || type == v1::DATA_TYPE_F64);
  const std::string zeros((is_widened ? 2 : 1) * r.matrices().data().size(), '\0');
  const v1::Eigenvectors vectors = r.options().vectors();
  if (vectors == v1::EIGENVECTORS_RIGHT || vectors == v1::EIGENVECTORS_RIGHT_AND_LEFT) {
    out->set_left_vectors(zeros);
    out->set_left_columns(r.matrices().rows());
  }
  if (vectors == v1::EIGENVECTORS_RIGHT_AND_LEFT) {
    out->set_right_vectors_adjoint(zeros);
    out->set_right_columns(r.matrices().rows());
  }
}

// Condition numbers, where they are asked for.
void add_conditions(const v1::DecomposeRequest&, v1::DecomposeResponse*) {}
void add_conditions(const v1::EigendecomposeRequest& r, v1::EigendecomposeResponse* out) {
  if (!r.options().condition()) return;
  const v1::DataType type = r.matrices().data_type();
  const bool is_float = type == v1::DATA_TYPE_F32 || type == v1::DATA_TYPE_C64;
  out->set_eigenvalue_conditions(is_float ? fake_values<float>(r.matrices(), false)
                                          : fake_values<double>(r.matrices(), false));
}

// The response to a request of either kind.
template <class Response, class Request>
Response response_to(const Request& request, const Answer& answer) {
  v1::DecomposeResponse response;
  add_vectors(request, &response);
  fill(request.matrices(), answer, is_general(request), &response);
  Response of_its_kind = as<Response>(response);
  add_conditions(request, &of_its_kind);
  return of_its_kind;
}

void fill(const FakeService::Limits& limits, v1::GetServerInfoResponse* response) {
  response->set_version(limits.version);
  if (!limits.device.empty()) {
    v1::Device& device = *response->add_devices();
    for (std::string* text : {device.mutable_name(), device.mutable_backend(), device.mutable_instruction_set(),
                              device.mutable_model(), device.mutable_uuid()}) {
      *text = limits.device;
    }
  }
  response->add_data_types(v1::DATA_TYPE_C64);
  response->add_methods(v1::METHOD_JACOBI);
  response->mutable_limits()->set_max_message_bytes(limits.max_message_bytes);
  response->mutable_limits()->set_max_matrices(limits.max_matrices);
  response->mutable_limits()->set_max_large_bytes(limits.max_large_bytes);
  response->mutable_limits()->set_max_values(limits.max_values);
  response->mutable_limits()->set_max_dimension(limits.max_dimension);
  response->mutable_limits()->set_max_general_order(limits.max_general_order);
  response->mutable_limits()->set_max_hermitian_order(limits.max_hermitian_order);
}

// One call of DecomposeLarge.
class LargeCall {
 public:
  using Stream = grpc::ServerReaderWriter<v1::DecomposeLargeResponse, v1::DecomposeLargeRequest>;
  LargeCall(Large& script, grpc::ServerContext& context, Stream& stream)
      : script_(script), context_(context), stream_(stream) {}

  grpc::Status serve() {
    v1::DecomposeLargeRequest request;
    if (!stream_.Read(&request) || !request.has_open()) return {grpc::StatusCode::INVALID_ARGUMENT, "no open"};
    open_ = request.open();
    script_.opens.push_back(open_.SerializeAsString());
    if (!script_.refusals.empty()) {
      const Answer refusal = script_.refusals.front();
      script_.refusals.erase(script_.refusals.begin());
      return to_grpc(refusal);
    }
    measure();
    accept();
    if (script_.silent_after_open) return wait();
    if (!script_.skips_the_upload) upload();
    Answer failure;
    if (script_.fails_after_upload && script_.fails_after_upload(&failure)) return to_grpc(failure);
    if (script_.silent_after_upload) return wait();
    progress();
    results();
    if (script_.silent_after_results) return wait();
    summary();
    return grpc::Status::OK;
  }

 private:
  grpc::Status wait() {
    ++script_.waiting;
    eventually([&] { return context_.IsCancelled(); });
    script_.left += context_.IsCancelled();
    return grpc::Status::CANCELLED;
  }

  void measure() {
    const bool wide = open_.data_type() == v1::DATA_TYPE_C64 || open_.data_type() == v1::DATA_TYPE_F64;
    element_ = open_.data_type() == v1::DATA_TYPE_F32 ? 4 : wide ? 8 : 16;
    real_ = open_.data_type() == v1::DATA_TYPE_F32 || open_.data_type() == v1::DATA_TYPE_C64 ? 4 : 8;
    values_ = std::min(open_.rows(), open_.cols());
    const v1::Vectors vectors = open_.options().vectors();
    if (vectors == v1::VECTORS_NONE) return;
    left_columns_ = vectors == v1::VECTORS_FULL ? open_.rows() : values_;
    right_rows_ = vectors == v1::VECTORS_FULL ? open_.cols() : values_;
  }

  void write(v1::DecomposeLargeResponse response) {
    const int times = script_.tamper ? script_.tamper(&response) : 1;
    for (int i = 0; i < times; ++i) stream_.Write(response);
  }

  void accept() {
    v1::DecomposeLargeResponse response;
    response.mutable_accepted()->set_chunk_bytes(script_.chunk_bytes);
    response.mutable_accepted()->set_operand_bytes(open_.rows() * open_.cols() * element_);
    response.mutable_accepted()->set_result_bytes(
        values_ * real_ + (open_.rows() * left_columns_ + open_.cols() * right_rows_) * element_);
    write(std::move(response));
  }

  void upload() {
    v1::DecomposeLargeRequest request;
    std::string operand;
    while (stream_.Read(&request) && request.has_chunk()) {
      const v1::LargeChunk& c = request.chunk();
      ++script_.chunks;
      const bool good = c.offset() == static_cast<int64_t>(operand.size()) &&
                        crc32c_by_tables(0, c.data().data(), c.data().size()) == c.crc32c() &&
                        static_cast<int64_t>(c.data().size()) <= script_.chunk_bytes;
      script_.bad_chunks += !good;
      operand += c.data();
    }
    if (request.has_commit()) script_.uploads.push_back(std::move(operand));
  }

  void progress() {
    for (const auto& [stage, fraction] : {std::pair{v1::LARGE_STAGE_QUEUED, 0.0}, {v1::LARGE_STAGE_SWEEP, 0.5}}) {
      v1::DecomposeLargeResponse response;
      v1::LargeProgress& p = *response.mutable_progress();
      p.set_stage(stage);
      p.set_fraction(fraction);
      p.set_sweep(3);
      p.set_rotations(20);
      p.set_proper_rotations(10);
      p.set_off_diagonal(0.25);
      p.set_device(stage == v1::LARGE_STAGE_SWEEP ? "fake:0" : "");
      write(std::move(response));
    }
  }

  void results() {
    send(1, values_ * real_);
    send(2, open_.rows() * left_columns_ * element_);
    send(3, right_rows_ * open_.cols() * element_);
  }

  void send(int factor, int64_t bytes) {
    std::string whole(static_cast<size_t>(bytes), '\0');
    for (size_t i = 0; i < whole.size(); ++i) whole[i] = static_cast<char>(FakeService::large_byte(factor, i));
    for (int64_t at = 0; at < bytes; at += script_.chunk_bytes) {
      const std::string part = whole.substr(static_cast<size_t>(at), static_cast<size_t>(script_.chunk_bytes));
      if (script_.skips_a_chunk && at > 0) continue;
      v1::DecomposeLargeResponse response;
      v1::LargeFactorChunk& c = *response.mutable_factor_chunk();
      c.set_factor(static_cast<v1::LargeFactor>(script_.unknown_factor ? 9 : factor));
      c.set_offset(at + (script_.wrong_offset ? 8 : 0));
      c.set_data(part);
      c.set_crc32c(crc32c_by_tables(0, part.data(), part.size()) + script_.wrong_crc);
      write(std::move(response));
    }
  }

  void summary() {
    if (script_.no_summary) return;
    v1::DecomposeLargeResponse response;
    v1::LargeSummary& s = *response.mutable_summary();
    s.set_status(static_cast<v1::MatrixStatus>(script_.status));
    s.set_values(values_);
    s.set_left_columns(left_columns_);
    s.set_right_rows(right_rows_);
    s.set_method(v1::METHOD_JACOBI);
    s.set_device("fake:0");
    s.set_members(1);
    s.set_sweeps(7);
    s.set_rotations(900);
    s.set_proper_rotations(800);
    s.mutable_timing()->set_compute_seconds(3);
    v1::LargePhase& phase = *s.add_phases();
    phase.set_name("qr");
    phase.set_seconds(0.5);
    phase.set_flops(1e9);
    if (open_.options().certificate()) s.mutable_certificate()->set_residual(1e-15);
    write(std::move(response));
  }

  Large& script_;
  grpc::ServerContext& context_;
  Stream& stream_;
  v1::LargeOpen open_;
  int64_t element_ = 0, real_ = 0;  // bytes
  int64_t values_ = 0, left_columns_ = 0, right_rows_ = 0;
};

}  // namespace

struct FakeService::Impl : v1::SvdService::Service {
  Handler handler;
  std::mutex mutex;
  Limits limits;  // guarded by mutex
  std::atomic<int> requests{0}, infos{0}, at_once{0}, most_at_once{0};
  Large large;
  std::unique_ptr<grpc::Server> server;
  int port = 0;

  grpc::Status Decompose(grpc::ServerContext* context, const v1::DecomposeRequest* request,
                         v1::DecomposeResponse* response) override {
    return serve(context, *request, response);
  }
  grpc::Status Eigendecompose(grpc::ServerContext* context, const v1::EigendecomposeRequest* request,
                              v1::EigendecomposeResponse* response) override {
    return serve(context, *request, response);
  }

  template <class Request, class Response>
  grpc::Status serve(grpc::ServerContext* context, const Request& request, Response* response) {
    Seen seen = to_seen(requests++, request);
    seen.is_cancelled = [context] { return context->IsCancelled(); };
    seen.announced = announced(*context);
    const int now = ++at_once;
    for (int most = most_at_once; now > most && !most_at_once.compare_exchange_weak(most, now);) {
    }
    const Answer a = handler(seen);
    --at_once;
    if (a.code != 0) return to_grpc(a);
    *response = response_to<Response>(request, a);
    return grpc::Status::OK;
  }

  grpc::Status DecomposeStream(
      grpc::ServerContext* context,
      grpc::ServerReaderWriter<v1::DecomposeStreamResponse, v1::DecomposeStreamRequest>* stream) override {
    return serve_stream(context, stream);
  }
  grpc::Status EigendecomposeStream(
      grpc::ServerContext* context,
      grpc::ServerReaderWriter<v1::EigendecomposeStreamResponse, v1::EigendecomposeStreamRequest>* stream) override {
    return serve_stream(context, stream);
  }

  template <class Request, class Response>
  grpc::Status serve_stream(grpc::ServerContext* context, grpc::ServerReaderWriter<Response, Request>* stream) {
    Request request;
    std::vector<Response> held;
    while (stream->Read(&request)) {
      Seen seen = to_seen(requests++, request.request());
      seen.is_cancelled = [context] { return context->IsCancelled(); };
      if (request.has_timeout()) {
        seen.timeout =
            std::chrono::seconds(request.timeout().seconds()) + std::chrono::nanoseconds(request.timeout().nanos());
      }
      const Answer a = handler(seen);
      if (a.break_stream) return {static_cast<grpc::StatusCode>(a.code), a.message};
      Response response;
      response.set_request_id(a.id.value_or(request.request_id()));
      *response.mutable_status() = to_rpc(a);
      using Inner = std::remove_cvref_t<decltype(response.response())>;
      if (a.code == 0) *response.mutable_response() = response_to<Inner>(request.request(), a);
      if (a.hold) {
        held.push_back(std::move(response));
        continue;
      }
      stream->Write(response);
      for (const auto& h : held) stream->Write(h);
      held.clear();
    }
    return grpc::Status::OK;
  }

  grpc::Status DecomposeLarge(grpc::ServerContext* context, LargeCall::Stream* stream) override {
    return LargeCall(large, *context, *stream).serve();
  }

  grpc::Status GetServerInfo(grpc::ServerContext*, const v1::GetServerInfoRequest*,
                             v1::GetServerInfoResponse* response) override {
    ++infos;
    std::lock_guard lock(mutex);
    if (!limits.has_info) return {grpc::StatusCode::UNIMPLEMENTED, ""};
    fill(limits, response);
    return grpc::Status::OK;
  }
};

FakeService::FakeService(Handler handler, Limits limits) : impl_(std::make_unique<Impl>()) {
  impl_->handler = std::move(handler);
  impl_->limits = limits;
  grpc::ServerBuilder builder;
  builder.SetMaxReceiveMessageSize(128 << 20);
  builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &impl_->port);
  builder.RegisterService(impl_.get());
  impl_->server = builder.BuildAndStart();
}

FakeService::~FakeService() { impl_->server->Shutdown(std::chrono::system_clock::now() + std::chrono::seconds(5)); }

std::string FakeService::address() const {
  std::string address = "127.0.0.1:";
  address += std::to_string(impl_->port);
  return address;
}
int FakeService::requests() const { return impl_->requests; }
int FakeService::info_requests() const { return impl_->infos; }
Large& FakeService::large() { return impl_->large; }
int FakeService::most_at_once() const { return impl_->most_at_once; }

void FakeService::set_limits(Limits limits) {
  std::lock_guard lock(impl_->mutex);
  impl_->limits = limits;
}

// --- EarlyService -------------------------------------------------------------------------------

namespace {

// A call that is over as soon as it has come.
class EndedCall : public grpc::ServerGenericBidiReactor {
 public:
  explicit EndedCall(const grpc::Status& status) { Finish(status); }

 private:
  void OnDone() override { delete this; }
};

class EndingService : public grpc::CallbackGenericService {
 public:
  explicit EndingService(EarlyService::Handler handler) : handler_(std::move(handler)) {}
  int requests() const { return requests_; }

 private:
  grpc::ServerGenericBidiReactor* CreateReactor(grpc::GenericCallbackServerContext* context) override {
    return new EndedCall(to_grpc(handler_(requests_++, announced(*context))));
  }

  const EarlyService::Handler handler_;
  std::atomic<int> requests_{0};
};

}  // namespace

struct EarlyService::Impl : v1::SvdService::WithGenericMethod_Decompose<v1::SvdService::Service> {
  explicit Impl(Handler handler) : decompose(std::move(handler)) {}

  grpc::Status GetServerInfo(grpc::ServerContext*, const v1::GetServerInfoRequest*,
                             v1::GetServerInfoResponse* response) override {
    fill(FakeService::Limits(), response);
    return grpc::Status::OK;
  }

  EndingService decompose;
  std::unique_ptr<grpc::Server> server;
  int port = 0;
};

EarlyService::EarlyService(Handler handler) : impl_(std::make_unique<Impl>(std::move(handler))) {
  grpc::ServerBuilder builder;
  builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &impl_->port);
  builder.RegisterService(impl_.get());
  builder.RegisterCallbackGenericService(&impl_->decompose);
  impl_->server = builder.BuildAndStart();
}

EarlyService::~EarlyService() { impl_->server->Shutdown(std::chrono::system_clock::now() + std::chrono::seconds(5)); }

std::string EarlyService::address() const { return "127.0.0.1:" + std::to_string(impl_->port); }
int EarlyService::requests() const { return impl_->decompose.requests(); }

std::vector<double> counting(size_t n) {
  std::vector<double> v(n);
  std::iota(v.begin(), v.end(), 1);
  return v;
}

bool eventually(const std::function<bool()>& holds) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(180);
  while (!holds()) {
    if (std::chrono::steady_clock::now() > end) return false;
    std::this_thread::sleep_for(std::chrono::microseconds(100));
  }
  return true;
}

}  // namespace svdserve::client::testing
