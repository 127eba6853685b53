// Latencies, counted in buckets of at most 1/128 relative width.
#ifndef SVDSERVE_CLIENT_CLI_LOAD_HISTOGRAM_H_
#define SVDSERVE_CLIENT_CLI_LOAD_HISTOGRAM_H_

#include <algorithm>
#include <bit>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <vector>

namespace svdserve::cli {

// Not thread-safe: one a thread, added up in the end.
class Histogram {
 public:
  void add(std::chrono::nanoseconds latency) {
    const auto v = static_cast<uint64_t>(std::max<int64_t>(latency.count(), 0));
    ++counts_[bucket(v)];
    ++total_;
    max_ = std::max(max_, v);
  }

  void add(const Histogram& other) {
    for (size_t i = 0; i < counts_.size(); ++i) counts_[i] += other.counts_[i];
    total_ += other.total_;
    max_ = std::max(max_, other.max_);
  }

  int64_t total() const { return total_; }
  double max_seconds() const { return static_cast<double>(max_) * 1e-9; }

  // The smallest latency, in seconds, that a share q of all does not exceed; at most 1/128 too large. 0 if empty.
  double quantile_seconds(double q) const {
    const auto rank = static_cast<int64_t>(std::ceil(q * static_cast<double>(total_)));
    int64_t seen = 0;
    for (size_t i = 0; i < counts_.size(); ++i) {
      seen += counts_[i];
      if (seen >= std::max<int64_t>(rank, 1)) return static_cast<double>(std::min(upper(i), max_)) * 1e-9;
    }
    return 0;
  }

  // The number of latencies in the buckets that end at this time or before; at most 1/128 of it is left out.
  int64_t count_up_to(double seconds) const {
    const double nanoseconds = seconds * 1e9 * (1 + 1e-12);
    int64_t seen = 0;
    for (size_t i = 0; i < counts_.size() && static_cast<double>(std::min(upper(i), max_)) <= nanoseconds; ++i) {
      seen += counts_[i];
    }
    return seen;
  }

 private:
  static constexpr uint64_t kParts = 128;  // buckets between one power of two and the next

  static size_t bucket(uint64_t v) {
    if (v < kParts) return v;
    const int shift = std::bit_width(v) - std::bit_width(kParts);
    return static_cast<size_t>(shift) * kParts + (v >> shift);
  }
  static uint64_t upper(size_t bucket) {
    if (bucket < 2 * kParts) return bucket;
    const uint64_t shift = bucket / kParts - 1;
    return ((bucket - shift * kParts + 1) << shift) - 1;
  }

  std::vector<int64_t> counts_ = std::vector<int64_t>(58 * kParts);
  int64_t total_ = 0;
  uint64_t max_ = 0;
};

}  // namespace svdserve::cli
#endif  // SVDSERVE_CLIENT_CLI_LOAD_HISTOGRAM_H_
