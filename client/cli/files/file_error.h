// The error that the system gave for a file.
#ifndef SVDSERVE_CLIENT_CLI_FILES_FILE_ERROR_H_
#define SVDSERVE_CLIENT_CLI_FILES_FILE_ERROR_H_

#include <cstring>
#include <string>
#include <utility>

#include "client/cpp/types.h"

namespace svdserve::cli {

// "cannot WHAT PATH: No space left on device"; `error` is an errno. The codes of gRPC are of servers: it has kUnknown,
// which fail() does not print.
inline client::Status file_error(const std::string& what, const std::string& path, int error) {
  return {.code = client::Code::kUnknown, .message = "cannot " + what + " " + path + ": " + std::strerror(error)};
}

// The error in what a file or the command line says.
inline client::Status input_error(std::string message) {
  return {.code = client::Code::kInvalidArgument, .message = std::move(message)};
}

}  // namespace svdserve::cli
#endif  // SVDSERVE_CLIENT_CLI_FILES_FILE_ERROR_H_
