#include "server/respond/certificate.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

namespace svdserve::server {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

TEST(CertificateMaxima, AreThoseOfTheBatch) {
  const std::vector<double> plane{1, 2, 9, 3, 1, 7, 2, 5, 8};
  const CertificateMaxima maxima = certificate_maxima(plane.data(), DType::kC128, 3, {});
  EXPECT_EQ(maxima.residual, 3);
  EXPECT_EQ(maxima.left_orthogonality, 5);
  EXPECT_EQ(maxima.right_orthogonality, 9);
}

TEST(CertificateMaxima, ReadsTheTypeOfTheValues) {
  const std::vector<float> plane{0.5f, 1, 2};
  EXPECT_EQ(certificate_maxima(plane.data(), DType::kC64, 1, {}).residual, 0.5);
}

TEST(CertificateMaxima, LeavesOutWhatIsNotFinite) {
  const std::vector<double> plane{1, 1, 1, kNan, kNan, kNan, 2, 2, 2};
  const std::vector<MatrixException> exceptions{{1, MatrixStatus::kNonFinite}, {2, MatrixStatus::kNotConverged}};
  EXPECT_EQ(certificate_maxima(plane.data(), DType::kF64, 3, exceptions).residual, 2);
}

TEST(CertificateMaxima, CertifiesNothingWhereAnotherIsNan) {
  const std::vector<double> plane{kNan, 1, 1, 2, 2, 2};
  const CertificateMaxima maxima = certificate_maxima(plane.data(), DType::kF64, 2, {});
  EXPECT_TRUE(std::isnan(maxima.residual));
  EXPECT_EQ(maxima.left_orthogonality, 2);
}

TEST(CertificateMaxima, OfNothingAreZero) { EXPECT_EQ(certificate_maxima(nullptr, DType::kF64, 0, {}).residual, 0); }

}  // namespace
}  // namespace svdserve::server
