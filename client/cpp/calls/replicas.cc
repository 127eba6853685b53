#include "client/cpp/calls/replicas.h"

#include <grpcpp/create_channel.h>
#include <grpcpp/security/credentials.h>
#include <grpcpp/support/channel_arguments.h>

#include <algorithm>
#include <utility>

#include "client/cpp/wire/address.h"

namespace svdserve::client::internal {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kFirstLeave(100), kLongestLeave(5000), kLongestFull(1000), kCheckPeriod(2000);
// A name may stand for several servers, which gRPC tells nobody about.
constexpr size_t kOfName = 3;

bool is_name(const std::string& address) { return address.starts_with("dns:"); }

std::shared_ptr<grpc::ChannelCredentials> credentials(const TlsOptions& tls) {
  if (!tls.enabled) return grpc::InsecureChannelCredentials();
  return grpc::SslCredentials({tls.root_certificates, tls.private_key, tls.certificate_chain});
}

// A server that is gone without a word, or stopped, is noticed while calls wait for it: fast where another one is there.
void set_keepalive(const ClientOptions& o, bool has_others, grpc::ChannelArguments* args) {
  const auto silence = std::clamp<std::chrono::nanoseconds>(
      o.silence_timeout.value_or(has_others ? milliseconds(4000) : milliseconds(50000)), milliseconds(20),
      std::chrono::hours(24));
  const auto ms = static_cast<int>(std::chrono::duration_cast<milliseconds>(silence).count());
  const int ping = std::max(1000, has_others ? ms / 2 : ms * 3 / 5);  // more often than a second the server takes none
  const int patience = std::max(10, ms - ping);
  args->SetInt(GRPC_ARG_KEEPALIVE_TIME_MS, ping);
  args->SetInt(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, patience);
  // Newer releases of gRPC have a timeout for all pings, a minute unless it is set, and keepalive's means nothing to them.
  args->SetInt("grpc.http2.ping_timeout_ms", patience);
  args->SetInt(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
}

// All servers of a name take turns, without those that do not serve. New ones are found when a connection ends.
void set_balancing(grpc::ChannelArguments* args) {
  args->SetServiceConfigJSON(R"({"loadBalancingConfig": [{"round_robin": {}}],
                                 "healthCheckConfig": {"serviceName": "svdserve.v1.SvdService"}})");
  args->SetInt(GRPC_ARG_SERVICE_CONFIG_DISABLE_RESOLUTION, 1);
  args->SetInt(GRPC_ARG_DNS_MIN_TIME_BETWEEN_RESOLUTIONS_MS, 2000);
}

std::shared_ptr<grpc::Channel> make_channel(const ClientOptions& o, const std::string& address, bool has_others) {
  grpc::ChannelArguments args;
  args.SetMaxSendMessageSize(static_cast<int>(o.max_message_bytes));
  args.SetMaxReceiveMessageSize(static_cast<int>(o.max_message_bytes));
  // Retries are ours: gRPC's would keep a second account of every message.
  args.SetInt(GRPC_ARG_ENABLE_RETRIES, 0);
  // Each channel a connection of its own; gRPC would share one among channels that look alike.
  args.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  // A restarted server is found again soon.
  args.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, 100);
  args.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 5000);
  // Calls wait for a connection that is being made. The least backoff bounds how long that takes.
  if (has_others) args.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, 2000);
  set_keepalive(o, has_others, &args);
  if (is_name(address)) set_balancing(&args);
  if (!o.tls.server_name.empty()) args.SetSslTargetNameOverride(o.tls.server_name);
  return grpc::CreateCustomChannel(address, credentials(o.tls), args);
}

}  // namespace

// --- which replica ------------------------------------------------------------------------------

size_t Rotation::next(const std::vector<bool>& tried, Clock::time_point now) {
  std::lock_guard lock(mutex_);
  std::vector<size_t> open;
  const auto is_tried = [&](size_t i) { return i < tried.size() && tried[i]; };
  for (size_t i = 0; i < replicas_.size(); ++i) {
    Replica& r = replicas_[i];
    if (r.state == State::kFull && now >= r.until) r.state = State::kTakesCalls;
    if (r.state == State::kTakesCalls && !is_tried(i)) open.push_back(i);
  }
  const size_t turn = turn_++;
  if (!open.empty()) return open[turn % open.size()];
  // None: the one that is due first, of those that have not been tried if there are any.
  size_t best = turn % replicas_.size();
  for (size_t i = 0; i < replicas_.size(); ++i) {
    const bool earlier = replicas_[i].until < replicas_[best].until;
    if (is_tried(i) != is_tried(best) ? is_tried(best) : earlier) best = i;
  }
  return best;
}

void Rotation::take_out(Replica& r, Clock::time_point now) {
  r.state = State::kDown;
  r.until = now + std::min(kLongestLeave, kFirstLeave * (1 << std::min(r.failures, 6)));
  ++r.failures;
}

Rotation::Change Rotation::note(size_t replica, const Status& status, Clock::time_point now) {
  std::lock_guard lock(mutex_);
  Replica& r = replicas_[replica];
  const bool was_down = r.state == State::kDown;
  if (!is_retryable(status)) {
    if (status.ok()) budget_.succeeded();
    if (!was_down || r.unhealthy || !status.ok()) return Change::kNone;
    r.state = State::kTakesCalls;
    r.failures = 0;
    return Change::kBack;
  }
  budget_.failed();
  if (status.code == Code::kUnavailable) {
    if (!was_down || now >= r.until) take_out(r, now);  // once for calls that failed together
    return was_down ? Change::kNone : Change::kLeft;
  }
  if (r.state == State::kTakesCalls) {
    r.state = State::kFull;
    r.until = now + std::min<std::chrono::nanoseconds>(*status.retry_delay, kLongestFull);
  }
  return Change::kNone;
}

std::optional<size_t> Rotation::due(Clock::time_point now) {
  std::lock_guard lock(mutex_);
  for (size_t i = 0; i < replicas_.size(); ++i) {
    Replica& r = replicas_[i];
    if (r.is_checked || (r.state == State::kDown ? now < r.until : now < r.next_check)) continue;
    r.is_checked = true;
    return i;
  }
  return std::nullopt;
}

Rotation::Change Rotation::checked(size_t replica, bool serving, Clock::time_point now) {
  std::lock_guard lock(mutex_);
  Replica& r = replicas_[replica];
  const bool was_down = r.state == State::kDown;
  r.is_checked = false;
  r.next_check = now + kCheckPeriod;
  r.unhealthy = !serving;
  if (!serving) {
    take_out(r, now);
    return was_down ? Change::kNone : Change::kLeft;
  }
  r.failures = 0;
  if (!was_down) return Change::kNone;
  r.state = State::kTakesCalls;
  return Change::kBack;
}

bool Rotation::may_hurry() const {
  std::lock_guard lock(mutex_);
  return budget_.allows();
}

// --- their connections --------------------------------------------------------------------------

Replicas::Replicas(const ClientOptions& options) {
  std::vector<std::string> addresses;  // each once, or it would have two shares
  for (std::string& address : split_addresses(options.address.text())) {
    if (std::ranges::find(addresses, address) == addresses.end()) addresses.push_back(std::move(address));
  }
  width_ = 0;
  for (const std::string& address : addresses) width_ += is_name(address) ? kOfName : 1;
  replicas_ = std::vector<Replica>(addresses.size());
  for (size_t i = 0; i < addresses.size(); ++i) {
    replicas_[i].address = addresses[i];
    for (int c = 0; c < options.connections; ++c) {
      replicas_[i].stubs.push_back(
          std::make_unique<grpc::GenericStub>(make_channel(options, addresses[i], width_ > 1)));
    }
  }
  if (width_ == 1) return;
  // Many clients do not all begin with the same server.
  const auto first = static_cast<size_t>(uniform() * static_cast<double>(addresses.size()));
  rotation_ = std::make_unique<Rotation>(addresses.size(), first);
}

grpc::GenericStub& Replicas::stub(size_t replica) {
  Replica& r = replicas_[replica];
  return *r.stubs[r.turn.fetch_add(1, std::memory_order_relaxed) % r.stubs.size()];
}

}  // namespace svdserve::client::internal
