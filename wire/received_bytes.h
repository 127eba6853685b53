// The bytes of a chunk of DecomposeLarge, on the end that receives it.
#ifndef SVDSERVE_WIRE_RECEIVED_BYTES_H_
#define SVDSERVE_WIRE_RECEIVED_BYTES_H_

#include <grpcpp/support/slice.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <utility>
#include <vector>

#include "wire/crc32c.h"

namespace svdserve::wire {

// Bytes of a message that are still the transport's. Copies share them. Threads may read one object at once.
class ReceivedBytes {
 public:
  ReceivedBytes() = default;
  // `count` bytes from `begin` on of what `slices` hold together.
  ReceivedBytes(std::vector<grpc::Slice> slices, size_t begin, size_t count)
      : slices_(std::move(slices)), begin_(begin), count_(count) {}

  size_t size() const { return count_; }
  // Copies them to `to` and returns their CRC-32C.
  uint32_t copy_to(void* to) const;

 private:
  std::vector<grpc::Slice> slices_;
  size_t begin_ = 0;
  size_t count_ = 0;
};

inline uint32_t ReceivedBytes::copy_to(void* to) const {
  // A block just copied is still in the cache when its checksum is computed. A transport's slice alone is too little
  // for the checksum to be quick.
  constexpr size_t kBlock = 96 * 1024;
  auto* const at = static_cast<char*>(to);
  uint32_t checksum = 0;
  size_t skip = begin_, copied = 0, checked = 0;
  for (const grpc::Slice& slice : slices_) {
    if (copied == count_) break;
    if (skip >= slice.size()) {
      skip -= slice.size();
      continue;
    }
    const size_t bytes = std::min(slice.size() - skip, count_ - copied);
    std::memcpy(at + copied, slice.begin() + skip, bytes);
    skip = 0;
    copied += bytes;
    for (; copied - checked >= kBlock; checked += kBlock) checksum = crc32c(checksum, at + checked, kBlock);
  }
  return crc32c(checksum, at + checked, copied - checked);
}

}  // namespace svdserve::wire
#endif  // SVDSERVE_WIRE_RECEIVED_BYTES_H_
