// Products that are dealt over devices: the numbers of one device's. They have the same bits on any number of devices,
// also where a helper cannot be made or has too little memory.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <complex>
#include <cstdint>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "engine/backends/ring/dealt_home.h"
#include "gtest/gtest.h"
#include "tests/support/numerics/effort.h"
#include "tests/support/numerics/large_cases.h"
#include "tests/support/numerics/random.h"
#include "tests/support/numerics/ring_engine.h"

namespace svdserve::numerics {
namespace {

using large::LargeStop;
using large::Op;

constexpr int64_t kWidth = 3;
constexpr int kDevices[] = {1, 2, 4, 8};

// The wrong that helpers do, and what they are asked.
struct Helping {
  int64_t most_elements = INT64_MAX;  // of matrices of a helper at once
  int first_absent = 100;             // the first device that has no helper
  LargeStatus why_absent = LargeStatus::kOutOfMemory;
  int faults_after = INT32_MAX;  // calls of back ends
  std::atomic<int> made = 0, calls = 0, short_products = 0;
  std::atomic<int64_t> fetched = 0, passed_on = 0;  // elements
};

template <class E>
struct TightBackEnd : NarrowHome<E> {
  using Base = NarrowHome<E>;
  using View = large::LargeView<E>;
  using Base::release;
  TightBackEnd(const large::LargeWatch* watch, Helping& helping)
      : Base(watch, kWidth), helping(helping), most(helping.most_elements) {}
  bool has_room(int64_t elements) const { return used + elements <= most; }
  View matrix(int64_t rows, int64_t cols) {
    if (!has_room(rows * cols)) throw LargeStop{LargeStatus::kOutOfMemory, "little memory"};
    used += rows * cols;
    return Base::matrix(rows, cols);
  }
  void release(View view) {
    used -= view.rows * view.cols;
    Base::release(view);
  }
  // Takes memory for some rows of X^H X, as a GPU does.
  int block_cosines(View x, int64_t width, int first, int count, large::BlockCosines& cosines) {
    const View rows = matrix(width, x.cols);
    const int done = Base::block_cosines(x, width, first, count, cosines);
    release(rows);
    return done;
  }
  // Takes memory for a product, as a GPU does.
  void apply_q(Op op, View a, const E* tau, View c, const large::PartDone& done = {}) {
    if (!has_room(c.rows * c.cols)) ++helping.short_products;
    const View product = matrix(c.rows, c.cols);
    Base::apply_q(op, a, tau, c, done);
    release(product);
  }
  Helping& helping;
  const int64_t most;
  int64_t used = 0;
};

template <class E>
class Helper {
 public:
  using View = large::LargeView<E>;
  Helper(const large::LargeWatch* watch, Helping& helping) : helping_(helping), back_end_(watch, helping) {
    ++helping_.made;
  }
  void begin() { begun_ = true; }
  void mark() {}
  void wait() {}
  void fetch(View from, View to) {
    EXPECT_TRUE(begun_);
    helping_.fetched += from.rows * from.cols;
    fetched_.push_back(to);
    back_end_.copy(from, to);
  }
  void share() { shared_ = fetched_; }
  void fetch_shared(const Helper& other, View from, View to) {
    EXPECT_TRUE(other.is_shared(from));
    helping_.passed_on += from.rows * from.cols;
    back_end_.copy(from, to);
  }
  void give(View from, View to) { back_end_.copy(from, to); }
  template <class F>
  void run(const F& f) {
    if (++helping_.calls > helping_.faults_after) throw LargeStop{LargeStatus::kFault, "a helper's fault"};
    f(back_end_);
  }

 private:
  bool is_shared(View view) const {
    return view.cols == 0 || std::any_of(shared_.begin(), shared_.end(), [&](const View& shared) {
             return shared.data == view.data && shared.rows == view.rows && shared.cols == view.cols;
           });
  }

  Helping& helping_;
  TightBackEnd<E> back_end_;
  std::vector<View> fetched_, shared_;
  bool begun_ = false;
};

template <class E>
using Home = ring::DealtHome<NarrowHome<E>, Helper<E>>;

template <class E>
Home<E> home_of(int devices, double least_work, const large::LargeWatch& watch, Helping& helping) {
  const auto make = [&](int device) {
    if (device >= helping.first_absent) throw LargeStop{helping.why_absent, "no helper"};
    return std::make_unique<Helper<E>>(&watch, helping);
  };
  return Home<E>({devices, least_work, least_work}, make, &watch, kWidth);
}

// The members of a ring are as many as the devices.
class Engine final : public RingTestEngineBase<Engine, SvdDriver> {
 public:
  Engine(int devices, bool is_ring, Helping& helping)
      : RingTestEngineBase(devices, kWidth, std::chrono::minutes(5), true), is_ring_(is_ring), helping_(helping) {}

  template <class E>
  LargeOutcome outcome_of(const large::LargeWatch& watch, const LargePlan& plan, const LargeOperands& operands,
                          const LargeControl& control) const {
    Home<E> home = home_of<E>(members(), 1, watch, helping_);
    if (!is_ring_) return SvdDriver()(home, plan, operands, control);
    return run_on<PlainMember<E>>(home, new_members<PlainMember, E>, watch, plan, operands, control);
  }

 private:
  const bool is_ring_;
  Helping& helping_;
};

std::vector<LargeCase> cases() {
  std::vector<LargeCase> cases;
  for_svds([&](const LargeOptions& options, const std::string& title) {
    cases.push_back({title + ", square", 70, 70, options});
    cases.push_back({title + ", taller", 90, 63, options});
    cases.push_back({title + ", wide", 60, 130, options, Kind::kNormal, Order::kColumnMajor});
    cases.push_back({title + ", columns of all sizes", 70, 70, options, Kind::kSteepColumns});
    cases.push_back({title + ", of low rank", 70, 70, options, Kind::kLowRank});
    cases.push_back({title + ", narrow", 50, 3, options});
  });
  LargeOptions hyperbolic = certified(Method::kAuto);
  hyperbolic.kind = LargeKind::kHyperbolicSvd;
  cases.push_back({"hyperbolic", 90, 60, hyperbolic});
  return cases;
}

// --- operations -------------------------------------------------------------------------------------------------------

template <class E>
class DealtProducts {
 public:
  using View = large::LargeView<E>;

  explicit DealtProducts(int devices) : home_(home_of<E>(devices, 1, watch_, helping_)), plain_(&watch_, kWidth) {}

  void expect_gemm() {
    for (const Op op_a : {Op::kNone, Op::kAdjoint}) {
      for (const Op op_b : {Op::kNone, Op::kAdjoint}) {
        for (const double beta : {0.0, -0.5}) {
          const View a = op_a == Op::kNone ? normal(31, 17) : normal(17, 31);
          const View b = op_b == Op::kNone ? normal(17, 22) : normal(22, 17);
          expect_same(normal(31, 22), [&](auto& backend, View c) { backend.gemm(op_a, op_b, 2, a, b, beta, c); });
        }
      }
    }
  }
  void expect_herk() {
    const View a = normal(41, 26);
    expect_same(normal(26, 26), [&](auto& backend, View c) { backend.herk(a, c); });
  }
  void expect_solve() {
    const View l = normal(29, 29);
    for (int64_t j = 0; j < l.cols; ++j) l.data[j + j * l.ld] = 30;
    expect_same(normal(29, 23), [&](auto& backend, View b) { backend.solve_lower(l, b); });
  }
  void expect_q() {
    const View a = normal(33, 21);
    E* const tau = plain_.scalars(21);
    plain_.qr(a, tau);
    for (const Op op : {Op::kNone, Op::kAdjoint}) {
      expect_same(normal(33, 19), [&](auto& backend, View c) { backend.apply_q(op, a, tau, c); });
    }
  }
  // With one column a group, and with several.
  void expect_qr() {
    for (const int64_t columns : {2, 21, 70}) {
      E* const tau = plain_.scalars(columns);
      expect_same(normal(columns + 9, columns), [&]<class BackEnd>(BackEnd& backend, View a) {
        double part = 0;
        backend.qr(a, tau, [&](double now) {
          EXPECT_GE(now, part);
          part = now;
        });
        if constexpr (std::is_same_v<BackEnd, Home<E>>) {
          EXPECT_EQ(part, 1);
        }
      });
      const View scalars{tau, columns, 1, columns};
      expect_same(scalars, [](auto&, View) {});
      plain_.release(tau);
    }
  }
  void expect_cosines() {
    for (const int64_t columns : {2, 3, 50, 170}) {
      const View x = normal(60, columns);
      const int blocks = static_cast<int>((columns + kWidth - 1) / kWidth);
      large::BlockCosines want(blocks), got(blocks);
      for (int p = 0; p < blocks;) p += plain_.block_cosines(x, kWidth, p, 1, want);
      for (int p = 0; p < blocks;) p += home_.block_cosines(x, kWidth, p, 2, got);
      for (int p = 0; p < blocks; ++p) {
        for (int q = p; q < blocks; ++q) EXPECT_NEAR(got.at(p, q), want.at(p, q), 1e-14) << p << ", " << q;
      }
    }
  }
  // Results of all operations but the cosines.
  const std::vector<std::vector<E>>& results() const { return results_; }
  const Helping& helping() const { return helping_; }

 private:
  View normal(int64_t rows, int64_t cols) {
    const View a = plain_.matrix(rows, cols);
    for (int64_t j = 0; j < cols; ++j) {
      for (int64_t i = 0; i < rows; ++i) {
        if constexpr (std::is_same_v<E, double>) {
          a.data[i + j * a.ld] = random_.normal();
        } else {
          a.data[i + j * a.ld] = {random_.normal(), random_.normal()};
        }
      }
    }
    return a;
  }

  // f(back end, result) by one device and by all.
  template <class F>
  void expect_same(View before, const F& f) {
    const View want = plain_.matrix(before.rows, before.cols), got = plain_.matrix(before.rows, before.cols);
    plain_.copy(before, want);
    plain_.copy(before, got);
    f(static_cast<NarrowHome<E>&>(plain_), want);
    f(home_, got);
    auto& result = results_.emplace_back();
    for (int64_t j = 0; j < got.cols; ++j) {
      for (int64_t i = 0; i < got.rows; ++i) {
        const E x = got.data[i + j * got.ld];
        EXPECT_LE(std::abs(x - want.data[i + j * want.ld]), 1e-13 * static_cast<double>(want.rows)) << i << ", " << j;
        result.push_back(x);
      }
    }
  }

  const LargeControl control_;
  const large::LargeWatch watch_{control_};
  Helping helping_;
  Home<E> home_;
  NarrowHome<E> plain_;
  Random random_{5};
  std::vector<std::vector<E>> results_;
};

template <class E>
class DealtProductsTest : public ::testing::Test {};
using Elements = ::testing::Types<double, std::complex<double>>;
TYPED_TEST_SUITE(DealtProductsTest, Elements, );

TYPED_TEST(DealtProductsTest, AreThoseOfOneDevice) {
  std::vector<std::vector<TypeParam>> results;
  for (const int devices : kDevices) {
    SCOPED_TRACE(testing::Message() << devices << " devices");
    DealtProducts<TypeParam> products(devices);
    products.expect_gemm();
    products.expect_herk();
    products.expect_solve();
    products.expect_q();
    products.expect_qr();
    products.expect_cosines();
    EXPECT_EQ(products.helping().made, devices - 1);
    if (devices == 1) results = products.results();
    EXPECT_TRUE(results == products.results()) << "other bits";
  }
}

// --- decompositions ---------------------------------------------------------------------------------------------------

class DealtHomeTest : public ::testing::TestWithParam<DType> {};

TEST_P(DealtHomeTest, HasTheSameBitsOnAnyNumberOfDevices) {
  for (const bool is_ring : {false, true}) {
    Helping none;
    const Engine alone(1, is_ring, none);
    for (const LargeCase& c : cases()) {
      SCOPED_TRACE(c.title);
      const LargeResult want = run(alone, GetParam(), c);
      ASSERT_EQ(want.outcome.status, LargeStatus::kOk) << want.outcome.detail;
      for (const int devices : {2, 4}) {
        Helping helping;
        expect_same_bits(want, run(Engine(devices, is_ring, helping), GetParam(), c));
        EXPECT_EQ(helping.made > 0, helping.fetched > 0);
        EXPECT_TRUE(helping.made == devices - 1 || c.options.vectors == Vectors::kNone);
      }
      if (c.options.vectors == Vectors::kNone) continue;
      const double u = value_bytes(GetParam()) == 4 ? 0x1p-24 : 0x1p-53,
                   times = has_signature(c.options.kind) ? 100 : 10;
      EXPECT_LE(residual_of(c.operand(GetParam()), want), times * static_cast<double>(std::max(c.rows, c.cols)) * u);
    }
    EXPECT_EQ(none.made, 0);
  }
}

TEST_P(DealtHomeTest, DoesTheWorkOfHelpersThatThereAreNot) {
  Helping none;
  const Engine alone(1, false, none);
  for (const LargeCase& c : cases()) {
    SCOPED_TRACE(c.title);
    const LargeResult want = run(alone, GetParam(), c);
    for (const int first_absent : {1, 2}) {
      Helping absent;
      absent.first_absent = first_absent;
      expect_same_bits(want, run(Engine(4, false, absent), GetParam(), c));
      EXPECT_LT(absent.made, first_absent);
    }
    for (const int64_t most : {0, 1000, 5000, 12000}) {
      SCOPED_TRACE(testing::Message() << "memory for " << most);
      Helping tight;
      tight.most_elements = most;
      expect_same_bits(want, run(Engine(4, false, tight), GetParam(), c));
    }
  }
}

TEST_P(DealtHomeTest, FailsWithItsHelpers) {
  const LargeCase c{"", 60, 50, certified(Method::kJacobi)};
  Helping sound;
  ASSERT_EQ(run(Engine(4, false, sound), GetParam(), c).outcome.status, LargeStatus::kOk);
  for (int calls = 0; calls < sound.calls; calls += is_long_run() ? 7 : 17) {
    Helping helping;
    helping.faults_after = calls;
    const LargeResult result = run(Engine(4, false, helping), GetParam(), c);
    EXPECT_EQ(result.outcome.status, LargeStatus::kFault);
    EXPECT_EQ(result.outcome.detail, "a helper's fault");
  }
}

TEST_P(DealtHomeTest, FailsWhereAHelperCannotBeMadeForOtherReasonsThanMemory) {
  Helping broken;
  broken.first_absent = 2;
  broken.why_absent = LargeStatus::kFault;
  const LargeResult result = run(Engine(4, true, broken), GetParam(), {"", 60, 50, certified(Method::kJacobi)});
  EXPECT_EQ(result.outcome.status, LargeStatus::kFault);
  EXPECT_EQ(result.outcome.detail, "no helper");
}

INSTANTIATE_TEST_SUITE_P(DTypes, DealtHomeTest, ::testing::ValuesIn(dtypes_of_run()),
                         [](const auto& info) { return std::string(name(info.param)); });

// A helper that has too little memory in the middle of a QR gives its columns back.
TEST(DealtHome, GoesOnWithAQrWithoutHelpers) {
  const LargeControl control;
  const large::LargeWatch watch(control);
  constexpr int64_t kRows = 80, kColumns = 70;
  std::vector<double> want;
  int short_products = 0;
  for (int64_t most = 3000; most >= 0; most -= 60) {
    Helping helping;
    helping.most_elements = most;
    Home<double> home = home_of<double>(4, 1, watch, helping);
    const auto a = home.matrix(kRows, kColumns);
    Random random(5);
    for (int64_t j = 0; j < kColumns; ++j) {
      for (int64_t i = 0; i < kRows; ++i) a.data[i + j * a.ld] = random.normal();
    }
    home.qr(a, home.scalars(kColumns));
    const std::vector<double> got(a.data, a.data + a.ld * kColumns);
    if (want.empty()) want = got;
    EXPECT_TRUE(got == want) << "memory for " << most;
    short_products += helping.short_products;
  }
  EXPECT_GT(short_products, 0);
}

TEST(DealtHome, KeepsSmallProducts) {
  const LargeControl control;
  const large::LargeWatch watch(control);
  Helping helping;
  Home<double> home = home_of<double>(4, 1000, watch, helping);
  const auto a = home.matrix(9, 10), b = home.matrix(10, 11), c = home.matrix(9, 11);
  for (const auto& view : {a, b, c}) home.set_zero(view);
  home.gemm(Op::kNone, Op::kNone, 1, a, b, 0, c);
  EXPECT_EQ(helping.made, 0);
  const auto d = home.matrix(10, 12), e = home.matrix(9, 12);
  home.set_zero(d);
  home.gemm(Op::kNone, Op::kNone, 1, a, d, 0, e);
  EXPECT_EQ(helping.made, 3);
}

}  // namespace
}  // namespace svdserve::numerics
