// A real fault on the GPU of a rank, in the middle of a matrix: an illegal access, or a kill. The results come with the
// same bits, by the ranks that are left. This process's own context goes on working.
//   device_rank_faults [ORDER]     4096 where none is named; exit code 1: something is not so
// The ranks are this program. A thread of theirs makes the fault, some time after their start.
#include <cuda_runtime.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "engine/cuda_engine.h"
#include "engine/cuda_large_engine.h"
#include "engine/large_engine.h"

namespace svdserve {
namespace {

using Clock = std::chrono::steady_clock;

// In the environment of ranks: "DEVICE MILLISECONDS trap|kill".
constexpr char kFault[] = "SVDSERVE_TEST_RANK_FAULT";

__global__ void write_nowhere(int* nowhere) { *nowhere = 1; }

void fail_as_told(const std::string& own) {
  const char* const text = std::getenv(kFault);
  char device[16] = "", what[16] = "";
  int milliseconds = 0;
  if (text == nullptr || std::sscanf(text, "%15s %d %15s", device, &milliseconds, what) != 3 || own != device) return;
  std::thread([ordinal = std::atoi(device), milliseconds, kills = std::strcmp(what, "kill") == 0] {
    std::this_thread::sleep_for(std::chrono::milliseconds(milliseconds));
    if (kills) raise(SIGKILL);
    (void)cudaSetDevice(ordinal);
    write_nowhere<<<1, 1>>>(reinterpret_cast<int*>(8));
    (void)cudaDeviceSynchronize();
  }).detach();
}

struct Results {
  LargeOutcome outcome;
  double seconds = 0;
  std::vector<char> left, values, right;
  bool same_as(const Results& other) const {
    return left == other.left && values == other.values && right == other.right;
  }
};

Results run(const LargeEngine& engine, const LargePlan& plan, const std::vector<double>& operand) {
  Results r;
  r.left.resize(plan.left_bytes());
  r.values.resize(plan.values_bytes());
  r.right.resize(plan.right_bytes());
  LargeOperands operands;
  operands.matrix = operand.data();
  operands.left = r.left.data();
  operands.values = r.values.data();
  operands.right = r.right.data();
  const auto start = Clock::now();
  r.outcome = engine.decompose(plan, operands);
  r.seconds = std::chrono::duration<double>(Clock::now() - start).count();
  return r;
}

int failures = 0;
void expect(bool good, const char* what) {
  if (good) return;
  std::printf("  FAIL: %s\n", what);
  ++failures;
}

int main_of(int64_t n) {
  std::string why;
  const int gpus = cuda_device_count(&why) >= 2 ? 2 : 1;
  std::vector<int> ordinals(static_cast<size_t>(gpus));
  for (int i = 0; i < gpus; ++i) ordinals[static_cast<size_t>(i)] = i;
  CudaStatus status;
  const auto one = open_cuda_large_engine(0, &status);
  const auto ring = open_cuda_ring_engine(ordinals, &status, RingMembers::kRanks);
  if (one == nullptr || ring == nullptr) return std::printf("no ranks: %s%s\n", status.text.c_str(), why.c_str()), 2;
  const auto plan = plan_large({n, n, DType::kF64, Order::kColumnMajor}, {.method = Method::kJacobi});
  std::mt19937_64 bits(3);
  std::normal_distribution<double> number;
  std::vector<double> operand(static_cast<size_t>(n * n));
  for (double& x : operand) x = number(bits);

  const Results alone = run(*one, *plan.plan, operand), good = run(*ring, *plan.plan, operand);
  std::printf("undisturbed: %.2f s with the start of ranks, %s\n", good.seconds, good.outcome.detail.c_str());
  expect(good.outcome.status == LargeStatus::kOk && !good.outcome.device_lost, "undisturbed");
  const double warm = run(*ring, *plan.plan, operand).seconds;
  std::printf("again: %.2f s\n", warm);

  int losses = 0;
  constexpr int kMoments = 12;
  for (int i = 0; i < kMoments; ++i) {
    // The ring of before is to end, so that these ranks are new: one of a GPU by itself takes its place.
    (void)run(*open_cuda_ring_engine({0}, &status, RingMembers::kRanks), *plan.plan, operand);
    const int device = i % gpus;
    const bool kills = i % 4 == 3;
    const int milliseconds = static_cast<int>(1e3 * (good.seconds - warm + warm * (i + 0.5) / kMoments));
    const std::string fault = std::to_string(device) + " " + std::to_string(milliseconds) + (kills ? " kill" : " trap");
    setenv(kFault, fault.c_str(), 1);
    const Results r = run(*ring, *plan.plan, operand);
    unsetenv(kFault);
    std::printf("rank of GPU %s: %.2f s, %d members, %s\n", fault.c_str(), r.seconds, r.outcome.members,
                r.outcome.device_lost ? r.outcome.detail.c_str() : "no loss");
    std::fflush(stdout);
    losses += r.outcome.device_lost;
    if (gpus > 1 || !r.outcome.device_lost) {
      expect(r.outcome.status == LargeStatus::kOk, r.outcome.detail.c_str());
      expect(r.same_as(good), "other bits");
    } else {
      expect(r.outcome.status == LargeStatus::kFault, "no member is left, and there are results");
    }
    const Results after = run(*one, *plan.plan, operand);
    expect(after.outcome.status == LargeStatus::kOk && after.same_as(alone), "this process's own context");
  }
  expect(losses >= kMoments / 3, "most faults came too early or too late");
  std::printf("%d faults, %d failures\n", losses, failures);
  return failures == 0 ? 0 : 1;
}

}  // namespace
}  // namespace svdserve

int main(int argc, char** argv) {
  if (argc > 1) svdserve::fail_as_told(argv[argc - 1]);
  if (const auto status = svdserve::run_as_rank(argc, argv)) return *status;
  return svdserve::main_of(argc > 1 ? std::max(64L, std::atol(argv[1])) : 4096);
}
