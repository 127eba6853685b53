// Members of a ring that are processes: the same bits as members in this process, whatever happens to a rank at any time.
// The ranks are this program.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <link.h>
#include <signal.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <complex>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <sstream>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "engine/algorithms/large/large_driver.h"
#include "engine/backends/cuda/members/nccl_environment.h"
#include "engine/backends/host/dense/blas.h"
#include "engine/backends/host/members/host_rank.h"
#include "engine/backends/ranks/rank_member.h"
#include "engine/backends/ranks/rank_pool.h"
#include "engine/backends/ranks/serve_rank.h"
#include "engine/backends/ring/ring_backend.h"
#include "engine/large_engine.h"
#include "gtest/gtest.h"
#include "tests/support/numerics/large_cases.h"
#include "tests/support/numerics/matrix_generators.h"
#include "tests/support/numerics/random.h"
#include "tests/support/numerics/ring_engine.h"

namespace svdserve::numerics {
namespace {

// --- ranks that fail ------------------------------------------------------------------------------------------------

// In the environment of ranks: "DEVICE CALL NUMBER ACTION". The rank of the device does it before that call of its kind.
constexpr char kFault[] = "SVDSERVE_TEST_RANK_FAULT";
constexpr const char* kCalls[] = {"reserve", "take", "give", "offer", "exchange", "p_step", "reset", "read"};

// The fault that is to happen in this process.
class Fault {
 public:
  static Fault& instance() {
    static Fault fault;
    return fault;
  }
  int device = -1;
  void before(const std::string& call) {
    if (device != device_ || call != call_ || number_-- != 0) return;
    if (action_ == "kill") raise(SIGKILL);
    if (action_ == "stop") raise(SIGSTOP);
    if (action_ == "exit") _exit(7);
    throw std::runtime_error("this rank is lost");
  }

 private:
  Fault() {
    const char* const text = std::getenv(kFault);
    std::istringstream(text != nullptr ? text : "") >> device_ >> call_ >> number_ >> action_;
  }
  int device_ = -2, number_ = 0;
  std::string call_, action_;
};

template <class E>
class FaultyRank : host::HostRank<E> {
 public:
  using Base = host::HostRank<E>;

  explicit FaultyRank(host::HostRankKind& kind) : Base(kind) {}
  using Base::tell;
  void reserve(const ring::RingShape& shape, int own, int members, void* common) {
    Fault::instance().before("reserve");
    Base::reserve(shape, own, members, common);
  }
  void take(const ring::UnionPlace& place, const ring::RingColumns<E>& columns) {
    Fault::instance().before("take");
    Base::take(place, columns);
  }
  void give(const ring::UnionPlace& place, const ring::RingColumns<E>& columns) {
    Fault::instance().before("give");
    Base::give(place, columns);
  }
  void offer(const ring::UnionPlace& sent) {
    Fault::instance().before("offer");
    Base::offer(sent);
  }
  template <class Waits>
  void exchange(int own, int partner, const ring::UnionPlace& sent, const ring::UnionPlace& got,
                const std::string& name, const Waits& waits) {
    waits();
    Fault::instance().before("exchange");
    Base::exchange(own, partner, sent, got, name, waits);
  }
  void p_step(const large::PStep<E>& step) {
    Fault::instance().before("p_step");
    Base::p_step(step);
  }
  void reset_counters() {
    Fault::instance().before("reset");
    Base::reset_counters();
  }
  large::PStepCounters read_counters() {
    Fault::instance().before("read");
    return Base::read_counters();
  }
};

struct FaultyKind : host::HostRankKind {
  template <class E>
  using Member = FaultyRank<E>;
  using HostRankKind::HostRankKind;
};

// In the environment of ranks: a file. While it is there, ranks that were killed are not gone, as if their drivers hung.
constexpr char kClings[] = "SVDSERVE_TEST_RANK_CLINGS";

// Another process traces this one. Nobody else can wait for this one then, until the other ends with the file.
void cling_while_there_is(const char* file) {
  auto [own, its] = ranks::socket_pair();
  const pid_t rank = getpid(), tracer = fork();
  char byte = 0;
  if (tracer == 0) {
    const int end = dup2(its.get(), 0);
    close_range(1, ~0u, 0);
    const bool traces = read(end, &byte, 1) == 1 && ptrace(PTRACE_SEIZE, rank, nullptr, nullptr) == 0;
    if (traces && write(end, &byte, 1) == 1) {
      while (access(file, F_OK) == 0) usleep(1000);
    }
    _exit(EXIT_SUCCESS);
  }
  its = ranks::Descriptor();
  prctl(PR_SET_PTRACER, tracer);
  if (write(own.get(), &byte, 1) != 1 || read(own.get(), &byte, 1) != 1) _exit(EXIT_FAILURE);
}

// Whether this process may trace others.
bool may_trace() {
  const pid_t child = fork();
  if (child == 0) {
    for (;;) pause();
  }
  const bool may = ptrace(PTRACE_SEIZE, child, nullptr, nullptr) == 0;
  kill(child, SIGKILL);
  while (waitpid(child, nullptr, 0) < 0 && errno == EINTR) continue;
  return may;
}

int serve_faulty_rank(int device) {
  ranks::RankSocket socket(ranks::begin_rank());
  if (const char* const file = std::getenv(kClings); file != nullptr) cling_while_there_is(file);
  Fault::instance().device = device;
  FaultyKind kind(1);
  ranks::serve_rank<FaultyKind, std::complex<double>>(socket, kind);
  return EXIT_SUCCESS;
}

// --- their leader ---------------------------------------------------------------------------------------------------

class RankEngine : public RingTestEngineBase<RankEngine, SvdDriver> {
 public:
  RankEngine(int members, int64_t width, std::chrono::milliseconds deadline = std::chrono::minutes(5))
      : RingTestEngineBase(members, width, deadline, true) {}

  template <class E>
  LargeOutcome outcome_of(const large::LargeWatch& watch, const LargePlan& plan, const LargeOperands& operands,
                          const LargeControl& control) const {
    const auto memories = std::make_shared<ranks::SharedMemories>(ranks::share_host_memory);
    ranks::RankHome<NarrowHome<E>> home(memories, &watch, width());
    const auto make = [&](const std::vector<int>& devices) {
      return ranks::rank_members<E>(pool_, devices, host::host_rank_common_bytes, memories);
    };
    return run_on<ranks::RankMember<E>>(home, make, watch, plan, operands, control);
  }

 private:
  // A machine that stands still for a while ends no rank.
  mutable ranks::RankPool pool_{{"faulty"}, {.idle = std::chrono::hours(1), .work = std::chrono::minutes(5)}};
};

// The state of a process and its parent, or zeros where there is none.
struct ProcessState {
  char state = 0;
  pid_t parent = 0;
};
ProcessState state_of(const std::string& process) {
  std::string text;
  std::getline(std::ifstream("/proc/" + process + "/stat"), text);
  ProcessState result;
  const size_t name_ends = text.rfind(')');
  if (name_ends != std::string::npos) std::istringstream(text.substr(name_ends + 1)) >> result.state >> result.parent;
  return result;
}
// This process's, those that have ended included.
std::vector<pid_t> children() {
  std::vector<pid_t> children;
  for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
    const std::string name = entry.path().filename();
    if (name.find_first_not_of("0123456789") != std::string::npos) continue;
    if (state_of(name).parent == getpid()) children.push_back(std::stoi(name));
  }
  return children;
}
size_t descriptors() {
  const auto all = std::filesystem::directory_iterator("/proc/self/fd");
  return static_cast<size_t>(std::distance(begin(all), end(all)));
}

constexpr int64_t kWidth = 2;

LargePlan plan_for(const Matrix& a, LargeOptions options = {}) {
  options.method = Method::kJacobi;
  return large_plan_of({a.rows, a.cols, a.dtype, Order::kRowMajor}, options);
}

// No test leaves a process or a descriptor behind.
class RanksTest : public ::testing::Test {
 protected:
  RanksTest() { unsetenv(kFault); }
  ~RanksTest() override {
    unsetenv(kFault);
    // A thread that waited for a late rank may take a moment to see that this one is gone.
    for (int looks = 0; looks < 10'000 && descriptors() != descriptors_; ++looks) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    EXPECT_EQ(descriptors(), descriptors_);
    EXPECT_EQ(children(), std::vector<pid_t>());
  }

 private:
  const size_t descriptors_ = descriptors();
};

TEST_F(RanksTest, SameBitsAsMembersInThisProcess) {
  for (const int members : {1, 2, 4}) {
    SCOPED_TRACE(testing::Message() << members << " ranks");
    const RankEngine ranks(members, kWidth);  // its ranks serve one matrix after the other
    for (const DType dtype : {DType::kF32, DType::kF64, DType::kC64, DType::kC128}) {
      for (const int64_t n : {1, 5, 33, 50}) {
        SCOPED_TRACE(testing::Message() << name(dtype) << ", n = " << n);
        const Matrix a = generate(Kind::kNormal, dtype, n + 2, n, 3);
        for (const Vectors vectors : {Vectors::kNone, Vectors::kThin}) {
          LargeOptions options;
          options.vectors = vectors;
          const LargeResult result = run_large(ranks, plan_for(a, options), a);
          expect_same_bits(run_large(RingSvdEngine(1, kWidth), plan_for(a, options), a), result);
          EXPECT_EQ(result.outcome.members, n > kWidth ? members : 1);
          EXPECT_EQ(ranks.report().lost, 0);
        }
      }
    }
    EXPECT_EQ(children().size(), static_cast<size_t>(members));
  }
}

TEST_F(RanksTest, TheNextMatrixHasTheSameProcesses) {
  const RankEngine engine(2, kWidth);
  std::vector<pid_t> first;
  for (const DType dtype : {DType::kF64, DType::kC128, DType::kF32}) {
    const Matrix a = generate(Kind::kNormal, dtype, 20, 20, 3);
    EXPECT_EQ(run_large(engine, plan_for(a), a).outcome.status, LargeStatus::kOk);
    if (first.empty()) first = children();
    EXPECT_EQ(children(), first);
  }
  EXPECT_EQ(first.size(), 2u);
}

TEST_F(RanksTest, EachRingHasRanksOfItsOwn) {
  ranks::RankPool pool({"faulty"});
  const auto use = [&](const std::vector<std::vector<int>>& rings) {
    for (const std::vector<int>& devices : rings)
      EXPECT_EQ(pool.take(devices)->members(), static_cast<int>(devices.size()));
    return children();
  };
  const std::vector<pid_t> first = use({{0}, {0, 1}, {1, 0}});
  EXPECT_EQ(first.size(), 5u);
  EXPECT_EQ(use({{0, 1}, {0}, {1, 0}, {0, 1}}), first);
  {
    const auto one = pool.take({0}), other = pool.take({0});
    EXPECT_EQ(children().size(), 6u);
  }
  for (int device = 10; device < 30; ++device) use({{device}});
  EXPECT_EQ(children().size(), ranks::RankPool::kMostIdle);
}

TEST_F(RanksTest, ThoseThatAreIdleEndAfterAWhile) {
  ranks::RankPool pool({"faulty"}, {.idle = std::chrono::milliseconds(200)});
  for (int turn = 0; turn < 2; ++turn) {
    (void)pool.take({0, 1});
    (void)pool.take({2});
    while (!children().empty()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    const auto at_work = pool.take({0});
    std::this_thread::sleep_for(std::chrono::milliseconds(400));
    EXPECT_EQ(children().size(), 1u);
    EXPECT_TRUE(at_work->process(0).socket().is_quiet());
  }
}

// Eight of them, in the time that one of them is waited for.
TEST_F(RanksTest, ThoseThatDoNotEndAreWaitedForTogether) {
  if (!may_trace()) GTEST_SKIP() << "processes may not be traced here";
  using Clock = std::chrono::steady_clock;
  constexpr std::chrono::seconds kEnd(3);
  const std::string file = testing::TempDir() + "svdserve_rank_clings_" + std::to_string(getpid());
  const std::vector<int> devices = {0, 1, 2, 3, 4, 5, 6, 7};
  const auto time_of = [&](const auto& end) {
    std::ofstream(file) << "";
    setenv(kClings, file.c_str(), 1);
    auto pool = std::make_unique<ranks::RankPool>(std::vector<std::string>{"faulty"}, ranks::RankTimes{.end = kEnd});
    auto lease = pool->take(devices);
    unsetenv(kClings);
    for (const int device : devices) {
      ranks::RankSocket& socket = lease->process(device).socket();
      socket.send(static_cast<int32_t>(ranks::Ask::kEnd));
      EXPECT_EQ(socket.receive().kind, static_cast<int32_t>(ranks::Answer::kDone));
    }
    const auto start = Clock::now();
    end(pool, lease);
    const auto time = Clock::now() - start;
    EXPECT_EQ(children().size(), devices.size());
    std::filesystem::remove(file);
    while (!children().empty()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    return time;
  };
  const auto with_their_members = time_of([&](auto& /*pool*/, auto& lease) {
    lease->give_up();
    for (const int device : devices) lease->end(device);
  });
  EXPECT_GE(with_their_members, kEnd);
  EXPECT_LT(with_their_members, 8 * kEnd);
  const auto with_their_pool = time_of([](auto& pool, auto& lease) {
    lease.reset();
    pool.reset();
  });
  EXPECT_GE(with_their_pool, kEnd);
  EXPECT_LT(with_their_pool, 8 * kEnd);
}

// The first that is waited for has begun the time of all.
TEST_F(RanksTest, MembersShareTheTimeToLeave) {
  ranks::RankPool pool({"faulty"}, {.work = std::chrono::milliseconds(500)});
  const auto lease = pool.take({0, 1, 2});
  EXPECT_GT(lease->time_to_leave(), std::chrono::milliseconds(0));
  std::this_thread::sleep_for(std::chrono::milliseconds(500));
  EXPECT_EQ(lease->time_to_leave(), std::chrono::milliseconds(0));
}

TEST_F(RanksTest, SameBitsOfHyperbolicFactors) {
  LargeOptions options;
  options.kind = LargeKind::kHyperbolicSvd;
  const Matrix a = generate(Kind::kNormal, DType::kF64, 45, 40, 3);
  std::vector<int8_t> signature(40, 1);
  for (size_t j = 0; j < signature.size(); j += 3) signature[j] = -1;
  const LargePlan plan = large_plan_of({a.rows, a.cols, a.dtype, Order::kRowMajor}, options);
  expect_same_bits(run_large(RingSvdEngine(1, kWidth), plan, a, signature),
                   run_large(RankEngine(4, kWidth), plan, a, signature));
}

TEST_F(RanksTest, OfTheFacade) {
  const Matrix a = generate(Kind::kNormal, DType::kC64, 300, 260, 4);
  const LargePlan plan = plan_for(a);
  const LargeResult first = run_large(*make_host_ring_engine(2, 1), plan, a);
  for (const int members : {1, 2, 4}) {
    const auto engine = make_host_ring_engine(2, members, RingMembers::kRanks);
    ASSERT_NE(engine, nullptr);
    for (int turn = 0; turn < 2; ++turn) expect_same_bits(first, run_large(*engine, plan, a));
  }
  ranks::start_refusal() = "a test does not allow it";
  EXPECT_EQ(make_host_ring_engine(2, 2, RingMembers::kRanks), nullptr);
  ranks::start_refusal() = nullptr;
  EXPECT_EQ(make_host_ring_engine(2, 3, RingMembers::kRanks), nullptr);
}

// A descriptor that programs started from this one inherit.
TEST_F(RanksTest, ARankHasNoDescriptorOfItsLeaders) {
  const int inherited = memfd_create("inherited", 0);
  ASSERT_GE(inherited, 0);
  {
    ranks::RankProcess process({"faulty", "0"});
    process.socket().send(static_cast<int32_t>(ranks::Ask::kEnd));
    EXPECT_EQ(process.socket().receive().kind, static_cast<int32_t>(ranks::Answer::kDone));
    for (const auto& entry : std::filesystem::directory_iterator("/proc/" + std::to_string(children().at(0)) + "/fd")) {
      EXPECT_EQ(std::filesystem::read_symlink(entry).string().find("inherited"), std::string::npos) << entry.path();
    }
  }
  close(inherited);
}

TEST_F(RanksTest, NoSignalForAGroupEndsARankThatStarts) {
  ranks::RankProcess process({"faulty", "0"});
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGQUIT}) EXPECT_EQ(kill(children().at(0), signal), 0);
  process.socket().send(static_cast<int32_t>(ranks::Ask::kEnd));
  EXPECT_EQ(process.socket().receive().kind, static_cast<int32_t>(ranks::Answer::kDone));
}

TEST_F(RanksTest, ARankOfAnotherBuildRefuses) {
  ranks::RankProcess process({"faulty", "0"});
  process.socket().send(static_cast<int32_t>(ranks::Ask::kReserve), ranks::Values().put(std::string("another")));
  ranks::Message answer = process.socket().receive();
  EXPECT_EQ(answer.kind, static_cast<int32_t>(ranks::Answer::kFails));
  EXPECT_EQ(answer.values.get<LargeStatus>(), LargeStatus::kFault);
  EXPECT_FALSE(answer.values.get<bool>());
  EXPECT_EQ(answer.values.get_text(),
            "this rank is of another build than its leader, whose files were replaced: start it again");
}

TEST_F(RanksTest, AMessageThatEndsEarlyIsRefused) {
  EXPECT_THROW(ranks::Values().get<int>(), std::length_error);
  EXPECT_THROW(ranks::Values().put(~uint64_t{0}).get_all<double>(), std::length_error);
  EXPECT_THROW(ranks::Values().put(uint64_t{2}).put(1.0).get_all<double>(), std::length_error);
  ranks::RankProcess process({"faulty", "0"});
  process.socket().send(static_cast<int32_t>(ranks::Ask::kReserve), ranks::Values().put(ranks::own_build()));
  ranks::Message answer = process.socket().receive();
  EXPECT_EQ(answer.kind, static_cast<int32_t>(ranks::Answer::kFails));
  EXPECT_EQ(answer.values.get<LargeStatus>(), LargeStatus::kFault);
}

TEST_F(RanksTest, NoSharedMemoryBeyondTheLimitOfFiles) {
  rlimit before;
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  const rlimit limit{1 << 20, before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &limit), 0);
  EXPECT_NO_THROW(ranks::share_host_memory(1 << 20));
  EXPECT_THROW(ranks::share_host_memory((1 << 20) + 1), std::bad_alloc);
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &before), 0);
}

// Else its number may be that of another process when it is killed.
TEST_F(RanksTest, ARankThatHasEndedIsWaitedForWhateverWasInherited) {
  signal(SIGCHLD, SIG_IGN);
  char name[] = "program";
  char* arguments[] = {name, nullptr};
  EXPECT_EQ(run_as_rank(1, arguments), std::nullopt);
  ranks::RankProcess process({"faulty", "0"});
  const pid_t rank = children().at(0);
  process.kill();
  siginfo_t ended;
  EXPECT_EQ(waitid(P_PID, static_cast<id_t>(rank), &ended, WEXITED | WNOWAIT), 0);
  EXPECT_EQ(children(), std::vector<pid_t>{rank});
}

// --- losses ---------------------------------------------------------------------------------------------------------

class RankFaultsTest : public RanksTest {
 protected:
  // With a fault of the rank of a device, before one of its calls. Returns whether the rank was lost.
  bool expect_same(int members, int device, const std::string& call, int number, const std::string& action,
                   std::chrono::milliseconds deadline = std::chrono::minutes(5)) {
    std::ostringstream fault;
    fault << device << ' ' << call << ' ' << number << ' ' << action;
    SCOPED_TRACE(fault.str() + " of " + std::to_string(members));
    setenv(kFault, fault.str().c_str(), 1);
    const RankEngine engine(members, kWidth, deadline);
    const LargeResult result = run_large(engine, plan_for(a_), a_);
    unsetenv(kFault);
    expect_same_bits(undisturbed_, result);
    const ring::RingReport& report = engine.report();
    EXPECT_LE(report.lost, 1);
    EXPECT_EQ(result.outcome.device_lost, report.lost > 0);
    EXPECT_EQ(report.members, report.lost == 0 ? members : members / 2);
    if (report.lost > 0) {
      // A rank that stands still is killed, and either is heard first.
      const std::string ended = "the process of a rank has ended";
      const std::string first = action == "stop"    ? "did not respond in time"
                                : action == "throw" ? "this rank is lost"
                                                    : ended;
      EXPECT_THAT(result.outcome.detail, testing::AnyOf(first, action == "stop" ? ended : first));
    }
    return report.lost > 0;
  }

  const Matrix a_ = generate(Kind::kNormal, DType::kC128, 37, 37, 5);
  const LargeResult undisturbed_ = run_large(RingSvdEngine(4, kWidth), plan_for(a_), a_);
};

TEST_F(RankFaultsTest, ARankIsKilledInEveryKindOfCall) {
  for (const int members : {2, 4}) {
    for (const char* const call : kCalls) EXPECT_TRUE(expect_same(members, members - 1, call, 0, "kill"));
  }
  for (const char* const call : kCalls) EXPECT_TRUE(expect_same(2, 0, call, 0, "kill"));
}

TEST_F(RankFaultsTest, ARankFailsInEveryKindOfCall) {
  for (const char* const call : kCalls) {
    EXPECT_TRUE(expect_same(2, 1, call, 0, "throw"));
    EXPECT_TRUE(expect_same(4, 2, call, 0, "exit"));
  }
}

TEST_F(RankFaultsTest, AtRandomCalls) {
  Random random(7);
  int lost = 0;
  for (int i = 0; i < 20; ++i) {
    const int members = random.integer(0, 1) == 0 ? 2 : 4;
    const char* const call = kCalls[random.integer(3, 5)];  // those of which there are many
    lost += expect_same(members, static_cast<int>(random.integer(0, members - 1)), call,
                        static_cast<int>(random.integer(0, 30)), "kill");
  }
  EXPECT_GE(lost, 15);
}

// Whenever it is, the results are the same. In some runs it comes before the start, and in some after the end.
TEST_F(RankFaultsTest, AtRandomTimes) {
  Random random(8);
  for (int i = 0; i < 15; ++i) {
    const RankEngine engine(4, kWidth);
    std::thread killer([&, microseconds = random.integer(0, 150'000), which = random.integer(0, 3)] {
      std::this_thread::sleep_for(std::chrono::microseconds(microseconds));
      const std::vector<pid_t> ranks = children();
      if (!ranks.empty()) kill(ranks[static_cast<size_t>(which) % ranks.size()], SIGKILL);
    });
    const LargeResult result = run_large(engine, plan_for(a_), a_);
    killer.join();
    expect_same_bits(undisturbed_, result);
  }
}

// The deadline is long, for a rank that nothing is wrong with must not be late on a busy machine.
TEST_F(RankFaultsTest, ARankThatStandsStillIsKilled) {
  constexpr std::chrono::seconds kDeadline(8);
  EXPECT_TRUE(expect_same(2, 1, "p_step", 40, "stop", kDeadline));
  EXPECT_TRUE(expect_same(2, 0, "offer", 3, "stop", kDeadline));
}

TEST_F(RankFaultsTest, OneRankAfterTheOther) {
  const RankEngine engine(4, kWidth);
  std::atomic<bool> done{false};
  std::thread killer([&] {
    while (!done) {
      const std::vector<pid_t> ranks = children();
      if (!ranks.empty()) kill(ranks.back(), SIGKILL);
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
  });
  const LargeResult result = run_large(engine, plan_for(a_), a_);
  done = true;
  killer.join();
  if (result.outcome.status == LargeStatus::kOk) {
    expect_same_bits(undisturbed_, result);
    return;
  }
  EXPECT_EQ(result.outcome.status, LargeStatus::kFault);
  EXPECT_TRUE(result.outcome.device_lost);
  EXPECT_EQ(result.outcome.detail, "no member is left: the process of a rank has ended");
}

TEST_F(RankFaultsTest, ARankThatEndsWhileIdleIsNoLoss) {
  const RankEngine engine(2, kWidth);
  expect_same_bits(undisturbed_, run_large(engine, plan_for(a_), a_));
  const std::vector<pid_t> before = children();
  ASSERT_EQ(before.size(), 2u);
  kill(before[1], SIGKILL);
  siginfo_t ended;
  ASSERT_EQ(waitid(P_PID, static_cast<id_t>(before[1]), &ended, WEXITED | WNOWAIT), 0);
  expect_same_bits(undisturbed_, run_large(engine, plan_for(a_), a_));
  EXPECT_EQ(engine.report().lost, 0);
  const std::vector<pid_t> after = children();
  EXPECT_EQ(after.size(), 2u);
  EXPECT_TRUE(std::none_of(after.begin(), after.end(), [&](pid_t rank) { return rank == before[1]; }));
}

// The environment is too long for a new process, from the start or from the first loss on.
TEST_F(RankFaultsTest, WhereNoRankCanBeStartedItsLeaderComputes) {
  constexpr char kTooLong[] = "SVDSERVE_TEST_TOO_LONG";
  for (const int first_sweep : {0, 1, 2, 4}) {
    SCOPED_TRACE(testing::Message() << "from sweep " << first_sweep << " on");
    const auto forbid = [&] {
      setenv(kTooLong, std::string(static_cast<size_t>(33 * sysconf(_SC_PAGESIZE)), 'x').c_str(), 1);
    };
    if (first_sweep == 0) forbid();
    LargeControl control;
    bool killed = false;
    control.progress = [&](const LargeProgress& progress) {
      if (killed || first_sweep == 0 || progress.sweep < first_sweep) return;
      killed = true;
      forbid();
      ASSERT_FALSE(children().empty());
      kill(children().back(), SIGKILL);
    };
    const RankEngine engine(4, kWidth);
    const LargeResult result = run_large(engine, plan_for(a_), a_, {}, control);
    unsetenv(kTooLong);
    expect_same_bits(undisturbed_, result);
    EXPECT_EQ(killed, first_sweep > 0);
    EXPECT_EQ(result.outcome.members, 1);
    EXPECT_EQ(result.outcome.device_lost, killed);
    EXPECT_EQ(engine.report().lost, killed ? 1 : 0);
    EXPECT_EQ(result.outcome.detail, "no process for a rank: /proc/self/exe: Argument list too long");
    EXPECT_EQ(children(), std::vector<pid_t>());
  }
}

// A cancel ends the ranks in the middle of their work, even where one does nothing.
TEST_F(RankFaultsTest, ACancelIsObeyed) {
  for (const char* const fault : {"", "1 p_step 60 stop"}) {
    setenv(kFault, fault, 1);
    std::atomic<bool> cancel{false};
    LargeControl control;
    control.cancel = &cancel;
    control.progress = [&](const LargeProgress& progress) {
      if (*fault == '\0' && progress.sweep >= 2) cancel = true;
    };
    const RankEngine engine(2, kWidth);
    std::thread canceller;
    if (*fault != '\0') {
      canceller = std::thread([&] {
        const auto stands = [] {
          for (const pid_t rank : children()) {
            if (state_of(std::to_string(rank)).state == 'T') return true;
          }
          return false;
        };
        while (!stands() && !cancel) std::this_thread::sleep_for(std::chrono::milliseconds(1));
        cancel = true;
      });
    }
    const LargeResult result = run_large(engine, plan_for(a_), a_, {}, control);
    if (canceller.joinable()) canceller.join();
    EXPECT_EQ(result.outcome.status, LargeStatus::kCancelled);
  }
}

// --- processes ------------------------------------------------------------------------------------------------------

// In a process of its own: two ranks after a matrix, by their numbers on standard output, until it is killed.
int lead() {
  const Matrix a = generate(Kind::kNormal, DType::kF64, 20, 20, 5);
  const RankEngine engine(2, kWidth);
  if (run_large(engine, plan_for(a), a).outcome.status != LargeStatus::kOk) return 1;
  for (const pid_t rank : children()) std::printf("%d\n", rank);
  std::fflush(stdout);
  for (;;) pause();
}

TEST_F(RanksTest, TheyEndWithTheirLeaderAndByNoSignalForAGroup) {
  int ends[2];
  ASSERT_EQ(pipe2(ends, O_CLOEXEC), 0);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
  char name[] = "leader", mode[] = "--lead";
  char* const arguments[] = {name, mode, nullptr};
  pid_t leader = 0;
  ASSERT_EQ(posix_spawn(&leader, "/proc/self/exe", &actions, nullptr, arguments, environ), 0);
  posix_spawn_file_actions_destroy(&actions);
  close(ends[1]);
  std::FILE* const told = fdopen(ends[0], "r");
  int ranks[2] = {};
  ASSERT_EQ(std::fscanf(told, "%d %d", &ranks[0], &ranks[1]), 2);
  for (const int rank : ranks) {
    for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGQUIT}) EXPECT_EQ(kill(rank, signal), 0);
    EXPECT_EQ(state_of(std::to_string(rank)).parent, leader);
    EXPECT_NE(getpgid(rank), getpgid(leader));
  }
  kill(leader, SIGKILL);
  waitpid(leader, nullptr, 0);
  for (const int rank : ranks) {
    const auto is_there = [&] {
      const char state = state_of(std::to_string(rank)).state;
      return state != 0 && state != 'Z';
    };
    while (is_there()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  std::fclose(told);
}

// Ranks that are GPUs call it first.
TEST(RankEnvironment, NcclListensOnThisHostAloneUnlessTheOperatorSaysOtherwise) {
  unsetenv("NCCL_SOCKET_IFNAME");
  cuda::set_nccl_environment();
  EXPECT_STREQ(std::getenv("NCCL_SOCKET_IFNAME"), "=lo");
  setenv("NCCL_SOCKET_IFNAME", "eth1", 1);
  cuda::set_nccl_environment();
  EXPECT_STREQ(std::getenv("NCCL_SOCKET_IFNAME"), "eth1");
  unsetenv("NCCL_SOCKET_IFNAME");
  unsetenv("NCCL_NVLS_ENABLE");
}

// The line that a program prints.
std::string line_of(const std::string& command) {
  std::FILE* const pipe = popen(command.c_str(), "r");
  std::string line;
  for (int c = std::fgetc(pipe); c != EOF && c != '\n'; c = std::fgetc(pipe)) line += static_cast<char>(c);
  EXPECT_EQ(pclose(pipe), 0) << command;
  return line;
}

TEST_F(RanksTest, AProgramThatTheLoaderWasToldToStartHasNone) {
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
  GTEST_SKIP() << "a sanitizer may start its program again by /proc/self/exe";
#endif
  std::string loader;  // the program's own
  dl_iterate_phdr(
      [](dl_phdr_info* program, size_t, void* text) {
        for (int i = 0; i < program->dlpi_phnum; ++i) {
          const ElfW(Phdr)& part = program->dlpi_phdr[i];
          if (part.p_type != PT_INTERP) continue;
          *static_cast<std::string*>(text) = reinterpret_cast<const char*>(program->dlpi_addr + part.p_vaddr);
        }
        return 1;
      },
      &loader);
  const std::string program = std::filesystem::read_symlink("/proc/self/exe").string() + " --may-start";
  EXPECT_EQ(line_of(program), "it may");
  EXPECT_EQ(
      line_of(loader + " " + program),
      "ranks are this program again, but /proc/self/exe is another one: start the program by its own name, and not "
      "by the dynamic loader");
}

// In a process of its own: whether it may start ranks.
int tell_whether_it_may_start() {
  const char* const refusal = ranks::start_refusal();
  std::puts(refusal == nullptr ? "it may" : refusal);
  return (make_host_ring_engine(1, 1, RingMembers::kRanks) == nullptr) == (refusal != nullptr) ? 0 : 1;
}

TEST_F(RanksTest, NobodyIsARankByHand) {
  char name[] = "program", argument[] = "--svdserve-rank";
  char* arguments[] = {name, argument, nullptr};
  testing::internal::CaptureStderr();
  EXPECT_EQ(run_as_rank(2, arguments), 2);
  EXPECT_EQ(testing::internal::GetCapturedStderr(),
            "program: --svdserve-rank is for the program's own use: it starts a rank with it\n");
  EXPECT_EQ(run_as_rank(1, arguments), std::nullopt);
}

}  // namespace
}  // namespace svdserve::numerics

int main(int argc, char** argv) {
  const auto is = [&](int i, const char* text) { return argc > i && std::string(argv[i]) == text; };
  if (is(1, "--lead")) return svdserve::numerics::lead();
  if (is(1, svdserve::ranks::kRankArgument) && is(2, "faulty")) {
    return svdserve::numerics::serve_faulty_rank(std::atoi(argv[3]));
  }
  if (const auto status = svdserve::run_as_rank(argc, argv)) return *status;
  if (is(1, "--may-start")) return svdserve::numerics::tell_whether_it_may_start();
  testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
