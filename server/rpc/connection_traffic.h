// The bytes of a connection that its calls account for. The transport parses below all calls, and a client may keep it
// busy without any: ConnectionGuard compares these numbers with those of the kernel.
#ifndef SVDSERVE_SERVER_RPC_CONNECTION_TRAFFIC_H_
#define SVDSERVE_SERVER_RPC_CONNECTION_TRAFFIC_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/string_view.h"
#include "server/base/mutex.h"

namespace svdserve::server {

// The numbers of one connection, since its beginning. Any thread counts, the guard reads.
struct Traffic {
  std::atomic<int64_t> messages{0};  // bytes of messages that handlers got, with what carries them
  std::atomic<int64_t> forgiven{0};  // that calls may have sent which ended before their next message was there
  std::atomic<int64_t> due{0};       // that open calls may send until their next message is there
  std::atomic<int64_t> handled{0};   // calls that the client did not end before their message was there
};

// All connections that are watched. Thread-safe.
class ConnectionTraffic {
 public:
  // `endpoint`: endpoint_of() the other end.
  std::shared_ptr<Traffic> add(const std::string& endpoint);
  void remove(const std::string& endpoint, const std::shared_ptr<Traffic>& traffic);
  // Null where nobody watches the connection.
  std::shared_ptr<Traffic> find(const std::string& endpoint) const;

 private:
  mutable Mutex mu_;
  absl::flat_hash_map<std::string, std::shared_ptr<Traffic>> all_ ABSL_GUARDED_BY(mu_);
};

// How many messages a call may have.
enum class Messages { kOne, kMany };

// The part of one call. Nothing is counted before begin(). Thread-safe, but for begin() and destruction.
class CallTraffic {
 public:
  // `transport`: gRPC's name of the connection's other end. `largest`: bytes that a message may have.
  void begin(const ConnectionTraffic& all, absl::string_view transport, Messages messages, int64_t largest);
  ~CallTraffic();
  // A message is there.
  void read(size_t bytes);
  // The client has ended the call.
  void cancelled() { cancelled_.store(true, std::memory_order_relaxed); }

 private:
  std::shared_ptr<Traffic> traffic_;
  Messages messages_ = Messages::kOne;
  int64_t largest_ = 0;
  std::atomic<bool> cancelled_{false}, was_read_{false};
};

}  // namespace svdserve::server
#endif  // SVDSERVE_SERVER_RPC_CONNECTION_TRAFFIC_H_
