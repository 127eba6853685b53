// Large matrices on a GPU, and on several together, are interrupted after their states. They go on with the bits of those
// that are not interrupted.
//   device_large_states [largest order] [rings]     rings: only of several GPUs together
// Exit code 1: something is not as promised, and what is printed.
#include <algorithm>
#include <cmath>
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
  std::fflush(stdout);
  ++failures;
}

bool same_bits(const LargeResult& a, const LargeResult& b) {
  return a.outcome.status == b.outcome.status && a.outcome.sweeps == b.outcome.sweeps &&
         a.outcome.rotations == b.outcome.rotations && a.values_bytes == b.values_bytes &&
         a.left_bytes == b.left_bytes && a.right_bytes == b.right_bytes;
}

LargeResult run(const LargeEngine& engine, const LargePlan& plan, const Matrix& a, const std::vector<int8_t>& signature,
                uint64_t room, MemoryStates* states = nullptr) {
  LargeControl control;
  control.device_room = room;
  control.states = states;
  if (states != nullptr) control.cancel = &states->cancel;
  return run_large(engine, plan, a, signature, control);
}

// Within so little memory of the device that matrices which are not used leave it, or that only panels are there.
struct Rooms {
  uint64_t parking, streaming = 1;
};

// Interrupts it after the QR, before the sweeps, and after some of them. It goes on in the rooms `then`, with the bits of
// an uninterrupted run in `room`, which is returned.
LargeResult check_states(const LargeEngine& engine, const std::string& title, const LargePlan& plan, const Matrix& a,
                         const std::vector<int8_t>& signature, uint64_t room, const std::vector<uint64_t>& then) {
  LargeResult want = run(engine, plan, a, signature, room);
  MemoryStates whole;
  expect(same_bits(want, run(engine, plan, a, signature, room, &whole)), title, "saving states changes bits");
  expect(whole.saved.size() >= 2, title, "there are too few states");  // in single precision one sweep may do
  expect(whole.bytes() <= engine.state_bytes(plan), title, "the states take more than state_bytes() says");
  for (const size_t count : {size_t{1}, size_t{2}, size_t{4}, size_t{6}, whole.saved.size() - 1}) {
    MemoryStates states;
    states.stop_after(count);
    (void)run(engine, plan, a, signature, room, &states);
    const auto sweeps = std::count(states.saved.begin(), states.saved.end(), LargeState::kSweep);
    states.never_stop();
    for (const uint64_t other : then) {
      MemoryStates own;
      own.states = states.states;
      const LargeResult got = run(engine, plan, a, signature, other, &own);
      expect(same_bits(want, got), title, ("other bits after state " + std::to_string(count)).c_str());
      expect(got.outcome.resumed_sweeps == std::max<int64_t>(0, sweeps - 1), title, "sweeps are repeated");
    }
  }
  std::printf("%s: %d states, %.1f MB\n", title.c_str(), static_cast<int>(whole.saved.size()),
              static_cast<double>(whole.bytes()) / 1e6);
  std::fflush(stdout);
  return want;
}

// Matrices of which the device has panels have other bits, and the same accuracy.
void expect_close(const LargeResult& plain, const LargeResult& streamed, const LargePlan& plan, const Matrix& a,
                  const std::string& title) {
  const double u = value_bytes(plan.problem.dtype) == 4 ? 0x1p-24 : 0x1p-53;
  const double bound = 20 * static_cast<double>(std::max(a.rows, a.cols)) * u;
  expect(streamed.outcome.status == LargeStatus::kOk, title, streamed.outcome.detail.c_str());
  expect(streamed.values.size() == plain.values.size(), title, "values are missing");
  double worst = 0, largest = 0;
  for (size_t i = 0; i < std::min(plain.values.size(), streamed.values.size()); ++i) {
    worst = std::max(worst, std::fabs(streamed.values[i] - plain.values[i]));
    largest = std::max(largest, std::fabs(plain.values[i]));
  }
  expect(worst <= bound * largest, title, "values differ too far from those on the device");
  if (plan.options.vectors == Vectors::kNone) return;
  expect(residual_of(a, streamed) <= bound, title, "the residual is too large");
  expect(column_orthogonality(streamed.left) <= bound, title, "U is not orthonormal");
}

// is_ring: of several devices, whose matrices stay on them.
void check(const LargeEngine& engine, const std::string& device, bool is_ring, const Problem& problem,
           const LargeOptions& options) {
  const LargePlan plan = large_plan_of(problem, options);
  const Matrix a = generate(Kind::kNormal, problem.dtype, problem.rows, problem.cols, 3);
  std::vector<int8_t> signature;
  for (int64_t j = 0; has_signature(options.kind) && j < problem.cols; ++j) signature.push_back(j % 3 == 1 ? -1 : 1);
  const std::string title = device + ", " + name(problem.dtype) + " " + std::to_string(problem.rows) + " x " +
                            std::to_string(problem.cols) + ", " + name(options.method) + ", kind " +
                            std::to_string(static_cast<int>(options.kind)) + ", vectors " +
                            std::to_string(static_cast<int>(options.vectors));
  const bool leaves = !is_ring && !is_eigenproblem(options.kind);
  const Rooms rooms{engine.memory(plan).device_bytes - 1};
  std::vector<uint64_t> then = {kAnyRoom};
  // Matrices of low order take too little of all memory for parking to spare any.
  const bool parks = engine.memory(plan, rooms.parking).host_bytes != engine.memory(plan, rooms.streaming).host_bytes;
  if (leaves && parks) then.push_back(rooms.parking);
  const LargeResult plain = check_states(engine, title, plan, a, signature, kAnyRoom, then);
  if (then.size() > 1) {
    const LargeResult parked = run(engine, plan, a, signature, rooms.parking);
    expect(same_bits(plain, parked), title, "other bits in little room");
  }
  if (!leaves || options.method == Method::kAuto) return;  // by panels, AUTO is JACOBI
  const LargeResult streamed =
      check_states(engine, title + ", streamed", plan, a, signature, rooms.streaming, {rooms.streaming});
  expect_close(plain, streamed, plan, a, title + ", streamed");
}

void check_all(const LargeEngine& engine, const std::string& device, bool is_ring, int64_t largest) {
  for (const DType dtype : {DType::kF32, DType::kF64, DType::kC64, DType::kC128}) {
    for (const Method method : {Method::kJacobi, Method::kAuto}) {
      for (const Vectors vectors : {Vectors::kThin, Vectors::kNone}) {
        LargeOptions options;
        options.method = method;
        options.vectors = vectors;
        check(engine, device, is_ring, {700, 600, dtype, Order::kRowMajor}, options);
        check(engine, device, is_ring, {600, 700, dtype, Order::kRowMajor}, options);
        check(engine, device, is_ring, {640, 640, dtype, Order::kColumnMajor}, options);
      }
    }
    LargeOptions options;
    options.kind = LargeKind::kHyperbolicSvd;
    check(engine, device, is_ring, {700, 600, dtype, Order::kRowMajor}, options);
    options.kind = LargeKind::kHermitian;
    options.method = Method::kFactored;
    check(engine, device, is_ring, {600, 600, dtype, Order::kRowMajor}, options);
  }
  for (int64_t n = 1024; n <= largest; n *= 2) {
    for (const Method method : {Method::kJacobi, Method::kAuto}) {
      LargeOptions options;
      options.method = method;
      check(engine, device, is_ring, {n, n, DType::kF64, Order::kRowMajor}, options);
    }
  }
}

int run_all(int64_t largest, bool rings_alone) {
  CudaStatus status;
  const int count = cuda_device_count(&status.text);
  if (count == 0) {
    std::printf("no GPU: %s\n", status.text.c_str());
    return 1;
  }
  if (!rings_alone) {
    const auto one = open_cuda_large_engine(0, &status);
    expect(one != nullptr, "GPU 0", status.text.c_str());
    if (one != nullptr) check_all(*one, "GPU 0", false, largest);
  }
  for (int members = 2; members <= count; members *= 2) {
    std::vector<int> ordinals;
    for (int i = 0; i < members; ++i) ordinals.push_back(i);
    const std::string device = std::to_string(members) + " GPUs";
    const auto ring = open_cuda_ring_engine(ordinals, &status);
    expect(ring != nullptr, device, status.text.c_str());
    if (ring != nullptr) check_all(*ring, device, true, largest);
  }
  std::printf("%d failures\n", failures);
  return failures == 0 ? 0 : 1;
}

}  // namespace
}  // namespace svdserve::numerics

int main(int argc, char** argv) {
  const bool rings_alone = argc > 2 && std::string(argv[2]) == "rings";
  return svdserve::numerics::run_all(argc > 1 ? std::atoll(argv[1]) : 2048, rings_alone);
}
