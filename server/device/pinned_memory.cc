#include "server/device/pinned_memory.h"

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <utility>

#include "engine/cuda_engine.h"

namespace svdserve::server {

namespace {

std::shared_ptr<void> pin_with_cuda(size_t bytes) {
  auto buffer = std::make_shared<PinnedBuffer>(bytes);
  void* const data = buffer->data();
  return data != nullptr ? std::shared_ptr<void>(std::move(buffer), data) : nullptr;
}

}  // namespace

PinnedMemory::PinnedMemory(int64_t limit, Pin pin)
    : limit_(limit), pin_(pin != nullptr ? std::move(pin) : pin_with_cuda) {}

HostBlock PinnedMemory::allocate(size_t bytes) {
  const int size_class = std::max(0, static_cast<int>(std::bit_width(std::max<size_t>(bytes, 1) - 1)) - kSmallestClass);
  const int64_t rounded = int64_t{1} << (size_class + kSmallestClass);
  if (bytes >= (size_t{1} << kSmallestClass) && size_class < kClasses) {
    std::shared_ptr<void> buffer;
    bool may_pin = false;
    {
      MutexLock lock(&mu_);
      std::vector<std::shared_ptr<void>>& free = free_[static_cast<size_t>(size_class)];
      if (!free.empty()) {
        buffer = std::move(free.back());
        free.pop_back();
        kept_ -= rounded;
      } else if (pinned_ + rounded <= limit_) {
        pinned_ += rounded;
        may_pin = true;
      }
    }
    if (may_pin) buffer = pin_(static_cast<size_t>(rounded));  // milliseconds, so under no lock
    void* const data = buffer.get();
    MutexLock lock(&mu_);
    if (data != nullptr) {
      used_.emplace(data, std::move(buffer));
      return {this, data, bytes};
    }
    if (may_pin) pinned_ -= rounded;
  }
  void* const data = std::malloc(bytes);
  if (data == nullptr && bytes > 0) throw std::bad_alloc();
  return {this, data, bytes};
}

void PinnedMemory::free(void* data, size_t bytes) {
  {
    MutexLock lock(&mu_);
    if (const auto it = used_.find(data); it != used_.end()) {
      const int size_class = std::max(0, static_cast<int>(std::bit_width(bytes - 1)) - kSmallestClass);
      free_[static_cast<size_t>(size_class)].push_back(std::move(it->second));
      kept_ += int64_t{1} << (size_class + kSmallestClass);
      used_.erase(it);
      return;
    }
  }
  std::free(data);
}

PinnedMemory::Usage PinnedMemory::usage() const {
  MutexLock lock(&mu_);
  return {pinned_ - kept_, kept_, limit_};
}

}  // namespace svdserve::server
