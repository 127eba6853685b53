#include "server/metrics/http_exposer.h"

#include <civetweb.h>

#include <string_view>
#include <utility>

#include "server/log.h"

namespace svdserve::server {
namespace {

constexpr std::string_view kText = "text/plain; charset=utf-8";
constexpr std::string_view kPrometheusText = "text/plain; version=0.0.4; charset=utf-8";

void reply(mg_connection* connection, int code, std::string_view type, std::string_view body) {
  const char* reason = code == 200   ? "OK"
                       : code == 405 ? "Method Not Allowed"
                       : code == 404 ? "Not Found"
                                     : "Service Unavailable";
  mg_printf(connection,
            "HTTP/1.1 %d %s\r\nContent-Type: %.*s\r\nContent-Length: %zu\r\nCache-Control: no-store\r\n"
            "Connection: close\r\n\r\n",
            code, reason, static_cast<int>(type.size()), type.data(), body.size());
  if (std::string_view(mg_get_request_info(connection)->request_method) != "HEAD") {
    mg_write(connection, body.data(), body.size());
  }
}

}  // namespace

struct HttpExposer::Impl {
  HttpHandlers handlers;
  mg_context* context = nullptr;
  std::string last_message;  // of the library, while it starts

  ~Impl() {
    if (context != nullptr) mg_stop(context);
    mg_exit_library();
  }

  static int handle(mg_connection* connection, void* self) {
    const HttpHandlers& handlers = static_cast<Impl*>(self)->handlers;
    const mg_request_info& request = *mg_get_request_info(connection);
    const std::string_view method = request.request_method, path = request.local_uri;
    if (method != "GET" && method != "HEAD") {
      reply(connection, 405, kText, "GET only\n");
      return 405;
    }
    if (path == "/metrics") {
      reply(connection, 200, kPrometheusText, handlers.metrics());
      return 200;
    }
    if (path == "/livez") {
      reply(connection, 200, kText, "ok\n");
      return 200;
    }
    if (path == "/readyz") {
      const bool ready = handlers.ready();
      reply(connection, ready ? 200 : 503, kText, ready ? "ok\n" : "not ready\n");
      return ready ? 200 : 503;
    }
    reply(connection, 404, kText, "/metrics /livez /readyz\n");
    return 404;
  }

  static int log_message(const mg_connection* connection, const char* message) {
    // While it starts (no connection yet) the message is the reason of a failure, for the caller.
    if (connection == nullptr) return 1;
    log_debug("http", {{"message", message}});
    return 1;
  }
};

HttpExposer::~HttpExposer() = default;

std::unique_ptr<HttpExposer> HttpExposer::Listen(const std::string& address, HttpHandlers handlers,
                                                 std::string* error) {
  mg_init_library(MG_FEATURES_DEFAULT);
  std::unique_ptr<HttpExposer> exposer(new HttpExposer);
  exposer->impl_ = std::make_unique<Impl>();
  exposer->impl_->handlers = std::move(handlers);
  const size_t colon = address.rfind(':');
  const std::string host = address.substr(0, colon);
  const std::string listen = (host == "localhost" ? "127.0.0.1" : host) + address.substr(colon);
  // One request a connection and a short time for it: a peer that connects and says nothing holds a thread for no
  // longer than that.
  const char* options[] = {"listening_ports",
                           listen.c_str(),
                           "num_threads",
                           "4",
                           "enable_keep_alive",
                           "no",
                           "request_timeout_ms",
                           "2000",
                           "connection_queue",
                           "64",
                           "max_request_size",
                           "8192",
                           nullptr};
  mg_callbacks callbacks{};
  callbacks.log_message = Impl::log_message;
  mg_init_data init{};
  init.callbacks = &callbacks;
  init.user_data = exposer->impl_.get();
  init.configuration_options = options;
  char text[256] = "";
  mg_error_data problem{};
  problem.text = text;
  problem.text_buffer_size = sizeof text;
  exposer->impl_->context = mg_start2(&init, &problem);
  if (exposer->impl_->context == nullptr) {
    *error = "cannot listen on " + address + ": " + (text[0] != 0 ? text : "is the address in use?");
    return nullptr;
  }
  mg_set_request_handler(exposer->impl_->context, "/", Impl::handle, exposer->impl_.get());
  mg_server_port ports[4];
  const int n = mg_get_server_ports(exposer->impl_->context, 4, ports);
  exposer->address_ = host + ":" + std::to_string(n > 0 ? ports[0].port : 0);
  return exposer;
}

}  // namespace svdserve::server
