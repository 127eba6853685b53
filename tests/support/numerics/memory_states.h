// States of a decomposition in memory: it is cancelled after one of them, goes on from them, or finds them damaged.
#ifndef SVDSERVE_TESTS_SUPPORT_NUMERICS_MEMORY_STATES_H_
#define SVDSERVE_TESTS_SUPPORT_NUMERICS_MEMORY_STATES_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <map>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "engine/large_engine.h"

namespace svdserve::numerics {

// States in memory.
class MemoryStates : public LargeStateStore {
 public:
  bool due() override { return looks_++ >= first_due_; }
  bool begin(LargeState state, uint64_t bytes) override {
    written_ = {};
    written_.reserve(bytes);
    expected_ = bytes;
    state_ = state;
    return state != refused_;
  }
  void write(const void* bytes, uint64_t count) override { written_.append(static_cast<const char*>(bytes), count); }
  void end() override {
    if (written_.size() != expected_) throw std::logic_error(std::string("a state has another size: ") + name(state_));
    states[state_] = std::move(written_);
    saved.push_back(state_);
    if (saved.size() == stop_after_) cancel = true;
  }
  uint64_t open(LargeState state) override {
    const auto found = states.find(state);
    reading_ = found == states.end() ? "" : found->second;
    damaged_ = damaged_state_ == state;
    read_ = 0;
    return reading_.size();
  }
  bool read(void* bytes, uint64_t count) override {
    if (count > reading_.size() - read_ || (damaged_ && read_ + count > readable_)) return false;
    std::memcpy(bytes, reading_.data() + read_, count);
    read_ += count;
    return read_ < reading_.size() || !damaged_;
  }

  // Cancels once so many states were saved.
  void stop_after(size_t count) {
    stop_after_ = count;
    saved.clear();
    cancel = false;
  }
  void never_stop() { stop_after(SIZE_MAX); }
  // due() is false so many times.
  void skip(int looks) { first_due_ = looks, looks_ = 0; }
  void refuse(LargeState state) { refused_ = state; }
  // Every byte of a state is another one, from a byte on.
  void damage(LargeState state, size_t from) {
    for (size_t i = from; i < states[state].size(); ++i) states[state][i] = static_cast<char>(~states[state][i]);
    damaged_state_ = state;
  }
  // One byte is another one.
  void flip(LargeState state, size_t place, int mask) {
    states[state][place] = static_cast<char>(states[state][place] ^ mask);
    damaged_state_ = state;
  }
  // Bytes from `place` on are others, as far as the state goes.
  void overwrite(LargeState state, size_t place, const std::string& bytes) {
    states[state].replace(place, bytes.size(), bytes, 0, states[state].size() - place);
    damaged_state_ = state;
  }
  // It cannot be read from a byte on.
  void break_off(LargeState state, size_t from) {
    readable_ = from;
    damaged_state_ = state;
  }
  uint64_t bytes() const {
    uint64_t sum = 0;
    for (const auto& [state, text] : states) sum += text.size() * (state == LargeState::kSweep ? 2 : 1);
    return sum;
  }

  std::map<LargeState, std::string> states;
  std::vector<LargeState> saved;
  std::atomic<bool> cancel{false};

 private:
  std::string written_, reading_;
  uint64_t expected_ = 0;
  size_t read_ = 0, readable_ = SIZE_MAX, stop_after_ = SIZE_MAX;
  int first_due_ = 0, looks_ = 0;
  LargeState state_ = LargeState::kFactors;
  bool damaged_ = false;
  std::optional<LargeState> refused_, damaged_state_;
};

}  // namespace svdserve::numerics
#endif  // SVDSERVE_TESTS_SUPPORT_NUMERICS_MEMORY_STATES_H_
