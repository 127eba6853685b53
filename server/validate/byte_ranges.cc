#include "server/validate/byte_ranges.h"

#include <iterator>

namespace svdserve::server {

ByteRanges::Added ByteRanges::add(int64_t offset, int64_t bytes) {
  if (offset < 0 || bytes < 1 || bytes > total_ || offset > total_ - bytes) return Added::kOutOfRange;
  const int64_t end = offset + bytes;
  const auto after = end_of_.upper_bound(offset);
  const auto before = after == end_of_.begin() ? end_of_.end() : std::prev(after);
  if (before != end_of_.end() && before->second > offset) return Added::kOverlaps;
  if (after != end_of_.end() && after->first < end) return Added::kOverlaps;
  const bool joins_before = before != end_of_.end() && before->second == offset;
  const bool joins_after = after != end_of_.end() && after->first == end;
  if (!joins_before && !joins_after && end_of_.size() >= most_) return Added::kTooMany;
  covered_ += bytes;
  const int64_t joined_end = joins_after ? after->second : end;
  if (joins_after) end_of_.erase(after);
  if (joins_before) {
    before->second = joined_end;
  } else {
    end_of_.emplace(offset, joined_end);
  }
  return Added::kYes;
}

int64_t ByteRanges::first_gap() const {
  if (end_of_.empty() || end_of_.begin()->first > 0) return 0;
  return end_of_.begin()->second;
}

}  // namespace svdserve::server
