// An engine of factors that computes nothing: it waits at a gate, obeys cancellation, and says what it is told to.
#ifndef SVDSERVE_TESTS_SERVER_FAKE_LARGE_ENGINE_H_
#define SVDSERVE_TESTS_SERVER_FAKE_LARGE_ENGINE_H_

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "engine/large_engine.h"
#include "server/base/mutex.h"

namespace svdserve::server {

// State that a test and the engine share. Thread-safe.
class LargeControls {
 public:
  void close() { set_open(false); }
  void open() { set_open(true); }
  // Without `obeying` a cancel changes nothing about it.
  void answer(LargeOutcome outcome, bool obeying = true) {
    MutexLock lock(&mu_);
    outcome_ = std::move(outcome);
    obeying_ = obeying;
  }
  // Each matrix has states of so many bytes, which `use` is given when it begins to be computed.
  void have_states(uint64_t bytes, std::function<void(LargeStateStore*)> use) {
    MutexLock lock(&mu_);
    state_bytes_ = bytes;
    use_states_ = std::move(use);
  }
  uint64_t state_bytes() {
    MutexLock lock(&mu_);
    return state_bytes_;
  }
  void report(const LargeProgress& progress) {
    std::function<void(const LargeProgress&)> tell;
    {
      MutexLock lock(&mu_);
      tell = progress_;
    }
    tell(progress);
  }
  // Preparations wait until this is called again with false.
  void hold_preparation(bool hold) {
    MutexLock lock(&mu_);
    holds_preparation_ = hold;
    changed_.signal_all();
  }
  void prepare() {
    MutexLock lock(&mu_);
    ++preparations_;
    changed_.signal_all();
    while (holds_preparation_) changed_.wait(&mu_);
  }
  int preparations() {
    MutexLock lock(&mu_);
    return preparations_;
  }
  void await_preparation() {
    MutexLock lock(&mu_);
    while (preparations_ == 0) changed_.wait(&mu_);
  }
  // Blocks until `count` factors were begun, or have ended.
  void await_begun(int count) {
    MutexLock lock(&mu_);
    while (begun_ < count) changed_.wait(&mu_);
  }
  void await_ended(int count) {
    MutexLock lock(&mu_);
    while (ended_ < count) changed_.wait(&mu_);
  }
  int begun() {
    MutexLock lock(&mu_);
    return begun_;
  }
  // The first byte of each operand, in the order in which they were begun.
  std::vector<int> order() {
    MutexLock lock(&mu_);
    return order_;
  }
  int most_at_once() {
    MutexLock lock(&mu_);
    return most_at_once_;
  }
  int cancelled() {
    MutexLock lock(&mu_);
    return cancelled_;
  }

  LargeOutcome compute(const LargePlan& plan, const LargeOperands& operands, const LargeControl& control) {
    mu_.lock();
    ++begun_;
    order_.push_back(*static_cast<const unsigned char*>(operands.matrix));
    most_at_once_ = std::max(most_at_once_, begun_ - ended_);
    progress_ = control.progress;
    if (use_states_) use_states_(control.states);
    changed_.signal_all();
    while (!open_ && !control.cancel->load()) {
      changed_.wait_until(&mu_, std::chrono::steady_clock::now() + std::chrono::milliseconds(1));
    }
    LargeOutcome outcome = outcome_;
    if (obeying_ && control.cancel->load()) {
      outcome = {};
      outcome.status = LargeStatus::kCancelled;
      ++cancelled_;
    } else {
      fill(plan, operands);
    }
    progress_ = nullptr;
    ++ended_;
    changed_.signal_all();
    mu_.unlock();
    return outcome;
  }

  // The value of each byte of a result: the operand's first byte, plus 1, 2 or 3 for values, U and V^H.
  static void fill(const LargePlan& plan, const LargeOperands& operands) {
    const int first = *static_cast<const unsigned char*>(operands.matrix);
    std::memset(operands.values, first + 1, plan.values_bytes());
    if (operands.left != nullptr) std::memset(operands.left, first + 2, plan.left_bytes());
    if (operands.right != nullptr) std::memset(operands.right, first + 3, plan.right_bytes());
  }

 private:
  void set_open(bool open) {
    MutexLock lock(&mu_);
    open_ = open;
    changed_.signal_all();
  }

  Mutex mu_;
  CondVar changed_;
  bool open_ = true, obeying_ = true, holds_preparation_ = false;
  int preparations_ = 0;
  int begun_ = 0, ended_ = 0, cancelled_ = 0, most_at_once_ = 0;
  std::vector<int> order_;
  LargeOutcome outcome_ = [] {
    LargeOutcome ok;
    ok.status = LargeStatus::kOk;
    ok.sweeps = 7;
    ok.phases = {{"inner", 0.25, 1e9}};
    return ok;
  }();
  std::function<void(const LargeProgress&)> progress_;
  uint64_t state_bytes_ = 0;
  std::function<void(LargeStateStore*)> use_states_;
};

class FakeLargeEngine final : public LargeEngine {
 public:
  FakeLargeEngine(std::shared_ptr<LargeControls> controls, LargeWorkspace memory)
      : FakeLargeEngine(std::move(controls), [memory](const LargePlan&) { return memory; }) {}
  FakeLargeEngine(std::shared_ptr<LargeControls> controls, std::function<LargeWorkspace(const LargePlan&)> memory)
      : controls_(std::move(controls)), memory_(std::move(memory)) {}

  LargeWorkspace memory(const LargePlan& plan, uint64_t /*device_room*/) const override { return memory_(plan); }
  double predicted_seconds(const LargePlan& plan) const override { return static_cast<double>(plan.values); }
  uint64_t state_bytes(const LargePlan& /*plan*/) const override { return controls_->state_bytes(); }
  void prepare() const override { controls_->prepare(); }
  LargeOutcome decompose(const LargePlan& plan, const LargeOperands& operands,
                         const LargeControl& control) const override {
    return controls_->compute(plan, operands, control);
  }

 private:
  const std::shared_ptr<LargeControls> controls_;
  const std::function<LargeWorkspace(const LargePlan&)> memory_;
};

}  // namespace svdserve::server
#endif  // SVDSERVE_TESTS_SERVER_FAKE_LARGE_ENGINE_H_
