// Large matrices on a GPU, and on several together, are interrupted after their states. They go on with the bits of those
// that are not interrupted.
//   device_large_states [largest order]
// Exit code 1: something is not as promised, and what is printed.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "engine/cuda_engine.h"
#include "engine/cuda_large_engine.h"
#include "tests/support/numerics/large_run.h"
#include "tests/support/numerics/matrix_generators.h"
#include "tests/support/numerics/memory_states.h"

namespace svdserve::numerics {
namespace {

int failures = 0;

void expect(bool holds, const std::string& title, const char* what) {
  if (holds) return;
  std::printf("%s: %s\n", title.c_str(), what);
  ++failures;
}

bool same_bits(const LargeResult& a, const LargeResult& b) {
  return a.outcome.status == b.outcome.status && a.outcome.sweeps == b.outcome.sweeps &&
         a.outcome.rotations == b.outcome.rotations && a.values_bytes == b.values_bytes &&
         a.left_bytes == b.left_bytes && a.right_bytes == b.right_bytes;
}

// Within so little memory of the device that matrices which are not used leave it.
constexpr uint64_t kLittleRoom = 1;

LargeResult run(const LargeEngine& engine, const LargePlan& plan, const Matrix& a, const std::vector<int8_t>& signature,
                MemoryStates* states, uint64_t room = kAnyRoom) {
  LargeControl control;
  control.device_room = room;
  control.states = states;
  if (states != nullptr) control.cancel = &states->cancel;
  return run_large(engine, plan, a, signature, control);
}

// Interrupts it after the QR, before the sweeps, and after some of them.
void check(const LargeEngine& engine, const std::string& device, const Problem& problem, const LargeOptions& options) {
  const LargePlan plan = large_plan_of(problem, options);
  const Matrix a = generate(Kind::kNormal, problem.dtype, problem.rows, problem.cols, 3);
  std::vector<int8_t> signature;
  for (int64_t j = 0; has_signature(options.kind) && j < problem.cols; ++j) signature.push_back(j % 3 == 1 ? -1 : 1);
  const std::string title = device + ", " + name(problem.dtype) + " " + std::to_string(problem.rows) + " x " +
                            std::to_string(problem.cols) + ", " + name(options.method) + ", kind " +
                            std::to_string(static_cast<int>(options.kind)) + ", vectors " +
                            std::to_string(static_cast<int>(options.vectors));
  const LargeResult want = run(engine, plan, a, signature, nullptr);
  expect(same_bits(want, run(engine, plan, a, signature, nullptr, kLittleRoom)), title, "other bits in little room");
  MemoryStates whole;
  expect(same_bits(want, run(engine, plan, a, signature, &whole)), title, "saving states changes bits");
  expect(whole.saved.size() >= 2, title, "there are too few states");  // in single precision one sweep may do
  expect(whole.bytes() <= engine.state_bytes(plan), title, "the states take more than state_bytes() says");
  for (const size_t count : {size_t{1}, size_t{2}, size_t{4}, size_t{6}, whole.saved.size() - 1}) {
    MemoryStates states;
    states.stop_after(count);
    (void)run(engine, plan, a, signature, &states);
    const auto sweeps = std::count(states.saved.begin(), states.saved.end(), LargeState::kSweep);
    states.never_stop();
    MemoryStates again;
    again.states = states.states;
    const LargeResult got = run(engine, plan, a, signature, &states);
    const LargeResult in_little_room = run(engine, plan, a, signature, &again, kLittleRoom);
    expect(same_bits(want, in_little_room), title,
           ("other bits in little room after state " + std::to_string(count)).c_str());
    expect(same_bits(want, got), title, ("other bits after state " + std::to_string(count)).c_str());
    expect(got.outcome.resumed_sweeps == std::max<int64_t>(0, sweeps - 1), title, "sweeps are repeated");
  }
  std::printf("%s: %d states, %.1f MB\n", title.c_str(), static_cast<int>(whole.saved.size()),
              static_cast<double>(whole.bytes()) / 1e6);
}

void check_all(const LargeEngine& engine, const std::string& device, int64_t largest) {
  for (const DType dtype : {DType::kF32, DType::kF64, DType::kC64, DType::kC128}) {
    for (const Method method : {Method::kJacobi, Method::kAuto}) {
      for (const Vectors vectors : {Vectors::kThin, Vectors::kNone}) {
        LargeOptions options;
        options.method = method;
        options.vectors = vectors;
        check(engine, device, {700, 600, dtype, Order::kRowMajor}, options);
        check(engine, device, {600, 700, dtype, Order::kRowMajor}, options);
        check(engine, device, {640, 640, dtype, Order::kColumnMajor}, options);
      }
    }
    LargeOptions options;
    options.kind = LargeKind::kHyperbolicSvd;
    check(engine, device, {700, 600, dtype, Order::kRowMajor}, options);
    options.kind = LargeKind::kHermitian;
    options.method = Method::kFactored;
    check(engine, device, {600, 600, dtype, Order::kRowMajor}, options);
  }
  for (int64_t n = 1024; n <= largest; n *= 2) check(engine, device, {n, n, DType::kF64, Order::kRowMajor}, {});
}

int run_all(int64_t largest) {
  CudaStatus status;
  const int count = cuda_device_count(&status.text);
  if (count == 0) {
    std::printf("no GPU: %s\n", status.text.c_str());
    return 1;
  }
  const auto one = open_cuda_large_engine(0, &status);
  expect(one != nullptr, "GPU 0", status.text.c_str());
  if (one != nullptr) check_all(*one, "GPU 0", largest);
  for (int members = 2; members <= count; members *= 2) {
    std::vector<int> ordinals;
    for (int i = 0; i < members; ++i) ordinals.push_back(i);
    const std::string device = std::to_string(members) + " GPUs";
    const auto ring = open_cuda_ring_engine(ordinals, &status);
    expect(ring != nullptr, device, status.text.c_str());
    if (ring != nullptr) check_all(*ring, device, largest);
  }
  std::printf("%d failures\n", failures);
  return failures == 0 ? 0 : 1;
}

}  // namespace
}  // namespace svdserve::numerics

int main(int argc, char** argv) { return svdserve::numerics::run_all(argc > 1 ? std::atoll(argv[1]) : 2048); }
