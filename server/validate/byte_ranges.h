// Which bytes of an operand are there, while its chunks arrive in any order.
#ifndef SVDSERVE_SERVER_VALIDATE_BYTE_RANGES_H_
#define SVDSERVE_SERVER_VALIDATE_BYTE_RANGES_H_

#include <cstddef>
#include <cstdint>
#include <map>

namespace svdserve::server {

// Ranges that touch are joined: chunks in order, or from several places each in order, keep it as small as there are
// places. Not thread-safe.
class ByteRanges {
 public:
  // Ranges of an operand of `total` >= 0 bytes: at most `most` >= 1 of them at a time, so that nobody can make it grow.
  ByteRanges(int64_t total, size_t most) : total_(total), most_(most) {}

  enum class Added { kYes, kOverlaps, kOutOfRange, kTooMany };
  // [offset, offset + bytes), of any numbers. Nothing changes unless kYes.
  Added add(int64_t offset, int64_t bytes);

  int64_t covered() const { return covered_; }
  bool complete() const { return covered_ == total_; }
  // The first byte that is not there; `total` where all are.
  int64_t first_gap() const;
  size_t ranges() const { return end_of_.size(); }

 private:
  int64_t total_;
  size_t most_;
  int64_t covered_ = 0;
  std::map<int64_t, int64_t> end_of_;  // by first byte; no two touch
};

}  // namespace svdserve::server
#endif  // SVDSERVE_SERVER_VALIDATE_BYTE_RANGES_H_
