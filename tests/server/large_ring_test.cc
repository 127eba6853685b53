// Whole matrices on gangs: engines of rings of host members stand for GPUs, and fakes for what fails.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <variant>
#include <vector>

#include "server/device/device_monitor.h"
#include "server/device/large/make_large_devices.h"
#include "server/large/large_job.h"
#include "server/large/large_pipeline.h"
#include "tests/server/counting_recorder.h"
#include "tests/server/fake_clock.h"
#include "tests/server/fake_large_engine.h"
#include "tests/server/large_call.h"

namespace svdserve::server {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::UnorderedElementsAre;

std::vector<DeviceInfo> gpus(int count) {
  std::vector<DeviceInfo> infos(static_cast<size_t>(count));
  for (int i = 0; i < count; ++i) {
    DeviceInfo& info = infos[static_cast<size_t>(i)];
    info.name = "cuda:" + std::to_string(i);
    info.kind = DeviceKind::kCuda;
    info.ordinal = i;
    info.memory_bytes = int64_t{1} << 40;
  }
  return infos;
}

std::unique_ptr<LargeEngine> host_engine(int, CudaStatus*) { return make_host_large_engine(1); }
std::unique_ptr<LargeEngine> host_ring(const std::vector<int>& ordinals, CudaStatus*) {
  return make_host_ring_engine(1, static_cast<int>(ordinals.size()));
}

bool all_reach(int, int) { return true; }

std::vector<std::string> names_of(const MadeLargeDevices& made) {
  std::vector<std::string> names;
  for (const LargeDevice& device : made.devices) names.push_back(device.name);
  return names;
}

LargePlan plan_of(int64_t order, LargeOptions options = {}) {
  return *plan_large({order, order, DType::kF64, Order::kColumnMajor}, options).plan;
}

TEST(MakeGangs, AreOfNeighboursAndOfEverySmallerNumber) {
  const auto made = make_large_devices(gpus(5), 1, LargeGpus::kFour, host_engine, host_ring, all_reach);
  EXPECT_THAT(names_of(made), ElementsAre("cuda:0", "cuda:1", "cuda:2", "cuda:3", "cuda:4",
                                          "cuda:0,cuda:1,cuda:2,cuda:3", "cuda:0,cuda:1", "cuda:2,cuda:3", "host:0"));
  EXPECT_THAT(made.devices[7].members, ElementsAre(2, 3));
  EXPECT_THAT(made.refusals, IsEmpty());
  EXPECT_THAT(names_of(make_large_devices(gpus(2), 1, LargeGpus::kOne, host_engine, host_ring, all_reach)),
              ElementsAre("cuda:0", "cuda:1", "host:0"));
  const auto fewer = make_large_devices(gpus(3), 1, LargeGpus::kEight, host_engine, host_ring, all_reach);
  EXPECT_THAT(names_of(fewer), ElementsAre("cuda:0", "cuda:1", "cuda:2", "cuda:0,cuda:1", "host:0"));
  EXPECT_THAT(fewer.refusals, ElementsAre("--large-gpus=8, but 3 GPUs compute large matrices"));
}

// Links between 0, 2, 4 and 6, and between 1 and 5.
TEST(MakeGangs, AreOfThoseThatReachEachOtherAsFarAsThereAreAny) {
  const auto reach = [](int a, int b) {
    return (a % 2 == 0 && b % 2 == 0) || (std::min(a, b) == 1 && std::max(a, b) == 5);
  };
  const auto made = make_large_devices(gpus(8), 1, LargeGpus::kFour, host_engine, host_ring, reach);
  std::vector<std::string> names = names_of(made);
  names.erase(names.begin(), names.begin() + 8);
  EXPECT_THAT(names, ElementsAre("cuda:0,cuda:2,cuda:4,cuda:6", "cuda:1,cuda:3,cuda:5,cuda:7", "cuda:0,cuda:2",
                                 "cuda:1,cuda:5", "cuda:4,cuda:6", "cuda:3,cuda:7", "host:0"));
  const auto warning = [](const std::string& gang) {
    return gang + " do not reach each other's memory: what they send to each other goes through the host";
  };
  EXPECT_THAT(made.warnings, ElementsAre(warning("cuda:1,cuda:3,cuda:5,cuda:7"), warning("cuda:3,cuda:7")));
  EXPECT_THAT(made.refusals, IsEmpty());
}

TEST(MakeGangs, WhoseMembersCannotBeProcessesComputeAllTheSame) {
  const auto no_ranks = [](const std::vector<int>& ordinals, CudaStatus* status) {
    *status = {801, "ranks of GPUs need NCCL 2", false};
    return host_ring(ordinals, status);
  };
  const auto made = make_large_devices(gpus(2), 1, LargeGpus::kTwo, host_engine, no_ranks, all_reach);
  EXPECT_THAT(names_of(made), ElementsAre("cuda:0", "cuda:1", "cuda:0,cuda:1", "host:0"));
  EXPECT_THAT(made.warnings,
              ElementsAre("cuda:0,cuda:1 survive no fault of a GPU together: ranks of GPUs need NCCL 2"));
}

TEST(MakeGangs, WhatCannotBeAGangIsToldAndLeftOut) {
  const auto refusing = [](const std::vector<int>& ordinals, CudaStatus* status) -> std::unique_ptr<LargeEngine> {
    if (ordinals.front() == 0) return host_ring(ordinals, status);
    *status = {1, "they do not meet", false};
    return nullptr;
  };
  const auto made = make_large_devices(gpus(4), 1, LargeGpus::kTwo, host_engine, refusing, all_reach);
  EXPECT_THAT(names_of(made), ElementsAre("cuda:0", "cuda:1", "cuda:2", "cuda:3", "cuda:0,cuda:1", "host:0"));
  EXPECT_THAT(made.refusals, ElementsAre("cuda:2,cuda:3 compute no large matrix together: they do not meet"));
}

TEST(MakeGangs, AutoTakesLargeMatricesAlone) {
  auto made = make_large_devices(gpus(8), 1, LargeGpus::kAuto, host_engine, host_ring, all_reach);
  ASSERT_EQ(made.devices[8].name, "cuda:0,cuda:1,cuda:2,cuda:3") << "no gang of eight";
  const LargeRunner runner(std::move(made.devices), [](int64_t, Reservation*) { return true; });
  EXPECT_TRUE(runner.working_bytes(plan_of(8192), 8).has_value());
  EXPECT_FALSE(runner.working_bytes(plan_of(8191), 8).has_value());
  EXPECT_TRUE(runner.working_bytes(plan_of(8191), 0).has_value());
}

TEST(MakeGangs, TakeOnlyWhatARingSweeps) {
  auto made = make_large_devices(gpus(2), 1, LargeGpus::kTwo, host_engine, host_ring, all_reach);
  const LargeRunner runner(std::move(made.devices), [](int64_t, Reservation*) { return true; });
  const auto taken = [&runner](LargeOptions options) {
    return runner.working_bytes(plan_of(1024, options), 2).has_value();
  };
  EXPECT_TRUE(taken({}));
  EXPECT_TRUE(taken({.method = Method::kJacobi, .vectors = Vectors::kNone}));
  EXPECT_TRUE(taken({.kind = LargeKind::kHyperbolicSvd}));
  EXPECT_TRUE(taken({.kind = LargeKind::kHermitian, .method = Method::kFactored}));
  EXPECT_FALSE(taken({.kind = LargeKind::kHermitian})) << "tridiagonal form has no sweeps";
  EXPECT_FALSE(taken({.kind = LargeKind::kGeneral}));
  EXPECT_FALSE(taken({.strategy = PivotStrategy::kModifiedModulus})) << "its sweep cannot be cut";
  EXPECT_FALSE(taken({.top_k = 3})) << "a subspace may have them";
  EXPECT_TRUE(taken({.method = Method::kJacobi, .top_k = 3}));
}

// --- whole matrices -----------------------------------------------------------------------------

class Monitor final : public DeviceMonitor {
 public:
  explicit Monitor(Clock* clock) : watchdog_(absl::Seconds(10), clock) {}
  bool is_healthy(std::string_view device) const override {
    MutexLock lock(&mu_);
    return device.starts_with("cuda:") && device.find(',') == device.npos && !lost_.contains(std::string(device));
  }
  void lost(std::string_view device) override {
    MutexLock lock(&mu_);
    lost_.emplace(device);
  }
  std::unique_ptr<Watchdog::Watch> watch(std::string_view device, absl::Duration bound,
                                         Watchdog::OnHang on_hang) override {
    auto told = [this, name = std::string(device), on_hang = std::move(on_hang)](absl::Duration silent) mutable {
      lost(name);
      on_hang(silent);
    };
    return std::make_unique<Watchdog::Watch>(&watchdog_, bound, std::move(told));
  }
  std::set<std::string> all_lost() const {
    MutexLock lock(&mu_);
    return lost_;
  }

 private:
  mutable Mutex mu_;
  std::set<std::string> lost_;
  Watchdog watchdog_;
};

class LargeRingTest : public ::testing::Test {
 protected:
  static constexpr int64_t kRows = 90, kCols = 70;

  ~LargeRingTest() override {
    for (const auto& [name, controls] : fakes) controls->open();
    for (const auto& call : calls) call->end();
    calls.clear();
    pipeline.reset();
  }
  void make(MadeLargeDevices made) {
    ASSERT_THAT(made.refusals, IsEmpty());
    calls.clear();
    LargeLimits limits;
    limits.chunk_bytes = 1 << 16;
    pipeline = std::make_unique<LargePipeline>(limits, std::move(made.devices), &clock, &recorder, &monitor);
  }
  // Four GPUs and their gangs, all of them fakes.
  void make_fakes() {
    auto made = make_large_devices(gpus(4), 1, LargeGpus::kFour, host_engine, host_ring, all_reach);
    for (LargeDevice& device : made.devices) {
      const auto controls = fakes[device.name] = std::make_shared<LargeControls>();
      device.engine = std::make_unique<FakeLargeEngine>(controls, LargeWorkspace{});
    }
    make(std::move(made));
  }
  LargeCall& committed(const std::function<void(LargeOpen*)>& change = [](LargeOpen*) {}) {
    calls.push_back(std::make_shared<LargeCall>());
    LargeCall& call = *calls.back();
    call.begin(pipeline.get());
    LargeOpen open;
    open.problem = {kRows, kCols, DType::kF64, Order::kColumnMajor};
    change(&open);
    call.act(call.job->on_open(open));
    accepted = std::get<LargeAccepted>(*call.write());
    std::mt19937_64 random(1);
    std::vector<double> matrix(static_cast<size_t>(kRows * kCols));
    for (double& x : matrix) x = std::normal_distribution<double>()(random);
    const size_t bytes = matrix.size() * sizeof(double);
    const std::shared_ptr<char> place = call.begin_chunk(0, bytes);
    std::memcpy(place.get(), matrix.data(), bytes);
    call.end_chunk(0, bytes, place);
    call.commit();
    return call;
  }
  // Takes all of it: the results' bytes, one after the other, and the summary. Then waits until so many devices and gangs
  // compute: the last message may come before the device is idle.
  std::pair<std::string, LargeSummary> results_of(LargeCall& call, int64_t computing = 0) {
    std::pair<std::string, LargeSummary> results;
    while (std::optional<LargeReply> reply = call.write()) {
      if (const auto* chunk = std::get_if<LargeResultChunk>(&*reply)) results.first.append(chunk->data, chunk->bytes);
      if (const auto* last = std::get_if<LargeSummary>(&*reply)) results.second = *last;
    }
    EXPECT_TRUE(call.await_end().ok()) << call.await_end().message;
    while (pipeline->stats().load.running != computing) std::this_thread::yield();
    return results;
  }
  static LargeOutcome outcome_of(LargeStatus status, bool lost, int members = 1) {
    LargeOutcome outcome;
    outcome.status = status;
    outcome.detail = "planted";
    outcome.device_lost = lost;
    outcome.members = members;
    return outcome;
  }

  FakeClock clock;
  CountingRecorder recorder;
  Monitor monitor{&clock};
  std::map<std::string, std::shared_ptr<LargeControls>> fakes;
  std::unique_ptr<LargePipeline> pipeline;
  std::vector<std::shared_ptr<LargeCall>> calls;
  LargeAccepted accepted;  // of the last call
};

TEST_F(LargeRingTest, TwoAndFourMembersHaveTheSameBits) {
  std::string bits[2];
  for (const LargeGpus wanted : {LargeGpus::kTwo, LargeGpus::kFour}) {
    make(make_large_devices(gpus(4), 1, wanted, host_engine, host_ring, all_reach));
    const auto [bytes, summary] = results_of(committed());
    EXPECT_EQ(accepted.device, "cuda:0,cuda:1,cuda:2,cuda:3");
    EXPECT_EQ(summary.device, wanted == LargeGpus::kTwo ? "cuda:0,cuda:1" : "cuda:0,cuda:1,cuda:2,cuda:3");
    EXPECT_EQ(summary.outcome.members, static_cast<int>(wanted));
    EXPECT_EQ(summary.outcome.status, LargeStatus::kOk);
    bits[wanted == LargeGpus::kFour] = bytes;
  }
  EXPECT_EQ(bits[0], bits[1]);
  ASSERT_EQ(recorder.factors().gangs.size(), 2u);
  EXPECT_EQ(recorder.factors().gangs[0].first, 2);
  EXPECT_EQ(recorder.factors().gangs[1].first, 4);
}

TEST_F(LargeRingTest, WhatNoRingSweepsStaysOnOneDeviceAndSaysSo) {
  make(make_large_devices(gpus(2), 1, LargeGpus::kTwo, host_engine, host_ring, all_reach));
  const auto [bytes, summary] =
      results_of(committed([](LargeOpen* open) { open->options.strategy = PivotStrategy::kRoundRobin; }));
  EXPECT_EQ(summary.device, "cuda:0");
  EXPECT_EQ(summary.outcome.members, 1);
  EXPECT_THAT(recorder.factors().gangs, IsEmpty());
}

TEST_F(LargeRingTest, EachMemberCountsWhatItsGangComputes) {
  make_fakes();
  const std::string all = "cuda:0,cuda:1,cuda:2,cuda:3";
  fakes[all]->close();
  committed();
  fakes[all]->await_begun(1);
  committed();
  const LargeStats stats = pipeline->stats();
  EXPECT_EQ(stats.load.running, 1);
  EXPECT_EQ(stats.gangs.running, 1);
  EXPECT_EQ(stats.gangs.waiting, 1);
  EXPECT_EQ(stats.of_device.size(), 5u) << "gangs are none of the server's devices";
  for (const char* const gpu : {"cuda:0", "cuda:3"}) {
    EXPECT_EQ(stats.of_device.at(gpu).running, 1);
    EXPECT_EQ(stats.of_device.at(gpu).waiting, 1);
  }
  clock.advance(absl::Seconds(7));
  EXPECT_EQ(recorder.factors().gangs.size(), 1u);
  fakes[all]->open();
  results_of(*calls[0]);
  results_of(*calls[1]);
  EXPECT_THAT(recorder.factors().gangs,
              ElementsAre(std::pair(4, absl::ZeroDuration()), std::pair(4, absl::Seconds(7))));
}

TEST_F(LargeRingTest, AGangThatIsLostCostsOneTry) {
  make_fakes();
  fakes["cuda:0,cuda:1,cuda:2,cuda:3"]->answer(outcome_of(LargeStatus::kFault, true));
  EXPECT_EQ(results_of(committed()).second.device, "cuda:0,cuda:1");
  EXPECT_EQ(recorder.faults().size(), 4u) << "one for each member";
  EXPECT_THAT(monitor.all_lost(), IsEmpty()) << "nobody knows which of them it was";
  EXPECT_EQ(results_of(committed()).second.device, "cuda:0,cuda:1");
  EXPECT_EQ(fakes["cuda:0,cuda:1,cuda:2,cuda:3"]->begun(), 1) << "it takes nothing more";
}

TEST_F(LargeRingTest, TheMemberThatIsLostIsFound) {
  make_fakes();
  for (auto& [name, controls] : fakes) {
    if (name.find("cuda:1") != name.npos) controls->answer(outcome_of(LargeStatus::kFault, true));
  }
  EXPECT_EQ(results_of(committed()).second.device, "cuda:2,cuda:3") << "after all four, and cuda:0,cuda:1";
  const auto round_robin = [](LargeOpen* open) { open->options.strategy = PivotStrategy::kRoundRobin; };
  fakes["cuda:0"]->close();
  committed(round_robin);
  fakes["cuda:0"]->await_begun(1);
  EXPECT_EQ(results_of(committed(round_robin), 1).second.device, "cuda:2") << "after cuda:1";
  EXPECT_THAT(monitor.all_lost(), ElementsAre("cuda:1"));
  EXPECT_EQ(results_of(committed(), 1).second.device, "cuda:2,cuda:3");
}

// The ring has gone on without a member. Its results are good, but it is no gang any more.
TEST_F(LargeRingTest, AGangThatHasLostAMemberTakesNothingMore) {
  make_fakes();
  fakes["cuda:0,cuda:1,cuda:2,cuda:3"]->answer(outcome_of(LargeStatus::kOk, true, 2));
  const LargeSummary summary = results_of(committed()).second;
  EXPECT_EQ(summary.device, "cuda:0,cuda:1,cuda:2,cuda:3");
  EXPECT_EQ(summary.outcome.members, 2);
  EXPECT_EQ(results_of(committed()).second.device, "cuda:0,cuda:1");
}

TEST_F(LargeRingTest, WhatAGangFailsGoesToSingleDevices) {
  make_fakes();
  fakes["cuda:0,cuda:1,cuda:2,cuda:3"]->answer(outcome_of(LargeStatus::kOutOfMemory, false));
  EXPECT_EQ(results_of(committed()).second.device, "cuda:0");
  EXPECT_EQ(fakes["cuda:0,cuda:1"]->begun(), 0);
  EXPECT_EQ(results_of(committed()).second.device, "cuda:0") << "the gang is healthy, and is tried again";
  EXPECT_EQ(fakes["cuda:0,cuda:1,cuda:2,cuda:3"]->begun(), 2);
}

TEST_F(LargeRingTest, ABatchThatFindsAMemberLostLeavesASmallerGang) {
  make_fakes();
  monitor.lost("cuda:1");
  committed();  // sets the clock's alarm
  results_of(*calls[0]);
  committed();
  clock.advance(LargePipeline::kPeriod);
  results_of(*calls[1]);
  EXPECT_EQ(results_of(committed()).second.device, "cuda:2,cuda:3");
}

TEST_F(LargeRingTest, AGangThatHangsLosesAllItsMembers) {
  make_fakes();
  const auto& gang = fakes["cuda:0,cuda:1,cuda:2,cuda:3"];
  gang->close();
  LargeCall& call = committed();
  gang->await_begun(1);
  for (int i = 0; i < 100; ++i) clock.advance(absl::Seconds(1));
  while (call.write()) {
  }
  EXPECT_EQ(call.await_end().reason, Reason::kDeviceFault);
  EXPECT_THAT(monitor.all_lost(), UnorderedElementsAre("cuda:0", "cuda:1", "cuda:2", "cuda:3"));
  EXPECT_EQ(results_of(committed()).second.device, "host:0");
}

TEST_F(LargeRingTest, DrainingFinishesAGangThatWaits) {
  make_fakes();
  for (int i = 0; i < 4; ++i) fakes["cuda:" + std::to_string(i)]->close();
  for (int i = 0; i < 4; ++i) committed([](LargeOpen* open) { open->options.strategy = PivotStrategy::kRoundRobin; });
  fakes["cuda:3"]->await_begun(1);
  LargeCall& gang = committed();
  pipeline->start_drain();
  EXPECT_EQ(pipeline->stats().gangs.waiting, 1);
  for (int i = 0; i < 4; ++i) fakes["cuda:" + std::to_string(i)]->open();
  EXPECT_EQ(results_of(gang).second.device, "cuda:0,cuda:1,cuda:2,cuda:3");
}

TEST_F(LargeRingTest, ACallThatIsCancelledWhileItsGangWaitsLetsGoOfTheGpus) {
  make_fakes();
  const auto round_robin = [](LargeOpen* open) { open->options.strategy = PivotStrategy::kRoundRobin; };
  fakes["cuda:0"]->close();
  committed(round_robin);
  fakes["cuda:0"]->await_begun(1);
  LargeCall& gang = committed();
  EXPECT_EQ(pipeline->stats().held, 3);
  LargeCall& later = committed(round_robin);
  EXPECT_EQ(pipeline->stats().load.waiting, 2);
  gang.end();
  EXPECT_EQ(results_of(later, 1).second.device, "cuda:1");
  EXPECT_EQ(pipeline->stats().held, 0);
}

}  // namespace
}  // namespace svdserve::server
