// Messages put together byte by byte, as no stub would send them.
#ifndef SVDSERVE_TESTS_SERVER_WIRE_BYTES_H_
#define SVDSERVE_TESTS_SERVER_WIRE_BYTES_H_

#include <grpcpp/support/byte_buffer.h>

#include <string>

namespace svdserve::server {

inline grpc::ByteBuffer buffer_of(const std::string& bytes) {
  const grpc::Slice slice(bytes);
  return grpc::ByteBuffer(&slice, 1);
}

// A field of bytes, or an embedded message. `number` is below 16.
inline std::string field(int number, const std::string& content) {
  std::string bytes(1, static_cast<char>(number << 3 | 2));
  size_t length = content.size();
  for (; length >= 0x80; length >>= 7) bytes.push_back(static_cast<char>((length & 0x7f) | 0x80));
  bytes.push_back(static_cast<char>(length));
  return bytes + content;
}

// `text`, `n` times.
inline std::string times(size_t n, const std::string& text) {
  std::string all;
  all.reserve(n * text.size());
  for (size_t i = 0; i < n; ++i) all += text;
  return all;
}

// The options of a DecomposeRequest, with `n` SNRs of 0 dB.
inline std::string snrs(size_t n) { return field(2, field(8, field(7, std::string(8 * n, '\0')))); }

}  // namespace svdserve::server
#endif  // SVDSERVE_TESTS_SERVER_WIRE_BYTES_H_
