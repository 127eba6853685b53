// The outputs of a decomposition besides values, through a real server: sizes and places of every field, and what the
// numbers in them are. How exact they are is for the engine's tests.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <thread>
#include <vector>

#include "absl/strings/match.h"
#include "tests/support/one_server_test.h"
#include "tests/support/running_server.h"
#include "tests/support/wire.h"

namespace svdserve::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::SizeIs;

std::vector<double> numbers(const std::string& bytes) {
  std::vector<double> out(bytes.size() / sizeof(double));
  std::memcpy(out.data(), bytes.data(), out.size() * sizeof(double));
  return out;
}

class OutputsTest : public OneServerTest<OutputsTest> {
 protected:
  static v1::DecomposeResponse Ask(const v1::DecomposeRequest& request) {
    v1::DecomposeResponse response;
    const grpc::Status status = decompose(channel_, request, &response);
    EXPECT_TRUE(status.ok()) << status.error_message();
    return response;
  }
};

// |A - U S V^H| of matrix i, row-major and real; U is m x lead, V^H lead x n.
double residual(const v1::DecomposeRequest& request, const v1::DecomposeResponse& r, size_t i) {
  const size_t m = request.matrices().rows(), n = request.matrices().cols();
  const size_t left = r.left_columns(), right = r.right_columns(), k = r.values_per_matrix();
  const std::vector<double> a = numbers(request.matrices().data()), u = numbers(r.left_vectors()),
                            s = numbers(r.singular_values()), vh = numbers(r.right_vectors_adjoint());
  double sum = 0;
  for (size_t row = 0; row < m; ++row) {
    for (size_t col = 0; col < n; ++col) {
      double x = a[(i * m + row) * n + col];
      for (size_t j = 0; j < k; ++j) x -= u[(i * m + row) * left + j] * s[i * k + j] * vh[(i * right + j) * n + col];
      sum += x * x;
    }
  }
  return std::sqrt(sum);
}

TEST_F(OutputsTest, VectorsDecomposeTheirMatrices) {
  for (const auto& [m, n] : {std::pair(4, 4), std::pair(6, 3), std::pair(3, 7), std::pair(1, 1), std::pair(100, 2)}) {
    for (const v1::Vectors vectors : {v1::VECTORS_THIN, v1::VECTORS_FULL}) {
      v1::DecomposeRequest request = random_request(m, n, 20);
      request.mutable_options()->set_vectors(vectors);
      const v1::DecomposeResponse r = Ask(request);
      const bool full = vectors == v1::VECTORS_FULL;
      EXPECT_EQ(r.method(), v1::METHOD_JACOBI);
      EXPECT_EQ(r.left_columns(), full ? m : std::min(m, n));
      EXPECT_EQ(r.right_columns(), full ? n : std::min(m, n));
      ASSERT_THAT(numbers(r.left_vectors()), SizeIs(20 * m * r.left_columns()));
      ASSERT_THAT(numbers(r.right_vectors_adjoint()), SizeIs(20 * n * r.right_columns()));
      for (size_t i = 0; i < 20; ++i) EXPECT_LT(residual(request, r, i), 1e-13) << m << "x" << n;
    }
  }
}

TEST_F(OutputsTest, MatricesOfManyValues) {
  for (const auto& [m, n] : {std::pair(64, 64), std::pair(40, 200), std::pair(128, 100)}) {
    v1::DecomposeRequest request = random_request(m, n, 5);
    const size_t k = std::min(m, n);
    const v1::DecomposeResponse values = Ask(request);
    // Beyond 32 the method is the device's.
    const v1::Method method = absl::StartsWith(values.device(), "host") ? v1::METHOD_BIDIAGONAL : v1::METHOD_JACOBI;
    EXPECT_EQ(values.method(), method);
    ASSERT_THAT(numbers(values.singular_values()), SizeIs(5 * k));
    request.mutable_options()->set_vectors(v1::VECTORS_THIN);
    const v1::DecomposeResponse r = Ask(request);
    EXPECT_EQ(r.method(), method);
    for (size_t i = 0; i < 5; ++i) EXPECT_LT(residual(request, r, i), 1e-11) << m << "x" << n;
    const std::vector<double> alone = numbers(values.singular_values()), s = numbers(r.singular_values());
    for (size_t i = 0; i < s.size(); ++i) EXPECT_NEAR(s[i], alone[i], 1e-12 * s[i / k * k]);
    // The last matrix, asked for alone, has the bits that it has among others.
    v1::DecomposeRequest last = request;
    const size_t bytes = sizeof(double) * m * n;
    last.mutable_matrices()->set_count(1);
    last.mutable_matrices()->set_data(request.matrices().data().substr(4 * bytes));
    const v1::DecomposeResponse one = Ask(last);
    EXPECT_EQ(one.left_vectors(), r.left_vectors().substr(4 * sizeof(double) * m * k));
    EXPECT_EQ(one.right_vectors_adjoint(), r.right_vectors_adjoint().substr(4 * sizeof(double) * n * k));
  }
}

TEST_F(OutputsTest, TheCertificateIsOfTheBatch) {
  v1::DecomposeRequest request = random_request(5, 4, 50);
  request.mutable_options()->set_vectors(v1::VECTORS_THIN);
  request.mutable_options()->set_certificate(v1::CERTIFICATE_SCOPE_MATRIX);
  auto* elements = reinterpret_cast<double*>(request.mutable_matrices()->mutable_data()->data());
  elements[20 * 7] = std::numeric_limits<double>::quiet_NaN();
  const v1::DecomposeResponse r = Ask(request);
  EXPECT_THAT(r.exception_indices(), ElementsAre(7));
  const std::vector<double> each = numbers(r.certificate().each_matrix());
  ASSERT_THAT(each, SizeIs(150));
  double largest = 0;
  for (size_t i = 0; i < 50; ++i) {
    if (i == 7) {
      EXPECT_TRUE(std::isnan(each[3 * i]));
    } else {
      largest = std::max(largest, each[3 * i]);
    }
  }
  EXPECT_EQ(r.certificate().residual(), largest);
  EXPECT_GT(largest, 0);
  EXPECT_LT(largest, 1e-14);
  request.mutable_options()->set_certificate(v1::CERTIFICATE_SCOPE_BATCH);
  const v1::DecomposeResponse shorter = Ask(request);
  EXPECT_EQ(shorter.certificate().residual(), largest);
  EXPECT_TRUE(shorter.certificate().each_matrix().empty());
  EXPECT_EQ(shorter.left_vectors(), r.left_vectors());
}

TEST_F(OutputsTest, NumbersOfChannels) {
  // diag(3, 1) and zero: by hand.
  v1::DecomposeRequest request = random_request(2, 2, 2);
  const double diagonal[] = {3, 0, 0, 1, 0, 0, 0, 0};
  request.mutable_matrices()->set_data(diagonal, sizeof diagonal);
  v1::MimoOptions& mimo = *request.mutable_options()->mutable_mimo();
  mimo.set_capacity(true);
  mimo.set_water_filling(true);
  mimo.set_stream_snr(true);
  mimo.set_condition_number(true);
  mimo.set_effective_rank(true);
  mimo.set_rank_threshold(0.5);
  mimo.add_snr_db(0);
  mimo.add_snr_db(10);
  const v1::DecomposeResponse r = Ask(request);
  EXPECT_TRUE(r.singular_values().empty());
  EXPECT_EQ(r.values_per_matrix(), 0);
  const std::vector<double> capacity = numbers(r.mimo().capacity());
  ASSERT_THAT(capacity, SizeIs(4));
  EXPECT_NEAR(capacity[0], std::log2(5.5) + std::log2(1.5), 1e-12);
  EXPECT_NEAR(capacity[1], std::log2(46) + std::log2(6), 1e-12);
  EXPECT_EQ(capacity[2], 0);
  const std::vector<double> filled = numbers(r.mimo().water_filling());
  ASSERT_THAT(filled, SizeIs(4));
  const double mu = (1 + 1 / 9.0 + 1) / 2;  // both streams, just: 1 <= mu
  EXPECT_NEAR(filled[0], std::log2(9 * mu) + std::log2(mu), 1e-12);
  EXPECT_EQ(filled[3], 0);
  EXPECT_THAT(numbers(r.mimo().stream_snr()), ElementsAre(4.5, 0.5, ::testing::DoubleNear(45, 1e-12), 5, 0, 0, 0, 0));
  EXPECT_THAT(numbers(r.mimo().condition_number()), ElementsAre(3, std::numeric_limits<double>::infinity()));
  const double entropy = -0.75 * std::log(0.75) - 0.25 * std::log(0.25);
  EXPECT_NEAR(numbers(r.mimo().effective_rank())[0], std::exp(entropy), 1e-12);
  EXPECT_THAT(numbers(r.mimo().threshold_rank()), ElementsAre(1, 0));
}

TEST_F(OutputsTest, CapacitiesOfGroupsAreSums) {
  v1::DecomposeRequest request = random_request(3, 3, 12);
  v1::MimoOptions& mimo = *request.mutable_options()->mutable_mimo();
  mimo.set_capacity(true);
  mimo.add_snr_db(10);
  const std::vector<double> each = numbers(Ask(request).mimo().capacity());
  mimo.set_group_size(4);
  const std::vector<double> sums = numbers(Ask(request).mimo().capacity());
  ASSERT_THAT(sums, SizeIs(3));
  for (size_t g = 0; g < 3; ++g) {
    double sum = 0;
    for (size_t i = 0; i < 4; ++i) sum += each[4 * g + i];
    EXPECT_NEAR(sums[g], sum, 1e-12 * sum);
  }
}

TEST_F(OutputsTest, GroupsGetWhatTheyGetAlone) {
  v1::DecomposeRequest together;
  together.mutable_options()->set_vectors(v1::VECTORS_THIN);
  std::vector<v1::DecomposeRequest> alone;
  for (int64_t i = 0; i < 40; ++i) {
    alone.push_back(random_request(1 + i % 5, 1 + i % 7, i % 4, static_cast<uint64_t>(i)));
    alone.back().mutable_options()->set_vectors(v1::VECTORS_THIN);
    *together.add_groups() = alone.back().matrices();
  }
  const v1::DecomposeResponse r = Ask(together);
  EXPECT_GT(r.timing().total_seconds(), 0);
  ASSERT_EQ(r.groups_size(), 40);
  for (int i = 0; i < 40; ++i) {
    const v1::DecomposeResponse mine = Ask(alone[static_cast<size_t>(i)]);
    EXPECT_EQ(r.groups(i).count(), i % 4);
    EXPECT_EQ(r.groups(i).singular_values(), mine.singular_values()) << i;
    EXPECT_EQ(r.groups(i).left_vectors(), mine.left_vectors()) << i;
    EXPECT_EQ(r.groups(i).right_vectors_adjoint(), mine.right_vectors_adjoint()) << i;
  }
}

TEST_F(OutputsTest, GroupsInAStream) {
  v1::DecomposeStreamRequest request;
  request.set_request_id(9);
  *request.mutable_request()->add_groups() = random_request(2, 2, 3).matrices();
  *request.mutable_request()->add_groups() = random_request(3, 1, 1).matrices();
  v1::DecomposeStreamRequest bad = request;
  bad.set_request_id(10);
  bad.mutable_request()->mutable_groups(1)->set_cols(0);
  grpc::ClientContext context;
  const auto stream = v1::SvdService::NewStub(channel_)->DecomposeStream(&context);
  ASSERT_TRUE(stream->Write(request));
  ASSERT_TRUE(stream->Write(bad));
  ASSERT_TRUE(stream->WritesDone());
  v1::DecomposeStreamResponse response;
  for (int i = 0; i < 2; ++i) {
    ASSERT_TRUE(stream->Read(&response));
    if (response.request_id() == 9) {
      ASSERT_EQ(response.response().groups_size(), 2);
      EXPECT_THAT(numbers(response.response().groups(0).singular_values()), SizeIs(6));
    } else {
      EXPECT_EQ(details_of(response.status()).field, "request.groups[1].cols");
    }
  }
  EXPECT_TRUE(stream->Finish().ok());
}

TEST_F(OutputsTest, GroupsAreCancelledWithTheirCall) {
  v1::DecomposeRequest request;
  for (int i = 0; i < 4; ++i) *request.add_groups() = slow_request(1500).matrices();
  request.mutable_options()->set_method(v1::METHOD_JACOBI);
  request.mutable_options()->set_tolerance(1e-15);
  v1::DecomposeResponse response;
  const grpc::Status status = decompose(channel_, request, &response, std::chrono::milliseconds(20));
  EXPECT_EQ(status.error_code(), grpc::StatusCode::DEADLINE_EXCEEDED);
}

}  // namespace
}  // namespace svdserve::testing
