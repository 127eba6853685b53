// The memory of one large matrix: its operand and its results. It is mapped for this matrix alone, so that all of it
// goes back to the system when the matrix is done.
#ifndef SVDSERVE_SERVER_LARGE_LARGE_MEMORY_H_
#define SVDSERVE_SERVER_LARGE_LARGE_MEMORY_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "engine/large_engine.h"
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
  // Its first `bytes`, a multiple of the page's size or all of it, as a block of their own.
  MappedBlock cut_front(size_t bytes);

 private:
  char* data_ = nullptr;
  size_t size_ = 0;
};

// Results in the order in which they are sent.
enum class LargeResult : uint8_t { kValues, kLeft, kRight, kLast = kRight };
inline constexpr int kLargeResults = static_cast<int>(LargeResult::kLast) + 1;

// A piece of a result on its way to the client, shared by the job and by the slices of it that the transport still
// holds. The last to let go unmaps it and only then, by the order of destructors, gives the reservation back. So a
// client that takes nothing keeps the bytes in the transport, and not the whole matrix.
struct ResultPiece {
  Reservation held;
  MappedBlock block;
  LargeResult result;
  int64_t offset;  // of the block in its result
};

// Shared by the job and the device while it computes; the last to let go unmaps it, as that of a piece does. Thread
// safety: none; the job's lock guards what changes it.
class LargeMemory {
 public:
  // The operand's memory; `held` is its reservation. Null where the system has no room.
  static std::shared_ptr<LargeMemory> make(const LargePlan& plan, std::vector<int8_t> signature, Reservation held);

  const MappedBlock& operand() const { return operand_; }
  const MappedBlock& result(LargeResult r) const { return results_[static_cast<size_t>(r)]; }
  LargeOperands operands(const LargePlan& plan) const;
  std::vector<std::span<std::byte>> results() const;  // in the order of LargeResult
  void hold(Reservation more) { reservation_.join(std::move(more)); }
  // Maps the results, which begin as zeros. False where the system has no room.
  bool map_results(const LargePlan& plan);
  // The results are no more, and `bytes` of the reservation are to go back with them. Both go when the caller destroys
  // the object returned.
  std::shared_ptr<const void> drop_results(int64_t bytes);
  // The results in the order in which they are sent. They are gone from here, and so is their part of the reservation.
  std::deque<std::shared_ptr<const ResultPiece>> take_results();

 private:
  LargeMemory() = default;

  Reservation reservation_;  // first: given back last
  std::vector<int8_t> signature_;
  MappedBlock operand_;
  std::array<MappedBlock, kLargeResults> results_;
};

}  // namespace svdserve::server
#endif  // SVDSERVE_SERVER_LARGE_LARGE_MEMORY_H_
