// Warm memory for outgoing payloads.
#ifndef SVDSERVE_CLIENT_CPP_WIRE_SEND_BUFFERS_H_
#define SVDSERVE_CLIENT_CPP_WIRE_SEND_BUFFERS_H_

#include <cstddef>
#include <memory>
#include <mutex>
#include <vector>

namespace svdserve::client::internal {

// Large buffers come from the kernel page by page, zeroed, on each allocation: slower than copying into them. So
// buffers are kept and used again.
// Thread-safe. A buffer may outlive the pool.
class SendBuffers : public std::enable_shared_from_this<SendBuffers> {
 public:
  static std::shared_ptr<SendBuffers> make(size_t keep_bytes) {
    return std::shared_ptr<SendBuffers>(new SendBuffers(keep_bytes));
  }

  // A copy of the bytes. A buffer that its last owner drops is kept for the next copy, up to keep_bytes in all.
  std::shared_ptr<const std::byte> copy(const void* data, size_t size);

 private:
  struct Buffer {
    std::unique_ptr<std::byte[]> bytes;
    size_t capacity = 0;
  };
  explicit SendBuffers(size_t keep_bytes) : keep_bytes_(keep_bytes) {}
  Buffer take(size_t size);
  void give_back(Buffer buffer);

  const size_t keep_bytes_;
  std::mutex mutex_;
  std::vector<Buffer> free_;  // guarded by mutex_
  size_t free_bytes_ = 0;     // guarded by mutex_; sum of their capacities
};

}  // namespace svdserve::client::internal
#endif  // SVDSERVE_CLIENT_CPP_WIRE_SEND_BUFFERS_H_
