// The memory of requests' operands and large results. A server with GPUs has it pinned: the copy engines read and write
// it by themselves. So a payload is copied once, from the transport, and results not at all.
#ifndef SVDSERVE_SERVER_BASE_HOST_MEMORY_H_
#define SVDSERVE_SERVER_BASE_HOST_MEMORY_H_

#include <cstddef>
#include <cstdlib>
#include <memory>
#include <new>
#include <utility>

namespace svdserve::server {

class HostMemory;

// Smaller blocks are pinned on no server: engine/cuda_engine.h copies them anyway.
inline constexpr size_t kLeastPinnedBytes = 256 << 10;

// A run of bytes, uninitialized. Move-only; gives itself back. It keeps its memory alive: the transport may still send
// results when the server that received the request is gone.
class HostBlock {
 public:
  HostBlock() = default;
  HostBlock(HostBlock&& other) noexcept
      : owner_(std::move(other.owner_)),
        data_(std::exchange(other.data_, nullptr)),
        size_(std::exchange(other.size_, 0)) {}
  HostBlock& operator=(HostBlock&& other) noexcept {
    std::swap(owner_, other.owner_);
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
    return *this;
  }
  inline ~HostBlock();

  void* data() const { return data_; }
  size_t size() const { return size_; }

 private:
  friend class HostMemory;
  HostBlock(std::shared_ptr<HostMemory> owner, void* data, size_t size)
      : owner_(std::move(owner)), data_(data), size_(size) {}

  std::shared_ptr<HostMemory> owner_;
  void* data_ = nullptr;
  size_t size_ = 0;
};

// A shared_ptr owns it. Thread-safe.
class HostMemory : public std::enable_shared_from_this<HostMemory> {
 public:
  virtual ~HostMemory() = default;
  // Throws std::bad_alloc.
  HostBlock allocate(size_t bytes) { return {shared_from_this(), take(bytes), bytes}; }

 private:
  friend class HostBlock;
  // Throws std::bad_alloc. The result may be null where there are no bytes.
  virtual void* take(size_t bytes) = 0;
  virtual void give(void* data) = 0;
};

inline HostBlock::~HostBlock() {
  if (data_ != nullptr) owner_->give(data_);
}

// The heap.
class HeapMemory final : public HostMemory {
 private:
  void* take(size_t bytes) override {
    void* const data = std::malloc(bytes);
    if (data == nullptr && bytes > 0) throw std::bad_alloc();
    return data;
  }
  void give(void* data) override { std::free(data); }
};

}  // namespace svdserve::server
#endif  // SVDSERVE_SERVER_BASE_HOST_MEMORY_H_
