// A decomposition that is interrupted goes on from the states that it has saved, with the bits of one that is not.
#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "engine/backends/cuda_door/states_across.h"
#include "engine/large_engine.h"
#include "gtest/gtest.h"
#include "tests/support/numerics/effort.h"
#include "tests/support/numerics/large_cases.h"
#include "tests/support/numerics/ring_engine.h"

namespace svdserve::numerics {
namespace {

// One problem on one engine.
struct Case {
  std::string title;
  DType dtype = DType::kF64;
  int64_t rows = 0, cols = 0;
  LargeOptions options;
  Kind kind = Kind::kNormal;
  std::vector<int8_t> signature = {};

  Matrix matrix() const { return generate(kind, dtype, rows, cols, 3); }
  LargePlan plan() const { return large_plan_of({rows, cols, dtype, Order::kRowMajor}, options); }
};

LargeResult run(const LargeEngine& engine, const Case& c, MemoryStates* states = nullptr,
                std::vector<LargeProgress>* told = nullptr) {
  LargeControl control;
  control.states = states;
  if (states != nullptr) control.cancel = &states->cancel;
  if (told != nullptr) control.progress = [told](const LargeProgress& p) { told->push_back(p); };
  return run_large(engine, c.plan(), c.matrix(), c.signature, control);
}

// Stops after some states in turn, and goes on: the first ones, one in the middle of the sweeps, the last two.
std::vector<size_t> stops(size_t states) {
  std::vector<size_t> counts = {1, 2, 3, 4, states / 2 + 2, states - 1, states};
  std::erase_if(counts, [&](size_t count) { return count > states; });
  std::sort(counts.begin(), counts.end());
  counts.erase(std::unique(counts.begin(), counts.end()), counts.end());
  return counts;
}

void expect_resumed_with_same_bits(const LargeEngine& engine, const Case& c) {
  SCOPED_TRACE(c.title);
  const LargeResult want = run(engine, c);
  MemoryStates whole;
  expect_same_bits(want, run(engine, c, &whole));
  ASSERT_GE(whole.saved.size(), 2u);
  EXPECT_EQ(std::count(whole.saved.begin(), whole.saved.end(), LargeState::kSweep), want.outcome.sweeps + 1);
  for (const size_t count : stops(whole.saved.size())) {
    SCOPED_TRACE(testing::Message() << "stopped after state " << count);
    MemoryStates states;
    states.stop_after(count);
    const LargeResult stopped = run(engine, c, &states);
    // The last state is followed by no look at the flag where nothing is left to do.
    if (stopped.outcome.status != LargeStatus::kCancelled) expect_same_bits(want, stopped);
    const auto sweeps = static_cast<int>(std::count(states.saved.begin(), states.saved.end(), LargeState::kSweep));
    states.never_stop();
    std::vector<LargeProgress> told;
    const LargeResult resumed = run(engine, c, &states, &told);
    expect_same_bits(want, resumed);
    EXPECT_EQ(resumed.outcome.resumed_sweeps, std::max(0, sweeps - 1));
    EXPECT_EQ(std::count(states.saved.begin(), states.saved.end(), LargeState::kFactors), 0) << "factorized again";
    for (const LargeProgress& p : told) EXPECT_TRUE(p.stage != LargeStage::kSweep || p.sweep >= sweeps - 1);
  }
}

LargeOptions options_of(Method method, Vectors vectors = Vectors::kThin) {
  LargeOptions options;
  options.method = method;
  options.vectors = vectors;
  return options;
}

std::vector<int8_t> signature_of(int64_t n) {
  std::vector<int8_t> signs(static_cast<size_t>(n));
  for (size_t j = 0; j < signs.size(); ++j) signs[j] = j % 3 == 1 ? -1 : 1;
  return signs;
}

class LargeStatesTest : public ::testing::TestWithParam<DType> {};

TEST_P(LargeStatesTest, SvdsOfEveryShape) {
  const auto engine = make_host_large_engine(2);
  for (const Method method : {Method::kJacobi, Method::kAuto}) {
    for (const Vectors vectors : {Vectors::kThin, Vectors::kNone, Vectors::kFull}) {
      SCOPED_TRACE(testing::Message() << name(method) << ", vectors " << static_cast<int>(vectors));
      const LargeOptions options = options_of(method, vectors);
      expect_resumed_with_same_bits(*engine, {"square", GetParam(), 50, 50, options});
      expect_resumed_with_same_bits(*engine, {"taller", GetParam(), 60, 42, options});
      expect_resumed_with_same_bits(*engine, {"wider", GetParam(), 42, 60, options});
      // Norms of real columns are about 8, on both sides of a power of two.
      expect_resumed_with_same_bits(*engine, {"twice as tall", GetParam(), 64, 30, options});
      expect_resumed_with_same_bits(*engine, {"twice as wide", GetParam(), 30, 64, options});
    }
    expect_resumed_with_same_bits(*engine, {"tall", GetParam(), 700, 34, options_of(method)});
    expect_resumed_with_same_bits(*engine, {"flat", GetParam(), 34, 700, options_of(method)});
    expect_resumed_with_same_bits(*engine, {"tall values", GetParam(), 700, 34, options_of(method, Vectors::kNone)});
  }
}

// Blocks are so narrow that a few pairs are packed, and that cosines are checked before sweeps.
TEST_P(LargeStatesTest, ManyBlocks) {
  for (const Method method : {Method::kJacobi, Method::kAuto}) {
    for (const Kind kind : {Kind::kNormal, Kind::kClusters}) {
      expect_resumed_with_same_bits(RingTestEngine(0, 2), {"narrow", GetParam(), 60, 54, options_of(method), kind});
    }
  }
}

TEST_P(LargeStatesTest, EveryKindOfMatrix) {
  const auto engine = make_host_large_engine(1);
  for (const Kind kind : kinds(GetParam())) {
    for (const Method method : {Method::kJacobi, Method::kAuto}) {
      expect_resumed_with_same_bits(*engine, {name(kind), GetParam(), 26, 22, options_of(method), kind});
    }
  }
}

TEST_P(LargeStatesTest, OptionsOfSweeps) {
  const auto engine = make_host_large_engine(2);
  LargeOptions options = options_of(Method::kJacobi);
  options.variant = BlockVariant::kFullBlock;
  options.strategy = PivotStrategy::kRoundRobin;
  options.certificate = true;
  expect_resumed_with_same_bits(*engine, {"full block", GetParam(), 60, 50, options});
  options = options_of(Method::kAuto);
  options.tolerance = 1e-3;
  expect_resumed_with_same_bits(*engine, {"large tolerance", GetParam(), 60, 50, options});
  options.tolerance = 1e-20;  // never reached
  options.max_sweeps = 12;
  expect_resumed_with_same_bits(*engine, {"small tolerance", GetParam(), 60, 50, options});
  options.tolerance = 0;
  options.max_sweeps = 3;
  expect_resumed_with_same_bits(*engine, {"few sweeps", GetParam(), 60, 50, options});
}

TEST_P(LargeStatesTest, Signatures) {
  const auto engine = make_host_large_engine(2);
  LargeOptions options = options_of(Method::kAuto);
  options.kind = LargeKind::kHyperbolicSvd;
  expect_resumed_with_same_bits(*engine, {"hyperbolic", GetParam(), 60, 48, options, Kind::kNormal, signature_of(48)});
  expect_resumed_with_same_bits(*engine, {"tall", GetParam(), 700, 34, options, Kind::kNormal, signature_of(34)});
  options.vectors = Vectors::kNone;
  expect_resumed_with_same_bits(*engine, {"values", GetParam(), 60, 48, options, Kind::kNormal, signature_of(48)});
  options.vectors = Vectors::kThin;
  options.kind = LargeKind::kHermitianFactor;
  expect_resumed_with_same_bits(*engine, {"factor", GetParam(), 60, 48, options, Kind::kNormal, signature_of(48)});
}

TEST_P(LargeStatesTest, FactoredEigenpairs) {
  const auto engine = make_host_large_engine(2);
  LargeOptions options = options_of(Method::kFactored);
  options.kind = LargeKind::kHermitian;
  options.certificate = true;
  expect_resumed_with_same_bits(*engine, {"Hermitian", GetParam(), 70, 70, options});
}

TEST_P(LargeStatesTest, Rings) {
  for (const int members : {1, 2}) {
    expect_resumed_with_same_bits(*make_host_ring_engine(2, members),
                                  {"ring", GetParam(), 70, 66, options_of(Method::kJacobi)});
  }
  // A ring with fewer members goes on with what a larger one has saved.
  const Case c{"ring", GetParam(), 60, 50, options_of(Method::kJacobi)};
  const LargeResult want = run(RingTestEngine(4, 2), c);
  MemoryStates states;
  states.stop_after(5);
  EXPECT_EQ(run(RingTestEngine(4, 2), c, &states).outcome.status, LargeStatus::kCancelled);
  states.never_stop();
  const LargeResult got = run(RingTestEngine(2, 2), c, &states);
  expect_same_bits(want, got);
  EXPECT_EQ(got.outcome.resumed_sweeps, 2);
}

INSTANTIATE_TEST_SUITE_P(Types, LargeStatesTest, ::testing::ValuesIn(dtypes_of_run()),
                         [](const auto& info) { return std::string(name(info.param)); });

// --- states that are not used ---------------------------------------------------------------------------------------

const Case kCase{"square", DType::kF64, 100, 90, options_of(Method::kJacobi)};

// The states of a run of kCase that was stopped after its third sweep.
void stop_in_sweeps(const LargeEngine& engine, MemoryStates* states) {
  states->stop_after(6);
  ASSERT_EQ(run(engine, kCase, states).outcome.status, LargeStatus::kCancelled);
  states->never_stop();
}

TEST(LargeStates, OfAnotherPlanOrOtherThreadsAreDropped) {
  const auto engine = make_host_large_engine(2);
  const auto expect_dropped = [&](const LargeEngine& other, const Case& c) {
    SCOPED_TRACE(c.title);
    MemoryStates states;
    stop_in_sweeps(*engine, &states);
    const LargeResult got = run(other, c, &states);
    expect_same_bits(run(other, c), got);
    EXPECT_EQ(got.outcome.resumed_sweeps, 0);
  };
  Case other = kCase;
  other.title = "threads";
  expect_dropped(*make_host_large_engine(3), other);
  other.title = "ring";
  expect_dropped(*make_host_ring_engine(2, 2), other);
  other.title = "dtype";
  other.dtype = DType::kF32;
  expect_dropped(*engine, other);
  other = kCase;
  other.title = "columns";
  other.cols = 89;
  expect_dropped(*engine, other);
  other = kCase;
  other.title = "variant";
  other.options.variant = BlockVariant::kFullBlock;
  expect_dropped(*engine, other);
  other = kCase;
  other.title = "vectors";
  other.options.vectors = Vectors::kFull;
  expect_dropped(*engine, other);
  other = kCase;
  other.title = "signature";
  other.options.kind = LargeKind::kHyperbolicSvd;
  other.signature = signature_of(90);
  expect_dropped(*engine, other);
}

// A store finds damage by its checksum when all has been read.
TEST(LargeStates, ThatAreDamagedAreDropped) {
  const auto engine = make_host_large_engine(2);
  const LargeResult want = run(*engine, kCase);
  for (const LargeState state : {LargeState::kFactors, LargeState::kStart, LargeState::kSweep}) {
    MemoryStates whole;
    stop_in_sweeps(*engine, &whole);
    const size_t size = whole.states[state].size(), step = std::max<size_t>(1, size / 8);
    std::vector<size_t> places;
    for (size_t i = 0; i < 600; i += kSanitized ? 36 : 12) places.push_back(i);  // of numbers and shapes
    for (size_t i = 600; i < size; i += step) places.push_back(i);
    places.push_back(size - 1);
    for (const size_t place : places) {
      SCOPED_TRACE(testing::Message() << name(state) << " from byte " << place);
      MemoryStates states;
      states.states = whole.states;
      states.damage(state, place);
      const LargeResult got = run(*engine, kCase, &states);
      expect_same_bits(want, got);
      EXPECT_EQ(got.outcome.resumed_sweeps, 0);
    }
  }
}

// The size shows what a store has not found.
TEST(LargeStates, ThatAreCutOffOrMissingAreDropped) {
  const auto engine = make_host_large_engine(2);
  const LargeResult want = run(*engine, kCase);
  for (const LargeState state : {LargeState::kFactors, LargeState::kStart, LargeState::kSweep}) {
    for (const double part : {0.0, 0.001, 0.5, 0.999}) {
      SCOPED_TRACE(testing::Message() << name(state) << " cut to " << part);
      MemoryStates states;
      stop_in_sweeps(*engine, &states);
      std::string& text = states.states[state];
      text.resize(static_cast<size_t>(part * static_cast<double>(text.size())));
      if (text.empty()) states.states.erase(state);
      const LargeResult got = run(*engine, kCase, &states);
      expect_same_bits(want, got);
      EXPECT_EQ(got.outcome.resumed_sweeps, 0);
      const auto factorized = std::count(states.saved.begin(), states.saved.end(), LargeState::kFactors);
      EXPECT_EQ(factorized, state == LargeState::kFactors ? 1 : 0);
    }
    MemoryStates longer;
    stop_in_sweeps(*engine, &longer);
    longer.states[state] += 'x';
    expect_same_bits(want, run(*engine, kCase, &longer));
  }
}

// A device whose memory is what a run without states takes of it. Leading dimensions are padded, as a GPU's are.
struct TightMemory {
  int64_t limit = INT64_MAX, live = 0, peak = 0;  // numbers in matrices
  std::map<const void*, int64_t> matrices;
};

template <class E>
struct TightHome : NarrowHome<E> {
  using Base = NarrowHome<E>;
  using View = large::LargeView<E>;
  using Base::release;

  TightHome(const large::LargeWatch* watch, TightMemory* own) : Base(watch, 4), memory(own) {}
  View matrix(int64_t rows, int64_t cols) {
    constexpr int64_t kPadding = 32;
    const int64_t numbers = (rows + kPadding - 1) / kPadding * kPadding * cols;
    if (memory->live + numbers > memory->limit) throw large::LargeStop{LargeStatus::kOutOfMemory, "tight"};
    memory->live += numbers;
    memory->peak = std::max(memory->peak, memory->live);
    const View view = Base::matrix(rows, cols);
    memory->matrices[view.data] = numbers;
    return view;
  }
  void release(View view) {
    memory->live -= std::exchange(memory->matrices[view.data], 0);
    Base::release(view);
  }

  TightMemory* memory;
};

class TightEngine final : public BackEndEngine<TightEngine> {
 public:
  explicit TightEngine(const Case& c) {
    run(*this, c);
    limit_ = peak_;
  }
  template <class E>
  LargeOutcome outcome_of(const large::LargeWatch& watch, const LargePlan& plan, const LargeOperands& operands,
                          const LargeControl& control) const {
    TightMemory memory;
    memory.limit = limit_;
    TightHome<E> home(&watch, &memory);
    LargeOutcome outcome = SvdDriver()(home, plan, operands, control);
    peak_ = memory.peak;
    return outcome;
  }

 private:
  int64_t limit_ = INT64_MAX;
  mutable int64_t peak_ = 0;
};

// Damage takes no memory: that of the operand's own run is enough, whatever a state says, and wherever it ends.
TEST(LargeStates, ThatAreDamagedTakeNoMemory) {
  const size_t step = is_long_run() ? 1 : kSanitized ? 11 : 3;
  for (Case c : {Case{"JACOBI", DType::kF64, 12, 10, options_of(Method::kJacobi)},
                 Case{"AUTO", DType::kF64, 12, 10, options_of(Method::kAuto)},
                 Case{"AUTO, without QR", DType::kF64, 12, 5, options_of(Method::kAuto)}}) {
    c.options.max_sweeps = 3;
    const TightEngine engine(c);
    const LargeResult want = run(engine, c);
    MemoryStates whole;
    whole.stop_after(c.cols == 5 ? 2 : 4);
    ASSERT_EQ(run(engine, c, &whole).outcome.status, LargeStatus::kCancelled);
    whole.never_stop();
    EXPECT_EQ(whole.states.contains(LargeState::kFactors), c.cols != 5);
    const auto expect_from_operand = [&](LargeState state, const auto& damage) {
      MemoryStates states;
      states.states = whole.states;
      damage(states);
      const LargeResult got = run(engine, c, &states);
      expect_same_bits(want, got);
      EXPECT_EQ(got.outcome.resumed_sweeps, 0) << name(state);
    };
    for (const auto& [damaged, text] : whole.states) {
      const LargeState state = damaged;
      SCOPED_TRACE(testing::Message() << c.title << ", " << name(state));
      for (size_t place = 0; place < text.size(); place += step) {
        SCOPED_TRACE(testing::Message() << "byte " << place);
        for (const int mask : {1, 0x80, 0xff}) {
          expect_from_operand(state, [&](MemoryStates& s) { s.flip(state, place, mask); });
        }
        const auto left = static_cast<int64_t>(text.size() - place);
        const int64_t shape[] = {1, left / 8 - 2};  // of all that follows
        const std::string bytes(reinterpret_cast<const char*>(shape), sizeof shape);
        expect_from_operand(state, [&](MemoryStates& s) { s.overwrite(state, place, bytes); });
      }
      for (size_t place = 0; place < text.size(); place += step) {
        SCOPED_TRACE(testing::Message() << "ends at byte " << place);
        expect_from_operand(state, [&](MemoryStates& s) { s.states[state].resize(place); });
        expect_from_operand(state, [&](MemoryStates& s) { s.break_off(state, place); });
      }
    }
  }
}

// The last sweep passes over pairs that the sweep before has found orthogonal, before and after it was interrupted.
TEST(LargeStates, KnowPairsThatNeedNoLook) {
  const RingTestEngine engine(0, 4);
  Case c{"", DType::kF64, 48, 40, options_of(Method::kJacobi)};
  const auto gram_flops = [](const LargeResult& r) {
    double flops = 0;
    for (const LargePhaseTime& phase : r.outcome.phases) flops += phase.name == "gram" ? phase.flops : 0;
    return flops;
  };
  const LargeResult want = run(engine, c);
  ASSERT_GT(want.outcome.sweeps, 3);
  MemoryStates states;
  states.stop_after(2 + static_cast<size_t>(want.outcome.sweeps));  // before the last sweep
  ASSERT_EQ(run(engine, c, &states).outcome.status, LargeStatus::kCancelled);
  states.never_stop();
  const LargeResult got = run(engine, c, &states);
  expect_same_bits(want, got);
  EXPECT_EQ(got.outcome.resumed_sweeps, want.outcome.sweeps - 1);
  c.options.max_sweeps = static_cast<int32_t>(want.outcome.sweeps - 1);
  EXPECT_EQ(gram_flops(got), gram_flops(want) - gram_flops(run(engine, c)));
  c.options.max_sweeps = 1;
  EXPECT_LT(gram_flops(got), gram_flops(run(engine, c)));
}

TEST(LargeStates, CrossTheTableOfAPlugin) {
  const auto engine = make_host_large_engine(2);
  MemoryStates states;
  stop_in_sweeps(*engine, &states);
  const SvdserveCudaStates crossing = cuda::states_to_cross(&states);
  cuda::StatesAcross across(crossing);
  LargeControl control;
  control.states = across.get();
  const LargeResult got = run_large(*engine, kCase.plan(), kCase.matrix(), {}, control);
  expect_same_bits(run(*engine, kCase), got);
  EXPECT_EQ(got.outcome.resumed_sweeps, 3);
  EXPECT_FALSE(states.saved.empty());
  const SvdserveCudaStates none = cuda::states_to_cross(nullptr);
  EXPECT_EQ(cuda::StatesAcross(none).get(), nullptr);
}

TEST(LargeStates, AreSavedWhenTheStoreWantsThem) {
  const auto engine = make_host_large_engine(2);
  const LargeResult want = run(*engine, kCase);
  for (int looks = 0; looks < 6; ++looks) {
    SCOPED_TRACE(looks);
    MemoryStates states;
    states.skip(looks);
    states.stop_after(4);  // the sweep's state, after those that it needs, and maybe others
    EXPECT_EQ(run(*engine, kCase, &states).outcome.status, LargeStatus::kCancelled);
    states.never_stop();
    const LargeResult got = run(*engine, kCase, &states);
    expect_same_bits(want, got);
    EXPECT_EQ(got.outcome.resumed_sweeps, std::max(looks, 1));
  }
}

TEST(LargeStates, ThatTheStoreRefusesChangeNothing) {
  const auto engine = make_host_large_engine(2);
  const LargeResult want = run(*engine, kCase);
  for (const LargeState state : {LargeState::kFactors, LargeState::kStart, LargeState::kSweep}) {
    MemoryStates states;
    states.refuse(state);
    expect_same_bits(want, run(*engine, kCase, &states));
    EXPECT_EQ(states.states.count(LargeState::kSweep), 0u);
    const LargeResult again = run(*engine, kCase, &states);
    expect_same_bits(want, again);
    EXPECT_EQ(again.outcome.resumed_sweeps, 0);
  }
}

TEST(LargeStates, TakeNoMoreThanTheEngineSays) {
  const auto engine = make_host_large_engine(2);
  for (const DType dtype : {DType::kF32, DType::kC128}) {
    for (const Method method : {Method::kAuto, Method::kJacobi}) {
      for (const Vectors vectors : {Vectors::kNone, Vectors::kThin, Vectors::kFull}) {
        for (const auto& [rows, cols] : {std::pair(1, 1), {2, 3}, {40, 40}, {90, 60}, {60, 90}, {1400, 66}}) {
          const Case c{"", dtype, rows, cols, options_of(method, vectors)};
          MemoryStates states;
          run(*engine, c, &states);
          EXPECT_LE(states.bytes(), engine->state_bytes(c.plan())) << rows << " x " << cols;
        }
      }
    }
  }
}

// So --checkpoint-bytes is enough for all that --max-large-bytes lets in.
TEST(LargeStates, TakeNoMoreThanTheMatrixDoesInMemory) {
  const auto engine = make_host_large_engine(2);
  for (const DType dtype : {DType::kF32, DType::kF64, DType::kC64, DType::kC128}) {
    for (const Vectors vectors : {Vectors::kNone, Vectors::kThin, Vectors::kFull}) {
      for (const int64_t rows : {1, 10, 100, 1000, 10000, 100000}) {
        for (const int64_t cols : {1, 10, 100, 1000, 10000}) {
          const LargePlan plan =
              large_plan_of({rows, cols, dtype, Order::kRowMajor}, options_of(Method::kJacobi, vectors));
          const uint64_t files = plan.operand_bytes() + plan.left_bytes() + plan.values_bytes() + plan.right_bytes();
          EXPECT_LE(files + engine->state_bytes(plan), 2 * (files + engine->memory(plan).host_bytes))
              << rows << " x " << cols << ", " << name(dtype) << ", vectors " << static_cast<int>(vectors);
        }
      }
    }
  }
}

TEST(LargeStates, AreNotThereWhereNoSweepsAre) {
  const auto engine = make_host_large_engine(2);
  Case tridiagonal{"", DType::kF64, 60, 60, {}};
  tridiagonal.options.kind = LargeKind::kHermitian;
  Case general = tridiagonal;
  general.options.kind = LargeKind::kGeneral;
  Case leading{"", DType::kF64, 60, 50, {}};
  leading.options.top_k = 40;
  for (const Case& c : {tridiagonal, general, leading}) {
    MemoryStates states;
    EXPECT_EQ(run(*engine, c, &states).outcome.status, LargeStatus::kOk);
    EXPECT_TRUE(states.states.empty());
    EXPECT_EQ(engine->state_bytes(c.plan()), 0u);
  }
}

}  // namespace
}  // namespace svdserve::numerics
