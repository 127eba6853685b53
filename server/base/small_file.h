// Small files that the server reads and writes by a name from its configuration.
#ifndef SVDSERVE_SERVER_BASE_SMALL_FILE_H_
#define SVDSERVE_SERVER_BASE_SMALL_FILE_H_

#include <cstddef>
#include <string>

namespace svdserve::server {

// Reads a regular file of 1 to `max_bytes` bytes. Follows links: orchestrators mount certificates as links. Returns why
// it cannot be read, or nothing.
std::string read_small_file(const std::string& path, size_t max_bytes, std::string* text);

// Writes a file that others read: they see all of it or none. Follows no link, neither at `path` nor at the temporary
// file beside it: a link at `path` is replaced. Returns why it cannot be written, or nothing.
std::string write_small_file(const std::string& path, const std::string& text);

}  // namespace svdserve::server
#endif  // SVDSERVE_SERVER_BASE_SMALL_FILE_H_
