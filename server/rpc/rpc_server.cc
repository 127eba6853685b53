#include "server/rpc/rpc_server.h"

#include <grpc/grpc.h>
#include <grpcpp/generic/async_generic_service.h>
#include <grpcpp/resource_quota.h>
#include <grpcpp/security/server_credentials.h>
#include <grpcpp/server.h>
#include <grpcpp/server_builder.h>
#include <grpcpp/server_posix.h>
#include <svdserve/v1/svd_service.grpc.pb.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <climits>
#include <list>
#include <thread>
#include <utility>
#include <vector>

#include "server/base/listening_socket.h"
#include "server/base/mutex.h"
#include "server/peer_address.h"
#include "server/rpc/calls/call_log.h"
#include "server/rpc/calls/decompose_large_call.h"
#include "server/rpc/calls/health_call.h"
#include "server/rpc/calls/load_report.h"
#include "server/rpc/calls/open_calls.h"
#include "server/rpc/calls/read_turns.h"
#include "server/rpc/calls/stream_call.h"
#include "server/rpc/calls/unary_call.h"
#include "server/rpc/connection_acceptor.h"
#include "server/rpc/connection_guard.h"
#include "server/rpc/connection_traffic.h"
#include "server/rpc/library_logs.h"
#include "server/rpc/self_probe.h"
#include "server/rpc/small/health_service.h"
#include "server/rpc/small/reflection_service.h"
#include "server/rpc/small/small_call.h"
#include "server/rpc/small/small_methods.h"
#include "server/rpc/tls_credentials.h"

namespace svdserve::server {
namespace {

constexpr char kServiceName[] = "svdserve.v1.SvdService";

// The bulk methods take and give raw bytes, so that codec.h alone decides what is copied. Decompose and Eigendecompose
// are served as streams of one message; see UnaryCall.
class SvdServiceHandler final
    : public v1::SvdService::WithRawCallbackMethod_DecomposeStream<
          v1::SvdService::WithRawCallbackMethod_EigendecomposeStream<
              v1::SvdService::WithRawCallbackMethod_DecomposeLarge<v1::SvdService::Service>>> {
 public:
  using StreamReactor = grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>;

  explicit SvdServiceHandler(const HandlerContext* context) : context_(*context) {
    serve_unary(Rpc::kDecompose);
    serve_unary(Rpc::kEigendecompose);
    for (const SmallMethod& method : small_methods()) serve_small(method);
  }

  StreamReactor* DecomposeStream(grpc::CallbackServerContext* call) override {
    return start(std::make_shared<StreamCall>(Rpc::kDecomposeStream, &context_, call));
  }

  StreamReactor* EigendecomposeStream(grpc::CallbackServerContext* call) override {
    return start(std::make_shared<StreamCall>(Rpc::kEigendecomposeStream, &context_, call));
  }

  StreamReactor* DecomposeLarge(grpc::CallbackServerContext* call) override {
    return start(std::make_shared<DecomposeLargeCall>(&context_, call));
  }

 private:
  template <class Call>
  static StreamReactor* start(const std::shared_ptr<Call>& reactor) {
    reactor->start();
    return reactor.get();  // keeps itself alive until OnDone()
  }

  static int index_of_method(const char* method) {
    const auto* const service = v1::GetServerInfoResponse::descriptor()->file()->FindServiceByName("SvdService");
    return service->FindMethodByName(method)->index();
  }

  void serve_small(const SmallMethod& small) {
    const int method = index_of_method(small.name);
    const SmallAnswer& answer =
        small_answers_.emplace_back([this, answer = small.answer](const grpc::ByteBuffer& request, auto* reply) {
          const Error error = answer(context_, request, reply);
          return error.ok() ? grpc::Status::OK : to_status(error);
        });
    MarkMethodStreamed(method, SmallCall::make_handler(&context_, small.name, &answer));
    MarkMethodRawCallback(method, SmallCall::make_handler(&context_, small.name, &answer));
  }

  // Serves a unary method of the service by UnaryCall.
  void serve_unary(Rpc rpc) {
    const int method = index_of_method(name(rpc));
    const auto handler = [this, rpc] {
      return new grpc::internal::CallbackClientStreamingHandler<grpc::ByteBuffer, grpc::ByteBuffer>(
          [this, rpc](grpc::CallbackServerContext* call, grpc::ByteBuffer* reply) {
            return UnaryCall::handle(rpc, &context_, call, reply);
          });
    };
    // The first call makes the method a stream for the server, the second one of raw bytes and callbacks. Each takes a
    // handler of its own, and the last one stays.
    MarkMethodStreamed(method, handler());
    MarkMethodRawCallback(method, handler());
  }

  const HandlerContext& context_;
  std::list<SmallAnswer> small_answers_;  // the handlers know where each is
};

std::shared_ptr<grpc::ServerCredentials> credentials(const RpcOptions& options) {
  return options.tls == nullptr ? grpc::InsecureServerCredentials() : tls_credentials(options.tls);
}

// Whether gRPC can use the TLS files. It would serve with credentials that it cannot use, and fail each connection:
// only a listener of its own says so at the start. This one is nobody's and gone at once.
bool can_use(const TlsFiles* files) {
  const std::shared_ptr<grpc::ServerCredentials> credentials = tls_credentials(files);
  grpc::CallbackGenericService nothing;
  grpc::ServerBuilder builder;
  int port = 0;
  builder.AddListeningPort("unix-abstract:svdserve-credentials-" + std::to_string(getpid()), credentials, &port);
  builder.RegisterCallbackGenericService(&nothing);
  return builder.BuildAndStart() != nullptr && port > 0;
}

// As gRPC's arguments have it, where INT_MAX is no limit.
int to_milliseconds(absl::Duration d) {
  return static_cast<int>(std::min<int64_t>(absl::ToInt64Milliseconds(d), INT_MAX));
}

void set_limits(const RpcOptions& options, grpc::ServerBuilder* builder) {
  builder->SetMaxReceiveMessageSize(static_cast<int>(options.max_message_bytes));
  builder->SetMaxSendMessageSize(static_cast<int>(options.max_message_bytes));
  // gRPC inflates a message before it looks at its size: a megabyte could become a gigabyte. Matrices hardly shrink, so
  // nothing is lost: a compressed message is UNIMPLEMENTED, and clients are told so by grpc-accept-encoding.
  builder->SetCompressionAlgorithmSupportStatus(GRPC_COMPRESS_GZIP, false);
  builder->SetCompressionAlgorithmSupportStatus(GRPC_COMPRESS_DEFLATE, false);
  builder->AddChannelArgument(GRPC_ARG_ENABLE_PER_MESSAGE_DECOMPRESSION, 0);
  grpc::ResourceQuota quota("svdserve");
  quota.Resize(static_cast<size_t>(options.memory_quota_bytes));
  builder->SetResourceQuota(quota);
  // By default gRPC widens the windows of all calls to 4 MiB while its quota is hardly used, and further as it measures
  // the bandwidth. A fixed window bounds what calls hold that nobody has admitted. Frames may be large all the same.
  constexpr int kLargestFrame = (1 << 24) - 1;
  builder->AddChannelArgument(GRPC_ARG_HTTP2_BDP_PROBE, 0);
  builder->AddChannelArgument(GRPC_ARG_HTTP2_STREAM_LOOKAHEAD_BYTES, static_cast<int>(options.call_window_bytes));
  builder->AddChannelArgument(GRPC_ARG_HTTP2_MAX_FRAME_SIZE, kLargestFrame);
  builder->AddChannelArgument(GRPC_ARG_MAX_CONCURRENT_STREAMS, static_cast<int>(options.max_connection_streams));
  builder->AddChannelArgument(GRPC_ARG_MAX_CONNECTION_IDLE_MS, to_milliseconds(options.max_connection_idle));
  // gRPC varies the age by a tenth, so that not all clients come back at once. It would cut off calls after the grace.
  builder->AddChannelArgument(GRPC_ARG_MAX_CONNECTION_AGE_MS, to_milliseconds(options.max_connection_age));
  builder->AddChannelArgument(GRPC_ARG_MAX_CONNECTION_AGE_GRACE_MS, INT_MAX);
  // Connections that say nothing are closed.
  builder->AddChannelArgument(GRPC_ARG_SERVER_HANDSHAKE_TIMEOUT_MS, 10000);
  // Idle peers are asked every two minutes whether they are still there. They may ask every second: a client with several
  // servers leaves one that does not answer.
  builder->AddChannelArgument(GRPC_ARG_KEEPALIVE_TIME_MS, 120000);
  builder->AddChannelArgument(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, 20000);
  builder->AddChannelArgument(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
  builder->AddChannelArgument(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS, 1000);
}

}  // namespace

struct RpcServer::Impl {
  Impl(const RpcOptions& options, const PipelineOptions& limits, Pipeline* served)
      : calls({options.max_open_calls, options.max_streams, options.peer_percent}),
        read_turns({.excess = share(limits.max_inflight_bytes, options.peer_percent)}),
        small_reads(at_once(1, limits.max_waiting_requests, options.peer_percent)),
        question_reads(at_once(2, limits.max_waiting_requests, options.peer_percent)),
        open_reads(at_once(8, limits.max_waiting_requests, options.peer_percent)),
        proxies(TrustedProxies::parse(options.trusted_proxies).value_or(TrustedProxies())),
        access_log(options.access_log),
        pipeline(served),
        stream_idle_timeout(options.stream_idle_timeout) {}

  OpenCalls calls;
  static int64_t share(int64_t limit, int percent) {
    return static_cast<int64_t>(static_cast<double>(limit) * percent / 100);
  }
  // Turns for so many reads of a peer. Each call that waits may have sent a window.
  static ReadTurns::Limits at_once(int64_t reads, int64_t max_waiting, int percent) {
    return {.excess = reads, .waiting = max_waiting, .of_a_peer = std::max<int64_t>(share(max_waiting, percent), 1)};
  }

  ReadTurns read_turns, small_reads, question_reads, open_reads;
  const TrustedProxies proxies;
  ConnectionTraffic traffic;
  LoadReport load;  // ticked by watch_thread
  AccessLog access_log;
  HandlerContext context;
  std::unique_ptr<HealthService> health;
  std::unique_ptr<SvdServiceHandler> service;
  std::unique_ptr<ReflectionService> reflection;         // where it is wanted
  std::shared_ptr<grpc::ServerCredentials> credentials;  // gRPC asks them as long as there is a server
  std::unique_ptr<grpc::Server> server;
  std::unique_ptr<grpc::experimental::ExternalConnectionAcceptor> connections;  // gRPC's end of `acceptor`
  std::unique_ptr<ConnectionGuard> guard;                                       // null: there is none
  std::unique_ptr<ConnectionAcceptor> acceptor;
  std::string address;
  Pipeline* const pipeline;

  std::unique_ptr<grpc::experimental::ExternalConnectionAcceptor> own_connections;
  std::unique_ptr<HealthCall> health_call;  // from start() to shutdown(); of the thread that ticks
  SelfProbe self_probe{[this](auto done) { health_call->start(SelfProbe::kPatience, std::move(done)); }};

  const absl::Duration stream_idle_timeout;

  // The health service tells watchers of changes, so somebody has to notice them; and streams that stall.
  Mutex mu;
  CondVar changed;
  bool serving ABSL_GUARDED_BY(mu) = false;
  bool told_healthy ABSL_GUARDED_BY(mu) = false;
  bool stopping ABSL_GUARDED_BY(mu) = false;
  bool stopped ABSL_GUARDED_BY(mu) = false;  // every call and every connection has gone
  std::thread watch_thread;

  void make_services(bool with_reflection) {
    service = std::make_unique<SvdServiceHandler>(&context);
    health = std::make_unique<HealthService>(&context, std::vector<std::string>{"", kServiceName});
    if (!with_reflection) return;
    reflection = std::make_unique<ReflectionService>(
        &context, std::vector<std::string>{grpc::health::v1::Health::service_full_name(), kServiceName});
  }

  void add_services(grpc::ServerBuilder* builder) {
    builder->RegisterService(service.get());
    builder->RegisterService(health.get());
    if (reflection != nullptr) builder->RegisterService(reflection.get());
  }

  // With `names_users` the calls' peer() is the descriptor, whose user is known: a Unix socket has no address. gRPC
  // offers that in plain text alone.
  void take_connection(int listener, int fd, bool names_users) {
    if (names_users) {
      grpc::AddInsecureChannelFromFd(server.get(), fd);
      return;
    }
    grpc::experimental::ExternalConnectionAcceptor::NewConnectionParameters connection;
    connection.listener_fd = listener;
    connection.fd = fd;
    connections->HandleNewConnection(&connection);
  }

  void accept(ListeningSockets listening, const RpcOptions& options, Recorder* recorder) {
    if (options.connection_guard < absl::InfiniteDuration()) {
      guard =
          std::make_unique<ConnectionGuard>(options.connection_guard, options.call_window_bytes, &traffic, recorder);
    }
    const int listener = listening.sockets().front().get();
    acceptor = std::make_unique<ConnectionAcceptor>(
        std::move(listening), ConnectionLimits{options.max_connections, options.peer_percent}, proxies, guard.get(),
        recorder, [this, listener, names_users = options.listen.is_unix() && options.tls == nullptr](int fd) {
          take_connection(listener, fd, names_users);
        });
  }

  // Unless all have gone before: a little later than gRPC cancels their calls, so that who listens hears of that.
  void break_connections_after(absl::Duration grace) {
    constexpr absl::Duration kLastWords = absl::Milliseconds(500);
    const auto end = std::chrono::steady_clock::now() + absl::ToChronoNanoseconds(grace + kLastWords);
    MutexLock lock(&mu);
    while (!stopped && std::chrono::steady_clock::now() < end) changed.wait_until(&mu, end);
    if (!stopped) acceptor->break_connections();
  }

  void tell_health(bool ready) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu) {
    const bool healthy = serving && ready;
    if (healthy == told_healthy) return;
    health->set_serving(healthy);
    told_healthy = healthy;
  }

  void watch() {
    constexpr auto kPeriod = std::chrono::milliseconds(100);
    mu.lock();
    while (!stopping) {
      mu.unlock();
      self_probe.tick(context.clock->now());
      mu.lock();
      calls.cut_off_stalled(context.clock->now(), stream_idle_timeout);
      const PipelineStats stats = pipeline->stats();
      if (load.is_due(context.clock->now())) load.tick(context.clock->now(), pipeline->devices(), stats.oldest_queued);
      tell_health(stats.ready());
      changed.wait_until(&mu, std::chrono::steady_clock::now() + kPeriod);
    }
    mu.unlock();
  }
};

RpcServer::RpcServer() = default;

std::unique_ptr<RpcServer> RpcServer::start(const RpcOptions& options, Pipeline* pipeline, LargePipeline* factors,
                                            Clock* clock, Recorder* recorder, std::shared_ptr<HostMemory> memory,
                                            std::string* error) {
  std::unique_ptr<RpcServer> out(new RpcServer);
  out->impl_ = std::make_unique<Impl>(options, pipeline->options(), pipeline);
  Impl& impl = *out->impl_;
  impl.context = {pipeline,
                  factors,
                  clock,
                  recorder,
                  std::move(memory),
                  &impl.calls,
                  &impl.read_turns,
                  &impl.small_reads,
                  &impl.question_reads,
                  &impl.open_reads,
                  &impl.proxies,
                  &impl.access_log,
                  static_cast<size_t>(options.max_stream_requests),
                  &impl.load,
                  &impl.traffic};
  impl.make_services(options.reflection);

  redirect_library_logs();
  // One more than is shut down. The last grpc_shutdown() joins a thread that may poll for 10 s on behalf of a
  // connection that is broken already.
  static const bool kept = (grpc_init(), true);
  static_cast<void>(kept);
  ListeningSockets listening = ListeningSockets::open(options.listen, error);
  if (listening.empty()) return nullptr;
  if (options.tls != nullptr && !can_use(options.tls)) {
    *error = "gRPC cannot use --tls-cert, --tls-key or --tls-client-ca";
    return nullptr;
  }
  impl.credentials = credentials(options);
  grpc::ServerBuilder builder;
  using FromOutside = grpc::ServerBuilder::experimental_type::ExternalConnectionType;
  impl.connections = builder.experimental().AddExternalConnectionAcceptor(FromOutside::FROM_FD, impl.credentials);
  impl.own_connections =
      builder.experimental().AddExternalConnectionAcceptor(FromOutside::FROM_FD, grpc::InsecureServerCredentials());
  impl.add_services(&builder);
  set_limits(options, &builder);
  impl.server = builder.BuildAndStart();
  if (impl.server == nullptr) {
    *error = "cannot serve on " + options.listen.text();
    return nullptr;
  }
  // Its connection comes first, so that its descriptors do not count as connections.
  impl.health_call = std::make_unique<HealthCall>(impl.own_connections.get());
  impl.self_probe.tick(clock->now());
  impl.accept(std::move(listening), options, recorder);
  impl.address = impl.acceptor->address();
  impl.watch_thread = std::thread([&impl] { impl.watch(); });
  return out;
}

RpcServer::~RpcServer() {
  if (impl_ != nullptr && impl_->server != nullptr) shutdown(absl::ZeroDuration());
}

const std::string& RpcServer::address() const { return impl_->address; }

void RpcServer::set_serving(bool serving) {
  const bool ready = impl_->pipeline->stats().ready();
  MutexLock lock(&impl_->mu);
  impl_->serving = serving;
  impl_->tell_health(ready);
}

void RpcServer::close_streams() { impl_->calls.close_all(); }

void RpcServer::shutdown(absl::Duration grace) {
  {
    MutexLock lock(&impl_->mu);
    impl_->stopping = true;
    impl_->changed.signal();
  }
  if (impl_->watch_thread.joinable()) impl_->watch_thread.join();
  impl_->acceptor->stop();
  impl_->calls.close_all();
  impl_->health->end_watches();
  std::thread breaker([this, grace] { impl_->break_connections_after(grace); });
  impl_->server->Shutdown(std::chrono::system_clock::now() + absl::ToChronoMilliseconds(grace));
  impl_->server->Wait();
  impl_->health_call.reset();
  {
    MutexLock lock(&impl_->mu);
    impl_->stopped = true;
    impl_->changed.signal();
  }
  breaker.join();
}

int64_t RpcServer::open_streams() const { return impl_->calls.count(CallKind::kStream); }

bool RpcServer::alive() const { return impl_->self_probe.alive(); }

}  // namespace svdserve::server
