#include "client/cpp/wire/send_buffers.h"

#include <cstring>

namespace svdserve::client::internal {

std::shared_ptr<const std::byte> SendBuffers::copy(const void* data, size_t size) {
  Buffer buffer = take(size);
  std::memcpy(buffer.bytes.get(), data, size);
  std::byte* const bytes = buffer.bytes.release();
  return {bytes, [pool = weak_from_this(), capacity = buffer.capacity](std::byte* p) {
            Buffer back{std::unique_ptr<std::byte[]>(p), capacity};
            if (const auto alive = pool.lock()) alive->give_back(std::move(back));
          }};
}

SendBuffers::Buffer SendBuffers::take(size_t size) {
  {
    std::lock_guard lock(mutex_);
    // The smallest that fits, unless more than half of it would lie idle.
    size_t best = free_.size();
    for (size_t i = 0; i < free_.size(); ++i) {
      const size_t capacity = free_[i].capacity;
      if (capacity < size || capacity / 2 > size) continue;
      if (best == free_.size() || capacity < free_[best].capacity) best = i;
    }
    if (best != free_.size()) {
      std::swap(free_[best], free_.back());
      Buffer buffer = std::move(free_.back());
      free_.pop_back();
      free_bytes_ -= buffer.capacity;
      return buffer;
    }
  }
  return {std::make_unique_for_overwrite<std::byte[]>(size), size};
}

void SendBuffers::give_back(Buffer buffer) {
  std::vector<Buffer> dropped;  // freed after the lock
  std::lock_guard lock(mutex_);
  free_bytes_ += buffer.capacity;
  free_.push_back(std::move(buffer));
  while (free_bytes_ > keep_bytes_) {  // the oldest goes first: sizes that are no longer asked for die out
    free_bytes_ -= free_.front().capacity;
    dropped.push_back(std::move(free_.front()));
    free_.erase(free_.begin());
  }
}

}  // namespace svdserve::client::internal
