// Decoders of bytes that strangers send, each called with any bytes. A decoder that the project wrote by itself must
// agree with libprotobuf.
#ifndef SVDSERVE_TESTS_FUZZ_TARGETS_H_
#define SVDSERVE_TESTS_FUZZ_TARGETS_H_

#include <grpcpp/support/byte_buffer.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace svdserve::fuzz {

using Bytes = std::span<const uint8_t>;

// Each ends the process where the decoder is wrong.
void unary_request(Bytes bytes);
void eigen_request(Bytes bytes);
void stream_request(Bytes bytes);
void large_request(Bytes bytes);
void reply(Bytes bytes);
void large_reply(Bytes bytes);
void status(Bytes bytes);
void http_head(Bytes bytes);
void npy(Bytes bytes);
void configuration(Bytes bytes);

struct Target {
  const char* name;
  void (*run)(Bytes);
};
// By name; null: there is none.
const Target* find_target(const std::string& name);
std::span<const Target> all_targets();

// Ends the process, with `what` on standard error, unless `good`.
void require(bool good, const char* what);

// The bytes in slices whose number and lengths follow from the bytes, and the order of a hash of them.
uint32_t hash_of(Bytes bytes);
grpc::ByteBuffer sliced(Bytes bytes);

// Equal, or both NaN: bit by bit.
bool same(double a, double b);

}  // namespace svdserve::fuzz
#endif  // SVDSERVE_TESTS_FUZZ_TARGETS_H_
