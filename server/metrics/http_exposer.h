// The HTTP port for machines that watch: /metrics, /livez, /readyz. It has a thread of its own, so that it answers
// while every core and every gRPC thread is busy.
#ifndef SVDSERVE_SERVER_METRICS_HTTP_EXPOSER_H_
#define SVDSERVE_SERVER_METRICS_HTTP_EXPOSER_H_

#include <functional>
#include <memory>
#include <string>

#include "absl/time/time.h"
#include "server/base/clock.h"
#include "server/base/listening_socket.h"

namespace svdserve::server {

struct HttpHandlers {
  std::function<std::string()> metrics;  // the text of /metrics
  std::function<bool()> live;            // /livez: 200 or 503
  std::function<bool()> ready;           // /readyz: 200 or 503
};

// `render`, but a text is used again until it is older than `max_age`, so that many GETs cost little. For one thread at
// a time. `clock` outlives the function.
std::function<std::string()> reuse_text(std::function<std::string()> render, absl::Duration max_age, Clock* clock);

// Thread-safe. One request a connection; GET and HEAD.
//
// One thread polls all connections, so that none of them can make another wait. That holds for slow senders and for
// clients that do not read. There is room for kMaxConnections; who comes next takes the place of the oldest.
class HttpExposer {
 public:
  static constexpr size_t kMaxConnections = 64;

  // Port 0: any free one. Null, with *error set, where it cannot listen. The handlers are called on the exposer's
  // thread until its destructor returns, which it does at once.
  static std::unique_ptr<HttpExposer> listen(const ListenAddress& address, HttpHandlers handlers, std::string* error);
  ~HttpExposer();

  // host:port with the port that was bound.
  const std::string& address() const;

 private:
  HttpExposer() = default;
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace svdserve::server
#endif  // SVDSERVE_SERVER_METRICS_HTTP_EXPOSER_H_
