#include "client/cpp/client.h"

#include <exception>
#include <fstream>
#include <future>
#include <iterator>

#include "client/cpp/calls/batch_call.h"
#include "client/cpp/calls/core.h"
#include "client/cpp/calls/large/large_call.h"
#include "client/cpp/calls/server_calls.h"
#include "client/cpp/calls/stream_call.h"
#include "client/cpp/wire/status.h"
#include "client/cpp/wire/wire.h"

namespace svdserve::client {
namespace {

using internal::Core;

// A batch of one piece, sent by the calling thread itself.
Result<Report> decompose_here(Core& core, const Batch& batch, const internal::MatrixSizes& sizes, const Outputs& out,
                              const ComputeOptions& compute, const CallOptions& call, internal::Deadline deadline) {
  const internal::BatchToSend to_send{batch, batch.count,
                                      internal::make_payloads(core.buffers(), batch, {0, batch.count}, sizes)};
  const grpc::ByteBuffer request = internal::make_request({&to_send, 1}, compute);
  grpc::ByteBuffer reply;
  int64_t attempts = 0;
  if (Status s = core.call(internal::method_of(compute), request, call, deadline, &reply, &attempts); !s.ok()) {
    core.forget_limits_after(s);
    return s;
  }
  const internal::BatchToReceive to_receive{internal::expected_of(batch, batch.count, compute), out};
  Result<std::vector<Report>> reports = internal::read_response(reply, {&to_receive, 1});
  if (!reports.ok()) return reports.status();
  Report& report = reports->front();
  report.attempts = attempts;
  return std::move(report);
}

}  // namespace

// --- TLS ----------------------------------------------------------------------------------------

namespace {

// gRPC tells nobody but its own log that a text is no PEM, or one of another kind. kind: how its first line ends.
Status check_pem(const char* field, const std::string& path, const std::string& text, const char* kind) {
  if (text.find("-----BEGIN ") == std::string::npos) return internal::invalid(field, path + " is not a PEM file");
  if (text.find(std::string(kind) + "-----") != std::string::npos) return {};
  return internal::invalid(field, path + " has no " + kind);
}

}  // namespace

Result<TlsOptions> TlsOptions::from_files(const std::string& root_certificates, const std::string& certificate_chain,
                                          const std::string& private_key) {
  if (certificate_chain.empty() != private_key.empty()) {
    return internal::invalid("tls", "give a client certificate together with its private key; only the " +
                                        std::string(private_key.empty() ? "certificate" : "key") + " is given");
  }
  TlsOptions tls;
  tls.enabled = true;
  const struct {
    const std::string& path;
    std::string* text;
    const char *field, *kind;
  } files[] = {{root_certificates, &tls.root_certificates, "tls.root_certificates", "CERTIFICATE"},
               {certificate_chain, &tls.certificate_chain, "tls.certificate_chain", "CERTIFICATE"},
               {private_key, &tls.private_key, "tls.private_key", "PRIVATE KEY"}};
  for (const auto& [path, text, field, kind] : files) {
    if (path.empty()) continue;
    std::ifstream in(path, std::ios::binary);
    text->assign(std::istreambuf_iterator<char>(in), {});
    if (!in.good() && !in.eof()) return internal::failure(Code::kNotFound, "", "cannot read " + path);
    if (text->empty()) return internal::failure(Code::kNotFound, "", path + " cannot be read or is empty");
    if (Status wrong = check_pem(field, path, *text, kind); !wrong.ok()) return wrong;
  }
  return tls;
}

// --- the client ---------------------------------------------------------------------------------

Caller::Caller(std::shared_ptr<Core> core) : core_(std::move(core)) {}

Client::Client(ClientOptions options) : Verbs(std::make_shared<Core>(std::move(options))) {}

Client::~Client() {
  if (core_) core_->close();
}

Client::Client(Client&&) noexcept = default;

Client& Client::operator=(Client&& other) noexcept {
  if (this != &other) {
    if (core_) core_->close();
    Verbs::operator=(std::move(other));
  }
  return *this;
}

Result<Report> Caller::decompose(const Batch& batch, const Outputs& out, const ComputeOptions& compute,
                                 const CallOptions& call) {
  const internal::Deadline deadline = internal::deadline_after(call.timeout, internal::Clock::now());
  const Result<internal::MatrixSizes> sizes = internal::check(batch, out, compute);
  if (!sizes.ok()) return sizes.status();
  if (Status s = internal::fetch_limits(*core_, call, deadline); !s.ok()) return s;
  if (const auto limits = core_->limits()) {
    const Result<internal::Split> pieces = internal::split(batch, *limits, compute);
    if (!pieces.ok()) return pieces.status();
    if (pieces->pieces() == 1) return decompose_here(*core_, batch, *sizes, out, compute, call, deadline);
  }
  CallOptions rest = call;
  if (deadline) rest.timeout = *deadline - internal::Clock::now();
  // Shared: the callback may still be inside the promise when the future is ready.
  const auto answer = std::make_shared<std::promise<Result<Report>>>();
  std::future<Result<Report>> answered = answer->get_future();
  decompose_async(batch, out, compute, rest, [answer](Result<Report> r) { answer->set_value(std::move(r)); });
  return answered.get();
}

void Caller::decompose_async(const Batch& batch, const Outputs& out, const ComputeOptions& compute,
                             const CallOptions& call, std::function<void(Result<Report>)> done) {
  const Group group{batch, out};
  const auto first = [done = std::move(done)](Result<std::vector<Report>> reports) {
    done(reports.ok() ? Result<Report>(std::move(reports->front())) : Result<Report>(reports.status()));
  };
  std::make_shared<internal::BatchCall>(*core_, std::span(&group, 1), compute, call, first)->start();
}

Result<std::vector<Report>> Caller::decompose_groups(std::span<const Group> groups, const ComputeOptions& compute,
                                                     const CallOptions& call) {
  using Reports = Result<std::vector<Report>>;
  // Shared: the callback may still be inside the promise when the future is ready.
  const auto answer = std::make_shared<std::promise<Reports>>();
  std::future<Reports> answered = answer->get_future();
  decompose_groups_async(groups, compute, call, [answer](Reports reports) { answer->set_value(std::move(reports)); });
  return answered.get();
}

void Caller::decompose_groups_async(std::span<const Group> groups, const ComputeOptions& compute,
                                    const CallOptions& call, std::function<void(Result<std::vector<Report>>)> done) {
  if (groups.empty()) return done(std::vector<Report>());
  std::make_shared<internal::BatchCall>(*core_, groups, compute, call, std::move(done))->start();
}

Result<LargeReport> Caller::decompose_large(const LargeMatrix& matrix, const LargeOutputs& out,
                                            const LargeOptions& options, const CallOptions& call) {
  const Result<LargeSizes> sizes = large_sizes(matrix, options);
  if (!sizes.ok()) return sizes.status();
  const std::pair<std::span<std::byte>, int64_t> memory[] = {
      {out.values, sizes->values_bytes}, {out.left, sizes->left_bytes}, {out.right_adjoint, sizes->right_bytes}};
  for (const auto& [given, bytes] : memory) {
    if (given.size() == static_cast<size_t>(bytes)) continue;
    return internal::invalid(
        "out", "holds " + std::to_string(given.size()) + " bytes, but the result has " + std::to_string(bytes));
  }
  return internal::LargeCall(*core_, matrix, *sizes, out, options, call).run();
}

void Caller::decompose_large_async(const LargeMatrix& matrix, const LargeOutputs& out, const LargeOptions& options,
                                   const CallOptions& call, std::function<void(Result<LargeReport>)> done) {
  // Counted from now: the thread may be slow to begin.
  const internal::Deadline deadline = internal::deadline_after(call.timeout, internal::Clock::now());
  const auto work = [caller = *this, matrix, out, options, rest = CallOptions(call), deadline, done]() mutable {
    if (deadline) rest.timeout = *deadline - internal::Clock::now();
    Result<LargeReport> report = internal::failure(Code::kAborted, "", "options.progress threw an exception");
    try {
      report = caller.decompose_large(matrix, out, options, rest);
    } catch (const std::exception& thrown) {  // nobody is there to catch it
      report = internal::failure(Code::kAborted, "", std::string("options.progress threw: ") + thrown.what());
    } catch (...) {
    }
    done(std::move(report));
  };
  if (Status failed = core_->run(work); !failed.ok()) done(std::move(failed));
}

Stream Client::open_stream(const StreamOptions& options) {
  return Stream(core_, internal::StreamCall::open(*core_, options));
}

Result<ServerInfo> Client::server_info(const CallOptions& call) { return internal::server_info(*core_, call); }

Result<CapacityPlan> Client::plan_capacity(const Batch& batch, const ComputeOptions& compute, const Demand& demand,
                                           const CallOptions& call) {
  return internal::plan_capacity(*core_, batch, compute, demand, call);
}

Result<bool> Client::healthy(const std::string& service, const CallOptions& call) {
  return internal::healthy(*core_, service, call);
}

Result<std::chrono::nanoseconds> Client::ping(const CallOptions& call) { return internal::ping(*core_, call); }

}  // namespace svdserve::client
