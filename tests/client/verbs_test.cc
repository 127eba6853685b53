// The verbs of the C++ client against the real server. Each form of a verb has the same numbers, and operands live as
// long as their calls.
#include <gtest/gtest.h>

#include <array>
#include <chrono>
#include <complex>
#include <cstring>
#include <limits>
#include <optional>
#include <span>
#include <thread>
#include <type_traits>
#include <vector>

#include "client/cpp/client.h"
#include "tests/client/process.h"

namespace svdserve::testing {
namespace {

using namespace client;  // NOLINT: as users write
using namespace std::chrono_literals;

class VerbsTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() { server_.emplace(); }
  static void TearDownTestSuite() { server_.reset(); }

  Client client{{.address = server_->address()}};
  std::vector<double> data = numbers(64);

  static std::vector<double> numbers(size_t count) {
    std::vector<double> v(count);
    for (size_t i = 0; i < count; ++i) v[i] = static_cast<double>(i * i % 17) - 5;
    return v;
  }

 private:
  static std::optional<Server> server_;
};

std::optional<Server> VerbsTest::server_;

TEST_F(VerbsTest, TakeAnyContiguousRange) {
  const auto expected = client.singular_values<double>(data, 4, 4, 4).value().values;
  const std::span<const double> view = data;
  std::array<double, 64> array;
  std::copy(data.begin(), data.end(), array.begin());
  double plain[64];
  std::copy(data.begin(), data.end(), plain);
  EXPECT_EQ(client.singular_values(data, {4, 4})->values, expected);
  EXPECT_EQ(client.singular_values(view, {4, 4})->values, expected);
  EXPECT_EQ(client.singular_values(array, {4, 4})->values, expected);
  EXPECT_EQ(client.singular_values(plain, {4, 4})->values, expected);
  EXPECT_EQ(client.singular_values(numbers(64), {4, 4})->values, expected);
  EXPECT_EQ(client.singular_values(Stack<double>{data, {4, 4}})->values, expected);
  EXPECT_EQ(client.singular_values(std::vector<double>{}, {4, 4})->values.size(), 0u);
  static_assert(!Elements<std::vector<int>> && !Elements<std::vector<bool>> && !Operand<std::vector<double>>);
}

TEST_F(VerbsTest, ResultsHaveTheirMatrices) {
  for (const MemoryOrder order : {MemoryOrder::kRowMajor, MemoryOrder::kColumnMajor}) {
    const auto d = client.svd(data, {4, 2, order}, {.vectors = Vectors::kFull}).value();
    for (int64_t i = 0; i < 8; ++i) {
      const MatrixView<double> a{data.data() + 8 * i, 4, 2, order};
      const auto u = d.u(i), vh = d.vh(i);
      ASSERT_EQ(u.rows * 10 + u.cols, 44);
      ASSERT_EQ(vh.rows * 10 + vh.cols, 22);
      for (int64_t r = 0; r < 4; ++r) {
        for (int64_t c = 0; c < 2; ++c) {
          const double sum = u(r, 0) * d.s(i)[0] * vh(0, c) + u(r, 1) * d.s(i)[1] * vh(1, c);
          EXPECT_NEAR(sum, a(r, c), 1e-13);
        }
      }
    }
  }
  const auto e = client.eig(data, {4, 4}, {.vectors = Vectors::kFull, .condition = true}).value();
  for (int64_t k = 0; k < 4; ++k) {
    std::complex<double> left = 0;
    for (int64_t j = 0; j < 4; ++j) left += e.v(2)(j, k) * data[static_cast<size_t>(32 + 4 + j)];
    EXPECT_NEAR(std::abs(left - e.w(2)[static_cast<size_t>(k)] * e.v(2)(1, k)), 0, 1e-12);
  }
  EXPECT_GE(e.condition_of_vectors(3), 4);
}

// A view of a result that is gone does not compile.
template <class R>
concept GivesViews = requires(R&& result) {
  std::forward<R>(result).u();
};
static_assert(GivesViews<Decomposition<double>&> && !GivesViews<Decomposition<double>>);
static_assert(GivesViews<LargeEigen<float>&> && !GivesViews<LargeEigen<float>>);

TEST_F(VerbsTest, FuturesHaveTheSameResults) {
  const auto later = [&](auto reply) { return reply.get().value(); };
  Verbs<true> async = client.async();
  EXPECT_EQ(later(async.singular_values(data, {4, 4})).values, client.singular_values(data, {4, 4})->values);
  EXPECT_EQ(later(async.svd(numbers(64), {4, 4})).left, client.svd(data, {4, 4})->left);
  EXPECT_EQ(later(async.eigh(data, {4, 4})).vectors, client.eigh<double>(data, 4, 4)->vectors);
  EXPECT_EQ(later(async.eig(data, {4, 4})).values, client.eig<double>(data, 4, 4)->values);
  EXPECT_EQ(later(async.capacity(data, {4, 4}, {0, 10}, {.water_filling = true, .group_size = 2})).values,
            client.capacity<double>(data, 4, 4, 4, {0, 10}, true, 2)->values);
  EXPECT_EQ(later(async.precoders(data, {4, 4}, 2)).columns, client.precoders<double>(data, 4, 4, 4, 2)->columns);
  const auto m = later(async.mimo(data, {4, 4}, {.capacity = true, .snr_db = {0, 10}}));
  EXPECT_EQ(m.capacity, client.capacity(data, {4, 4}, {0, 10})->values);
  EXPECT_EQ(m.precoders.size(), 0u);
  EXPECT_EQ(client.mimo(data, {4, 4}, {.combiner_columns = 1})->combiners.size(), 16u);
}

TEST_F(VerbsTest, LargeOnesHaveThreadsOfTheirOwn) {
  const std::vector<int8_t> signature = {1, -1, 1, -1};
  Verbs<true> async = client.async();
  auto svd = async.svd_large(numbers(64), {16, 4});
  auto hsvd = async.hsvd(data, {16, 4}, signature);
  auto eigh = async.eigh_large(numbers(64), {8, 8});
  auto factored = async.eigh_factored(data, {16, 4}, signature);
  auto eig = async.eig_large(data, {8, 8}, {.vectors = Vectors::kNone});
  EXPECT_EQ(svd.get().value().values, client.svd_large<double>(data, 16, 4)->values);
  EXPECT_EQ(hsvd.get().value().values, client.hsvd<double>(data, 16, 4, signature)->values);
  EXPECT_EQ(eigh.get().value().values, client.eigh<double>(data, 8)->values);
  EXPECT_EQ(factored.get().value().values, client.eigh_factored<double>(data, 16, 4, signature)->values);
  EXPECT_EQ(eig.get().value().values.size(), 8u);
}

TEST_F(VerbsTest, GroupsHaveShapesOfTheirOwn) {
  const std::vector<Stack<double>> groups = {
      {data, {4, 4}}, {data, {8, 2, MemoryOrder::kColumnMajor}}, {std::span(data).first(0), {3, 3}}};
  const auto d = client.svd_groups(groups, {.timeout = 60s}).value();
  ASSERT_EQ(d.size(), 3u);
  EXPECT_EQ(d[0].left, client.svd(groups[0])->left);
  EXPECT_EQ(d[1].right_adjoint, client.svd(groups[1])->right_adjoint);
  EXPECT_EQ(d[2].values.size(), 0u);
  const auto later = client.async().singular_values_groups(groups).get().value();
  EXPECT_EQ(later[1].values, client.singular_values(groups[1])->values);
  EXPECT_EQ(client.eigh_groups(std::span(groups).first(1))->front().values, client.eigh(groups[0])->values);
  EXPECT_EQ(client.eig_groups(std::span(groups).first(1))->front().values, client.eig(groups[0])->values);
  EXPECT_EQ(client.capacity_groups(groups, {10})->at(1).values, client.capacity(groups[1], {10})->values);
  EXPECT_EQ(client.mimo_groups(groups, {.effective_rank = true})->at(0).effective_rank.size(), 4u);
  EXPECT_EQ(client.precoders_groups(groups, 1)->at(1).columns.size(), 8u);
  EXPECT_TRUE(client.svd_groups(std::vector<Stack<double>>{})->empty());
}

TEST_F(VerbsTest, AMatrixWithoutResultsSaysSo) {
  data[17] = std::numeric_limits<double>::infinity();
  const auto s = client.singular_values(data, {4, 4}).value();
  EXPECT_EQ(s.report.status(0), MatrixStatus::kOk);
  EXPECT_EQ(s.report.status(1), MatrixStatus::kNonFinite);
  EXPECT_EQ(s.report.status(3), MatrixStatus::kOk);
  EXPECT_EQ(s.report.count_wrong(), 1);
}

// The client goes while calls are in flight: they end before it does, and their futures are ready.
TEST_F(VerbsTest, ADestroyedClientEndsItsCalls) {
  std::future<Result<LargeDecomposition<double>>> large;
  std::future<Result<SingularValues<double>>> batch;
  {
    Client other = std::move(client);
    large = other.async().svd_large(numbers(600 * 600), {600, 600});
    batch = other.async().singular_values(numbers(640000), {4, 4});
    (void)other.async().eigh_large(numbers(400 * 400), {400, 400});  // dropped
  }
  ASSERT_EQ(large.wait_for(0s), std::future_status::ready);
  ASSERT_EQ(batch.wait_for(0s), std::future_status::ready);
  const auto l = large.get();
  EXPECT_TRUE(l.ok() || l.status().code == Code::kCancelled) << l.status().to_string();
}

}  // namespace
}  // namespace svdserve::testing
