// A member of a ring that computes nothing and checks everything. Its slots hold the numbers of the columns that should be
// there. Its calls return before they are done, as a GPU's do. A scheduler does them in an order that a seed shuffles:
// any that marks and waits allow.
#ifndef SVDSERVE_TESTS_SUPPORT_NUMERICS_RECORDING_MEMBER_H_
#define SVDSERVE_TESTS_SUPPORT_NUMERICS_RECORDING_MEMBER_H_

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "engine/backends/ring/ring_member.h"
#include "tests/support/numerics/random.h"

namespace svdserve::numerics {

class RecordingMember;

// The members of one test, and what they saw.
class RingRecord {
 public:
  RingRecord(uint64_t seed, int64_t columns, int64_t width) : random_(seed), columns_(columns), width_(width) {}

  std::vector<std::string> errors;
  std::vector<std::vector<int>> partners;  // of each block, in the order of its pairs

 private:
  friend class RecordingMember;
  void expect(bool good, const std::string& what) {
    if (!good) errors.push_back(what);
  }
  // Does calls of all members until `member` has none left. The lock is held.
  void drain(RecordingMember* member);

  std::recursive_mutex mutex_;
  Random random_;
  const int64_t columns_, width_;
  std::vector<RecordingMember*> members_;
};

class RecordingMember {
 public:
  using Element = double;

  RecordingMember(int device, RingRecord* record) : device_(device), record_(record) {
    const std::lock_guard lock(record_->mutex_);
    record_->members_.push_back(this);
  }
  ~RecordingMember() {
    const std::lock_guard lock(record_->mutex_);
    std::erase(record_->members_, this);
  }
  RecordingMember(const RecordingMember&) = delete;
  RecordingMember& operator=(const RecordingMember&) = delete;

  void reserve(const ring::RingShape& shape) {
    const std::lock_guard lock(record_->mutex_);
    shape_ = shape;
    slots_.assign(static_cast<size_t>(ring::kSlots * shape.slot_columns), kNothing);
  }
  void take(const ring::UnionPlace& place, const ring::RingColumns<double>& columns) {
    const std::lock_guard lock(record_->mutex_);
    record_->drain(this);
    const int slot = place.slot;
    record_->expect(is_free(slot), "takes into a slot that is in use");
    for (int64_t c = 0; c < columns.count; ++c) at(slot, c) = static_cast<int64_t>(columns.x[c * shape_.rows]);
    expect_union(place);
  }
  void give(const ring::UnionPlace& place, const ring::RingColumns<double>& columns) {
    const std::lock_guard lock(record_->mutex_);
    record_->drain(this);
    const int slot = place.slot;
    expect_union(place);
    for (int64_t c = 0; c < columns.count; ++c) {
      columns.x[c * shape_.rows] = static_cast<double>(at(slot, c));
      columns.f[c] = static_cast<int32_t>(at(slot, c));
    }
  }
  void mark(ring::RingMark kind) {
    const std::lock_guard lock(record_->mutex_);
    const auto k = static_cast<size_t>(kind);
    ++asked_[k];
    add([this, k] {
      ++done_[k];
      return true;
    });
  }
  void await(RecordingMember& other, ring::RingMark kind) {
    const std::lock_guard lock(record_->mutex_);
    const auto k = static_cast<size_t>(kind);
    add([&other, k, number = other.asked_[k]] { return other.done_[k] >= number; });
  }
  void send(const ring::UnionPlace& place, RecordingMember& to, int to_slot) {
    const std::lock_guard lock(record_->mutex_);
    add([this, place, slot = place.slot, &to, to_slot] {
      expect_union(place);
      record_->expect(to.is_free(to_slot), "sends into a slot that is in use");
      for (int64_t c = 0; c < place.count; ++c) {
        to.at(to_slot, c) = at(slot, c);
        at(slot, c) = kNothing;
      }
      return true;
    });
  }
  void p_step(const large::PStep<double>& step) {
    const std::lock_guard lock(record_->mutex_);
    for (int i = 0; i < step.count; ++i) {
      const large::BlockPair pair = step.pairs[i];
      add([this, pair, p = step.place(pair.p), q = step.place(pair.q)] {
        expect_block(pair.p, p);
        expect_block(pair.q, q);
        record_->partners[static_cast<size_t>(pair.p)].push_back(pair.q);
        record_->partners[static_cast<size_t>(pair.q)].push_back(pair.p);
        return true;
      });
    }
    counters_.pairs += step.count;
  }
  void reset_counters() { counters_ = {}; }
  large::PStepCounters read_counters() {
    const std::lock_guard lock(record_->mutex_);
    record_->drain(this);
    return counters_;
  }
  void tell(std::vector<LargePhaseTime>& /*phases*/) const {}
  void stop() {}

 private:
  friend class RingRecord;
  static constexpr int64_t kNothing = -1;

  // A call returns whether it could be done.
  void add(std::function<bool()> call) { calls_.push_back(std::move(call)); }
  int64_t& at(int slot, int64_t column) { return slots_[static_cast<size_t>(slot * shape_.slot_columns + column)]; }
  bool is_free(int slot) {
    for (int64_t c = 0; c < shape_.slot_columns; ++c) {
      if (at(slot, c) != kNothing) return false;
    }
    return true;
  }
  // Members that keep unions at their own places go by these numbers.
  void expect_union(const ring::UnionPlace& place) {
    const int64_t width = record_->width_, last = place.first_block + place.blocks;
    record_->expect(place.first == std::min(place.first_block * width, record_->columns_) &&
                        place.first + place.count == std::min(last * width, record_->columns_),
                    "a union's columns are not those of its blocks");
    for (int64_t c = 0; c < place.count; ++c) {
      record_->expect(at(place.slot, c) == place.first + c,
                      "device " + std::to_string(device_) + " has not column " + std::to_string(place.first + c));
    }
  }
  void expect_block(int block, int64_t place) {
    const int64_t first = block * record_->width_;
    for (int64_t c = first; c < std::min(first + record_->width_, record_->columns_); ++c) {
      record_->expect(slots_[static_cast<size_t>(place + c - first)] == c,
                      "device " + std::to_string(device_) + " computes without column " + std::to_string(c));
    }
  }

  const int device_;
  RingRecord* const record_;
  ring::RingShape shape_;
  std::vector<int64_t> slots_;               // a number for each column
  std::deque<std::function<bool()>> calls_;  // not done yet
  std::array<int64_t, 2> asked_{}, done_{};  // marks of each kind
  large::PStepCounters counters_;
};

inline void RingRecord::drain(RecordingMember* member) {
  for (int64_t tries = 0; !member->calls_.empty(); ++tries) {
    RecordingMember& one =
        *members_[static_cast<size_t>(random_.integer(0, static_cast<int64_t>(members_.size()) - 1))];
    if (!one.calls_.empty() && one.calls_.front()()) one.calls_.pop_front();
    if (tries < 10'000'000) continue;
    errors.emplace_back("waits for ever");
    return;
  }
}

}  // namespace svdserve::numerics
#endif  // SVDSERVE_TESTS_SUPPORT_NUMERICS_RECORDING_MEMBER_H_
