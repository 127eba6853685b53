// Eigendecompose and EigendecomposeStream through a real server: eigenpairs of every type and layout, rejections with
// code, field and reason, groups and streams. How exact the numbers are in hard cases is for the engine's tests.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <complex>
#include <cstring>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <random>
#include <vector>

#include "absl/strings/match.h"
#include "tests/support/one_server_test.h"
#include "tests/support/running_server.h"
#include "tests/support/wire.h"

namespace svdserve::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::SizeIs;
using Complex = std::complex<double>;

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

// --- matrices -----------------------------------------------------------------------------------

// n x n matrices, row-major, every element a number of the type on the wire.
struct Matrices {
  size_t n = 0;
  std::vector<Complex> elements = {};

  size_t count() const { return n == 0 ? 0 : elements.size() / (n * n); }
  Complex& at(size_t matrix, size_t i, size_t j) { return elements[(matrix * n + i) * n + j]; }
  const Complex& at(size_t matrix, size_t i, size_t j) const { return elements[(matrix * n + i) * n + j]; }
};

bool is_complex(v1::DataType type) { return type == v1::DATA_TYPE_C64 || type == v1::DATA_TYPE_C128; }
bool is_single(v1::DataType type) { return type == v1::DATA_TYPE_F32 || type == v1::DATA_TYPE_C64; }
double unit_roundoff(v1::DataType type) { return is_single(type) ? 0x1p-24 : 0x1p-53; }

void append(double x, v1::DataType type, std::string* to) {
  const auto single = static_cast<float>(x);
  to->append(is_single(type) ? reinterpret_cast<const char*>(&single) : reinterpret_cast<const char*>(&x),
             is_single(type) ? sizeof single : sizeof x);
}

double number_at(const std::string& bytes, size_t index, v1::DataType type) {
  float single = 0;
  double x = 0;
  if (is_single(type)) {
    std::memcpy(&single, bytes.data() + index * sizeof single, sizeof single);
    return static_cast<double>(single);
  }
  std::memcpy(&x, bytes.data() + index * sizeof x, sizeof x);
  return x;
}

// The place of element (i, j) of an n x n matrix among its elements.
size_t place(size_t i, size_t j, size_t n, v1::MemoryOrder order) {
  return order == v1::MEMORY_ORDER_ROW_MAJOR ? i * n + j : j * n + i;
}

Matrices hermitian(size_t n, size_t count, v1::DataType type, uint64_t seed = 1) {
  std::mt19937_64 random(seed);
  std::uniform_real_distribution<double> uniform(-1, 1);
  const auto next = [&] {
    return is_single(type) ? static_cast<double>(static_cast<float>(uniform(random))) : uniform(random);
  };
  Matrices a{n, std::vector<Complex>(count * n * n)};
  for (size_t matrix = 0; matrix < count; ++matrix) {
    for (size_t i = 0; i < n; ++i) {
      a.at(matrix, i, i) = next();
      for (size_t j = 0; j < i; ++j) {
        a.at(matrix, i, j) = {next(), is_complex(type) ? next() : 0};
        a.at(matrix, j, i) = std::conj(a.at(matrix, i, j));
      }
    }
  }
  return a;
}

void write(const Matrices& a, v1::DataType type, v1::MemoryOrder order, v1::MatrixBatch* batch) {
  const auto n = static_cast<int64_t>(a.n);
  batch->set_data_type(type);
  batch->set_memory_order(order);
  batch->set_rows(n);
  batch->set_cols(n);
  batch->set_count(static_cast<int64_t>(a.count()));
  batch->clear_data();
  for (size_t matrix = 0; matrix < a.count(); ++matrix) {
    for (size_t i = 0; i < a.n * a.n; ++i) {
      const bool rows = order == v1::MEMORY_ORDER_ROW_MAJOR;
      const Complex x = a.at(matrix, rows ? i / a.n : i % a.n, rows ? i % a.n : i / a.n);
      append(x.real(), type, batch->mutable_data());
      if (is_complex(type)) append(x.imag(), type, batch->mutable_data());
    }
  }
}

v1::EigendecomposeRequest request_of(const Matrices& a, v1::DataType type = v1::DATA_TYPE_F64,
                                     v1::MemoryOrder order = v1::MEMORY_ORDER_ROW_MAJOR) {
  v1::EigendecomposeRequest request;
  write(a, type, order, request.mutable_matrices());
  request.mutable_options()->set_problem(v1::EIGEN_PROBLEM_HERMITIAN);
  request.mutable_options()->set_vectors(v1::EIGENVECTORS_RIGHT);
  return request;
}

std::vector<double> values_of(const v1::EigendecomposeResponse& r, v1::DataType type) {
  std::vector<double> values(r.eigenvalues().size() / (is_single(type) ? sizeof(float) : sizeof(double)));
  for (size_t i = 0; i < values.size(); ++i) values[i] = number_at(r.eigenvalues(), i, type);
  return values;
}

Matrices matrices_of(const std::string& bytes, size_t n, v1::DataType type, v1::MemoryOrder order) {
  const size_t components = is_complex(type) ? 2 : 1;
  const size_t numbers = bytes.size() / (is_single(type) ? sizeof(float) : sizeof(double));
  Matrices u{n, std::vector<Complex>(numbers / components)};
  for (size_t matrix = 0; matrix < u.count(); ++matrix) {
    for (size_t i = 0; i < n; ++i) {
      for (size_t j = 0; j < n; ++j) {
        const size_t at = (matrix * n * n + place(i, j, n, order)) * components;
        const double imaginary = components == 2 ? number_at(bytes, at + 1, type) : 0;
        u.at(matrix, i, j) = {number_at(bytes, at, type), imaginary};
      }
    }
  }
  return u;
}

Matrices vectors_of(const v1::EigendecomposeResponse& r, size_t n, v1::DataType type, v1::MemoryOrder order) {
  return matrices_of(r.vectors(), n, type, order);
}

// The eigenvalues ascend, |A U - U L| <= 10 n u |A| and |I - U^H U| <= 10 n u: docs/accuracy.md.
void expect_eigenpairs(const Matrices& a, const v1::EigendecomposeResponse& r, v1::DataType type,
                       v1::MemoryOrder order) {
  const size_t n = a.n;
  const std::vector<double> values = values_of(r, type);
  const Matrices u = vectors_of(r, n, type, order);
  ASSERT_THAT(values, SizeIs(a.count() * n));
  ASSERT_EQ(u.count(), a.count());
  const double bound = 10 * static_cast<double>(n) * unit_roundoff(type);
  for (size_t matrix = 0; matrix < a.count(); ++matrix) {
    const double* const w = values.data() + matrix * n;
    EXPECT_TRUE(std::is_sorted(w, w + n));
    double error = 0, size = 0, angle = 0;
    for (size_t i = 0; i < n; ++i) {
      for (size_t j = 0; j < n; ++j) {
        Complex residual = -u.at(matrix, i, j) * w[j], dot = i == j ? -1 : 0;
        for (size_t l = 0; l < n; ++l) {
          residual += a.at(matrix, i, l) * u.at(matrix, l, j);
          dot += std::conj(u.at(matrix, l, i)) * u.at(matrix, l, j);
        }
        error += std::norm(residual);
        size += std::norm(a.at(matrix, i, j));
        angle += std::norm(dot);
      }
    }
    EXPECT_LE(std::sqrt(error), bound * std::sqrt(size)) << "n = " << n << ", matrix " << matrix;
    EXPECT_LE(std::sqrt(angle), bound) << "n = " << n << ", matrix " << matrix;
  }
}

// --- the server ---------------------------------------------------------------------------------

class EigenTest : public OneServerTest<EigenTest> {
 protected:
  static grpc::Status Call(const v1::EigendecomposeRequest& request, v1::EigendecomposeResponse* response) {
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + std::chrono::minutes(4));
    return v1::SvdService::NewStub(channel_)->Eigendecompose(&context, request, response);
  }
  static v1::EigendecomposeResponse Ask(const v1::EigendecomposeRequest& request) {
    v1::EigendecomposeResponse response;
    const grpc::Status status = Call(request, &response);
    EXPECT_TRUE(status.ok()) << status.error_message();
    return response;
  }
};

struct Layout {
  v1::DataType type;
  v1::MemoryOrder order;
};

class EigenLayoutTest : public EigenTest, public ::testing::WithParamInterface<Layout> {};

TEST_P(EigenLayoutTest, EigenvectorsBelongToTheirEigenvalues) {
  const auto [type, order] = GetParam();
  for (const size_t n : {1, 2, 3, 4, 8, 11, 16, 32, 33, 65, 150}) {
    const Matrices a = hermitian(n, n > 32 ? 2 : 19, type, n);
    const v1::EigendecomposeResponse r = Ask(request_of(a, type, order));
    const bool tridiagonal = n <= 4 || (n > 32 && absl::StartsWith(r.device(), "host"));
    EXPECT_EQ(r.method(), tridiagonal ? v1::METHOD_TRIDIAGONAL : v1::METHOD_JACOBI);
    EXPECT_EQ(r.count(), static_cast<int64_t>(a.count()));
    EXPECT_EQ(r.values_per_matrix(), static_cast<int64_t>(n));
    EXPECT_EQ(r.vector_columns(), static_cast<int64_t>(n));
    EXPECT_FALSE(r.has_certificate());
    EXPECT_FALSE(r.device().empty());
    EXPECT_THAT(r.exception_indices(), SizeIs(0));
    expect_eigenpairs(a, r, type, order);
  }
}

// NumPy ignores the other triangle and what the diagonal has of imaginary parts.
TEST_P(EigenLayoutTest, OneTriangleIsRead) {
  const auto [type, order] = GetParam();
  for (const size_t n : {2, 7, 40}) {
    const Matrices a = hermitian(n, 5, type);
    for (const v1::Triangle triangle : {v1::TRIANGLE_UNSPECIFIED, v1::TRIANGLE_LOWER, v1::TRIANGLE_UPPER}) {
      Matrices half = a;
      for (size_t matrix = 0; matrix < a.count(); ++matrix) {
        for (size_t i = 0; i < n; ++i) {
          half.at(matrix, i, i).imag(42);
          for (size_t j = 0; j < i; ++j) {
            (triangle == v1::TRIANGLE_UPPER ? half.at(matrix, i, j) : half.at(matrix, j, i)) = {kNan, kNan};
          }
        }
      }
      v1::EigendecomposeRequest request = request_of(half, type, order);
      request.mutable_options()->set_triangle(triangle);
      const v1::EigendecomposeResponse r = Ask(request);
      EXPECT_THAT(r.exception_indices(), SizeIs(0));
      expect_eigenpairs(a, r, type, order);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Eigen, EigenLayoutTest,
                         ::testing::Values(Layout{v1::DATA_TYPE_F32, v1::MEMORY_ORDER_ROW_MAJOR},
                                           Layout{v1::DATA_TYPE_F32, v1::MEMORY_ORDER_COLUMN_MAJOR},
                                           Layout{v1::DATA_TYPE_F64, v1::MEMORY_ORDER_ROW_MAJOR},
                                           Layout{v1::DATA_TYPE_F64, v1::MEMORY_ORDER_COLUMN_MAJOR},
                                           Layout{v1::DATA_TYPE_C64, v1::MEMORY_ORDER_ROW_MAJOR},
                                           Layout{v1::DATA_TYPE_C64, v1::MEMORY_ORDER_COLUMN_MAJOR},
                                           Layout{v1::DATA_TYPE_C128, v1::MEMORY_ORDER_ROW_MAJOR},
                                           Layout{v1::DATA_TYPE_C128, v1::MEMORY_ORDER_COLUMN_MAJOR}),
                         [](const auto& info) {
                           return v1::DataType_Name(info.param.type) + v1::MemoryOrder_Name(info.param.order);
                         });

TEST_F(EigenTest, EigenvaluesAlone) {
  for (const size_t n : {3, 50}) {
    v1::EigendecomposeRequest request = request_of(hermitian(n, 4, v1::DATA_TYPE_F64));
    const std::vector<double> with_vectors = values_of(Ask(request), v1::DATA_TYPE_F64);
    request.mutable_options()->clear_vectors();
    const v1::EigendecomposeResponse alone = Ask(request);
    EXPECT_TRUE(alone.vectors().empty());
    EXPECT_EQ(alone.vector_columns(), 0);
    const std::vector<double> values = values_of(alone, v1::DATA_TYPE_F64);
    ASSERT_THAT(values, SizeIs(with_vectors.size()));
    const double bound = 20 * static_cast<double>(n) * 0x1p-53 * static_cast<double>(n);
    for (size_t i = 0; i < values.size(); ++i) EXPECT_NEAR(values[i], with_vectors[i], bound);
  }
}

TEST_F(EigenTest, EqualEigenvalues) {
  Matrices a{4, std::vector<Complex>(4 * 16)};
  for (size_t i = 0; i < 4; ++i) {
    a.at(1, i, i) = 1;      // the identity, after the zero matrix
    a.at(2, i, 3 - i) = 1;  // -1, -1, 1, 1
    a.at(3, i, i) = -2.0 * static_cast<double>(i % 2);
  }
  const v1::EigendecomposeResponse r = Ask(request_of(a));
  expect_eigenpairs(a, r, v1::DATA_TYPE_F64, v1::MEMORY_ORDER_ROW_MAJOR);
  const std::vector<double> values = values_of(r, v1::DATA_TYPE_F64);
  ASSERT_THAT(values, SizeIs(16));
  const double expected[] = {0, 0, 0, 0, 1, 1, 1, 1, -1, -1, 1, 1, -2, -2, 0, 0};
  for (size_t i = 0; i < 16; ++i) EXPECT_NEAR(values[i], expected[i], 40 * 0x1p-53 * 2);
}

TEST_F(EigenTest, AnEmptyBatch) {
  v1::EigendecomposeRequest request = request_of({3, {}});
  const v1::EigendecomposeResponse r = Ask(request);
  EXPECT_EQ(r.count(), 0);
  EXPECT_EQ(r.values_per_matrix(), 3);
  EXPECT_TRUE(r.eigenvalues().empty() && r.vectors().empty());
}

TEST_F(EigenTest, AMatrixThatIsNotFiniteLeavesItsNeighboursAlone) {
  for (const size_t n : {5, 40}) {
    const Matrices a = hermitian(n, 20, v1::DATA_TYPE_F64);
    const v1::EigendecomposeResponse clean = Ask(request_of(a));
    Matrices spoilt = a;
    spoilt.at(7, n - 1, 0) = kNan;
    spoilt.at(11, 2, 2) = std::numeric_limits<double>::infinity();
    const v1::EigendecomposeResponse r = Ask(request_of(spoilt));
    EXPECT_THAT(r.exception_indices(), ElementsAre(7, 11));
    EXPECT_THAT(r.exception_statuses(), ElementsAre(v1::MATRIX_STATUS_NON_FINITE, v1::MATRIX_STATUS_NON_FINITE));
    const std::vector<double> values = values_of(r, v1::DATA_TYPE_F64), others = values_of(clean, v1::DATA_TYPE_F64);
    const size_t values_bytes = n * sizeof(double), vectors_bytes = n * values_bytes;
    for (size_t matrix = 0; matrix < 20; ++matrix) {
      if (matrix == 7 || matrix == 11) {
        for (size_t i = 0; i < n; ++i) EXPECT_TRUE(std::isnan(values[matrix * n + i]));
        EXPECT_TRUE(std::isnan(number_at(r.vectors(), matrix * n * n, v1::DATA_TYPE_F64)));
      } else {
        EXPECT_EQ(r.eigenvalues().substr(matrix * values_bytes, values_bytes),
                  clean.eigenvalues().substr(matrix * values_bytes, values_bytes));
        EXPECT_EQ(r.vectors().substr(matrix * vectors_bytes, vectors_bytes),
                  clean.vectors().substr(matrix * vectors_bytes, vectors_bytes));
      }
    }
  }
}

TEST_F(EigenTest, TheCertificateIsOfTheBatch) {
  Matrices a = hermitian(6, 9, v1::DATA_TYPE_C128);
  a.at(4, 3, 1) = kNan;
  v1::EigendecomposeRequest request = request_of(a, v1::DATA_TYPE_C128);
  request.mutable_options()->set_certificate(v1::CERTIFICATE_SCOPE_MATRIX);
  const v1::EigendecomposeResponse r = Ask(request);
  ASSERT_EQ(r.certificate().each_matrix().size(), 9 * 3 * sizeof(double));
  double residual = 0, orthogonality = 0;
  for (size_t matrix = 0; matrix < 9; ++matrix) {
    const double mine = number_at(r.certificate().each_matrix(), 3 * matrix, v1::DATA_TYPE_C128);
    EXPECT_EQ(std::isnan(mine), matrix == 4);
    if (matrix == 4) continue;
    residual = std::max(residual, mine);
    orthogonality =
        std::max(orthogonality, number_at(r.certificate().each_matrix(), 3 * matrix + 1, v1::DATA_TYPE_C128));
  }
  EXPECT_EQ(r.certificate().residual(), residual);
  EXPECT_EQ(r.certificate().left_orthogonality(), orthogonality);
  EXPECT_GT(residual, 0);
  EXPECT_LE(residual, 60 * 0x1p-53);
  EXPECT_LE(orthogonality, 60 * 0x1p-53);
}

TEST_F(EigenTest, FixedPhases) {
  const Matrices a = hermitian(5, 8, v1::DATA_TYPE_C128);
  v1::EigendecomposeRequest request = request_of(a, v1::DATA_TYPE_C128);
  request.mutable_options()->set_fix_phases(true);
  const v1::EigendecomposeResponse r = Ask(request);
  expect_eigenpairs(a, r, v1::DATA_TYPE_C128, v1::MEMORY_ORDER_ROW_MAJOR);
  const Matrices u = vectors_of(r, 5, v1::DATA_TYPE_C128, v1::MEMORY_ORDER_ROW_MAJOR);
  for (size_t matrix = 0; matrix < 8; ++matrix) {
    for (size_t j = 0; j < 5; ++j) {
      Complex largest = 0;
      for (size_t i = 0; i < 5; ++i) {
        if (std::abs(u.at(matrix, i, j)) > std::abs(largest)) largest = u.at(matrix, i, j);
      }
      EXPECT_GT(largest.real(), 0);
      EXPECT_NEAR(largest.imag(), 0, 1e-15);
    }
  }
}

class EigenProblemTest : public EigenTest, public ::testing::WithParamInterface<v1::EigenProblem> {
 protected:
  static v1::EigendecomposeRequest Request(size_t n, size_t count, v1::DataType type, uint64_t seed) {
    v1::EigendecomposeRequest request = request_of(hermitian(n, count, type, seed), type);
    if (GetParam() == v1::EIGEN_PROBLEM_HERMITIAN) return request;
    request.mutable_options()->set_problem(v1::EIGEN_PROBLEM_GENERAL);
    request.mutable_options()->set_vectors(v1::EIGENVECTORS_RIGHT_AND_LEFT);
    return request;
  }
};

INSTANTIATE_TEST_SUITE_P(Eigen, EigenProblemTest,
                         ::testing::Values(v1::EIGEN_PROBLEM_HERMITIAN, v1::EIGEN_PROBLEM_GENERAL),
                         [](const auto& info) { return v1::EigenProblem_Name(info.param); });

TEST_P(EigenProblemTest, GroupsGetWhatTheyGetAlone) {
  v1::EigendecomposeRequest together;
  std::vector<v1::EigendecomposeRequest> alone;
  for (size_t i = 0; i < 20; ++i) {
    const v1::DataType type = i % 3 == 0 ? v1::DATA_TYPE_C64 : v1::DATA_TYPE_F64;
    alone.push_back(Request(1 + i % 6, 1 + i % 4, type, i));
    *together.add_groups() = alone.back().matrices();
    *together.mutable_options() = alone.back().options();
  }
  const v1::EigendecomposeResponse r = Ask(together);
  EXPECT_GT(r.timing().total_seconds(), 0);
  ASSERT_EQ(r.groups_size(), 20);
  for (int i = 0; i < 20; ++i) {
    const v1::EigendecomposeResponse mine = Ask(alone[static_cast<size_t>(i)]);
    EXPECT_EQ(r.groups(i).count(), mine.count());
    EXPECT_EQ(r.groups(i).vector_columns(), mine.vector_columns());
    EXPECT_EQ(r.groups(i).eigenvalues(), mine.eigenvalues()) << i;
    EXPECT_EQ(r.groups(i).vectors(), mine.vectors()) << i;
    EXPECT_EQ(r.groups(i).left_vectors_adjoint(), mine.left_vectors_adjoint()) << i;
  }
}

TEST_P(EigenProblemTest, AStreamGivesTheBitsOfUnaryCalls) {
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + std::chrono::minutes(4));
  const auto stub = v1::SvdService::NewStub(channel_);
  const auto stream = stub->EigendecomposeStream(&context);
  std::map<uint64_t, v1::EigendecomposeRequest> sent;
  for (uint64_t id = 1; id <= 8; ++id) {
    v1::EigendecomposeStreamRequest request;
    request.set_request_id(id);
    *request.mutable_request() = Request(id, 3, v1::DATA_TYPE_F64, id);
    if (id == 5) request.mutable_request()->mutable_options()->clear_problem();
    if (id == 6) request.mutable_request()->mutable_matrices()->set_cols(7);
    sent[id] = request.request();
    ASSERT_TRUE(stream->Write(request));
  }
  ASSERT_TRUE(stream->WritesDone());
  v1::EigendecomposeStreamResponse response;
  size_t received = 0;
  for (; stream->Read(&response); ++received) {
    if (response.request_id() == 5) {
      EXPECT_EQ(details_of(response.status()).field, "request.options.problem");
    } else if (response.request_id() == 6) {
      EXPECT_EQ(details_of(response.status()).field, "request.matrices.cols");
    } else {
      const v1::EigendecomposeResponse unary = Ask(sent[response.request_id()]);
      EXPECT_EQ(response.response().eigenvalues(), unary.eigenvalues());
      EXPECT_EQ(response.response().vectors(), unary.vectors());
      EXPECT_EQ(response.response().left_vectors_adjoint(), unary.left_vectors_adjoint());
    }
  }
  EXPECT_EQ(received, 8U);
  EXPECT_TRUE(stream->Finish().ok());
}

TEST_F(EigenTest, MetricsNameTheCall) {
  const auto counted = [](const char* status) {
    return server_->metric("svdserve_requests_total", {"rpc=\"Eigendecompose\"", status});
  };
  const double good = counted("status=\"OK\""), bad = counted("status=\"INVALID_ARGUMENT\"");
  v1::EigendecomposeRequest request = request_of(hermitian(3, 2, v1::DATA_TYPE_F64));
  Ask(request);
  request.clear_options();
  v1::EigendecomposeResponse response;
  EXPECT_FALSE(Call(request, &response).ok());
  EXPECT_EQ(counted("status=\"OK\""), good + 1);
  EXPECT_EQ(counted("status=\"INVALID_ARGUMENT\""), bad + 1);
}

// --- general matrices ---------------------------------------------------------------------------

Matrices general(size_t n, size_t count, v1::DataType type) {
  Matrices a = hermitian(n, count, type), b = hermitian(n, count, type, 2);
  for (size_t matrix = 0; matrix < count; ++matrix) {
    for (size_t i = 0; i < n; ++i) {
      for (size_t j = 0; j < i; ++j) a.at(matrix, i, j) = b.at(matrix, i, j);
    }
  }
  return a;
}

v1::EigendecomposeRequest general_request(const Matrices& a, v1::DataType type = v1::DATA_TYPE_F64,
                                          v1::MemoryOrder order = v1::MEMORY_ORDER_ROW_MAJOR) {
  v1::EigendecomposeRequest request = request_of(a, type, order);
  request.mutable_options()->set_problem(v1::EIGEN_PROBLEM_GENERAL);
  request.mutable_options()->set_vectors(v1::EIGENVECTORS_RIGHT_AND_LEFT);
  return request;
}

// |A V - V L| and |W^H A - L W^H| <= 10 n u |A|, and exact conjugates of real matrices: docs/accuracy.md.
void expect_general_eigenpairs(const Matrices& a, const v1::EigendecomposeResponse& r, v1::DataType type,
                               v1::MemoryOrder order) {
  const size_t n = a.n;
  const v1::DataType complex = is_single(type) ? v1::DATA_TYPE_C64 : v1::DATA_TYPE_C128;
  const Matrices v = matrices_of(r.vectors(), n, complex, order),
                 wh = matrices_of(r.left_vectors_adjoint(), n, complex, order);
  const std::vector<double> values = values_of(r, type);
  ASSERT_THAT(values, SizeIs(2 * a.count() * n));
  ASSERT_EQ(v.count(), a.count());
  ASSERT_EQ(wh.count(), a.count());
  for (size_t matrix = 0; matrix < a.count(); ++matrix) {
    const auto lambda = [&](size_t j) {
      return Complex(values[2 * (matrix * n + j)], values[2 * (matrix * n + j) + 1]);
    };
    double of_right = 0, of_left = 0, size = 0;
    for (size_t i = 0; i < n; ++i) {
      for (size_t j = 0; j < n; ++j) {
        Complex right = -v.at(matrix, i, j) * lambda(j), left = -lambda(i) * wh.at(matrix, i, j);
        for (size_t l = 0; l < n; ++l) {
          right += a.at(matrix, i, l) * v.at(matrix, l, j);
          left += wh.at(matrix, i, l) * a.at(matrix, l, j);
        }
        of_right += std::norm(right);
        of_left += std::norm(left);
        size += std::norm(a.at(matrix, i, j));
      }
    }
    EXPECT_LE(std::sqrt(std::max(of_right, of_left)),
              10 * static_cast<double>(n) * unit_roundoff(type) * std::sqrt(size))
        << n;
    for (size_t j = 0; j < n && !is_complex(type); ++j) {
      if (lambda(j).imag() == 0) continue;
      ASSERT_LT(j + 1, n);
      EXPECT_EQ(lambda(j + 1), std::conj(lambda(j)));
      EXPECT_GT(lambda(j).imag(), 0);
      ++j;
    }
  }
}

TEST_P(EigenLayoutTest, GeneralMatrices) {
  const auto [type, order] = GetParam();
  for (const size_t n : {1, 2, 3, 4, 7, 16, 32}) {
    const Matrices a = general(n, 19, type);
    v1::EigendecomposeRequest request = general_request(a, type, order);
    request.mutable_options()->set_certificate(v1::CERTIFICATE_SCOPE_BATCH);
    request.mutable_options()->set_method(v1::METHOD_JACOBI);
    const v1::EigendecomposeResponse by_jacobi = Ask(request);
    EXPECT_EQ(by_jacobi.method(), v1::METHOD_JACOBI);
    EXPECT_THAT(by_jacobi.exception_indices(), SizeIs(0));
    expect_general_eigenpairs(a, by_jacobi, type, order);
    request.mutable_options()->clear_method();
    const v1::EigendecomposeResponse r = Ask(request);
    EXPECT_EQ(r.method(), v1::METHOD_QR);
    EXPECT_EQ(r.values_per_matrix(), static_cast<int64_t>(n));
    EXPECT_EQ(r.vector_columns(), static_cast<int64_t>(n));
    EXPECT_EQ(r.left_vector_rows(), static_cast<int64_t>(n));
    EXPECT_LE(r.certificate().residual(), 10 * static_cast<double>(n) * unit_roundoff(type));
    EXPECT_EQ(r.certificate().left_orthogonality() + r.certificate().right_orthogonality(), 0);
    expect_general_eigenpairs(a, r, type, order);
    request = general_request(a, type, order);
    request.mutable_options()->clear_vectors();
    const v1::EigendecomposeResponse alone = Ask(request);
    EXPECT_TRUE(alone.vectors().empty() && alone.left_vectors_adjoint().empty());
    EXPECT_EQ(alone.vector_columns() + alone.left_vector_rows(), 0);
    EXPECT_EQ(alone.eigenvalues().size(), r.eigenvalues().size());
    request.mutable_options()->set_vectors(v1::EIGENVECTORS_RIGHT);
    const v1::EigendecomposeResponse right = Ask(request);
    EXPECT_EQ(right.vectors().size(), r.vectors().size());
    EXPECT_TRUE(right.left_vectors_adjoint().empty());
    EXPECT_EQ(right.left_vector_rows(), 0);
  }
}

// The matrix that shifts by one place is normal, so its eigenvalues are found to 10 n u: the roots of unity.
TEST_P(EigenLayoutTest, RootsOfUnity) {
  const auto [type, order] = GetParam();
  constexpr double kTurn = 6.283185307179586;
  for (const size_t n : {2, 3, 8, 31}) {
    Matrices a{n, std::vector<Complex>(n * n)};
    for (size_t i = 0; i < n; ++i) a.at(0, (i + 1) % n, i) = 1;
    v1::EigendecomposeRequest request = general_request(a, type, order);
    for (const v1::Eigenvectors vectors : {v1::EIGENVECTORS_NONE, v1::EIGENVECTORS_RIGHT}) {
      request.mutable_options()->set_vectors(vectors);
      const std::vector<double> values = values_of(Ask(request), type);
      ASSERT_THAT(values, SizeIs(2 * n));
      for (size_t root = 0; root < n; ++root) {
        const Complex expected = std::polar(1.0, kTurn * static_cast<double>(root) / static_cast<double>(n));
        double distance = 2;
        for (size_t j = 0; j < n; ++j) {
          distance = std::min(distance, std::abs(Complex(values[2 * j], values[2 * j + 1]) - expected));
        }
        EXPECT_LE(distance, 10 * static_cast<double>(n) * unit_roundoff(type)) << "n = " << n << ", root " << root;
      }
    }
  }
}

void set_sweeps_of_jacobi(v1::EigendecomposeRequest* r, int32_t sweeps) {
  r->mutable_options()->set_method(v1::METHOD_JACOBI);
  r->mutable_options()->set_max_sweeps(sweeps);
}

// The second matrix is triangular, so that JACOBI has nothing to do; one sweep is too few for the others.
TEST_F(EigenTest, JacobiTellsWhatItLeftToQr) {
  Matrices a = general(6, 3, v1::DATA_TYPE_F64);
  for (size_t i = 0; i < 6; ++i) {
    for (size_t j = 0; j < i; ++j) a.at(1, i, j) = 0;
  }
  v1::EigendecomposeRequest request = general_request(a);
  const v1::EigendecomposeResponse by_qr = Ask(request);
  set_sweeps_of_jacobi(&request, 1);
  const double counted = server_->metric("svdserve_matrices_total", {"status=\"by_qr\""});
  const v1::EigendecomposeResponse r = Ask(request);
  EXPECT_THAT(r.exception_indices(), ElementsAre(0, 2));
  EXPECT_THAT(r.exception_statuses(), ElementsAre(v1::MATRIX_STATUS_BY_QR, v1::MATRIX_STATUS_BY_QR));
  EXPECT_EQ(server_->metric("svdserve_matrices_total", {"status=\"by_qr\""}), counted + 2);
  expect_general_eigenpairs(a, r, v1::DATA_TYPE_F64, v1::MEMORY_ORDER_ROW_MAJOR);
  const size_t bytes = 36 * sizeof(Complex);
  for (const size_t matrix : {0, 2}) {
    EXPECT_EQ(r.vectors().substr(matrix * bytes, bytes), by_qr.vectors().substr(matrix * bytes, bytes));
  }
}

TEST_F(EigenTest, NoGeneralMatrices) {
  const v1::EigendecomposeResponse r = Ask(general_request({3, {}}));
  EXPECT_EQ(r.count(), 0);
  EXPECT_EQ(r.values_per_matrix(), 3);
  EXPECT_TRUE(r.eigenvalues().empty() && r.vectors().empty() && r.left_vectors_adjoint().empty());
}

TEST_F(EigenTest, TheCertificateOfGeneralMatricesIsOfTheBatch) {
  Matrices a = general(6, 9, v1::DATA_TYPE_F32);
  a.at(4, 3, 1) = kNan;
  v1::EigendecomposeRequest request = general_request(a, v1::DATA_TYPE_F32);
  request.mutable_options()->set_certificate(v1::CERTIFICATE_SCOPE_MATRIX);
  const v1::EigendecomposeResponse r = Ask(request);
  ASSERT_EQ(r.certificate().each_matrix().size(), 9 * 3 * sizeof(float));
  double residual = 0;
  for (size_t matrix = 0; matrix < 9; ++matrix) {
    const double mine = number_at(r.certificate().each_matrix(), 3 * matrix, v1::DATA_TYPE_F32);
    EXPECT_EQ(std::isnan(mine), matrix == 4);
    if (matrix != 4) residual = std::max(residual, mine);
  }
  EXPECT_EQ(r.certificate().residual(), residual);
  EXPECT_GT(residual, 0);
  EXPECT_LE(residual, 60 * 0x1p-24);
}

TEST_F(EigenTest, AGeneralMatrixThatIsNotFiniteLeavesItsNeighboursAlone) {
  const Matrices a = general(5, 20, v1::DATA_TYPE_F64);
  Matrices spoilt = a;
  spoilt.at(7, 4, 0) = kNan;
  const v1::EigendecomposeResponse clean = Ask(general_request(a)), r = Ask(general_request(spoilt));
  EXPECT_THAT(r.exception_indices(), ElementsAre(7));
  EXPECT_THAT(r.exception_statuses(), ElementsAre(v1::MATRIX_STATUS_NON_FINITE));
  const std::vector<double> values = values_of(r, v1::DATA_TYPE_F64), others = values_of(clean, v1::DATA_TYPE_F64);
  for (size_t i = 0; i < values.size(); ++i) {
    if (i / 10 == 7) {
      EXPECT_TRUE(std::isnan(values[i]));
    } else {
      EXPECT_EQ(values[i], others[i]);
    }
  }
  const size_t bytes = 25 * sizeof(Complex);
  for (size_t matrix = 0; matrix < 20; ++matrix) {
    EXPECT_EQ(r.vectors().substr(matrix * bytes, bytes) == clean.vectors().substr(matrix * bytes, bytes), matrix != 7);
    EXPECT_EQ(r.left_vectors_adjoint().substr(matrix * bytes, bytes) ==
                  clean.left_vectors_adjoint().substr(matrix * bytes, bytes),
              matrix != 7);
  }
}

// --- conditions and starting vectors ------------------------------------------------------------

v1::DataType complex_type(v1::DataType type) { return is_single(type) ? v1::DATA_TYPE_C64 : v1::DATA_TYPE_C128; }

std::string starting_vectors(const Matrices& v, v1::DataType type, v1::MemoryOrder order) {
  v1::MatrixBatch batch;
  write(v, complex_type(type), order, &batch);
  return batch.data();
}

// A request with the starting vectors `v`, and without them where they are of order 0.
v1::EigendecomposeRequest warm_request(const Matrices& a, const Matrices& v, v1::DataType type = v1::DATA_TYPE_F64,
                                       v1::MemoryOrder order = v1::MEMORY_ORDER_ROW_MAJOR) {
  v1::EigendecomposeRequest request = general_request(a, type, order);
  if (v.n == 0) return request;
  request.mutable_matrices()->set_starting_vectors(starting_vectors(v, type, order));
  request.mutable_options()->set_starting_vectors(true);
  return request;
}

Matrices identities(size_t n, size_t count) {
  Matrices v{n, std::vector<Complex>(count * n * n)};
  for (size_t matrix = 0; matrix < count; ++matrix) {
    for (size_t i = 0; i < n; ++i) v.at(matrix, i, i) = 1;
  }
  return v;
}

TEST_P(EigenLayoutTest, StartingVectorsSaveSweeps) {
  const auto [type, order] = GetParam();
  const Matrices a = general(14, 11, type);
  const v1::EigendecomposeResponse qr = Ask(general_request(a, type, order));
  const Matrices v = vectors_of(qr, 14, complex_type(type), order);
  v1::EigendecomposeRequest cold = general_request(a, type, order), warm = warm_request(a, v, type, order);
  for (v1::EigendecomposeRequest* const r : {&cold, &warm}) r->mutable_options()->set_max_sweeps(3);
  cold.mutable_options()->set_method(v1::METHOD_JACOBI);
  EXPECT_THAT(Ask(cold).exception_statuses(), ::testing::AllOf(SizeIs(11), ::testing::Each(v1::MATRIX_STATUS_BY_QR)));
  const v1::EigendecomposeResponse r = Ask(warm);
  EXPECT_EQ(r.method(), v1::METHOD_JACOBI);
  EXPECT_THAT(r.exception_statuses(), SizeIs(0));
  expect_general_eigenpairs(a, r, type, order);
  if (!is_complex(type)) return;  // then eigenvalues keep the order of the starting vectors
  const std::vector<double> values = values_of(r, type), expected = values_of(qr, type);
  for (size_t i = 0; i < values.size(); ++i) EXPECT_NEAR(values[i], expected[i], 1e5 * unit_roundoff(type)) << i;
}

TEST_P(EigenLayoutTest, ConditionsAreThoseOfTheVectors) {
  const auto [type, order] = GetParam();
  for (const size_t n : {1, 2, 3, 8, 32}) {
    const Matrices a = general(n, 19, type);
    v1::EigendecomposeRequest request = general_request(a, type, order);
    for (const v1::Method method : {v1::METHOD_QR, v1::METHOD_JACOBI}) {
      request.mutable_options()->set_condition(true);
      request.mutable_options()->set_method(method);
      request.mutable_options()->set_vectors(v1::EIGENVECTORS_RIGHT_AND_LEFT);
      const v1::EigendecomposeResponse r = Ask(request);
      const Matrices v = vectors_of(r, n, complex_type(type), order),
                     wh = matrices_of(r.left_vectors_adjoint(), n, complex_type(type), order);
      ASSERT_EQ(r.eigenvalue_conditions().size(), 19 * n * (is_single(type) ? sizeof(float) : sizeof(double)));
      for (size_t j = 0; j < 19 * n; ++j) {
        Complex product = 0;
        for (size_t i = 0; i < n; ++i) product += wh.at(j / n, j % n, i) * v.at(j / n, i, j % n);
        const double expected = 1 / std::abs(product);
        EXPECT_NEAR(number_at(r.eigenvalue_conditions(), j, type), expected,
                    10 * static_cast<double>(n) * unit_roundoff(type) * expected * expected);
      }
      request.mutable_options()->clear_vectors();
      EXPECT_EQ(Ask(request).eigenvalue_conditions().size(), r.eigenvalue_conditions().size());
    }
  }
}

// The second matrix is defective. All results are right, and it is told only where it is asked for.
TEST_F(EigenTest, NearDefectiveMatricesAreTold) {
  const Matrices a{2, {1, 2, 3, 4, 1, 1, 0, 1, 2, 0, 0, 2}};
  v1::EigendecomposeRequest request = general_request(a);
  EXPECT_THAT(Ask(request).exception_indices(), SizeIs(0));
  request.mutable_options()->set_condition(true);
  const double counted = server_->metric("svdserve_matrices_total", {"status=\"near_defective\""});
  const v1::EigendecomposeResponse r = Ask(request);
  EXPECT_THAT(r.exception_indices(), ElementsAre(1));
  EXPECT_THAT(r.exception_statuses(), ElementsAre(v1::MATRIX_STATUS_NEAR_DEFECTIVE));
  EXPECT_EQ(server_->metric("svdserve_matrices_total", {"status=\"near_defective\""}), counted + 1);
  expect_general_eigenpairs(a, r, v1::DATA_TYPE_F64, v1::MEMORY_ORDER_ROW_MAJOR);
  EXPECT_GT(number_at(r.eigenvalue_conditions(), 2, v1::DATA_TYPE_F64), 1e7);
  EXPECT_EQ(number_at(r.eigenvalue_conditions(), 4, v1::DATA_TYPE_F64), 1);
}

TEST_F(EigenTest, UselessStartingVectorsHarmTheirMatrixAlone) {
  constexpr size_t kOrder = 5, kCount = 20;
  const Matrices a = general(kOrder, kCount, v1::DATA_TYPE_F64), identity = identities(kOrder, kCount);
  Matrices spoilt = a, v = identity;
  for (size_t i = 0; i < kOrder; ++i) v.at(3, i, 2) = v.at(3, i, 0);  // singular
  v.at(7, 4, 4) = {0, kNan};
  v.at(8, 0, 3) = std::numeric_limits<double>::infinity();
  spoilt.at(11, 1, 2) = kNan;
  v1::EigendecomposeRequest request = warm_request(spoilt, v), clean_request = warm_request(a, identity);
  for (auto* const one : {&request, &clean_request}) one->mutable_options()->set_condition(true);
  const v1::EigendecomposeResponse r = Ask(request), clean = Ask(clean_request), qr = Ask(general_request(a));
  EXPECT_THAT(r.exception_indices(), ElementsAre(3, 7, 8, 11));
  EXPECT_THAT(r.exception_statuses(), ElementsAre(v1::MATRIX_STATUS_BY_QR, v1::MATRIX_STATUS_BY_QR,
                                                  v1::MATRIX_STATUS_BY_QR, v1::MATRIX_STATUS_NON_FINITE));
  EXPECT_THAT(clean.exception_indices(), SizeIs(0));
  constexpr size_t kBytes = kOrder * kOrder * sizeof(Complex);
  for (size_t matrix = 0; matrix < kCount; ++matrix) {
    const double condition = number_at(r.eigenvalue_conditions(), matrix * kOrder, v1::DATA_TYPE_F64);
    EXPECT_EQ(std::isnan(condition), matrix == 11);
    if (matrix == 11) continue;
    const bool by_qr = matrix == 3 || matrix == 7 || matrix == 8;
    const std::string mine = r.vectors().substr(matrix * kBytes, kBytes);
    EXPECT_EQ(mine, (by_qr ? qr : clean).vectors().substr(matrix * kBytes, kBytes)) << matrix;
  }
}

TEST_F(EigenTest, GroupsAndStreamsTakeStartingVectors) {
  std::vector<v1::EigendecomposeRequest> alone;
  v1::EigendecomposeRequest together;
  for (size_t i = 0; i < 6; ++i) {
    const v1::DataType type = i % 2 == 0 ? v1::DATA_TYPE_F32 : v1::DATA_TYPE_C128;
    const size_t n = 1 + 2 * i, count = i == 3 ? 0 : 4;
    const Matrices a = count == 0 ? Matrices{n, {}} : general(n, count, type);
    alone.push_back(warm_request(a, identities(n, count), type, v1::MEMORY_ORDER_COLUMN_MAJOR));
    alone.back().mutable_options()->set_condition(true);
    *together.add_groups() = alone.back().matrices();
    *together.mutable_options() = alone.back().options();
  }
  const v1::EigendecomposeResponse groups = Ask(together);
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + std::chrono::minutes(4));
  const auto stub = v1::SvdService::NewStub(channel_);
  const auto stream = stub->EigendecomposeStream(&context);
  for (size_t i = 0; i < alone.size(); ++i) {
    v1::EigendecomposeStreamRequest request;
    request.set_request_id(i);
    *request.mutable_request() = alone[i];
    ASSERT_TRUE(stream->Write(request));
  }
  ASSERT_TRUE(stream->WritesDone());
  v1::EigendecomposeStreamResponse response;
  size_t received = 0;
  for (; stream->Read(&response); ++received) {
    const v1::EigendecomposeResponse unary = Ask(alone[response.request_id()]);
    EXPECT_EQ(unary.method(), v1::METHOD_JACOBI);
    for (const auto* const r : {&response.response(), &groups.groups(static_cast<int>(response.request_id()))}) {
      EXPECT_EQ(r->eigenvalues(), unary.eigenvalues());
      EXPECT_EQ(r->vectors(), unary.vectors());
      EXPECT_EQ(r->left_vectors_adjoint(), unary.left_vectors_adjoint());
      EXPECT_EQ(r->eigenvalue_conditions(), unary.eigenvalue_conditions());
    }
  }
  EXPECT_EQ(received, alone.size());
  EXPECT_TRUE(stream->Finish().ok());
}

// --- rejections ---------------------------------------------------------------------------------

struct BadInput {
  const char* name;
  std::function<void(v1::EigendecomposeRequest*)> spoil;
  const char* field;
};

void set_method(v1::EigendecomposeRequest* r, int method) {
  r->mutable_options()->set_method(static_cast<v1::Method>(method));
}

const BadInput kBadInputs[] = {
    {"NoMatrices", [](auto* r) { r->clear_matrices(); }, "matrices"},
    {"NotSquare", [](auto* r) { r->mutable_matrices()->set_cols(3); }, "matrices.cols"},
    {"Wide", [](auto* r) { r->mutable_matrices()->set_cols(5); }, "matrices.cols"},
    {"ZeroRows", [](auto* r) { r->mutable_matrices()->set_rows(0); }, "matrices.rows"},
    {"BeyondTheOrderOfABatch",
     [](auto* r) {
       r->mutable_matrices()->set_rows(513);
       r->mutable_matrices()->set_cols(513);
     },
     "matrices.rows"},
    {"NegativeCount", [](auto* r) { r->mutable_matrices()->set_count(-1); }, "matrices.count"},
    {"DataTooShort", [](auto* r) { r->mutable_matrices()->mutable_data()->pop_back(); }, "matrices.data"},
    {"NoDataType", [](auto* r) { r->mutable_matrices()->clear_data_type(); }, "matrices.data_type"},
    {"NoMemoryOrder", [](auto* r) { r->mutable_matrices()->clear_memory_order(); }, "matrices.memory_order"},
    {"NoOptions", [](auto* r) { r->clear_options(); }, "options.problem"},
    {"NoProblem", [](auto* r) { r->mutable_options()->clear_problem(); }, "options.problem"},
    {"UnknownProblem", [](auto* r) { r->mutable_options()->set_problem(static_cast<v1::EigenProblem>(9)); },
     "options.problem"},
    {"UnknownTriangle", [](auto* r) { r->mutable_options()->set_triangle(static_cast<v1::Triangle>(3)); },
     "options.triangle"},
    {"UnknownVectors", [](auto* r) { r->mutable_options()->set_vectors(static_cast<v1::Eigenvectors>(9)); },
     "options.vectors"},
    {"UnknownCertificate", [](auto* r) { r->mutable_options()->set_certificate(static_cast<v1::CertificateScope>(7)); },
     "options.certificate"},
    {"Bidiagonal", [](auto* r) { set_method(r, v1::METHOD_BIDIAGONAL); }, "options.method"},
    {"Bisection", [](auto* r) { set_method(r, v1::METHOD_BISECTION); }, "options.method"},
    {"Factored", [](auto* r) { set_method(r, v1::METHOD_FACTORED); }, "options.method"},
    {"Tridiagonal", [](auto* r) { set_method(r, v1::METHOD_TRIDIAGONAL); }, "options.method"},
    {"UnknownMethod", [](auto* r) { set_method(r, 99); }, "options.method"},
    {"NanTolerance", [](auto* r) { r->mutable_options()->set_tolerance(kNan); }, "options.tolerance"},
    {"ToleranceAboveOne", [](auto* r) { r->mutable_options()->set_tolerance(1.5); }, "options.tolerance"},
    {"NegativeSweeps", [](auto* r) { r->mutable_options()->set_max_sweeps(-1); }, "options.max_sweeps"},
    {"TooManySweeps", [](auto* r) { r->mutable_options()->set_max_sweeps(1001); }, "options.max_sweeps"},
    {"PhasesWithoutVectors",
     [](auto* r) {
       r->mutable_options()->clear_vectors();
       r->mutable_options()->set_fix_phases(true);
     },
     "options.fix_phases"},
    {"CertificateWithoutVectors",
     [](auto* r) {
       r->mutable_options()->set_vectors(v1::EIGENVECTORS_NONE);
       r->mutable_options()->set_certificate(v1::CERTIFICATE_SCOPE_BATCH);
     },
     "options.certificate"},
    {"ConditionsOfHermitianMatrices", [](auto* r) { r->mutable_options()->set_condition(true); }, "options.condition"},
    {"StartingVectorsOfHermitianMatrices", [](auto* r) { r->mutable_options()->set_starting_vectors(true); },
     "options.starting_vectors"},
    {"UnaskedStartingVectorsOfHermitianMatrices",
     [](auto* r) { r->mutable_matrices()->set_starting_vectors(std::string(5 * 256, 'v')); },
     "matrices.starting_vectors"},
    {"MatricesAndGroups", [](auto* r) { *r->add_groups() = r->matrices(); }, "groups"},
    {"AGroupThatIsNotSquare",
     [](auto* r) {
       for (int i = 0; i < 3; ++i) *r->add_groups() = r->matrices();
       r->clear_matrices();
       r->mutable_groups(2)->set_cols(2);
     },
     "groups[2].cols"},
};

void set_order(v1::EigendecomposeRequest* r, size_t n) { *r = general_request(general(n, 2, v1::DATA_TYPE_F64)); }

const BadInput kBadGeneralInputs[] = {
    {"NotSquare", [](auto* r) { r->mutable_matrices()->set_cols(3); }, "matrices.cols"},
    {"Wide", [](auto* r) { r->mutable_matrices()->set_cols(5); }, "matrices.cols"},
    {"ZeroRows", [](auto* r) { r->mutable_matrices()->set_rows(0); }, "matrices.rows"},
    {"BeyondTheOrderOfABatch", [](auto* r) { set_order(r, 33); }, "matrices.rows"},
    {"BeyondTheValuesOfABatch", [](auto* r) { set_order(r, 513); }, "matrices.rows"},
    {"DataTooShort", [](auto* r) { r->mutable_matrices()->mutable_data()->pop_back(); }, "matrices.data"},
    {"UnknownVectors", [](auto* r) { r->mutable_options()->set_vectors(static_cast<v1::Eigenvectors>(9)); },
     "options.vectors"},
    {"LeftVectorsOfHermitianMatrices", [](auto* r) { r->mutable_options()->set_problem(v1::EIGEN_PROBLEM_HERMITIAN); },
     "options.vectors"},
    {"Bisection", [](auto* r) { set_method(r, v1::METHOD_BISECTION); }, "options.method"},
    {"Tridiagonal", [](auto* r) { set_method(r, v1::METHOD_TRIDIAGONAL); }, "options.method"},
    {"UnknownMethod", [](auto* r) { set_method(r, 99); }, "options.method"},
    {"Tolerance", [](auto* r) { r->mutable_options()->set_tolerance(1e-3); }, "options.tolerance"},
    {"Sweeps", [](auto* r) { r->mutable_options()->set_max_sweeps(3); }, "options.max_sweeps"},
    {"NegativeSweeps", [](auto* r) { set_sweeps_of_jacobi(r, -1); }, "options.max_sweeps"},
    {"TooManySweeps", [](auto* r) { set_sweeps_of_jacobi(r, 1001); }, "options.max_sweeps"},
    {"ToleranceOfJacobi",
     [](auto* r) {
       set_sweeps_of_jacobi(r, 3);
       r->mutable_options()->set_tolerance(1e-3);
     },
     "options.tolerance"},
    {"Phases", [](auto* r) { r->mutable_options()->set_fix_phases(true); }, "options.fix_phases"},
    {"Triangle", [](auto* r) { r->mutable_options()->set_triangle(v1::TRIANGLE_UPPER); }, "options.triangle"},
    {"BeyondTheOrderOfABatchWithAnOptionOfOthers",
     [](auto* r) {
       set_order(r, 33);
       set_sweeps_of_jacobi(r, 3);
       r->mutable_options()->set_triangle(v1::TRIANGLE_UPPER);
     },
     "matrices.rows"},
    {"CertificateWithoutVectors",
     [](auto* r) {
       r->mutable_options()->set_vectors(v1::EIGENVECTORS_NONE);
       r->mutable_options()->set_certificate(v1::CERTIFICATE_SCOPE_BATCH);
     },
     "options.certificate"},
    {"NoStartingVectors", [](auto* r) { r->mutable_options()->set_starting_vectors(true); },
     "matrices.starting_vectors"},
    {"UnaskedStartingVectors", [](auto* r) { r->mutable_matrices()->set_starting_vectors(std::string(5 * 256, 'v')); },
     "matrices.starting_vectors"},
    {"StartingVectorsOfAnotherOrder",
     [](auto* r) {
       r->mutable_options()->set_starting_vectors(true);
       r->mutable_matrices()->set_starting_vectors(
           starting_vectors(identities(3, 5), v1::DATA_TYPE_F64, v1::MEMORY_ORDER_ROW_MAJOR));
     },
     "matrices.starting_vectors"},
    {"StartingVectorsOfQr",
     [](auto* r) {
       r->mutable_options()->set_starting_vectors(true);
       set_method(r, v1::METHOD_QR);
     },
     "options.method"},
    {"StartingVectorsBeyondTheOrderOfABatch",
     [](auto* r) {
       *r = warm_request(general(33, 2, v1::DATA_TYPE_F64), identities(33, 2));
       r->mutable_options()->set_condition(true);
     },
     "matrices.rows"},
    {"AGroupWithoutStartingVectors",
     [](auto* r) {
       *r = warm_request(general(2, 3, v1::DATA_TYPE_F64), identities(2, 3));
       for (int i = 0; i < 2; ++i) *r->add_groups() = r->matrices();
       r->clear_matrices();
       r->mutable_groups(1)->clear_starting_vectors();
     },
     "groups[1].starting_vectors"},
    {"AGroupBeyondTheOrderOfABatch",
     [](auto* r) {
       *r->add_groups() = r->matrices();
       *r->add_groups() = general_request(general(33, 1, v1::DATA_TYPE_F64)).matrices();
       r->clear_matrices();
     },
     "groups[1].rows"},
};

class EigenBadInputTest : public EigenTest, public ::testing::WithParamInterface<BadInput> {
 protected:
  static void ExpectRejection(v1::EigendecomposeRequest request) {
    GetParam().spoil(&request);
    v1::EigendecomposeResponse response;
    const grpc::Status status = Call(request, &response);
    EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT) << status.error_message();
    EXPECT_THAT(status.error_message(), ::testing::StartsWith(std::string(GetParam().field) + ": "));
    const ErrorDetails details = details_of(status);
    EXPECT_EQ(details.field, GetParam().field);
    EXPECT_EQ(details.reason, "INVALID_FIELD");
  }
};
class GeneralBadInputTest : public EigenBadInputTest {};

TEST_P(EigenBadInputTest, IsRejectedByFieldAndReason) {
  ExpectRejection(request_of(hermitian(4, 5, v1::DATA_TYPE_F64)));
}

TEST_P(GeneralBadInputTest, IsRejectedByFieldAndReason) {
  ExpectRejection(general_request(general(4, 5, v1::DATA_TYPE_F64)));
}

INSTANTIATE_TEST_SUITE_P(Eigen, EigenBadInputTest, ::testing::ValuesIn(kBadInputs),
                         [](const auto& info) { return std::string(info.param.name); });
INSTANTIATE_TEST_SUITE_P(General, GeneralBadInputTest, ::testing::ValuesIn(kBadGeneralInputs),
                         [](const auto& info) { return std::string(info.param.name); });

TEST_F(EigenTest, DecomposeTakesNoStartingVectors) {
  v1::DecomposeRequest request = random_request(3, 3, 2);
  request.mutable_matrices()->set_starting_vectors(std::string(2 * 9 * 16, 'v'));
  v1::DecomposeResponse response;
  EXPECT_EQ(details_of(decompose(channel_, request, &response)).field, "matrices.starting_vectors");
}

// Methods of Hermitian matrices alone.
TEST_F(EigenTest, DecomposeTakesNoMethodOfEigenproblems) {
  for (const v1::Method method : {v1::METHOD_FACTORED, v1::METHOD_TRIDIAGONAL}) {
    v1::DecomposeRequest request = random_request(3, 3, 2);
    request.mutable_options()->set_method(method);
    v1::DecomposeResponse response;
    EXPECT_EQ(details_of(decompose(channel_, request, &response)).field, "options.method");
  }
}

}  // namespace
}  // namespace svdserve::testing
