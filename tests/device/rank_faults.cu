// A real fault on the GPU of a rank, in the middle of a matrix: an illegal access, or a kill. The results come with the
// same bits, by the ranks that are left. This process's own context goes on working.
//   device_rank_faults [ORDER]     4096 where none is named; exit code 1: something is not so
// The ranks are this program. A relay between the leader and the rank counts groups of p-steps, and makes the fault before
// one.
#include <cuda_runtime.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <random>
#include <set>
#include <sstream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "engine/backends/cuda_door/plugin_loader.h"
#include "engine/backends/ranks/rank_messages.h"
#include "engine/backends/ranks/rank_process.h"
#include "engine/backends/ranks/rank_socket.h"
#include "engine/cuda_engine.h"
#include "engine/cuda_large_engine.h"
#include "engine/large_engine.h"

namespace svdserve {
namespace {

using Clock = std::chrono::steady_clock;

// In the environment of ranks: "DEVICE GROUP trap|kill". A group is of the p-steps between two swaps.
constexpr char kFault[] = "SVDSERVE_TEST_RANK_FAULT";

__global__ void write_nowhere(int* nowhere) { *nowhere = 1; }

// The fault that this process is told to make.
class Fault {
 public:
  explicit Fault(int device) : device_(device) {
    const char* const text = std::getenv(kFault);
    int told = -1;
    char what[16] = "";
    if (text == nullptr || std::sscanf(text, "%d %d %15s", &told, &left_, what) != 3 || told != device) left_ = -1;
    kills_ = std::strcmp(what, "kill") == 0;
  }
  void before(ranks::Ask what) {
    if (what != ranks::Ask::kPSteps || left_-- != 0) return;
    if (kills_) raise(SIGKILL);
    (void)cudaSetDevice(device_);
    write_nowhere<<<1, 1>>>(reinterpret_cast<int*>(8));
    (void)cudaDeviceSynchronize();
  }

 private:
  const int device_;
  int left_ = -1;
  bool kills_ = false;
};

// All messages from one go to the other.
template <class Before>
void relay(ranks::RankSocket& from, ranks::RankSocket& to, const Before& before) {
  try {
    for (;;) {
      const ranks::Message message = from.receive();
      before(static_cast<ranks::Ask>(message.kind));
      to.send(message.kind, message.values, message.descriptor.get());
    }
  } catch (const ranks::SocketClosed&) {
    _exit(EXIT_SUCCESS);
  }
}

int serve_faulty_rank(int device) {
  ranks::RankSocket leader(ranks::begin_rank());
  auto [own, its] = ranks::socket_pair();
  ranks::RankSocket rank(std::move(own));
  std::thread([&] {
    Fault fault(device);
    relay(leader, rank, [&](ranks::Ask what) { fault.before(what); });
  }).detach();
  std::thread([&] { relay(rank, leader, [](ranks::Ask) {}); }).detach();
  cuda::plugin().api->serve_rank(its.release(), device);
  return EXIT_SUCCESS;
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

// This process's ranks.
std::vector<pid_t> children() {
  std::vector<pid_t> children;
  for (const auto& thread : std::filesystem::directory_iterator("/proc/self/task")) {
    std::ifstream list(thread.path() / "children");
    for (pid_t child = 0; list >> child;) children.push_back(child);
  }
  return children;
}

// Idle ranks that know of no fault, or of one that did not come, end.
void end_ranks() {
  for (const pid_t rank : children()) {
    kill(rank, SIGKILL);
    siginfo_t ended;
    waitid(P_PID, static_cast<id_t>(rank), &ended, WEXITED | WNOWAIT);
  }
}

// NCCL listens for ranks on this host alone.
void expect_ports_on_loopback() {
  std::set<std::string> sockets;
  for (const pid_t rank : children()) {
    for (const auto& file : std::filesystem::directory_iterator("/proc/" + std::to_string(rank) + "/fd")) {
      sockets.insert(std::filesystem::read_symlink(file).string());
    }
  }
  int ports = 0;
  for (const char* const table : {"/proc/net/tcp", "/proc/net/tcp6"}) {
    std::ifstream list(table);
    for (std::string line; std::getline(list, line);) {
      std::istringstream words(line);
      std::string number, local, remote, state, word, inode;
      words >> number >> local >> remote >> state >> word >> word >> word >> word >> word >> inode;
      if (state != "0A" || sockets.count("socket:[" + inode + "]") == 0) continue;
      ++ports;
      const bool loopback =
          local.rfind("0100007F:", 0) == 0 || local.rfind("00000000000000000000000001000000:", 0) == 0;
      expect(loopback, ("a rank listens on " + local).c_str());
    }
  }
  std::printf("%d ports of ranks\n", ports);
}

// The environment is too long for a new process.
void expect_results_without_ranks(const LargeEngine& ring, const LargePlan& plan, const std::vector<double>& operand,
                                  const Results& good) {
  constexpr char kTooLong[] = "SVDSERVE_TEST_TOO_LONG";
  setenv(kTooLong, std::string(1 << 20, 'x').c_str(), 1);
  const Results r = run(ring, plan, operand);
  unsetenv(kTooLong);
  std::printf("without ranks: %.2f s, %d members, %s\n", r.seconds, r.outcome.members, r.outcome.detail.c_str());
  expect(r.outcome.status == LargeStatus::kOk && r.outcome.members == 1 && !r.outcome.device_lost, "without ranks");
  expect(r.same_as(good), "other bits without ranks");
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
  std::printf("again: %.2f s\n", run(*ring, *plan.plan, operand).seconds);
  expect_ports_on_loopback();
  end_ranks();
  expect_results_without_ranks(*ring, *plan.plan, operand, good);

  int losses = 0;
  constexpr int kMoments = 12;
  for (int i = 0; i < kMoments; ++i) {
    const std::string fault = std::to_string(i % gpus) + " " + std::to_string(2 * i) + (i % 4 == 3 ? " kill" : " trap");
    setenv(kFault, fault.c_str(), 1);
    const Results r = run(*ring, *plan.plan, operand);
    unsetenv(kFault);
    std::printf("before p-steps of a rank, %s: %.2f s, %d members, %s\n", fault.c_str(), r.seconds, r.outcome.members,
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
    if (!r.outcome.device_lost) end_ranks();
  }
  expect(losses >= kMoments / 2, "most faults were not reached: take a larger order");
  std::printf("%d faults, %d failures\n", losses, failures);
  return failures == 0 ? 0 : 1;
}

}  // namespace
}  // namespace svdserve

int main(int argc, char** argv) {
  if (argc == 4 && std::strcmp(argv[1], svdserve::ranks::kRankArgument) == 0) {
    return svdserve::serve_faulty_rank(std::atoi(argv[3]));
  }
  if (const auto status = svdserve::run_as_rank(argc, argv)) return *status;
  return svdserve::main_of(argc > 1 ? std::max(64L, std::atol(argv[1])) : 4096);
}
