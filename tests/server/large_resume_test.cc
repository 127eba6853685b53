// Large matrices that outlive their call, and the server.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <future>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/escaping.h"
#include "server/checkpoint/checkpoint_store.h"
#include "server/device/large/large_runner.h"
#include "server/large/large_checkpoint.h"
#include "server/large/large_pipeline.h"
#include "tests/server/counting_recorder.h"
#include "tests/server/fake_clock.h"
#include "tests/server/fake_large_engine.h"
#include "tests/server/fake_monitor.h"
#include "tests/server/hanging_disk.h"
#include "tests/server/large_call.h"

namespace svdserve::server {
namespace {

namespace fs = std::filesystem;

class LargeResumeTest : public ::testing::Test {
 protected:
  LargeResumeTest() : directory_((fs::temp_directory_path() / "svdserve_test_XXXXXX").string()) {
    EXPECT_NE(mkdtemp(directory_.data()), nullptr);
    start();
  }
  ~LargeResumeTest() override {
    stop();
    fs::remove_all(directory_);
  }

  void start(bool with_checkpoints = true) {
    controls_ = std::make_shared<LargeControls>();
    std::vector<LargeDevice> devices;
    if (gpu_ != nullptr) {
      devices.push_back({"gpu", 100, std::make_unique<FakeLargeEngine>(gpu_, LargeWorkspace{0, 100})});
    }
    devices.push_back({"fake:0", 0, std::make_unique<FakeLargeEngine>(controls_, LargeWorkspace{1000, 0})});
    std::string why;
    auto store = with_checkpoints
                     ? CheckpointStore::open({directory_, 1 << 20, absl::Minutes(10)}, &clock_, &recorder_, &why)
                     : nullptr;
    EXPECT_EQ(store != nullptr, with_checkpoints) << why;
    LargeLimits options;
    options.chunk_bytes = 64;
    pipeline_ =
        std::make_unique<LargePipeline>(options, std::move(devices), &clock_, &recorder_, &monitor_, std::move(store));
  }
  // There is a GPU beside the host.
  void start_with_gpu() {
    stop();
    gpu_ = std::make_shared<LargeControls>();
    start();
  }
  // The server ends, and its calls with it. They end before the engine may go on, so that it computes nothing more.
  void stop() {
    for (const auto& call : calls_) call->end();
    controls_->open();
    if (gpu_ != nullptr) gpu_->open();
    calls_.clear();
    pipeline_.reset();
  }
  void restart(bool with_checkpoints = true) {
    stop();
    start(with_checkpoints);
  }
  LargeCall& begin() {
    calls_.push_back(std::make_shared<LargeCall>());
    calls_.back()->begin(pipeline_.get());
    return *calls_.back();
  }
  // A call whose operand is on disk, and whose engine waits. Its token.
  std::string committed(char fill = 5) {
    controls_->close();
    LargeCall& call = begin();
    const LargeAccepted accepted = call.upload(4, 2, fill);
    EXPECT_EQ(accepted.resume.size(), kResumeTokenBytes);
    call.commit();
    EXPECT_TRUE(std::holds_alternative<LargeProgressReport>(*call.write()));
    return accepted.resume;
  }
  // A call in the middle of its results, which are on disk. Its token.
  std::string computed() {
    LargeCall& call = begin();
    const std::string token = call.upload(4, 2).resume;
    call.commit();
    while (!std::holds_alternative<LargeResultChunk>(*call.write())) {
    }
    while (!fs::exists(file(token, "results"))) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    return token;
  }
  fs::path file(const std::string& token, const char* name) const {
    return fs::path(directory_) / absl::BytesToHexString(token) / name;
  }
  LargeCall& resume(const std::string& token, int64_t rows = 4) {
    LargeOpen open;
    open.problem = {rows, 2, DType::kF64, Order::kColumnMajor};
    open.resume = token;
    LargeCall& call = begin();
    call.act(call.job->on_open(open));
    return call;
  }
  // The first byte of each result that comes until the call ends, and its summary.
  struct Got {
    std::vector<int> results;
    std::optional<LargeSummary> summary;
  };
  static Got take_all(LargeCall& call) {
    Got got;
    while (std::optional<LargeReply> reply = call.write()) {
      if (const auto* chunk = std::get_if<LargeResultChunk>(&*reply)) got.results.push_back(*chunk->data);
      if (const auto* last = std::get_if<LargeSummary>(&*reply)) got.summary = *last;
    }
    return got;
  }
  void expect_unknown(LargeCall& call) {
    const Error error = call.await_end();
    EXPECT_EQ(error.code, absl::StatusCode::kNotFound);
    EXPECT_EQ(error.reason, Reason::kResumeUnknown);
    EXPECT_EQ(error.field, "open.resume");
  }
  // The bytes of a sweep's state that a new server finds.
  uint64_t state_after_restart(const std::string& token) {
    restart();
    uint64_t found = 1;
    controls_->have_states(1000, [&](LargeStateStore* states) { found = states->open(LargeState::kSweep); });
    EXPECT_TRUE(take_all(resume(token)).summary.has_value());
    return found;
  }
  void await_checkpoints(int64_t matrices) {
    while (pipeline_->stats().checkpoints != matrices) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }

  std::string directory_;
  FakeClock clock_;
  CountingRecorder recorder_;
  FakeMonitor monitor_{&clock_};
  std::shared_ptr<LargeControls> controls_, gpu_;
  std::unique_ptr<LargePipeline> pipeline_;
  std::vector<std::shared_ptr<LargeCall>> calls_;
};

TEST_F(LargeResumeTest, AMatrixSurvivesTheServer) {
  const std::string token = committed();
  restart();
  LargeCall& call = resume(token);
  const auto accepted = std::get<LargeAccepted>(*call.write());
  EXPECT_EQ(accepted.resume, token);
  EXPECT_EQ(accepted.operand_bytes, 64);
  const Got got = take_all(call);
  ASSERT_TRUE(got.summary.has_value());
  EXPECT_EQ(got.results, (std::vector<int>{6, 7, 8}));
  EXPECT_EQ(got.summary->outcome.sweeps, 7);
  EXPECT_EQ(call.await_end().code, absl::StatusCode::kOk);
  EXPECT_EQ(recorder_.factors().resumed, 1);
  await_checkpoints(0);
  expect_unknown(resume(token));
}

TEST_F(LargeResumeTest, ResultsAreNotComputedTwice) {
  const std::string token = computed();
  restart();
  clock_.advance(absl::Seconds(5));
  LargeCall& again = resume(token);
  const Got got = take_all(again);
  EXPECT_EQ(got.results, (std::vector<int>{6, 7, 8}));
  ASSERT_TRUE(got.summary.has_value());
  EXPECT_EQ(got.summary->device, "fake:0");
  EXPECT_EQ(got.summary->outcome.sweeps, 7);
  EXPECT_EQ(got.summary->outcome.phases[0].name, "inner");
  EXPECT_EQ(controls_->begun(), 0);
}

// A server that is killed when it has sent all results, and before the status.
TEST_F(LargeResumeTest, ResultsStayUntilTheStatusHasLeft) {
  const std::string token = computed();
  calls_.back()->status_arrives = false;
  EXPECT_TRUE(take_all(*calls_.back()).summary.has_value());
  EXPECT_TRUE(calls_.back()->await_end().ok());
  restart();
  LargeCall& again = resume(token);
  EXPECT_EQ(take_all(again).results, (std::vector<int>{6, 7, 8}));
  EXPECT_TRUE(again.await_end().ok());
  EXPECT_EQ(controls_->begun(), 0);
  await_checkpoints(0);
}

// Saves a state of a sweep, once the operand is on disk.
void save_sweep(LargeStateStore* states, const std::string& sweep) {
  ASSERT_NE(states, nullptr);
  while (!states->due()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  ASSERT_TRUE(states->begin(LargeState::kSweep, sweep.size()));
  states->write(sweep.data(), sweep.size());
  states->end();
}

// A server that is killed when two states are on disk.
TEST_F(LargeResumeTest, AComputationGoesOnFromItsStates) {
  const std::string sweep = "after the second sweep";
  controls_->close();
  controls_->have_states(1000, [&](LargeStateStore* states) {
    EXPECT_EQ(states->open(LargeState::kSweep), 0u);
    save_sweep(states, sweep);
  });
  LargeCall& call = begin();
  const std::string token = call.upload(4, 2).resume;
  call.commit();
  while (recorder_.factors().states == 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  restart();
  std::string found;
  controls_->have_states(1000, [&](LargeStateStore* states) {
    ASSERT_NE(states, nullptr);
    found.resize(states->open(LargeState::kSweep));
    EXPECT_TRUE(states->read(found.data(), found.size()));
  });
  const Got got = take_all(resume(token));
  EXPECT_EQ(got.results, (std::vector<int>{6, 7, 8}));
  EXPECT_EQ(found, sweep);
  await_checkpoints(0);
}

// A device that has failed may have computed rubbish before, and saved it.
TEST_F(LargeResumeTest, NoDeviceTakesTheStatesOfOneThatFailed) {
  start_with_gpu();
  gpu_->have_states(1000, [&](LargeStateStore* states) {
    save_sweep(states, "rubbish");
    while (recorder_.factors().states == 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  });
  LargeOutcome fault;
  fault.status = LargeStatus::kFault;
  gpu_->answer(fault);
  bool found = true;
  controls_->have_states(1000, [&](LargeStateStore* states) {
    found = states->open(LargeState::kSweep) != 0;
    while (!states->due()) std::this_thread::sleep_for(std::chrono::milliseconds(1));  // they are removed
    found = found || states->open(LargeState::kSweep) != 0;
  });
  LargeCall& call = begin();
  call.upload(4, 2);
  call.commit();
  const Got got = take_all(call);
  ASSERT_TRUE(got.summary.has_value());
  EXPECT_EQ(got.summary->device, "fake:0");
  EXPECT_FALSE(found);
}

// One that has too little memory computes what it does compute as well as another.
TEST_F(LargeResumeTest, ADeviceGoesOnForOneWithoutMemory) {
  start_with_gpu();
  gpu_->have_states(1000, [&](LargeStateStore* states) {
    save_sweep(states, "good");
    while (recorder_.factors().states == 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  });
  LargeOutcome full;
  full.status = LargeStatus::kOutOfMemory;
  gpu_->answer(full);
  uint64_t found = 0;
  controls_->have_states(1000, [&](LargeStateStore* states) { found = states->open(LargeState::kSweep); });
  LargeCall& call = begin();
  call.upload(4, 2);
  call.commit();
  EXPECT_TRUE(take_all(call).summary.has_value());
  EXPECT_EQ(found, 4u);
}

TEST_F(LargeResumeTest, NobodyTakesTheStatesOfADeviceThatHangs) {
  std::promise<void> saved;
  controls_->close();
  controls_->have_states(1000, [&](LargeStateStore* states) {
    save_sweep(states, "rubbish");
    saved.set_value();  // it waits for its device again
  });
  LargeCall& call = begin();
  const std::string token = call.upload(4, 2).resume;
  call.commit();
  saved.get_future().wait();
  while (recorder_.factors().states == 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  for (int i = 0; i < 20; ++i) clock_.advance(absl::Seconds(1));
  take_all(call);
  EXPECT_EQ(call.await_end().reason, Reason::kDeviceFault);
  monitor_.healthy = true;
  EXPECT_EQ(state_after_restart(token), 0u);
}

// The call has ended before its device fails, or hangs. It may be resumed.
TEST_F(LargeResumeTest, NobodyTakesTheStatesOfADeviceThatFailedWithoutACall) {
  for (const bool hangs : {false, true}) {
    std::promise<void> saved, may_end;
    LargeOutcome outcome;
    outcome.status = hangs ? LargeStatus::kCancelled : LargeStatus::kFault;
    controls_->answer(outcome, false);
    controls_->have_states(1000, [&](LargeStateStore* states) {
      save_sweep(states, "rubbish");
      saved.set_value();
      may_end.get_future().wait();
    });
    const auto before = recorder_.factors().states;
    LargeCall& call = begin();
    const std::string token = call.upload(4, 2).resume;
    call.commit();
    saved.get_future().wait();
    while (recorder_.factors().states == before) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    call.end();
    if (hangs) {
      for (int i = 0; i < 20; ++i) clock_.advance(absl::Seconds(1));
      EXPECT_FALSE(monitor_.healthy);
    }
    may_end.set_value();
    monitor_.healthy = true;
    EXPECT_EQ(state_after_restart(token), 0u) << hangs;
  }
}

TEST_F(LargeResumeTest, ACallThatEndsDoesNotWaitForTheDisk) {
  controls_->close();
  controls_->have_states(1000, [&](LargeStateStore* states) {
    ASSERT_NE(states, nullptr);
    while (!states->due()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    EXPECT_FALSE(states->begin(LargeState::kSweep, 1));
  });
  const HangingDisk disk("sweep");
  LargeCall& call = begin();
  call.upload(4, 2);
  call.commit();
  HangingDisk::await();
  call.end();
  controls_->await_ended(1);
}

TEST_F(LargeResumeTest, WithoutRoomForStatesThereAreNone) {
  controls_->have_states(1 << 20, [](LargeStateStore* states) { EXPECT_EQ(states, nullptr); });
  LargeCall& call = begin();
  EXPECT_EQ(call.upload(4, 2).resume.size(), kResumeTokenBytes);
  call.commit();
  EXPECT_EQ(take_all(call).results, (std::vector<int>{6, 7, 8}));
  EXPECT_EQ(recorder_.factors().checkpoint_failures, 0);
}

TEST_F(LargeResumeTest, DamagedResultsAreComputedAgain) {
  const std::string token = computed();
  stop();
  std::fstream(file(token, "results"), std::ios::in | std::ios::out).put('x');
  start();
  EXPECT_EQ(take_all(resume(token)).results, (std::vector<int>{6, 7, 8}));
  EXPECT_EQ(controls_->begun(), 1);
}

TEST_F(LargeResumeTest, ADamagedOperandIsUnknown) {
  const std::string token = committed();
  stop();
  std::fstream(file(token, "operand"), std::ios::in | std::ios::out).put('x');
  start();
  LargeCall& call = resume(token);
  take_all(call);
  expect_unknown(call);
  await_checkpoints(0);
}

TEST_F(LargeResumeTest, TheLatestCallHasTheMatrix) {
  const std::string token = committed();
  LargeCall& first = *calls_.back();
  LargeCall& second = resume(token);
  take_all(first);
  const Error error = first.await_end();
  EXPECT_EQ(error.code, absl::StatusCode::kCancelled);
  EXPECT_EQ(error.message, "another call has resumed this matrix");
  controls_->open();
  EXPECT_EQ(take_all(second).results, (std::vector<int>{6, 7, 8}));
}

TEST_F(LargeResumeTest, AnotherRequestIsNotThatMatrix) {
  const std::string token = committed();
  const Error error = resume(token, 5).await_end();
  EXPECT_EQ(error.code, absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(error.field, "open.resume");
  expect_unknown(resume(std::string(kResumeTokenBytes, 'x')));
  controls_->open();
  EXPECT_EQ(take_all(*calls_[0]).results, (std::vector<int>{6, 7, 8}));  // it was not disturbed
}

TEST_F(LargeResumeTest, NothingMayFollowTheToken) {
  const std::string token = committed();
  restart();
  controls_->close();
  LargeCall& call = resume(token);
  call.chunk(0, 16);
  take_all(call);
  EXPECT_EQ(call.await_end().field, "chunk");
  LargeCall& other = resume(committed());
  other.commit();
  take_all(other);
  EXPECT_EQ(other.await_end().field, "commit");
}

TEST_F(LargeResumeTest, AMatrixThatCannotSucceedLeavesNoFiles) {
  LargeOutcome outcome;
  outcome.status = LargeStatus::kNonFinite;
  controls_->answer(outcome);
  LargeCall& call = begin();
  const std::string token = call.upload(4, 2).resume;
  LargeNext next = call.job->on_commit();
  take_all(call);
  EXPECT_EQ(call.await_end().reason, Reason::kNonFinite);
  call.act(std::move(next));  // as late as can be: the device's thread was faster
  await_checkpoints(0);
  expect_unknown(resume(token));
}

TEST_F(LargeResumeTest, AnUploadThatWasCutOffLeavesNoFiles) {
  const std::string token = begin().upload(4, 2).resume;
  restart();
  EXPECT_EQ(pipeline_->stats().checkpoints, 0);
  expect_unknown(resume(token));
}

TEST_F(LargeResumeTest, FilesGoAfterTheirTimeWithoutAnyCall) {
  committed();
  restart();
  EXPECT_EQ(pipeline_->stats().checkpoints, 1);
  clock_.advance(absl::Minutes(10) + absl::Seconds(1));
  EXPECT_EQ(pipeline_->stats().checkpoints, 0);
}

TEST_F(LargeResumeTest, WithoutADirectoryNothingSurvives) {
  const std::string token = committed();
  restart(false);
  expect_unknown(resume(token));
  EXPECT_EQ(begin().upload(4, 2).resume, "");
}

TEST_F(LargeResumeTest, TheNumbersOfAnOutcomeComeBack) {
  ComputedLarge computed;
  computed.device = "cuda:0\nodd";
  computed.compute = absl::Seconds(1.25);
  LargeOutcome& o = computed.outcome;
  o.status = LargeStatus::kNotConverged;
  o.out_of_range = o.warm_started = true;
  o.method = Method::kAuto;
  o.sweeps = 3;
  o.rotations = int64_t{1} << 40;
  o.proper_rotations = 17;
  o.subspace_steps = 4;
  o.residual = 0x1.fedcba9876543p-50;
  o.left_orthogonality = 1e-300;
  o.right_orthogonality = 0.1;
  o.rank = 12;
  o.factor_condition = 1 / 0.0;
  o.members = 2;
  o.phases = {{"a b", 0.1, 1e15}, {"", 0, 0}};
  const std::string text = to_text(computed);
  const std::optional<ComputedLarge> back = computed_of(text);
  ASSERT_TRUE(back.has_value());
  EXPECT_EQ(to_text(*back), text);
  EXPECT_EQ(back->device, computed.device);
  EXPECT_EQ(back->compute, computed.compute);
  EXPECT_EQ(back->outcome.residual, o.residual);
  EXPECT_EQ(back->outcome.factor_condition, o.factor_condition);
  EXPECT_EQ(back->outcome.phases.size(), 2u);
  for (size_t cut = 0; cut < text.size(); ++cut) {
    const std::optional<ComputedLarge> part = computed_of(text.substr(0, cut));
    EXPECT_TRUE(!part || to_text(*part) != text) << cut;
  }
  for (const char* wrong : {"", "2", "1\n\n\n\n"}) EXPECT_FALSE(computed_of(wrong).has_value());
}

TEST_F(LargeResumeTest, DescriptionsDifferWhereRequestsDo) {
  LargeOpen base;
  base.problem = {4, 2, DType::kF64, Order::kColumnMajor};
  const std::string text = describe(base);
  const auto expect_other = [&](auto change) {
    LargeOpen other = base;
    change(other);
    EXPECT_NE(describe(other), text);
  };
  expect_other([](LargeOpen& o) { o.problem.rows = 5; });
  expect_other([](LargeOpen& o) { o.problem.cols = 3; });
  expect_other([](LargeOpen& o) { o.problem.dtype = DType::kF32; });
  expect_other([](LargeOpen& o) { o.problem.order = Order::kRowMajor; });
  expect_other([](LargeOpen& o) { o.decomposition = LargeProblem::kHermitian; });
  expect_other([](LargeOpen& o) { o.signature = std::string("\x01\xff", 2); });
  expect_other([](LargeOpen& o) { o.options.triangle = Triangle::kUpper; });
  expect_other([](LargeOpen& o) { o.options.method = Method::kJacobi; });
  expect_other([](LargeOpen& o) { o.options.vectors = Vectors::kNone; });
  expect_other([](LargeOpen& o) { o.options.tolerance = 1e-300; });
  expect_other([](LargeOpen& o) { o.options.max_sweeps = 1; });
  expect_other([](LargeOpen& o) { o.options.strategy = PivotStrategy::kRoundRobin; });
  expect_other([](LargeOpen& o) { o.options.variant = BlockVariant::kFullBlock; });
  expect_other([](LargeOpen& o) { o.options.top_k = 1; });
  expect_other([](LargeOpen& o) { o.options.certificate = true; });
  expect_other([](LargeOpen& o) { o.options.starting_vectors = true; });
  LargeOpen same = base;
  same.resume = "token";
  EXPECT_EQ(describe(same), text);
}

}  // namespace
}  // namespace svdserve::server
