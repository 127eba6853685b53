#include "server/large/large_memory.h"

#include <sys/mman.h>

#include <algorithm>

namespace svdserve::server {
namespace {

// From here on huge pages: a fault for each 4 KiB takes longer than the copy of what goes there.
constexpr size_t kHuge = size_t{4} << 20;
// Piece size of a result. Smaller pieces cost more to unmap, larger ones keep more behind a client that takes nothing.
constexpr size_t kPieceBytes = kHuge;

}  // namespace

MappedBlock::MappedBlock(size_t bytes) {
  if (bytes == 0) return;
  void* const data = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (data == MAP_FAILED) return;
  if (bytes >= kHuge) madvise(data, bytes, MADV_HUGEPAGE);  // where it cannot be, small pages do
  data_ = static_cast<char*>(data);
  size_ = bytes;
}

MappedBlock MappedBlock::cut_front(size_t bytes) {
  MappedBlock front;
  front.data_ = data_;
  front.size_ = bytes;
  size_ -= bytes;
  data_ = size_ == 0 ? nullptr : data_ + bytes;
  return front;
}

MappedBlock::~MappedBlock() {
  if (data_ != nullptr) munmap(data_, size_);
}

std::shared_ptr<LargeMemory> LargeMemory::make(const LargePlan& plan, std::vector<int8_t> signature, Reservation held) {
  std::shared_ptr<LargeMemory> memory(new LargeMemory);
  memory->reservation_ = std::move(held);
  memory->signature_ = std::move(signature);
  memory->operand_ = MappedBlock(plan.operand_bytes());
  return memory->operand_.size() == plan.operand_bytes() ? memory : nullptr;
}

bool LargeMemory::map_results(const LargePlan& plan) {
  const uint64_t wanted[] = {plan.values_bytes(), plan.left_bytes(), plan.right_bytes()};
  bool there = true;
  for (size_t i = 0; i < kLargeResults; ++i) {
    results_[i] = MappedBlock(wanted[i]);
    there = there && results_[i].size() == wanted[i];
  }
  return there;
}

std::shared_ptr<const void> LargeMemory::drop_results(int64_t bytes) {
  struct Dropped {
    Reservation held;  // first: given back last
    std::array<MappedBlock, kLargeResults> results;
  };
  return std::make_shared<const Dropped>(Dropped{reservation_.split(bytes), std::exchange(results_, {})});
}

LargeOperands LargeMemory::operands(const LargePlan& plan) const {
  LargeOperands out;
  out.matrix = operand_.data();
  out.signature = signature_.empty() ? nullptr : signature_.data();
  out.left = result(LargeResult::kLeft).data();
  out.values = result(LargeResult::kValues).data();
  out.right = result(LargeResult::kRight).data();
  if (plan.options.starting_vectors) out.start = operand_.data() + plan.matrix_bytes();
  return out;
}

std::vector<std::span<std::byte>> LargeMemory::results() const {
  std::vector<std::span<std::byte>> all;
  for (const MappedBlock& r : results_) all.emplace_back(reinterpret_cast<std::byte*>(r.data()), r.size());
  return all;
}

std::deque<std::shared_ptr<const ResultPiece>> LargeMemory::take_results() {
  std::deque<std::shared_ptr<const ResultPiece>> pieces;
  for (size_t i = 0; i < kLargeResults; ++i) {
    for (int64_t offset = 0; results_[i].size() > 0; offset += static_cast<int64_t>(kPieceBytes)) {
      const size_t bytes = std::min(results_[i].size(), kPieceBytes);
      pieces.push_back(std::make_shared<const ResultPiece>(ResultPiece{reservation_.split(static_cast<int64_t>(bytes)),
                                                                       results_[i].cut_front(bytes),
                                                                       static_cast<LargeResult>(i), offset}));
    }
  }
  return pieces;
}

}  // namespace svdserve::server
