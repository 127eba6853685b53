#include "server/device/pinned_memory.h"

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

size_t PinnedMemory::pinned_bytes(size_t bytes) {
  const size_t quarter = std::bit_floor(bytes - 1) / 4;
  return (bytes + quarter - 1) / quarter * quarter;
}

void* PinnedMemory::take(size_t bytes) {
  if (bytes >= kLeastPinnedBytes) {
    if (void* const data = take_pinned(pinned_bytes(bytes))) return data;
  }
  void* const data = std::malloc(bytes);
  if (data == nullptr && bytes > 0) throw std::bad_alloc();
  return data;
}

// A block of exactly so many bytes, or null.
void* PinnedMemory::take_pinned(size_t bytes) {
  Pinned block;
  bool is_kept = false;
  {
    MutexLock lock(&mu_);
    ++allocations_;
    is_kept = take_kept(bytes, &block);
  }
  if (!is_kept) {
    if (!reserve(bytes)) return nullptr;
    block = {pin_(bytes), bytes, 0};  // milliseconds, so under no lock
  }
  void* const data = block.buffer.get();
  MutexLock lock(&mu_);
  if (data != nullptr) {
    used_.emplace(data, std::move(block));
  } else {
    pinned_ -= static_cast<int64_t>(bytes);
  }
  return data;
}

bool PinnedMemory::take_kept(size_t bytes, Pinned* block) {
  const auto it = kept_.find(bytes);
  if (it == kept_.end()) return false;
  *block = std::move(it->second.back());
  it->second.pop_back();
  if (it->second.empty()) kept_.erase(it);
  kept_bytes_ -= static_cast<int64_t>(bytes);
  return true;
}

// Stale blocks of at least `wanted` bytes, where there are so many.
std::vector<PinnedMemory::Pinned> PinnedMemory::remove_stale(int64_t wanted) {
  std::vector<Pinned> removed;
  for (auto it = kept_.begin(); it != kept_.end() && wanted > 0;) {
    std::deque<Pinned>& blocks = it->second;
    while (wanted > 0 && !blocks.empty() && allocations_ - blocks.front().since >= kStaleAfter) {
      const auto bytes = static_cast<int64_t>(blocks.front().bytes);
      wanted -= bytes;
      kept_bytes_ -= bytes;
      removed.push_back(std::move(blocks.front()));
      blocks.pop_front();
    }
    if (blocks.empty()) {
      kept_.erase(it++);
    } else {
      ++it;
    }
  }
  return removed;
}

// Whether so many bytes more may be pinned, which counts them.
bool PinnedMemory::reserve(size_t bytes) {
  if (static_cast<int64_t>(bytes) > limit_) return false;
  std::vector<Pinned> stale;
  {
    MutexLock lock(&mu_);
    stale = remove_stale(pinned_ + static_cast<int64_t>(bytes) - limit_);
  }
  int64_t unpinned = 0;
  for (Pinned& block : stale) {
    block.buffer.reset();  // milliseconds, so under no lock
    unpinned += static_cast<int64_t>(block.bytes);
  }
  MutexLock lock(&mu_);
  pinned_ -= unpinned;
  if (pinned_ + static_cast<int64_t>(bytes) > limit_) return false;
  pinned_ += static_cast<int64_t>(bytes);
  return true;
}

void PinnedMemory::give(void* data) {
  {
    MutexLock lock(&mu_);
    if (const auto it = used_.find(data); it != used_.end()) {
      Pinned block = std::move(it->second);
      used_.erase(it);
      block.since = allocations_;
      kept_bytes_ += static_cast<int64_t>(block.bytes);
      kept_[block.bytes].push_back(std::move(block));
      return;
    }
  }
  std::free(data);
}

PinnedMemory::Usage PinnedMemory::usage() const {
  MutexLock lock(&mu_);
  return {pinned_ - kept_bytes_, kept_bytes_, limit_};
}

}  // namespace svdserve::server
