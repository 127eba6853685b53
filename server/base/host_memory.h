// Where the operands of requests lie. A server with GPUs has them in pinned memory, which the copy engines read by
// themselves: so a payload is copied once, from the transport.
#ifndef SVDSERVE_SERVER_BASE_HOST_MEMORY_H_
#define SVDSERVE_SERVER_BASE_HOST_MEMORY_H_

#include <cstddef>
#include <cstdlib>
#include <new>
#include <utility>

namespace svdserve::server {

class HostMemory;

// A run of bytes, uninitialized. Move-only; gives itself back.
class HostBlock {
 public:
  HostBlock() = default;
  HostBlock(HostMemory* owner, void* data, size_t size) : owner_(owner), data_(data), size_(size) {}
  HostBlock(HostBlock&& other) noexcept
      : owner_(std::exchange(other.owner_, nullptr)),
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
  HostMemory* owner_ = nullptr;
  void* data_ = nullptr;
  size_t size_ = 0;
};

// Outlives its blocks. Thread-safe.
class HostMemory {
 public:
  virtual ~HostMemory() = default;
  // Throws std::bad_alloc.
  virtual HostBlock allocate(size_t bytes) = 0;

 private:
  friend class HostBlock;
  virtual void free(void* data, size_t bytes) = 0;
};

inline HostBlock::~HostBlock() {
  if (data_ != nullptr) owner_->free(data_, size_);
}

// The heap.
class HeapMemory final : public HostMemory {
 public:
  HostBlock allocate(size_t bytes) override {
    void* const data = std::malloc(bytes);
    if (data == nullptr && bytes > 0) throw std::bad_alloc();
    return {this, data, bytes};
  }

 private:
  void free(void* data, size_t) override { std::free(data); }
};

}  // namespace svdserve::server
#endif  // SVDSERVE_SERVER_BASE_HOST_MEMORY_H_
