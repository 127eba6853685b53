// The matrices of a call, numbered through its segments.
#ifndef SVDSERVE_ENGINE_BACKENDS_HOST_BASE_MATRIX_SOURCE_H_
#define SVDSERVE_ENGINE_BACKENDS_HOST_BASE_MATRIX_SOURCE_H_

#include <algorithm>
#include <array>
#include <cstdint>
#include <iterator>
#include <vector>

#include "absl/types/span.h"
#include "engine/execution.h"
#include "engine/planner.h"

namespace svdserve::host {

// Thread-safe once made. Does not own the segments.
class MatrixSource {
 public:
  MatrixSource(const Plan& plan, absl::Span<const HostSegment> segments)
      : segments_(segments),
        matrix_bytes_(static_cast<int64_t>(stored_bytes(plan.problem))),
        starting_bytes_(static_cast<int64_t>(starting_bytes(plan))) {
    first_.reserve(segments.size() + 1);
    for (const HostSegment& s : segments) {
      first_.push_back(count_);
      count_ += s.count;
    }
    first_.push_back(count_);
  }

  int64_t count() const { return count_; }

  struct Slot {
    const char* matrix;  // as it is stored
    const char* start;   // its starting vectors; null: the plan has none
    const HostSegment* segment;
    int64_t index;         // in the segment
    MatrixStatus* status;  // or null
    // Where the plane of the matrix is, for planes with a part for each matrix; null: not wanted.
    char* plane(Plane plane, size_t bytes) const {
      char* const first = static_cast<char*>(segment->planes[plane]);
      return first == nullptr ? nullptr : first + static_cast<size_t>(index) * bytes;
    }
    // Where its gradients are, in the order of kMimoGradients; null: not wanted.
    std::array<char*, std::size(kMimoGradients)> gradients(const Plan& plan) const {
      std::array<char*, std::size(kMimoGradients)> places{};
      for (size_t i = 0; i < places.size(); ++i) {
        const Plane of = kMimoGradients[i].plane;
        const size_t bytes = matrix_plane_bytes(plan, of);
        if (bytes > 0) places[i] = plane(of, bytes);
      }
      return places;
    }
  };
  // Calls f(l, slot) for the matrices first .. first + n - 1, l = 0 .. n - 1.
  template <class F>
  void for_each(int64_t first, int n, F f) const {
    size_t s = std::upper_bound(first_.begin(), first_.end(), first) - first_.begin() - 1;
    for (int l = 0; l < n; ++l) {
      while (first + l >= first_[s + 1]) ++s;
      const HostSegment& segment = segments_[s];
      const int64_t i = first + l - first_[s];
      const auto* const starts = static_cast<const char*>(segment.starting_vectors);
      f(l, Slot{static_cast<const char*>(segment.matrices) + i * matrix_bytes_,
                starting_bytes_ != 0 ? starts + i * starting_bytes_ : nullptr, &segment, i,
                segment.statuses != nullptr ? segment.statuses + i : nullptr});
    }
  }

 private:
  absl::Span<const HostSegment> segments_;
  std::vector<int64_t> first_;  // of each segment; then count_
  int64_t count_ = 0;
  int64_t matrix_bytes_, starting_bytes_;
};

}  // namespace svdserve::host
#endif  // SVDSERVE_ENGINE_BACKENDS_HOST_BASE_MATRIX_SOURCE_H_
