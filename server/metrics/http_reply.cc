#include "server/metrics/http_reply.h"

namespace svdserve::server {
namespace {

constexpr std::string_view kText = "text/plain; charset=utf-8";
constexpr std::string_view kPrometheusText = "text/plain; version=0.0.4; charset=utf-8";

std::string_view reason_of(int code) {
  switch (code) {
    case 200:
      return "OK";
    case 400:
      return "Bad Request";
    case 404:
      return "Not Found";
    case 405:
      return "Method Not Allowed";
    case 431:
      return "Request Header Fields Too Large";
    default:
      return "Service Unavailable";
  }
}

std::string reply(int code, std::string_view type, std::string_view body, bool with_body = true) {
  std::string out = "HTTP/1.1 " + std::to_string(code) + " ";
  out.append(reason_of(code)).append("\r\nContent-Type: ").append(type);
  out.append("\r\nContent-Length: ").append(std::to_string(body.size()));
  if (code == 405) out.append("\r\nAllow: GET, HEAD");
  out.append("\r\nCache-Control: no-store\r\nConnection: close\r\n\r\n");
  if (with_body) out.append(body);
  return out;
}

}  // namespace

std::string http_reply(std::string_view head, const HttpHandlers& handlers) {
  const std::string_view line = head.substr(0, head.find_first_of("\r\n"));
  const size_t first = line.find(' '), last = line.rfind(' ');
  if (first == std::string_view::npos || first == last || line.substr(last + 1, 7) != "HTTP/1.") {
    return reply(400, kText, "not an HTTP/1 request\n");
  }
  const std::string_view method = line.substr(0, first);
  const std::string_view target = line.substr(first + 1, last - first - 1);
  const std::string_view path = target.substr(0, target.find('?'));
  if (method != "GET" && method != "HEAD") return reply(405, kText, "GET only\n");
  const bool with_body = method == "GET";
  if (path == "/metrics") return reply(200, kPrometheusText, handlers.metrics(), with_body);
  if (path == "/livez") {
    return handlers.live() ? reply(200, kText, "ok\n", with_body)
                           : reply(503, kText, "the gRPC server does not reply\n", with_body);
  }
  if (path == "/readyz") {
    return handlers.ready() ? reply(200, kText, "ok\n", with_body) : reply(503, kText, "not ready\n", with_body);
  }
  return reply(404, kText, "/metrics /livez /readyz\n", with_body);
}

std::string http_reply_too_long() { return reply(431, kText, "the request is too long\n"); }

}  // namespace svdserve::server
