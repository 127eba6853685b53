// CudaEngine where there is no GPU: it names the missing part. A lane's work on a fake plugin (fake_cuda.h) is done,
// reported and survived as if there were a GPU.
#include "engine/cuda_engine.h"

#include <dlfcn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <sstream>
#include <string>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#include "engine/backends/ranks/rank_process.h"
#include "engine/cuda_large_engine.h"
#include "tests/support/fake_cuda/fake_cuda.h"

namespace svdserve {
namespace {

using fake_cuda::Call;
using fake_cuda::Fault;
using fake_cuda::Schedule;
using testing::HasSubstr;

const std::filesystem::path kDriverFolder = std::filesystem::path(SVDSERVE_FAKE_CUDA_DRIVER).parent_path();

// --- what is missing is named: in processes of their own, because the plugin is looked for once ----------------------

// Has kFactors, and takes kSweep.
struct TwoStates final : LargeStateStore {
  bool due() override { return true; }
  bool begin(LargeState state, uint64_t bytes) override {
    return state == LargeState::kSweep && bytes == factors.size();
  }
  void write(const void* bytes, uint64_t count) override { sweep.append(static_cast<const char*>(bytes), count); }
  void end() override { ended = true; }
  uint64_t open(LargeState state) override { return state == LargeState::kFactors ? factors.size() : 0; }
  bool read(void* bytes, uint64_t count) override { return factors.copy(static_cast<char*>(bytes), count) == count; }

  const std::string factors = "Q and R";
  std::string sweep;
  bool ended = false;
};

// The work of a child process: it prints one line for each finding.
int probe() {
  std::string why;
  const int count = cuda_device_count(&why);
  CudaStatus status;
  const auto engine = CudaEngine::open({}, &status);
  const PinnedBuffer buffer(64);
  CudaStatus of_factors;
  const auto factors = open_cuda_large_engine(0, &of_factors);
  if (factors != nullptr) {
    const auto device_bytes = [&](LargeKind kind, Method method, LargeOptions options = {}) {
      options.kind = kind;
      options.method = method;
      const LargePlan plan = *plan_large({40, 40, DType::kF64, Order::kRowMajor}, options).plan;
      return static_cast<unsigned long long>(factors->memory(plan).device_bytes);
    };
    TwoStates states;
    LargeControl control;
    control.states = &states;
    const LargePlan plan = *plan_large({40, 40, DType::kF64, Order::kRowMajor}, {}).plan;
    (void)factors->decompose(plan, {}, control);
    (void)factors->decompose(plan, {}, {});
    std::printf("state=%s%s\nstate_bytes=%llu\n", states.sweep.c_str(), states.ended ? "" : ", unfinished",
                static_cast<unsigned long long>(factors->state_bytes(plan)));
    void* const library = dlopen(std::getenv("SVDSERVE_CUDA_PLUGIN"), RTLD_NOW);
    const auto& fake = *reinterpret_cast<fake_cuda::ControlEntry>(dlsym(library, fake_cuda::kControlEntryName))();
    const int64_t before = fake.observed().large_matrices;
    factors->prepare();
    std::printf("prepared_by=%d\n", static_cast<int>(fake.observed().large_matrices - before));
    constexpr LargeKind kGeneral = LargeKind::kGeneral;
    constexpr Method kJacobi = Method::kJacobi;
    std::printf("svd=%llu\nqr=%llu\njacobi=%llu\nstarted=%llu\nstrategy=%llu\nvariant=%llu\n",
                device_bytes(LargeKind::kSvd, kJacobi), device_bytes(kGeneral, Method::kAuto),
                device_bytes(kGeneral, kJacobi), device_bytes(kGeneral, Method::kAuto, {.starting_vectors = true}),
                device_bytes(kGeneral, kJacobi, {.strategy = PivotStrategy::kRoundRobin}),
                device_bytes(kGeneral, kJacobi, {.variant = BlockVariant::kFullBlock}));
  }
  const auto of_ring = [](const std::vector<int>& ordinals, RingMembers kind = RingMembers::kInProcess) {
    CudaStatus of_all;
    const auto ring = open_cuda_ring_engine(ordinals, &of_all, kind);
    if (ring == nullptr) return of_all.text;
    const LargePlan plan = *plan_large({40, 40, DType::kF64, Order::kRowMajor}, {}).plan;
    const LargeOutcome outcome = ring->decompose(plan, {});
    return std::to_string(outcome.members) + " " + outcome.detail + ", " +
           std::to_string(ring->memory(plan).device_bytes) + " bytes";
  };
  std::printf("no_ranks=%s\n", of_ring({0, 1}, RingMembers::kRanks).c_str());
  char program[] = "probe";
  char* arguments[] = {program, nullptr};
  (void)run_as_rank(1, arguments);
  std::printf("ranks=%s\nother_ranks=%s\n", of_ring({0, 1}, RingMembers::kRanks).c_str(),
              of_ring({1, 0}, RingMembers::kRanks).c_str());
  std::printf("ring=%s\nring_of_three=%s\nring_twice=%s\nring_beyond=%s\n", of_ring({0, 1}).c_str(),
              of_ring({0, 1, 2}).c_str(), of_ring({0, 0}).c_str(), of_ring({0, 7}).c_str());
  std::printf("reach=%d%d%d%d\n", gpus_reach_each_other(0, 1), gpus_reach_each_other(1, 2), gpus_reach_each_other(3, 2),
              gpus_reach_each_other(2, 4));
  std::printf("factors=%s\nfactors_text=%s\n", factors != nullptr ? "open" : "null", of_factors.text.c_str());
  std::printf("driver=%d\ncount=%d\nwhy=%s\nengine=%s\ncode=%d\ntext=%s\npinned=%s\n",
              dlopen("libcuda.so.1", RTLD_NOW) != nullptr, count, why.c_str(), engine != nullptr ? "open" : "null",
              status.code, status.text.c_str(), buffer.data() != nullptr ? "memory" : "null");
  return 0;
}

using Findings = std::map<std::string, std::string>;

// Runs probe() with these variables and none of ours.
Findings probe_with(const std::string& variables) {
  const std::string self = std::filesystem::read_symlink("/proc/self/exe").string();
  const std::string command = "env -u LD_LIBRARY_PATH -u SVDSERVE_CUDA_PLUGIN " + variables + " '" + self + "' --probe";
  FILE* const pipe = popen(command.c_str(), "r");
  std::string output;
  char buffer[4096];
  while (const size_t n = std::fread(buffer, 1, sizeof(buffer), pipe)) output.append(buffer, n);
  EXPECT_EQ(pclose(pipe), 0) << command << "\n" << output;
  Findings findings;
  std::istringstream lines(output);
  for (std::string line; std::getline(lines, line);) {
    const size_t equals = line.find('=');
    if (equals != std::string::npos) findings[line.substr(0, equals)] = line.substr(equals + 1);
  }
  return findings;
}

std::string with_driver(const std::string& plugin = SVDSERVE_FAKE_CUDA_PLUGIN) {
  return "LD_LIBRARY_PATH='" + kDriverFolder.string() + "' SVDSERVE_CUDA_PLUGIN='" + plugin + "' ";
}

void expect_refused(const Findings& found, const std::string& because) {
  EXPECT_EQ(found.at("count"), "0");
  EXPECT_THAT(found.at("why"), HasSubstr(because));
  EXPECT_EQ(found.at("engine"), "null");
  EXPECT_EQ(found.at("code"), "100");  // cudaErrorNoDevice
  EXPECT_EQ(found.at("text"), found.at("why"));
  EXPECT_EQ(found.at("pinned"), "null");
  EXPECT_EQ(found.at("factors"), "null");
  EXPECT_EQ(found.at("factors_text"), found.at("why"));
}

TEST(CudaMissing, TheDriver) {
  const Findings found = probe_with("");
  if (found.at("driver") == "1") GTEST_SKIP() << "this machine has one";
  expect_refused(found, "no NVIDIA driver: libcuda.so.1");
}

// On a build with CUDA the true plugin is found beside the program, but cannot use the fake driver; on another there is
// none.
TEST(CudaMissing, TheDriverIsOfNoUse) {
  const Findings found = probe_with("LD_LIBRARY_PATH='" + kDriverFolder.string() + "'");
  expect_refused(found, found.at("why").find("libsvdserve_cuda.so") != std::string::npos
                            ? "does not open"
                            : "the driver counts no devices");
}

TEST(CudaMissing, ThePlugin) {
  const Findings found = probe_with(with_driver("/nowhere/libsvdserve_cuda.so"));
  expect_refused(found, "the CUDA back end does not open: /nowhere/libsvdserve_cuda.so");
}

TEST(CudaMissing, AFileThatIsNoLibrary) {
  const std::string path = testing::TempDir() + "/cuda_engine_test_" + std::to_string(getpid()) + ".so";
  std::ofstream(path) << "this is text";
  expect_refused(probe_with(with_driver(path)), "does not open: " + path);
  std::filesystem::remove(path);
}

std::string of_another_version() { return "is no CUDA back end of version " + std::to_string(kSvdserveCudaAbiVersion); }

TEST(CudaMissing, ALibraryThatIsNoPlugin) {
  expect_refused(probe_with(with_driver(SVDSERVE_FAKE_CUDA_DRIVER)), of_another_version());
}

TEST(CudaMissing, APluginOfAnotherVersion) {
  expect_refused(probe_with(with_driver() + "SVDSERVE_FAKE_CUDA_VERSION=4"), of_another_version());
}

TEST(CudaMissing, APluginOfAnotherBuild) {
  for (const auto& [name, bytes] : cuda::kCrossingStructs) {
    const std::string resized = name;
    expect_refused(probe_with(with_driver() + "SVDSERVE_FAKE_CUDA_RESIZED=" + resized),
                   "is a CUDA back end of another build: its " + resized + " has " + std::to_string(bytes + 8) +
                       " bytes instead of " + std::to_string(bytes));
  }
  expect_refused(
      probe_with(with_driver() + "SVDSERVE_FAKE_CUDA_RESIZED=version"),
      "is a CUDA back end of another build: its table is of version " + std::to_string(kSvdserveCudaAbiVersion + 1));
  expect_refused(probe_with(with_driver() + "SVDSERVE_FAKE_CUDA_RESIZED=release"),
                 "is a CUDA back end of another build: its release is 9");
}

TEST(CudaMissing, ADevice) {
  expect_refused(probe_with(with_driver() + "SVDSERVE_FAKE_CUDA_DEVICES=0"), "the driver knows no device");
  expect_refused(probe_with(with_driver() + "SVDSERVE_FAKE_CUDA_DEVICES=error"),
                 "the driver counts no devices: fakeErrorOrdinary, it failed");
}

TEST(CudaMissing, Memory) {
  const Findings found = probe_with(with_driver() + "SVDSERVE_FAKE_CUDA_FAULT=allocate:1:memory");
  EXPECT_EQ(found.at("count"), "2");
  EXPECT_EQ(found.at("engine"), "null");
  EXPECT_EQ(found.at("text"), "fakeErrorMemory: out of memory, while allocating device memory");
}

TEST(CudaMissing, Nothing) {
  const Findings found = probe_with(with_driver());
  EXPECT_EQ(found.at("count"), "2");
  EXPECT_EQ(found.at("why"), "");
  EXPECT_EQ(found.at("engine"), "open");
  EXPECT_EQ(found.at("factors"), "null");
  EXPECT_EQ(found.at("factors_text"), "the fake has no large matrices");
  EXPECT_EQ(found.at("code"), "0");
  EXPECT_EQ(found.at("pinned"), "memory");
}

TEST(CudaMissing, ARingHasDifferentDevices) {
  const Findings found = probe_with(with_driver() + "SVDSERVE_FAKE_CUDA_LARGE=1");
  EXPECT_EQ(found.at("ring"), "2 members, " + std::to_string(2 * std::stoull(found.at("svd"))) + " bytes");
  EXPECT_EQ(found.at("ring_of_three"), "a ring has 1, 2, 4 or 8 different GPUs");
  EXPECT_EQ(found.at("ring_twice"), found.at("ring_of_three"));
  EXPECT_EQ(found.at("ring_beyond"), "there is no GPU 7, only 2");
  EXPECT_EQ(found.at("no_ranks"), "this program does not begin with run_as_rank()");
  EXPECT_EQ(found.at("ranks"), "2 ranks, " + std::to_string(2 * std::stoull(found.at("svd"))) + " bytes");
  EXPECT_EQ(found.at("other_ranks"), "the fake's ranks begin with GPU 0");
}

// The fake's GPUs do so in twos.
TEST(CudaMissing, WhichGpusReachEachOther) {
  EXPECT_EQ(probe_with(with_driver() + "SVDSERVE_FAKE_CUDA_LARGE=1 SVDSERVE_FAKE_CUDA_DEVICES=4").at("reach"), "1010");
  EXPECT_EQ(probe_with(with_driver() + "SVDSERVE_FAKE_CUDA_LARGE=1").at("reach"), "1000") << "there is no third one";
  EXPECT_EQ(probe_with("").at("reach"), "0000");
}

TEST(CudaMissing, ARankIsServedByThePlugin) {
  ranks::RankProcess rank({"cuda", "1"});
  char text[32] = {};
  EXPECT_EQ(read(rank.socket().descriptor(), text, sizeof(text) - 1), 9);
  EXPECT_STREQ(text, "rank of 1");
}

TEST(CudaMissing, StatesCrossTheTable) {
  const Findings found = probe_with(with_driver() + "SVDSERVE_FAKE_CUDA_LARGE=1");
  EXPECT_EQ(found.at("state"), "Q and R");
  EXPECT_EQ(found.at("state_bytes"), std::to_string(fake_cuda::kLargeStateBytes));
}

TEST(CudaMissing, AGpuPreparesByOneMatrixOfEachMethod) {
  EXPECT_EQ(probe_with(with_driver() + "SVDSERVE_FAKE_CUDA_LARGE=1").at("prepared_by"), "2");
}

// No memory is enough for what a GPU does not compute.
TEST(CudaMissing, SweepsOverBlocksOfLargeGeneralMatricesAreForTheProcessor) {
  const Findings found = probe_with(with_driver() + "SVDSERVE_FAKE_CUDA_LARGE=1");
  EXPECT_EQ(found.at("factors"), "open");
  for (const char* taken : {"svd", "qr", "jacobi", "started"})
    EXPECT_EQ(found.at(taken), std::to_string(fake_cuda::kLargeDeviceBytes));
  for (const char* left : {"strategy", "variant"}) EXPECT_EQ(found.at(left), std::to_string(~uint64_t{0}));
}

// --- a batch and what is to come of it -------------------------------------------------------------------------------

constexpr Problem kSmall{4, 4, DType::kF64, Order::kRowMajor};
// As cuda_lane.cc: the workspace that a lane has for one piece.
constexpr uint64_t kWorkspaceBytes = 2 * kLeastSlotBytes;

Plan plan_of(const Problem& problem) { return *make_plan(problem, {}).plan; }

std::byte byte_of(uint64_t number) { return static_cast<std::byte>(number * 2654435761u >> 24); }

// Segments over one run of matrices, each with exactly the memory that it owns, so that AddressSanitizer sees every
// byte too many.
class Batch {
 public:
  // Every mark_every-th matrix is marked with a status (0: none is). Every third segment asks for no statuses.
  Batch(const Plan& plan, const std::vector<int64_t>& sizes, int mark_every = 0) : plan_(plan) {
    int64_t number = 0;
    for (const int64_t size : sizes) {
      Part& part = parts_.emplace_back();
      const auto count = static_cast<size_t>(size);
      part.matrices.resize(count * stored_bytes(plan.problem));
      for (size_t i = 0; i < part.matrices.size(); ++i)
        part.matrices[i] = byte_of(static_cast<uint64_t>(number) + i * 7);
      for (size_t m = 0; m < count; ++m, ++number) {
        std::byte& first = part.matrices[m * stored_bytes(plan.problem)];
        const bool marked = mark_every != 0 && number % mark_every == mark_every - 1;
        first = marked ? static_cast<std::byte>(fake_cuda::kMarked + 1 + number / mark_every % 3) : std::byte{1};
      }
      part.starts.resize(count * starting_bytes(plan));
      for (size_t i = 0; i < part.starts.size(); ++i)
        part.starts[i] = byte_of(static_cast<uint64_t>(number) * 3 + i * 5);
      for (size_t i = 0; i < kPlanes; ++i)
        part.planes[i].resize(plane_bytes(plan, static_cast<Plane>(i), size), std::byte{0xCD});
      part.statuses.resize(parts_.size() % 3 == 0 ? 0 : count, static_cast<MatrixStatus>(77));
    }
    for (Part& part : parts_) {
      PlanePointers planes;
      for (size_t i = 0; i < kPlanes; ++i) planes.at[i] = part.planes[i].empty() ? nullptr : part.planes[i].data();
      segments_.push_back({part.matrices.data(),
                           static_cast<int64_t>(part.matrices.size() / stored_bytes(plan.problem)), planes,
                           part.statuses.empty() ? nullptr : part.statuses.data(), part.starts.data()});
    }
  }

  absl::Span<const HostSegment> segments() const { return segments_; }
  int64_t count() const {
    int64_t n = 0;
    for (const HostSegment& s : segments_) n += s.count;
    return n;
  }

  void expect_done(const CudaEngine::Outcome& outcome) const {
    EXPECT_TRUE(outcome.status.ok()) << outcome.status.text;
    EXPECT_TRUE(outcome.execution.completed);
    ConvergenceReport report;
    int64_t wrong = 0;
    std::vector<std::byte> wanted;
    const size_t start = starting_bytes(plan_);
    for (const HostSegment& s : segments_) {
      for (int64_t m = 0; m < s.count; ++m) {
        const auto* const matrix =
            static_cast<const std::byte*>(s.matrices) + static_cast<size_t>(m) * stored_bytes(plan_.problem);
        const MatrixStatus status = fake_cuda::status_of(matrix);
        report.ok += status == MatrixStatus::kOk;
        report.non_finite += status == MatrixStatus::kNonFinite;
        report.not_converged += status == MatrixStatus::kNotConverged;
        report.out_of_range += status == MatrixStatus::kOutOfRange;
        const auto* const from = static_cast<const std::byte*>(s.starting_vectors) + static_cast<size_t>(m) * start;
        for (size_t i = 0; i < kPlanes; ++i) {
          wanted.resize(plane_bytes(plan_, static_cast<Plane>(i), 1));
          if (wanted.empty() || s.planes.at[i] == nullptr) continue;
          fake_cuda::compute(matrix, stored_bytes(plan_.problem), from, start, wanted.data(), wanted.size(),
                             static_cast<Plane>(i));
          const auto* const part =
              static_cast<const std::byte*>(s.planes.at[i]) + static_cast<size_t>(m) * wanted.size();
          wrong += std::memcmp(part, wanted.data(), wanted.size()) != 0;
        }
        wrong += s.statuses != nullptr && s.statuses[m] != status;
      }
    }
    EXPECT_EQ(wrong, 0);
    EXPECT_EQ(outcome.execution.report, report);
  }

 private:
  struct Part {
    std::vector<std::byte> matrices, starts;
    std::array<std::vector<std::byte>, kPlanes> planes;
    std::vector<MatrixStatus> statuses;
  };
  const Plan plan_;
  std::deque<Part> parts_;
  std::vector<HostSegment> segments_;
};

// --- lanes -----------------------------------------------------------------------------------------------------------

class CudaEngineTest : public testing::TestWithParam<Schedule> {
 protected:
  void SetUp() override {
    control_.reset();
    control_.set_schedule(GetParam());
  }

  // Pieces of so many matrices.
  void set_piece(int64_t matrices) {
    control_.set_workspace_per_matrix(kWorkspaceBytes / static_cast<uint64_t>(matrices));
  }

  static std::unique_ptr<CudaEngine> open(int lanes = 1) {
    CudaStatus status;
    auto engine = CudaEngine::open({.ordinal = 0, .lanes = lanes}, &status);
    EXPECT_NE(engine, nullptr) << status.text;
    return engine;
  }

  // The device touches nothing any more, and has met nothing that is not its own.
  void expect_quiet() const {
    EXPECT_EQ(control_.observed().streams_at_work, 0);
    EXPECT_EQ(control_.observed().illegal, 0);
  }
  void expect_empty() const {
    const fake_cuda::Observed o = control_.observed();
    EXPECT_EQ(std::make_tuple(o.device_blocks, o.pinned_blocks, o.streams, o.events), std::make_tuple(0, 0, 0, 0));
  }

  static fake_cuda::Control& load() {
    void* const library = dlopen(SVDSERVE_FAKE_CUDA_PLUGIN, RTLD_NOW);
    return *reinterpret_cast<fake_cuda::ControlEntry>(dlsym(library, fake_cuda::kControlEntryName))();
  }
  static const SvdserveCudaApi& api() {
    void* const library = dlopen(SVDSERVE_FAKE_CUDA_PLUGIN, RTLD_NOW);
    return *reinterpret_cast<SvdserveCudaEntry>(dlsym(library, kSvdserveCudaEntryName))(kSvdserveCudaAbiVersion);
  }

  fake_cuda::Control& control_ = load();
};

INSTANTIATE_TEST_SUITE_P(Schedules, CudaEngineTest, testing::Values(Schedule::kEager, Schedule::kLazy),
                         [](const auto& schedule) { return schedule.param == Schedule::kEager ? "Eager" : "Lazy"; });

TEST_P(CudaEngineTest, SaysWhatItIsAndGivesEverythingBack) {
  EXPECT_EQ(cuda_device_count(), 2);
  {
    CudaStatus status{7, "stale", true};
    const auto engine = CudaEngine::open({.ordinal = 1, .lanes = 3}, &status);
    ASSERT_NE(engine, nullptr);
    EXPECT_TRUE(status.ok() && status.text.empty() && !status.sticky);
    EXPECT_EQ(engine->lanes(), 3);
    EXPECT_EQ(engine->description().ordinal, 1);
    EXPECT_EQ(engine->description().name, "Fake 1");
    EXPECT_EQ(engine->description().compute_major, 9);
    EXPECT_EQ(control_.observed().streams, 9);
  }
  expect_empty();
  expect_quiet();
}

TEST_P(CudaEngineTest, CountsWhatItsLanesHaveOnTheDevice) {
  // Three slots of operands, results and workspace, as cuda_lane.cc makes them.
  const uint64_t slot = kLeastSlotBytes + (64 + kLeastSlotBytes * 5 / 4 + 256) + 2 * kLeastSlotBytes;
  EXPECT_EQ(open(1)->bytes_allocated(), 3 * slot);
  EXPECT_EQ(open(2)->bytes_allocated(), 6 * slot);
}

// It is late, and right: nothing was touched before its time.
TEST_P(CudaEngineTest, ACallThatHangsGoesOnWhenTheDeviceAnswers) {
  const Plan plan = plan_of(kSmall);
  set_piece(10);
  const auto engine = open();
  const Batch batch(plan, {25});
  control_.plan_fault(Call::kWait, 2, Fault::kHang);
  CudaEngine::Outcome outcome;
  std::thread caller([&] { outcome = engine->execute(0, plan, batch.segments()); });
  while (control_.observed().hanging == 0) std::this_thread::yield();
  control_.end_hang();
  caller.join();
  batch.expect_done(outcome);
  expect_quiet();
}

TEST_P(CudaEngineTest, ThereIsNoSuchGpu) {
  for (const int ordinal : {-1, 2, 1000}) {
    CudaStatus status;
    EXPECT_EQ(CudaEngine::open({.ordinal = ordinal}, &status), nullptr);
    EXPECT_EQ(status.code, 100);
    EXPECT_THAT(status.text, HasSubstr("there is no GPU " + std::to_string(ordinal)));
  }
}

TEST_P(CudaEngineTest, OpensWholeOrNotAtAll) {
  for (const Call call : {Call::kAllocate, Call::kAllocatePinned, Call::kCreateStream, Call::kCreateEvent}) {
    const int per_lane = call == Call::kAllocate ? 9 : call == Call::kAllocatePinned ? 6 : 3;
    for (int n = 1; n <= 2 * per_lane; ++n) {
      SCOPED_TRACE(std::string(name(call)) + " " + std::to_string(n));
      control_.reset();
      control_.plan_fault(call, n, Fault::kOutOfMemory);
      CudaStatus status;
      EXPECT_EQ(CudaEngine::open({.lanes = 2}, &status), nullptr);
      EXPECT_TRUE(status.out_of_memory());
      EXPECT_THAT(status.text, HasSubstr("fakeErrorMemory: out of memory, while "));
      expect_empty();
      expect_quiet();
    }
  }
}

TEST_P(CudaEngineTest, SegmentsOfEverySize) {
  const Plan plan = plan_of(kSmall);
  set_piece(100);
  const auto engine = open();
  const std::vector<std::vector<int64_t>> batches = {
      {},    {0},   {0, 0, 0},        {1},    {0, 1, 0},           {3, 0, 5, 1, 1, 7},          {99},
      {100}, {101}, {50, 50, 50, 50}, {1000}, {1, 333, 0, 667, 2}, std::vector<int64_t>(300, 1)};
  for (const auto& sizes : batches) {
    const Batch batch(plan, sizes);
    batch.expect_done(engine->execute(0, plan, batch.segments()));
    expect_quiet();
  }
}

TEST_P(CudaEngineTest, EveryTypeAndShape) {
  const auto engine = open();
  for (const DType dtype : {DType::kF32, DType::kF64, DType::kC64, DType::kC128}) {
    for (const auto& [rows, cols] : std::vector<std::pair<int64_t, int64_t>>{{1, 1}, {3, 5}, {32, 32}, {200, 7}}) {
      const Plan plan = plan_of({rows, cols, dtype, Order::kColumnMajor});
      const Batch batch(plan, {3, 17, 1}, 5);
      batch.expect_done(engine->execute(0, plan, batch.segments()));
    }
  }
  // Larger than a slot: a matrix a slot, which grows.
  const Plan plan = plan_of({kShapeLimits.max_dimension, 128, DType::kC128, Order::kRowMajor});
  const Batch batch(plan, {2, 3});
  batch.expect_done(engine->execute(0, plan, batch.segments()));
  EXPECT_EQ(control_.observed().most_streams_at_work, GetParam() == Schedule::kLazy ? 3 : 1);
  expect_quiet();
}

// A slot holds twice as many of them, half their bytes go up, and they come out as what they were when they went in.
TEST_P(CudaEngineTest, NarrowOperandsGoUpAsTheyAre) {
  for (const DType dtype : {DType::kF32, DType::kC64}) {
    for (const Storage storage : {Storage::kF16, Storage::kBF16, Storage::kI16}) {
      const auto engine = open();
      Problem problem{4, 5, dtype, Order::kRowMajor, storage};
      const Plan plan = plan_of(problem);
      const auto slot = static_cast<int64_t>(kLeastSlotBytes / stored_bytes(problem));
      const int64_t before = control_.observed().launches;
      const Batch batch(plan, {slot - 1, 1, 3, slot - 3}, 7);
      batch.expect_done(engine->execute(0, plan, batch.segments()));
      EXPECT_EQ(control_.observed().launches - before, 2);
      EXPECT_EQ(engine->bytes_uploaded(), static_cast<uint64_t>(batch.count()) * matrix_bytes(problem) / 2);
    }
  }
  expect_quiet();
}

// Their workspace may grow beyond a slot's, so that as many matrices as fit a slot are decomposed at once.
TEST_P(CudaEngineTest, PiecesOfMatricesSideBySide) {
  const Plan plan = *make_plan({300, 300, DType::kF64, Order::kRowMajor}, {.method = Method::kJacobi}).plan;
  ASSERT_TRUE(is_side_by_side(plan));
  control_.set_workspace_per_matrix(uint64_t{4} << 20);
  const auto engine = open();
  const auto slot = static_cast<int64_t>(kLeastSlotBytes / matrix_bytes(plan.problem));
  ASSERT_GT(slot * 4, 16);
  const Batch batch(plan, {slot, slot}, 5);
  batch.expect_done(engine->execute(0, plan, batch.segments()));
  EXPECT_EQ(control_.observed().launches, 2);
  expect_quiet();
}

// So may that of vectors by bidiagonalization.
TEST_P(CudaEngineTest, PiecesOfHermitianMatricesBeyondTheLimitOfEqualBits) {
  const Plan plan =
      *make_plan({64, 64, DType::kF64, Order::kRowMajor}, {.decomposition = Decomposition::kHermitian}).plan;
  ASSERT_TRUE(is_by_rows(plan));
  control_.set_workspace_per_matrix(uint64_t{400} << 10);
  const auto engine = open();
  const auto slot = static_cast<int64_t>(kLeastSlotBytes / matrix_bytes(plan.problem));
  const Batch batch(plan, {slot, slot}, 5);
  batch.expect_done(engine->execute(0, plan, batch.segments()));
  EXPECT_EQ(control_.observed().launches, 2);
  expect_quiet();
}

// A GPU takes as long for one of them as for one on each multiprocessor. So a piece has as many, and their results are more
// than a slot's pinned memory has room for.
TEST_P(CudaEngineTest, PiecesOfLargeMatricesHaveOneForEachMultiprocessor) {
  control_.set_device(17);
  const Plan plan =
      *make_plan({257, 256, DType::kF64, Order::kRowMajor}, {.method = Method::kJacobi, .vectors = Vectors::kThin})
           .plan;
  ASSERT_TRUE(is_side_by_side(plan));
  const auto engine = open();
  ASSERT_LT(kLeastSlotBytes, 17 * stored_bytes(plan.problem));
  const Batch batch(plan, {7, 1, 2, 10}, 3);
  batch.expect_done(engine->execute(0, plan, batch.segments()));
  EXPECT_EQ(control_.observed().launches, 2);
  EXPECT_EQ(engine->bytes_uploaded(), 20 * stored_bytes(plan.problem));
  EXPECT_EQ(engine->bytes_downloaded(), 2 * 64 + 20 * result_bytes(plan, 1) + 20);  // counts, results and statuses
  // Small ones are as many as fit a slot.
  const Plan small = plan_of(kSmall);
  const Batch many(small, {100000});
  const int64_t launches = control_.observed().launches;
  many.expect_done(engine->execute(0, small, many.segments()));
  EXPECT_EQ(control_.observed().launches - launches, 2);
  expect_quiet();
}

// The rest is for large matrices. A group that needs more has it.
TEST_P(CudaEngineTest, SlotsGrowNoFurtherThanTheirShareOfMemory) {
  control_.set_device(17, uint64_t{2040} << 20);  // 170 MiB for slots, which have 127 at the start
  const Plan plan =
      *make_plan({257, 256, DType::kF64, Order::kRowMajor}, {.method = Method::kJacobi, .vectors = Vectors::kThin})
           .plan;
  const auto engine = open();
  const uint64_t before = engine->bytes_allocated();
  const Batch batch(plan, {7, 1, 2, 10}, 3);
  batch.expect_done(engine->execute(0, plan, batch.segments()));
  EXPECT_GT(engine->bytes_allocated(), before);
  EXPECT_LE(engine->bytes_allocated(), uint64_t{170} << 20);
  const Plan huge = plan_of({4096, 512, DType::kF64, Order::kRowMajor});
  const Batch two(huge, {2});
  two.expect_done(engine->execute(0, huge, two.segments()));
  expect_quiet();
}

// One that took the memory for as many as there are multiprocessors would leave the others pieces of a few.
TEST_P(CudaEngineTest, SlotsHaveTheSamePartOfTheirShare) {
  control_.set_device(17, uint64_t{2160} << 20);  // 60 MiB for each slot
  control_.set_workspace_per_matrix(uint64_t{4} << 20);
  const Plan plan =
      *make_plan({257, 256, DType::kF64, Order::kRowMajor}, {.method = Method::kJacobi, .vectors = Vectors::kThin})
           .plan;
  const auto engine = open();
  const Batch batch(plan, {7, 1, 2, 30}, 3);
  batch.expect_done(engine->execute(0, plan, batch.segments()));
  EXPECT_EQ(control_.observed().launches, 4);  // of ten matrices each
  expect_quiet();
}

TEST_P(CudaEngineTest, LargePiecesAreReadAndWrittenInPlaceWherePinned) {
  control_.set_device(13);
  const Plan plan = plan_of({300, 300, DType::kF64, Order::kRowMajor});
  const auto engine = open();
  const Batch wanted(plan, {13}, 7);
  const size_t in_bytes = 13 * stored_bytes(plan.problem), out_bytes = 13 * values_bytes(plan.problem);
  PinnedBuffer in(in_bytes), out(out_bytes);
  std::memcpy(in.data(), wanted.segments()[0].matrices, in_bytes);
  std::vector<MatrixStatus> statuses(13);
  const HostSegment pinned{in.data(), 13, out.data(), statuses.data()};
  EXPECT_TRUE(engine->execute(0, plan, {&pinned, 1}).execution.completed);
  EXPECT_EQ(control_.copies_of(in.data(), in_bytes), 1);
  EXPECT_EQ(control_.copies_of(out.data(), out_bytes), 1);
  wanted.expect_done(engine->execute(0, plan, wanted.segments()));
  EXPECT_EQ(std::memcmp(out.data(), wanted.segments()[0].planes[Plane::kValues], out_bytes), 0);
  EXPECT_EQ(std::memcmp(statuses.data(), wanted.segments()[0].statuses, 13), 0);
  expect_quiet();
}

// Where the device has no memory for a large piece, smaller ones do.
TEST_P(CudaEngineTest, PiecesAreSmallerWhereTheDeviceHasNoMoreMemory) {
  control_.set_device(13);
  const Plan plan = plan_of({300, 300, DType::kF64, Order::kRowMajor});
  const auto engine = open();
  const Batch batch(plan, {3, 20}, 4);
  for (const int fails : {1, 3}) {
    control_.plan_fault(Call::kAllocate, fails, Fault::kOutOfMemory);
    batch.expect_done(engine->execute(0, plan, batch.segments()));
  }
  expect_quiet();
}

TEST_P(CudaEngineTest, StatusesAreFetchedForThePiecesThatHaveThem) {
  const Plan plan = plan_of(kSmall);
  set_piece(64);
  const auto engine = open();
  for (const int mark_every : {1, 2, 63, 64, 65, 1000}) {
    const Batch batch(plan, {10, 500, 700, 1, 1, 1, 90}, mark_every);
    batch.expect_done(engine->execute(0, plan, batch.segments()));
    expect_quiet();
  }
  const uint64_t before = engine->bytes_downloaded();
  const Batch clean(plan, {64});
  clean.expect_done(engine->execute(0, plan, clean.segments()));
  const uint64_t without = engine->bytes_downloaded() - before;
  EXPECT_GE(without, 64 * values_bytes(plan.problem));
  EXPECT_LE(without, 64 * values_bytes(plan.problem) + 2 * 64);  // two pieces' counts, and no byte a matrix
}

TEST_P(CudaEngineTest, PiecesOverlap) {
  const Plan plan = plan_of(kSmall);
  const auto engine = open();
  // The matrices that a slot holds by its bytes; the batch has a bit more than four times as many.
  const auto slot = static_cast<int64_t>(kLeastSlotBytes / matrix_bytes(plan.problem));
  const Batch batch(plan, {slot - 1, 2, slot * 3 + 5});
  batch.expect_done(engine->execute(0, plan, batch.segments()));
  const fake_cuda::Observed o = control_.observed();
  EXPECT_EQ(o.launches, 5);
  EXPECT_EQ(o.most_streams_at_work, GetParam() == Schedule::kLazy ? 3 : 1);
  EXPECT_EQ(engine->bytes_uploaded(), static_cast<uint64_t>(batch.count()) * matrix_bytes(plan.problem));
  const uint64_t values = static_cast<uint64_t>(batch.count()) * values_bytes(plan.problem);
  EXPECT_GE(engine->bytes_downloaded(), values);
  EXPECT_LE(engine->bytes_downloaded(), values + 5 * 64);
  expect_quiet();
}

TEST_P(CudaEngineTest, WhatIsPinnedIsReadAndWrittenInPlace) {
  const Plan plan = plan_of(kSmall);
  const auto engine = open();
  const Batch wanted(plan, {50000}, 777);
  const auto count = static_cast<size_t>(wanted.count());
  const size_t in_bytes = count * matrix_bytes(plan.problem), out_bytes = count * values_bytes(plan.problem);
  set_piece(10000);
  PinnedBuffer in(in_bytes), out(out_bytes);
  ASSERT_NE(in.data(), nullptr);
  ASSERT_NE(out.data(), nullptr);
  std::memcpy(in.data(), wanted.segments()[0].matrices, in_bytes);
  std::vector<MatrixStatus> statuses(count, static_cast<MatrixStatus>(77));
  const HostSegment pinned{in.data(), wanted.count(), out.data(), statuses.data()};

  // Alone, and between others that are not.
  const Batch before(plan, {3, 20000, 1}), after(plan, {5000}, 9);
  std::vector<HostSegment> segments(before.segments().begin(), before.segments().end());
  segments.push_back(pinned);
  segments.insert(segments.end(), after.segments().begin(), after.segments().end());
  const auto outcome = engine->execute(0, plan, segments);
  EXPECT_TRUE(outcome.status.ok() && outcome.execution.completed);
  EXPECT_EQ(outcome.execution.report.total(), before.count() + wanted.count() + after.count());
  EXPECT_GE(control_.copies_of(in.data(), in_bytes), 5);
  EXPECT_GE(control_.copies_of(out.data(), out_bytes), 4);  // of every piece that is nothing else
  expect_quiet();
  for (size_t m = 0; m < count; ++m) {
    std::array<std::byte, 32> values;
    const auto* const matrix = static_cast<const std::byte*>(in.data()) + m * matrix_bytes(plan.problem);
    fake_cuda::compute(matrix, matrix_bytes(plan.problem), nullptr, 0, values.data(), values.size());
    ASSERT_EQ(std::memcmp(static_cast<std::byte*>(out.data()) + m * values.size(), values.data(), values.size()), 0)
        << m;
    ASSERT_EQ(statuses[m], fake_cuda::status_of(matrix)) << m;
  }
  // Those that are not pinned were not touched by the device.
  for (const Batch* batch : {&before, &after}) {
    for (const HostSegment& s : batch->segments()) {
      const auto n = static_cast<size_t>(s.count);
      EXPECT_EQ(control_.copies_of(s.matrices, n * matrix_bytes(plan.problem)), 0);
      EXPECT_EQ(control_.copies_of(s.planes[Plane::kValues], n * values_bytes(plan.problem)), 0);
    }
  }
}

// The device writes the planes of every part of a piece to where they belong, but where one part is not pinned.
TEST_P(CudaEngineTest, PartsOfAPieceAreWrittenInPlaceWherePinned) {
  const Plan plan = *make_plan(kSmall, {.vectors = Vectors::kThin}).plan;
  const auto engine = open();
  const Batch wanted(plan, {9000, 1, 7000, 8000}, 5);
  std::deque<PinnedBuffer> pinned;
  std::vector<HostSegment> segments(wanted.segments().begin(), wanted.segments().end());
  const auto pin = [&](HostSegment* segment) {
    for (size_t i = 0; i < kPlanes; ++i) {
      const size_t bytes = plane_bytes(plan, static_cast<Plane>(i), segment->count);
      if (bytes > 0) segment->planes.at[i] = pinned.emplace_back(bytes).data();
    }
  };
  const auto copies = [&](const HostSegment& segment) {
    int all = 0;
    for (const Plane plane : {Plane::kValues, Plane::kLeft, Plane::kRight}) {
      all += control_.copies_of(segment.planes[plane], plane_bytes(plan, plane, segment.count));
    }
    return all;
  };
  for (HostSegment& segment : segments) {
    if (segment.count > 1) pin(&segment);
  }
  const std::vector<HostSegment> all_pinned{segments[0], segments[2], segments[3]};
  EXPECT_TRUE(engine->execute(0, plan, all_pinned).execution.completed);
  for (const HostSegment& segment : all_pinned) EXPECT_EQ(copies(segment), 3);
  EXPECT_TRUE(engine->execute(0, plan, segments).execution.completed);
  for (const HostSegment& segment : all_pinned) EXPECT_EQ(copies(segment), 3);
  EXPECT_EQ(copies(segments[1]), 0);
  wanted.expect_done(engine->execute(0, plan, wanted.segments()));
  for (size_t s = 0; s < segments.size(); ++s) {
    for (const Plane plane : {Plane::kValues, Plane::kLeft, Plane::kRight}) {
      EXPECT_EQ(std::memcmp(segments[s].planes[plane], wanted.segments()[s].planes[plane],
                            plane_bytes(plan, plane, segments[s].count)),
                0);
    }
  }
  expect_quiet();
}

// Matrices of 36 bytes: their starting vectors begin at a multiple of 8 all the same.
TEST_P(CudaEngineTest, StartingVectorsGoWithTheirMatrices) {
  const Plan plan = *make_plan({3, 3, DType::kF32, Order::kRowMajor},
                               {.decomposition = Decomposition::kGeneral, .starting_vectors = true})
                         .plan;
  set_piece(10001);
  const auto engine = open();
  const Batch batch(plan, {7, 0, 30000, 1, 500}, 5);
  // The matrices of a part are pinned, its starting vectors are not, and the other way round.
  const HostSegment& large = batch.segments()[2];
  const auto count = static_cast<size_t>(large.count);
  const size_t matrices = count * matrix_bytes(plan.problem), starts = count * starting_bytes(plan);
  PinnedBuffer of_matrices(matrices), of_starts(starts);
  std::memcpy(of_matrices.data(), large.matrices, matrices);
  std::memcpy(of_starts.data(), large.starting_vectors, starts);
  for (int pinned = 0; pinned < 3; ++pinned) {
    std::vector<HostSegment> segments(batch.segments().begin(), batch.segments().end());
    if (pinned == 1) segments[2].matrices = of_matrices.data();
    if (pinned == 2) segments[2].starting_vectors = of_starts.data();
    batch.expect_done(engine->execute(0, plan, segments));
  }
  expect_quiet();
  EXPECT_GE(control_.copies_of(of_matrices.data(), matrices), 2);
  EXPECT_GE(control_.copies_of(of_starts.data(), starts), 2);
  EXPECT_EQ(engine->bytes_uploaded(), 3 * static_cast<uint64_t>(batch.count()) * operand_bytes(plan));
}

TEST_P(CudaEngineTest, PinnedBuffersMove) {
  PinnedBuffer a(64);
  void* const memory = a.data();
  PinnedBuffer b(std::move(a));
  EXPECT_EQ(b.data(), memory);
  PinnedBuffer c;
  c = std::move(b);
  EXPECT_EQ(c.data(), memory);
  c = PinnedBuffer();
  expect_empty();
  control_.plan_fault(Call::kAllocatePinned, 1, Fault::kOutOfMemory);
  EXPECT_EQ(PinnedBuffer(64).data(), nullptr);
}

TEST_P(CudaEngineTest, Cancelled) {
  const Plan plan = plan_of(kSmall);
  set_piece(100);
  const auto engine = open();
  const Batch batch(plan, {1000, 1000});
  std::atomic<bool> cancel{true};
  auto outcome = engine->execute(0, plan, batch.segments(), &cancel);
  EXPECT_TRUE(outcome.status.ok());
  EXPECT_FALSE(outcome.execution.completed);
  EXPECT_EQ(control_.observed().launches, 0);

  for (const int64_t at : {1, 2, 3, 4, 7, 12}) {
    const int64_t before = control_.observed().launches;
    cancel = false;
    control_.on_launch([&, before](int64_t number) { cancel = number - before >= at; });
    outcome = engine->execute(0, plan, batch.segments(), &cancel);
    EXPECT_TRUE(outcome.status.ok());
    EXPECT_FALSE(outcome.execution.completed);
    EXPECT_EQ(control_.observed().launches - before, at);
    expect_quiet();  // the segments are the caller's again
  }
  control_.on_launch(nullptr);
  cancel = false;
  batch.expect_done(engine->execute(0, plan, batch.segments(), &cancel));
}

TEST_P(CudaEngineTest, LanesWorkAtOnce) {
  const Plan plan = plan_of(kSmall);
  set_piece(50);
  constexpr int kLanes = 3;
  const auto engine = open(kLanes);
  std::vector<std::thread> threads;
  for (int lane = 0; lane < kLanes; ++lane) {
    threads.emplace_back([&, lane] {
      for (int round = 0; round < 5; ++round) {
        const Batch batch(plan, {lane * 100 + 1, 400, round}, 7 + lane);
        batch.expect_done(engine->execute(lane, plan, batch.segments()));
      }
    });
  }
  for (std::thread& t : threads) t.join();
  expect_quiet();
}

// --- matrices that are on the device ---------------------------------------------------------------------------------

TEST_P(CudaEngineTest, LaunchesOnACallersStream) {
  const Plan plan = plan_of(kSmall);
  const auto engine = open();
  const Batch batch(plan, {333}, 10);
  const auto count = static_cast<uint64_t>(batch.count());
  const uint64_t in_bytes = count * matrix_bytes(plan.problem), out_bytes = count * values_bytes(plan.problem);
  const SvdserveCudaApi& cuda = api();
  void *matrices, *values, *statuses, *counts, *workspace;
  CUstream_st* stream;
  CUevent_st* event;
  ASSERT_EQ(cuda.allocate(0, in_bytes, &matrices) | cuda.allocate(0, out_bytes, &values) |
                cuda.allocate(0, count, &statuses) | cuda.allocate(0, kMatrixStatuses * sizeof(uint64_t), &counts) |
                cuda.allocate(0, engine->workspace_bytes(plan, batch.count()), &workspace) |
                cuda.create_stream(0, &stream) | cuda.create_event(0, &event),
            0);
  const HostSegment& host = batch.segments()[0];
  cuda.copy_to_device(0, matrices, host.matrices, in_bytes, stream);
  cuda.clear(0, counts, kMatrixStatuses * sizeof(uint64_t), stream);
  const DeviceBatch on_device{
      matrices, batch.count(), values, static_cast<uint8_t*>(statuses), static_cast<uint64_t*>(counts), workspace};
  EXPECT_TRUE(engine->launch(plan, on_device, stream).ok());
  EXPECT_TRUE(engine->launch(plan, {}, stream).ok());  // nothing to do
  std::array<uint64_t, kMatrixStatuses> exceptions{};
  cuda.copy_to_host(0, host.planes[Plane::kValues], values, out_bytes, stream);
  cuda.copy_to_host(0, host.statuses, statuses, count, stream);
  cuda.copy_to_host(0, exceptions.data(), counts, sizeof(exceptions), stream);
  cuda.record(0, event, stream);
  cuda.wait(0, event);
  const auto of = [&](int s) { return static_cast<int64_t>(exceptions[static_cast<size_t>(s)]); };
  batch.expect_done({{}, {true, {batch.count() - of(1) - of(2) - of(3), of(1), of(2), of(3)}}});
  expect_quiet();

  control_.plan_fault(Call::kLaunch, 1, Fault::kOrdinary);
  const CudaStatus failed = engine->launch(plan, on_device, stream);
  EXPECT_EQ(failed.code, fake_cuda::kOrdinaryError);
  EXPECT_THAT(failed.text, HasSubstr("fakeErrorOrdinary: it failed, while launching kernels"));
}

// --- faults ----------------------------------------------------------------------------------------------------------

class CudaFaults : public CudaEngineTest {
 protected:
  // A batch of 8 pieces, some of them with statuses to fetch, with the n-th `call` failing.
  void with_fault(Call call, int n, Fault fault) {
    SCOPED_TRACE(std::string(name(call)) + " " + std::to_string(n));
    control_.reset();
    control_.set_schedule(GetParam());
    set_piece(40);
    auto engine = open();
    const Plan plan = plan_of(kSmall);
    const Batch batch(plan, {1, 200, 60, 59}, 90);
    control_.plan_fault(call, n, fault);
    const auto outcome = engine->execute(0, plan, batch.segments());
    const int code = fault == Fault::kOutOfMemory ? fake_cuda::kOutOfMemoryError
                     : fault == Fault::kSticky    ? fake_cuda::kStickyError
                                                  : fake_cuda::kOrdinaryError;
    EXPECT_EQ(outcome.status.code, code);
    EXPECT_EQ(outcome.status.out_of_memory(), fault == Fault::kOutOfMemory);
    EXPECT_EQ(outcome.status.sticky, fault == Fault::kSticky);
    EXPECT_THAT(outcome.status.text, testing::StartsWith("fakeError"));
    EXPECT_THAT(outcome.status.text, HasSubstr(", while "));
    EXPECT_FALSE(outcome.execution.completed);
    expect_quiet();
    if (fault == Fault::kSticky) {
      // A second call gets the same answer at once.
      const auto again = engine->execute(0, plan, batch.segments());
      EXPECT_TRUE(again.status.sticky);
      engine.reset();
      EXPECT_EQ(control_.observed().after_death, 0);
    } else {
      batch.expect_done(engine->execute(0, plan, batch.segments()));
      engine.reset();
      expect_empty();
    }
  }
};

INSTANTIATE_TEST_SUITE_P(Schedules, CudaFaults, testing::Values(Schedule::kEager, Schedule::kLazy),
                         [](const auto& schedule) { return schedule.param == Schedule::kEager ? "Eager" : "Lazy"; });

TEST_P(CudaFaults, FailTheBatchAndNothingElse) {
  for (const Call call :
       {Call::kCopyToDevice, Call::kCopyToHost, Call::kClear, Call::kLaunch, Call::kRecord, Call::kWait}) {
    for (const Fault fault : {Fault::kOutOfMemory, Fault::kOrdinary, Fault::kSticky}) {
      for (int n = 1; n <= 8; ++n) with_fault(call, n, fault);
    }
  }
}

// The results are the caller's again when execute() returns, and nothing tells when the last copy of a dead context ended.
TEST_P(CudaFaults, ADeadContextHasTimeToEndItsCopies) {
  const Plan plan = plan_of(kSmall);
  const Batch batch(plan, {9000});
  for (const bool in_place : {false, true}) {
    control_.reset();
    control_.set_schedule(GetParam());
    const auto engine = open();
    PinnedBuffer out(plane_bytes(plan, Plane::kValues, 9000));
    HostSegment segment = batch.segments()[0];
    if (in_place) segment.planes = out.data();
    control_.plan_fault(Call::kWait, 1, Fault::kSticky);
    const auto began = std::chrono::steady_clock::now();
    EXPECT_TRUE(engine->execute(0, plan, {&segment, 1}).status.sticky);
    if (in_place) {
      EXPECT_GE(std::chrono::steady_clock::now() - began, std::chrono::milliseconds(100));
    }
  }
}

TEST_P(CudaFaults, OneLanesFaultIsNotAnothers) {
  const Plan plan = plan_of(kSmall);
  const auto engine = open(2);
  const Batch batch(plan, {10});
  control_.plan_fault(Call::kLaunch, 1, Fault::kOrdinary);
  EXPECT_FALSE(engine->execute(0, plan, batch.segments()).status.ok());
  batch.expect_done(engine->execute(1, plan, batch.segments()));
  batch.expect_done(engine->execute(0, plan, batch.segments()));
}

}  // namespace
}  // namespace svdserve

// The driver is looked for where LD_LIBRARY_PATH said when the process began: so it begins again.
int main(int argc, char** argv) {
  if (argc > 1 && std::string(argv[1]) == "--probe") return svdserve::probe();
  if (const auto status = svdserve::run_as_rank(argc, argv)) return *status;
  constexpr char kPlugin[] = "SVDSERVE_CUDA_PLUGIN";
  const char* const plugin = std::getenv(kPlugin);
  if (plugin == nullptr || std::string(plugin) != SVDSERVE_FAKE_CUDA_PLUGIN) {
    setenv(kPlugin, SVDSERVE_FAKE_CUDA_PLUGIN, 1);
    setenv("LD_LIBRARY_PATH", svdserve::kDriverFolder.c_str(), 1);
    execv("/proc/self/exe", argv);
    std::perror("execv");
    return 1;
  }
  testing::InitGoogleMock(&argc, argv);
  return RUN_ALL_TESTS();
}
