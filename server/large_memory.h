// The memory of one factor of DecomposeLarge: its operand and its results, mapped for it alone, so that all of it goes
// back to the system when it is done.
#ifndef SVDSERVE_SERVER_LARGE_MEMORY_H_
#define SVDSERVE_SERVER_LARGE_MEMORY_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "engine/large_factor.h"
#include "server/reservation.h"

namespace svdserve::server {

// Zeroed pages, none of them in memory before it is touched. Move-only.
class MappedBlock {
 public:
  MappedBlock() = default;
  // Empty, data() null, where the system has no room for it. 0 bytes: empty.
  explicit MappedBlock(size_t bytes);
  MappedBlock(MappedBlock&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}
  MappedBlock& operator=(MappedBlock&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
    return *this;
  }
  ~MappedBlock();

  char* data() const { return data_; }
  size_t size() const { return size_; }

 private:
  char* data_ = nullptr;
  size_t size_ = 0;
};

// Results in the order in which they are sent.
enum class FactorResult : uint8_t { kValues, kLeft, kRight };
inline constexpr int kFactorResults = 3;

// Shared by the job, the device while it computes, and every slice of a result that the transport still holds; the last
// to let go unmaps it and only then, by the order of destructors, gives the reservation back.
class LargeMemory {
 public:
  // Null where the system has no room.
  static std::shared_ptr<LargeMemory> Make(const FactorPlan& plan, std::vector<int8_t> signature, Reservation held);

  const MappedBlock& operand() const { return operand_; }
  const MappedBlock& result(FactorResult r) const { return results_[static_cast<size_t>(r)]; }
  FactorOperands operands() const;

 private:
  LargeMemory() = default;

  Reservation reservation_;  // first: given back last
  std::vector<int8_t> signature_;
  MappedBlock operand_;
  MappedBlock results_[kFactorResults];
};

}  // namespace svdserve::server
#endif  // SVDSERVE_SERVER_LARGE_MEMORY_H_
