// The HTTP port for machines that watch: /metrics, /livez, /readyz. It has threads of its own, so that it answers while
// every core and every gRPC thread is busy.
#ifndef SVDSERVE_SERVER_METRICS_HTTP_EXPOSER_H_
#define SVDSERVE_SERVER_METRICS_HTTP_EXPOSER_H_

#include <functional>
#include <memory>
#include <string>

namespace svdserve::server {

struct HttpHandlers {
  std::function<std::string()> metrics;  // the text of /metrics
  std::function<bool()> ready;           // /readyz: 200 or 503
};

// Thread-safe. /livez answers 200 as long as the process can answer at all.
class HttpExposer {
 public:
  // Listens on `address` (host:port; port 0: any free one). Null, with *error set, where it cannot. The handlers are
  // called on threads of the exposer until its destructor returns.
  static std::unique_ptr<HttpExposer> Listen(const std::string& address, HttpHandlers handlers, std::string* error);
  ~HttpExposer();

  // host:port with the port that was bound.
  const std::string& address() const { return address_; }

 private:
  HttpExposer() = default;
  struct Impl;
  std::unique_ptr<Impl> impl_;
  std::string address_;
};

}  // namespace svdserve::server
#endif  // SVDSERVE_SERVER_METRICS_HTTP_EXPOSER_H_
