// The device memory of one job: one allocation, cut into pieces, best fit. So a matrix finds the room of one that was
// given back. Small pieces lie in what is left at the end, as long as that is less than a matrix. A job needs little
// more than its matrices take at once. A piece that is given back may be cut again at once, because all work of the job
// is in one stream.
#ifndef SVDSERVE_ENGINE_BACKENDS_CUDA_DEVICE_DEVICE_ARENA_H_
#define SVDSERVE_ENGINE_BACKENDS_CUDA_DEVICE_DEVICE_ARENA_H_

#include <cstdint>
#include <iterator>
#include <map>

namespace svdserve::cuda {

class DeviceArena {
 public:
  static constexpr uint64_t kAlignment = 256;
  static constexpr uint64_t aligned(uint64_t bytes) {
    return bytes == 0 ? kAlignment : (bytes + kAlignment - 1) / kAlignment * kAlignment;
  }

  DeviceArena(void* memory, uint64_t bytes) : base_(static_cast<char*>(memory)) { free_[0] = bytes; }

  // Null: there is no piece so large.
  void* take(uint64_t bytes) {
    const uint64_t size = aligned(bytes);
    auto best = free_.end();
    for (auto it = free_.begin(); it != free_.end(); ++it) {
      if (it->second >= size && (best == free_.end() || it->second < best->second)) best = it;
    }
    if (best == free_.end()) return nullptr;
    const auto [at, room] = *best;
    free_.erase(best);
    if (room > size) free_[at + size] = room - size;
    taken_[at] = size;
    return base_ + at;
  }
  void give_back(const void* piece) {
    const auto at = static_cast<uint64_t>(static_cast<const char*>(piece) - base_);
    const auto it = taken_.find(at);
    if (it == taken_.end()) return;
    auto own = free_.emplace(at, it->second).first;
    taken_.erase(it);
    if (const auto next = std::next(own); next != free_.end() && own->first + own->second == next->first) {
      own->second += next->second;
      free_.erase(next);
    }
    if (own != free_.begin()) {
      const auto before = std::prev(own);
      if (before->first + before->second == own->first) {
        before->second += own->second;
        free_.erase(own);
      }
    }
  }
  uint64_t largest_piece() const {
    uint64_t largest = 0;
    for (const auto& [at, room] : free_) largest = room > largest ? room : largest;
    return largest;
  }

 private:
  char* base_;
  std::map<uint64_t, uint64_t> free_, taken_;  // offset, bytes
};

}  // namespace svdserve::cuda
#endif  // SVDSERVE_ENGINE_BACKENDS_CUDA_DEVICE_DEVICE_ARENA_H_
