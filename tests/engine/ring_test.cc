// A ring of host members has the same bits for every number of members. They are those of one device where sweeps have
// the same order.
#include <algorithm>
#include <condition_variable>
#include <cstdint>
#include <limits>
#include <map>
#include <memory>
#include <mutex>
#include <new>
#include <string>
#include <tuple>
#include <vector>

#include "engine/algorithms/large/super_block_sweep.h"
#include "engine/backends/cuda/p_steps/step_halves.h"
#include "engine/large_engine.h"
#include "gtest/gtest.h"
#include "tests/support/numerics/contract.h"
#include "tests/support/numerics/effort.h"
#include "tests/support/numerics/large_cases.h"
#include "tests/support/numerics/ring_engine.h"

namespace svdserve::numerics {
namespace {

constexpr int kRings[] = {1, 2, 4, 8};

LargeOptions jacobi(Vectors vectors = Vectors::kThin) {
  LargeOptions options;
  options.method = Method::kJacobi;
  options.vectors = vectors;
  return options;
}

Problem problem_of(const Matrix& a) { return {a.rows, a.cols, a.dtype, Order::kRowMajor}; }

// A member that reaches no memory of others. Unions go as messages, as between processes.
template <class E>
class MessageMember : host::HostMember<E> {
 public:
  using Base = host::HostMember<E>;
  using Element = E;

  MessageMember(int /*device*/, const std::shared_ptr<host::SharedTracking>& tracking)
      : Base(nullptr, 1, tracking), ring_(tracking.get()) {}
  using Base::give;
  using Base::p_step;
  using Base::read_counters;
  using Base::reset_counters;
  using Base::stop;
  using Base::take;
  using Base::tell;
  void reserve(const ring::RingShape& shape) {
    shape_ = shape;
    Base::reserve(shape);
  }
  void offer(const ring::UnionPlace& sent) {
    const ring::Checkpoint<E> message(shape_.rows, shape_.v_rows, sent.count, allocate);
    Base::give(sent, message.columns(0, sent.count));
    offered_ = message.memory;
  }
  template <class Alive>
  void exchange(int own, int partner, const ring::UnionPlace& /*sent*/, const ring::UnionPlace& got,
                const Alive& alive) {
    Post& post = Post::instance();
    std::unique_lock lock(post.mutex);
    post.boxes[{ring_, own, partner}] = std::move(offered_);
    post.posted.notify_all();
    const std::tuple<const void*, int, int> expected(ring_, partner, own);
    while (post.boxes.count(expected) == 0) {
      post.posted.wait(lock);
      alive();
    }
    const std::shared_ptr<void> memory = post.boxes.extract(expected).mapped();
    const ring::Checkpoint<E> answer(shape_.rows, shape_.v_rows, got.count, [&](uint64_t) { return memory; });
    Base::take(got, answer.columns(0, got.count));
  }

 private:
  struct Post {
    static Post& instance() {
      static Post post;
      return post;
    }
    std::mutex mutex;
    std::condition_variable posted;
    std::map<std::tuple<const void*, int, int>, std::shared_ptr<void>> boxes;  // of a ring: from, to
  };
  static std::shared_ptr<void> allocate(uint64_t bytes) {
    return std::shared_ptr<void>(::operator new(bytes), [](void* memory) { ::operator delete(memory); });
  }

  const void* const ring_;
  ring::RingShape shape_;
  std::shared_ptr<void> offered_;
};

// Computes halves of its p-steps in the order in which a GPU begins them.
template <class E>
class HalvingMember : public PlainMember<E> {
 public:
  using PlainMember<E>::PlainMember;

  void p_steps(const std::vector<large::PStep<E>>& steps) {
    if (steps.empty()) return;
    const auto blocks = static_cast<int>((steps[0].x.cols + steps[0].width - 1) / steps[0].width);
    const std::vector<cuda::StepHalves> halves = cuda::halves_of(steps, blocks);
    for (const cuda::HalfProduct& product : cuda::products_in_order(halves, blocks)) {
      if (!product.is_gram) continue;
      const cuda::Half& pairs = halves[product.step][product.half];
      large::PStep<E> step = steps[product.step];
      step.pairs = pairs.data();
      step.count = static_cast<int>(pairs.size());
      this->p_step(step);
    }
  }
};

// Runs it on every ring. Returns the result.
LargeResult expect_same_on_every_ring(const Matrix& a, const LargeOptions& options, int64_t width,
                                      const std::vector<int8_t>& signature = {}) {
  const LargePlan plan = large_plan_of(problem_of(a), options);
  const LargeResult first = run_large(RingTestEngine(1, width), plan, a, signature);
  for (const int members : kRings) {
    SCOPED_TRACE(testing::Message() << members << " members");
    expect_same_bits(first, run_large(RingTestEngine(members, width), plan, a, signature));
  }
  return first;
}

std::vector<int8_t> signature_of(int64_t n) {
  std::vector<int8_t> signs(static_cast<size_t>(n));
  for (size_t j = 0; j < signs.size(); ++j) signs[j] = j % 3 == 1 ? -1 : 1;
  return signs;
}

class RingTest : public ::testing::TestWithParam<DType> {};

// Orders of 1, D, 2 D - 1, odd, prime, with a last block that is narrower, and with fewer blocks than super-blocks.
TEST_P(RingTest, SameBitsForEveryNumberOfMembers) {
  for (const int64_t n : {1, 2, 3, 4, 7, 8, 15, 31, 32, 33, 64, 67}) {
    SCOPED_TRACE(testing::Message() << "n = " << n);
    const Matrix a = generate(Kind::kNormal, GetParam(), n + 3, n, static_cast<uint64_t>(n));
    const LargeResult r = expect_same_on_every_ring(a, jacobi(), 2);
    ASSERT_EQ(r.outcome.status, LargeStatus::kOk);
    const double u = real_type(GetParam()).unit_roundoff, bound = 10 * static_cast<double>(std::max<int64_t>(n, 8)) * u;
    EXPECT_LE(residual_of(a, r), bound);
    EXPECT_LE(column_orthogonality(r.left), bound);
    EXPECT_LE(row_orthogonality(r.right), bound);
  }
}

TEST_P(RingTest, SameBitsForEveryKind) {
  for (const Kind kind : kinds(GetParam())) {
    SCOPED_TRACE(name(kind));
    const Matrix a = generate(kind, GetParam(), 37, 37, 5);
    expect_same_on_every_ring(a, jacobi(), 1);
    LargeOptions automatic;
    expect_same_on_every_ring(a, automatic, 1);
  }
}

TEST_P(RingTest, SameBitsOfHyperbolicFactors) {
  for (const int64_t n : {1, 5, 33, 48}) {
    SCOPED_TRACE(testing::Message() << "n = " << n);
    LargeOptions options;
    options.kind = LargeKind::kHyperbolicSvd;
    const Matrix a = generate(Kind::kNormal, GetParam(), n + 9, n, 2);
    const auto signature = signature_of(n);
    const LargeResult r = expect_same_on_every_ring(a, options, 2, signature);
    ASSERT_EQ(r.outcome.status, LargeStatus::kOk);
    EXPECT_LE(signature_error(r.right, signature),
              10 * static_cast<double>(n + 9) * real_type(GetParam()).unit_roundoff);
  }
}

TEST_P(RingTest, SameBitsOfEveryOption) {
  const Matrix a = generate(Kind::kNormal, GetParam(), 60, 41, 3);
  std::vector<LargeOptions> all(6, jacobi());
  all[0].vectors = Vectors::kNone;
  all[1].vectors = Vectors::kFull;
  all[2].variant = BlockVariant::kFullBlock;
  all[3].certificate = true;
  all[4].top_k = 5;
  all[5].max_sweeps = 2;  // does not converge
  for (const LargeOptions& options : all) expect_same_on_every_ring(a, options, 2);
  const Matrix wide = generate(Kind::kNormal, GetParam(), 30, 50, 3);
  expect_same_on_every_ring(wide, jacobi(), 2);
}

TEST_P(RingTest, SameBitsOfHermitianMatrices) {
  Matrix a = generate(Kind::kNormal, GetParam(), 40, 40, 3);
  LargeOptions options;
  options.kind = LargeKind::kHermitian;
  options.method = Method::kFactored;
  expect_same_on_every_ring(a, options, 2);
}

// Blocks in a power of two: the same order, and the same arithmetic.
TEST_P(RingTest, SameBitsAsOneDevice) {
  for (const int64_t n : {16, 32, 64, 128}) {
    SCOPED_TRACE(testing::Message() << "n = " << n);
    const Matrix a = generate(Kind::kNormal, GetParam(), n, n, 4);
    LargeOptions options = jacobi();
    options.strategy = PivotStrategy::kRecursive;
    const LargePlan plan = large_plan_of(problem_of(a), options);
    const LargeResult ring = run_large(RingTestEngine(4, n / 16), plan, a);
    expect_same_bits(run_large(RingTestEngine(0, n / 16), plan, a), ring);
    EXPECT_EQ(ring.outcome.members, 4);
  }
}

// Strategies that cannot be cut stay on one device, and say so.
TEST_P(RingTest, OtherStrategiesStayAtHome) {
  const Matrix a = generate(Kind::kNormal, GetParam(), 40, 40, 4);
  for (int s = 0; s <= static_cast<int>(PivotStrategy::kLast); ++s) {
    LargeOptions options = jacobi();
    options.strategy = static_cast<PivotStrategy>(s);
    const LargePlan plan = large_plan_of(problem_of(a), options);
    const LargeResult ring = run_large(RingTestEngine(4, 2), plan, a);
    if (large::can_be_cut(options.strategy)) {
      EXPECT_EQ(ring.outcome.members, 4);
    } else {
      EXPECT_EQ(ring.outcome.members, 1);
      expect_same_bits(run_large(RingTestEngine(0, 2), plan, a), ring);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(, RingTest, ::testing::ValuesIn(dtypes_of_run()),
                         [](const auto& param) { return std::string(name(param.param)); });

TEST(Ring, ANumberThatIsNotFiniteIsFound) {
  Matrix a = generate(Kind::kNormal, DType::kF64, 40, 40, 4);
  a.at(7, 3) = std::numeric_limits<double>::infinity();
  const LargeResult r = run_large(RingTestEngine(4, 2), large_plan_of(problem_of(a), jacobi()), a);
  EXPECT_EQ(r.outcome.status, LargeStatus::kNonFinite);
  EXPECT_EQ(r.outcome.row, 7);
  EXPECT_EQ(r.outcome.col, 3);
}

TEST(Ring, MembersMayExchangeMessages) {
  static_assert(ring::ExchangingMember<MessageMember<double>> && !ring::PeerMember<MessageMember<double>>);
  for (const DType dtype : {DType::kF64, DType::kC128}) {
    for (const int64_t n : {3, 33, 50}) {
      const Matrix a = generate(Kind::kNormal, dtype, n, n, 4);
      const LargePlan plan = large_plan_of(problem_of(a), jacobi());
      const LargeResult first = run_large(RingTestEngine(1, 2), plan, a);
      for (const int members : kRings) {
        expect_same_bits(first, run_large(RingTestEngineOf<MessageMember, SvdDriver>(members, 2), plan, a));
      }
    }
  }
}

TEST(Ring, MembersMayComputeHalvesOfPSteps) {
  for (const DType dtype : {DType::kF64, DType::kC128}) {
    for (const int64_t n : {3, 33, 50, 96}) {
      const Matrix a = generate(Kind::kNormal, dtype, n, n, 4);
      const LargePlan plan = large_plan_of(problem_of(a), jacobi());
      const LargeResult first = run_large(RingTestEngine(1, 2), plan, a);
      for (const int members : kRings) {
        expect_same_bits(first, run_large(RingTestEngineOf<HalvingMember, SvdDriver>(members, 2), plan, a));
      }
    }
  }
}

TEST(Ring, OfTheFacade) {
  EXPECT_EQ(make_host_ring_engine(2, 3), nullptr);
  const Matrix a = generate(Kind::kNormal, DType::kF64, 300, 260, 4);
  const LargePlan plan = large_plan_of(problem_of(a), jacobi());
  const auto one = make_host_ring_engine(2, 1);
  const LargeResult first = run_large(*one, plan, a);
  ASSERT_EQ(first.outcome.status, LargeStatus::kOk);
  for (const int members : kRings) {
    const auto ring = make_host_ring_engine(2, members);
    EXPECT_GT(ring->memory(plan).host_bytes, make_host_large_engine(2)->memory(plan).host_bytes);
    const LargeResult r = run_large(*ring, plan, a);
    expect_same_bits(first, r);
    EXPECT_EQ(r.outcome.members, members);
  }
}

}  // namespace
}  // namespace svdserve::numerics
