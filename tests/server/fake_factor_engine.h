// An engine of factors that computes nothing: it waits at a gate, obeys cancellation, and says what it is told to.
#ifndef SVDSERVE_TESTS_SERVER_FAKE_FACTOR_ENGINE_H_
#define SVDSERVE_TESTS_SERVER_FAKE_FACTOR_ENGINE_H_

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "engine/large_factor.h"
#include "server/base/mutex.h"

namespace svdserve::server {

// State that a test and the engine share. Thread-safe.
class FactorControls {
 public:
  void Close() { SetOpen(false); }
  void Open() { SetOpen(true); }
  void Answer(FactorOutcome outcome) {
    MutexLock lock(&mu_);
    outcome_ = std::move(outcome);
  }
  void Report(const FactorProgress& progress) {
    std::function<void(const FactorProgress&)> tell;
    {
      MutexLock lock(&mu_);
      tell = progress_;
    }
    tell(progress);
  }
  // Blocks until `count` factors were begun, or have ended.
  void AwaitBegun(int count) {
    MutexLock lock(&mu_);
    while (begun_ < count) changed_.Wait(&mu_);
  }
  void AwaitEnded(int count) {
    MutexLock lock(&mu_);
    while (ended_ < count) changed_.Wait(&mu_);
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

  FactorOutcome Compute(const FactorPlan& plan, const FactorOperands& operands, const FactorControl& control) {
    mu_.Lock();
    ++begun_;
    order_.push_back(*static_cast<const unsigned char*>(operands.matrix));
    most_at_once_ = std::max(most_at_once_, begun_ - ended_);
    progress_ = control.progress;
    changed_.SignalAll();
    while (!open_ && !control.cancel->load()) {
      changed_.WaitUntil(&mu_, std::chrono::steady_clock::now() + std::chrono::milliseconds(1));
    }
    FactorOutcome outcome = outcome_;
    if (control.cancel->load()) {
      outcome = {};
      outcome.status = FactorStatus::kCancelled;
      ++cancelled_;
    } else {
      Fill(plan, operands);
    }
    progress_ = nullptr;
    ++ended_;
    changed_.SignalAll();
    mu_.Unlock();
    return outcome;
  }

  // The value of each byte of a result: the operand's first byte, plus 1, 2 or 3 for values, U and V^H.
  static void Fill(const FactorPlan& plan, const FactorOperands& operands) {
    const int first = *static_cast<const unsigned char*>(operands.matrix);
    std::memset(operands.values, first + 1, plan.values_bytes());
    if (operands.left != nullptr) std::memset(operands.left, first + 2, plan.left_bytes());
    if (operands.right != nullptr) std::memset(operands.right, first + 3, plan.right_bytes());
  }

 private:
  void SetOpen(bool open) {
    MutexLock lock(&mu_);
    open_ = open;
    changed_.SignalAll();
  }

  Mutex mu_;
  CondVar changed_;
  bool open_ = true;
  int begun_ = 0, ended_ = 0, cancelled_ = 0, most_at_once_ = 0;
  std::vector<int> order_;
  FactorOutcome outcome_ = [] {
    FactorOutcome ok;
    ok.status = FactorStatus::kOk;
    ok.sweeps = 7;
    ok.phases = {{"inner", 0.25, 1e9}};
    return ok;
  }();
  std::function<void(const FactorProgress&)> progress_;
};

class FakeFactorEngine final : public FactorEngine {
 public:
  FakeFactorEngine(std::shared_ptr<FactorControls> controls, FactorMemory memory)
      : FakeFactorEngine(std::move(controls), [memory](const FactorPlan&) { return memory; }) {}
  FakeFactorEngine(std::shared_ptr<FactorControls> controls, std::function<FactorMemory(const FactorPlan&)> memory)
      : controls_(std::move(controls)), memory_(std::move(memory)) {}

  FactorMemory memory(const FactorPlan& plan) const override { return memory_(plan); }
  FactorOutcome decompose(const FactorPlan& plan, const FactorOperands& operands,
                          const FactorControl& control) const override {
    return controls_->Compute(plan, operands, control);
  }

 private:
  const std::shared_ptr<FactorControls> controls_;
  const std::function<FactorMemory(const FactorPlan&)> memory_;
};

}  // namespace svdserve::server
#endif  // SVDSERVE_TESTS_SERVER_FAKE_FACTOR_ENGINE_H_
