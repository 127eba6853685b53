// The device memory of one job: one allocation, cut into pieces, best fit. So a matrix finds the room of one that was
// given back. Small pieces lie in what is left at the end, as long as that is less than a matrix. A job needs little
// more than its matrices take at once. A piece that is given back may be cut again at once, because all work of the job
// is in one stream.
// A job that has less memory than it would like has allocations of their own for large pieces. They leave no gaps. Those
// that are given back are kept for pieces of their size, until others need the room: to free one waits for the device.
#ifndef SVDSERVE_ENGINE_BACKENDS_CUDA_DEVICE_DEVICE_ARENA_H_
#define SVDSERVE_ENGINE_BACKENDS_CUDA_DEVICE_DEVICE_ARENA_H_

#include <cstdint>
#include <functional>
#include <iterator>
#include <map>
#include <utility>

namespace svdserve::cuda {

class DeviceArena {
 public:
  static constexpr uint64_t kAlignment = 256;
  static constexpr uint64_t aligned(uint64_t bytes) {
    return bytes == 0 ? kAlignment : (bytes + kAlignment - 1) / kAlignment * kAlignment;
  }

  DeviceArena(void* memory, uint64_t bytes) : base_(static_cast<char*>(memory)) { free_[0] = bytes; }

  // Allocations of their own, of at most `bytes` together. allocate may return null. release waits for work on them.
  struct Allocations {
    uint64_t bytes = 0;
    std::function<void*(uint64_t bytes)> allocate;
    std::function<void(void*)> release;
  };
  // memory, of so many bytes: for small pieces.
  DeviceArena(void* memory, uint64_t bytes, Allocations large) : DeviceArena(memory, bytes) {
    large_ = std::move(large);
  }
  ~DeviceArena() {
    for (const auto& [piece, bytes] : own_) large_.release(piece);
    while (!kept_.empty()) release_kept();
  }
  DeviceArena(const DeviceArena&) = delete;
  DeviceArena& operator=(const DeviceArena&) = delete;

  // Whether matrices that are not used for a while should leave.
  bool is_short() const { return static_cast<bool>(large_.allocate); }

  // Null: there is no piece so large.
  void* take(uint64_t bytes) {
    const uint64_t size = aligned(bytes);
    if (is_short() && size >= kLargePiece) return allocate(size);
    auto best = free_.end();
    for (auto it = free_.begin(); it != free_.end(); ++it) {
      if (it->second >= size && (best == free_.end() || it->second < best->second)) best = it;
    }
    if (best == free_.end()) return is_short() ? allocate(size) : nullptr;
    const auto [at, room] = *best;
    free_.erase(best);
    if (room > size) free_[at + size] = room - size;
    taken_[at] = size;
    return base_ + at;
  }
  void give_back(const void* piece) {
    if (const auto it = own_.find(const_cast<void*>(piece)); it != own_.end()) {
      kept_.emplace(it->second, it->first);
      own_.erase(it);
      return;
    }
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
    uint64_t largest = large_.bytes;
    for (const auto& [bytes, piece] : kept_) largest += bytes;
    for (const auto& [at, room] : free_) largest = room > largest ? room : largest;
    return largest;
  }

 private:
  static constexpr uint64_t kLargePiece = uint64_t{64} << 20;

  void* allocate(uint64_t size) {
    if (const auto it = kept_.find(size); it != kept_.end()) {
      void* const piece = it->second;
      kept_.erase(it);
      own_[piece] = size;
      return piece;
    }
    while (size > large_.bytes && !kept_.empty()) release_kept();
    if (size > large_.bytes) return nullptr;
    void* piece = large_.allocate(size);
    while (piece == nullptr && !kept_.empty()) {
      release_kept();
      piece = large_.allocate(size);
    }
    if (piece == nullptr) return nullptr;
    large_.bytes -= size;
    own_[piece] = size;
    return piece;
  }

  // The largest of them.
  void release_kept() {
    const auto it = std::prev(kept_.end());
    large_.bytes += it->first;
    large_.release(it->second);
    kept_.erase(it);
  }

  char* base_;
  std::map<uint64_t, uint64_t> free_, taken_;  // offset, bytes
  Allocations large_;                          // bytes: those that are left
  std::map<void*, uint64_t> own_;              // piece, bytes
  std::multimap<uint64_t, void*> kept_;        // bytes, piece
};

}  // namespace svdserve::cuda
#endif  // SVDSERVE_ENGINE_BACKENDS_CUDA_DEVICE_DEVICE_ARENA_H_
