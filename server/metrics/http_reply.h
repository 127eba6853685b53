// Replies of the HTTP port, from the head of a request. No sockets.
#ifndef SVDSERVE_SERVER_METRICS_HTTP_REPLY_H_
#define SVDSERVE_SERVER_METRICS_HTTP_REPLY_H_

#include <string>
#include <string_view>

#include "server/metrics/http_exposer.h"

namespace svdserve::server {

// The reply to a request's head, of which only the first line matters: METHOD SP target SP HTTP/1.x
std::string http_reply(std::string_view head, const HttpHandlers& handlers);

// The reply to a head without an end.
std::string http_reply_too_long();

}  // namespace svdserve::server
#endif  // SVDSERVE_SERVER_METRICS_HTTP_REPLY_H_
