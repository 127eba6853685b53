// One large matrix on several GPUs together: are the bits the same, and how long do sweeps and whole factors take.
//   device_ring_bench [turns=3] [by=peers,ranks] [members=1,2,4,8] [figures] [ORDER ...]
// ORDER: 2048, 8192 and 16384 where none is named. figures: without the bits of small matrices and of other kinds.
// f64, U and V, random normal, JACOBI; and bits of other kinds first. "members" 0 is one GPU without a ring; "peers"
// are members in this process, which copy from GPU to GPU and share large products. "ranks" are processes of their
// own. In turns, the median of three after one that does not count, unless there is one alone. "sweeps" is the time
// from the first sweep's progress to the finish, so it has the ways to the members and back in it. "a sweep" is the
// second one, in which all pairs rotate. "compute" is the whole call without load and store. Below it are the sweeps of
// the last turn, each with the check after it, and its phases: home's, then a member's on average.
// "wait" and "swap" are its exchanges, "checkpoint" and "idle" the ways to home and the time that home computes.
// "faster" is over one GPU, of sweeps, of a sweep and of compute. "of peers" is the speed of sweeps over that of as many peers.
// "AUTO" is the compute time of that method, in the same turns. The exit status says whether all bits of rings agree.
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "engine/cuda_engine.h"
#include "engine/cuda_large_engine.h"
#include "engine/large_engine.h"

namespace svdserve {
namespace {

using Clock = std::chrono::steady_clock;

struct Wanted {
  int turns = 3;
  std::string by = "peers,ranks", members = "1,2,4,8";
  bool only_figures = false;
  std::vector<int64_t> orders;
};

// Whether a list of words with commas has this one.
bool has(const std::string& list, const std::string& word) {
  return ("," + list + ",").find("," + word + ",") != std::string::npos;
}

double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

struct Results {
  std::vector<char> left, values, right;
};

struct Run {
  LargeOutcome outcome;
  double seconds = 0, sweeps = 0;
  std::vector<double> each;  // sweep's seconds
  uint64_t checksum = 0;
};

// A fast hash of the bits of U, S and V.
uint64_t checksum(const Results& results) {
  uint64_t hash = 0xcbf29ce484222325u;
  for (const auto* bytes : {&results.left, &results.values, &results.right}) {
    for (size_t i = 0; i + 4 <= bytes->size(); i += 4) {
      uint32_t word = 0;
      std::memcpy(&word, bytes->data() + i, 4);
      hash = (hash ^ word) * 0x100000001b3u;
    }
  }
  return hash;
}

Run run(const LargeEngine& engine, const LargePlan& plan, const std::vector<char>& operand,
        const std::vector<int8_t>& signature, Results& results) {
  results.left.resize(plan.left_bytes());
  results.values.resize(plan.values_bytes());
  results.right.resize(plan.right_bytes());
  LargeOperands operands;
  operands.matrix = operand.data();
  operands.signature = signature.empty() ? nullptr : signature.data();
  operands.left = results.left.data();
  operands.values = results.values.data();
  operands.right = results.right.data();
  std::vector<Clock::time_point> ends;  // of sweeps, behind the beginning of the first
  LargeControl control;
  control.progress = [&](const LargeProgress& progress) {
    if (progress.stage != LargeStage::kSweep) return;
    if (ends.empty()) ends.push_back(Clock::now());
    ends.resize(static_cast<size_t>(progress.sweep) + 1);
    ends.back() = Clock::now();
  };
  Run result;
  const auto start = Clock::now();
  result.outcome = engine.decompose(plan, operands, control);
  result.seconds = seconds_since(start);
  for (size_t i = 0; i + 1 < ends.size(); ++i) {
    result.each.push_back(std::chrono::duration<double>(ends[i + 1] - ends[i]).count());
    result.sweeps += result.each.back();
  }
  if (result.outcome.status != LargeStatus::kOk) {
    std::printf("not decomposed: %s\n", result.outcome.detail.c_str());
    std::exit(1);
  }
  result.checksum = checksum(results);
  return result;
}

std::vector<char> normal(const Problem& problem) {
  std::mt19937_64 bits(3);
  std::normal_distribution<double> number;
  const size_t count = static_cast<size_t>(problem.rows * problem.cols) * (is_complex(problem.dtype) ? 2 : 1);
  const size_t width = static_cast<size_t>(value_bytes(problem.dtype));
  std::vector<char> bytes(count * width);
  for (size_t i = 0; i < count; ++i) {
    const double x = number(bits);
    const auto narrow = static_cast<float>(x);
    std::memcpy(bytes.data() + i * width, width == 8 ? static_cast<const void*>(&x) : &narrow, width);
  }
  return bytes;
}

double median(std::vector<double> numbers) {
  std::sort(numbers.begin(), numbers.end());
  return numbers[numbers.size() / 2];
}

struct Ring {
  int members = 0;
  RingMembers kind = RingMembers::kInProcess;
  std::unique_ptr<LargeEngine> engine;
  const char* name() const {
    if (members == 0) return "one";
    return kind == RingMembers::kRanks ? "ranks" : "peers";
  }
};
using Rings = std::vector<Ring>;

// The start of ranks: what the first matrix takes more than the second.
void starts(const Rings& rings) {
  const Problem problem{256, 256, DType::kF64, Order::kColumnMajor};
  const auto plan = plan_large(problem, {.method = Method::kJacobi});
  const auto operand = normal(problem);
  Results results;
  for (const Ring& ring : rings) {
    const double first = run(*ring.engine, *plan.plan, operand, {}, results).seconds;
    const double second = run(*ring.engine, *plan.plan, operand, {}, results).seconds;
    if (ring.kind == RingMembers::kRanks) {
      std::printf("%d ranks: %.0f ms to start them, then %.0f ms for n = 256\n", ring.members, 1e3 * (first - second),
                  1e3 * second);
    }
  }
}

// Types, kinds and orders that fill no block, against the smallest ring.
bool same_bits(const Rings& rings) {
  bool good = true;
  for (const DType dtype : {DType::kF32, DType::kF64, DType::kC64, DType::kC128}) {
    for (const int64_t n : {1, 63, 500, 1031, 2100}) {
      for (const LargeKind kind : {LargeKind::kSvd, LargeKind::kHyperbolicSvd}) {
        const Problem problem{n + 5, n, dtype, Order::kColumnMajor};
        const auto plan = plan_large(problem, {.kind = kind, .method = Method::kJacobi});
        const auto operand = normal(problem);
        std::vector<int8_t> signature;
        if (kind == LargeKind::kHyperbolicSvd) {
          for (int64_t j = 0; j < n; ++j) signature.push_back(j % 3 == 1 ? -1 : 1);
        }
        Results results;
        uint64_t expected = 0;
        for (const Ring& ring : rings) {
          if (ring.members == 0) continue;
          const uint64_t sum = run(*ring.engine, *plan.plan, operand, signature, results).checksum;
          if (&ring == &rings[1]) expected = sum;
          if (sum == expected) continue;
          std::printf("other bits: %s, n = %lld, kind %d, %d %s\n", name(dtype), static_cast<long long>(n),
                      static_cast<int>(kind), ring.members, ring.name());
          good = false;
        }
      }
    }
  }
  std::printf("bits of small matrices: %s\n", good ? "the same on every ring" : "DIFFER");
  return good;
}

// Orders whose products are dealt: the same bits on every ring, and within the bounds of large matrices.
bool dealt_products(const Rings& rings) {
  constexpr int64_t kOrder = 4200;
  bool good = true;
  for (const DType dtype : {DType::kF32, DType::kF64, DType::kC64, DType::kC128}) {
    const Problem problem{kOrder + 30, kOrder, dtype, Order::kColumnMajor};
    const auto operand = normal(problem);
    const double bound = 10 * static_cast<double>(problem.rows) * (value_bytes(dtype) == 4 ? 0x1p-24 : 0x1p-53);
    for (const Method method : {Method::kJacobi, Method::kAuto}) {
      const auto plan = plan_large(problem, {.method = method, .certificate = true});
      Results results;
      uint64_t expected = 0;
      for (const Ring& ring : rings) {
        if (ring.members == 0) continue;
        const Run own = run(*ring.engine, *plan.plan, operand, {}, results);
        if (expected == 0) expected = own.checksum;
        const LargeOutcome& o = own.outcome;
        const bool sound = std::max({o.residual, o.left_orthogonality, o.right_orthogonality}) <= bound;
        if (sound && own.checksum == expected) continue;
        std::printf("dealt over %d %s: %s %s, residual %.1e, off orthogonality %.1e and %.1e, bound %.1e, bits %s\n",
                    ring.members, ring.name(), name(dtype), name(method), o.residual, o.left_orthogonality,
                    o.right_orthogonality, bound, own.checksum == expected ? "the same" : "DIFFER");
        good = false;
      }
    }
  }
  std::printf("dealt products: %s\n", good ? "accurate, and the same bits" : "WRONG");
  return good;
}

double seconds_of(const Run& run, const std::string& phase) {
  double seconds = 0;
  for (const LargePhaseTime& p : run.outcome.phases) seconds += p.name == phase ? p.seconds : 0;
  return seconds;
}

double compute_seconds(const Run& run) { return run.seconds - seconds_of(run, "load") - seconds_of(run, "store"); }

bool times(const Rings& rings, int64_t n, int turns) {
  const Problem problem{n, n, DType::kF64, Order::kColumnMajor};
  const auto plan = plan_large(problem, {.method = Method::kJacobi}), by_default = plan_large(problem, {});
  const auto operand = normal(problem);
  Results results;
  std::vector<std::vector<double>> compute(rings.size()), sweeps(rings.size()), second(rings.size()),
      automatic(rings.size());
  std::vector<Run> last(rings.size());
  for (int turn = turns == 1 ? 1 : 0; turn <= turns; ++turn) {
    for (size_t i = 0; i < rings.size(); ++i) {
      last[i] = run(*rings[i].engine, *plan.plan, operand, {}, results);
      const double by_auto = compute_seconds(run(*rings[i].engine, *by_default.plan, operand, {}, results));
      if (turn == 0) continue;
      compute[i].push_back(compute_seconds(last[i]));
      sweeps[i].push_back(last[i].sweeps);
      second[i].push_back(last[i].each.at(1));
      automatic[i].push_back(by_auto);
    }
  }
  bool good = true;
  for (size_t i = 0; i < rings.size(); ++i) {
    const int count = last[i].outcome.sweeps;
    const double own = median(sweeps[i]), one = median(second[i]);
    std::printf("%6lld %8d %8s %7d %11.1f %7.2f %14.1f %7.2f %12.1f %7.2f %9.1f  %016llx", static_cast<long long>(n),
                rings[i].members, rings[i].name(), count, 1e3 * own, median(sweeps[0]) / own, 1e3 * one,
                median(second[0]) / one, 1e3 * median(compute[i]), median(compute[0]) / median(compute[i]),
                1e3 * median(automatic[i]), static_cast<unsigned long long>(last[i].checksum));
    for (size_t peers = 0; peers < i; ++peers) {
      if (rings[peers].members == rings[i].members) std::printf("  %.3f of peers", median(sweeps[peers]) / own);
    }
    std::printf("%s\n", last[i].outcome.device_lost ? "  A MEMBER WAS LOST" : "");
    std::printf("                        each sweep");
    for (const double seconds : last[i].each) std::printf(" %.1f", 1e3 * seconds);
    std::printf(" ms\n");
    for (const LargePhaseTime& phase : last[i].outcome.phases) {
      std::printf("                        %-16s %9.1f ms\n", phase.name.c_str(), 1e3 * phase.seconds);
    }
    if (i > 0) good &= last[i].checksum == last[1].checksum;
  }
  std::fflush(stdout);
  return good;
}

// One GPU, and then every ring that this machine has the GPUs for.
Rings open_rings(int gpus, const Wanted& wanted) {
  Rings rings;
  CudaStatus status;
  const auto add = [&](int members, RingMembers kind, std::unique_ptr<LargeEngine> engine) {
    rings.push_back({members, kind, std::move(engine)});
    if (rings.back().engine != nullptr) return;
    std::printf("%d %s: %s\n", members, rings.back().name(), status.text.c_str());
    rings.pop_back();
  };
  add(0, RingMembers::kInProcess, open_cuda_large_engine(0, &status));
  for (const RingMembers kind : {RingMembers::kInProcess, RingMembers::kRanks}) {
    for (int members = 1; members <= gpus && members <= 8; members *= 2) {
      if (!has(wanted.by, Ring{members, kind, nullptr}.name()) || !has(wanted.members, std::to_string(members)))
        continue;
      std::vector<int> ordinals;
      for (int i = 0; i < members; ++i) ordinals.push_back(i);
      add(members, kind, open_cuda_ring_engine(ordinals, &status, kind));
    }
  }
  return rings;
}

int main_of(const Wanted& wanted) {
  std::string why;
  const int gpus = cuda_device_count(&why);
  std::printf("%d GPUs %s\n", gpus, why.c_str());
  const Rings rings = open_rings(gpus, wanted);
  if (rings.size() < 2) return 2;
  bool good = true;
  if (!wanted.only_figures) {
    starts(rings);
    good = same_bits(rings);
    good &= dealt_products(rings);
  }
  std::printf("%6s %8s %8s %7s %11s %7s %14s %7s %12s %7s %9s  bits of U, S, V\n", "n", "members", "by", "sweeps",
              "sweeps, ms", "faster", "a sweep, ms", "faster", "compute, ms", "faster", "AUTO, ms");
  for (const int64_t n : wanted.orders) good &= times(rings, n, wanted.turns);
  std::printf("%s\n", good ? "all bits agree" : "BITS DIFFER");
  return good ? 0 : 1;
}

}  // namespace
}  // namespace svdserve

int main(int argc, char** argv) {
  if (const auto status = svdserve::run_as_rank(argc, argv)) return *status;
  svdserve::Wanted wanted;
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    const std::string value = word.substr(std::min(word.size(), word.find('=') + 1));
    if (word.starts_with("turns=")) {
      wanted.turns = std::max(1, std::atoi(value.c_str()));
    } else if (word.starts_with("by=")) {
      wanted.by = value;
    } else if (word.starts_with("members=")) {
      wanted.members = value;
    } else if (word == "figures") {
      wanted.only_figures = true;
    } else {
      wanted.orders.push_back(std::max(2L, std::atol(word.c_str())));
    }
  }
  if (wanted.orders.empty()) wanted.orders = {2048, 8192, 16384};
  return svdserve::main_of(wanted);
}
