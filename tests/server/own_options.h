// Requests share their options, which nobody may change. A test gives a request options of its own.
#ifndef SVDSERVE_TESTS_SERVER_OWN_OPTIONS_H_
#define SVDSERVE_TESTS_SERVER_OWN_OPTIONS_H_

#include <memory>
#include <utility>

#include "server/request.h"

namespace svdserve::server {

// Copies the options of *request, gives it the copy, and returns that, to be changed. It lives as long as the request.
inline Options* own_options(Request* request) {
  auto own = std::make_shared<Options>(*request->options);
  Options* const options = own.get();
  request->options = std::move(own);
  return options;
}

}  // namespace svdserve::server
#endif  // SVDSERVE_TESTS_SERVER_OWN_OPTIONS_H_
