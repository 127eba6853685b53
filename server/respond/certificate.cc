#include "server/respond/certificate.h"

#include <array>
#include <cmath>
#include <cstddef>
#include <cstring>

#include "engine/outputs.h"

namespace svdserve::server {
namespace {

using Numbers = std::array<double, kCertificateNumbers>;

template <class Real>
Numbers maxima_of(const std::byte* plane, int64_t count, absl::Span<const MatrixException> exceptions) {
  Numbers maxima{};
  auto exception = exceptions.begin();
  for (int64_t i = 0; i < count; ++i) {
    while (exception != exceptions.end() && exception->index < i) ++exception;
    const bool listed = exception != exceptions.end() && exception->index == i;
    if (listed && exception->status == MatrixStatus::kNonFinite) continue;
    Real numbers[kCertificateNumbers];
    std::memcpy(numbers, plane + static_cast<size_t>(i) * sizeof numbers, sizeof numbers);
    for (size_t j = 0; j < maxima.size(); ++j) {
      const double x = static_cast<double>(numbers[j]);
      if (!(x <= maxima[j])) maxima[j] = std::isnan(maxima[j]) ? maxima[j] : x;  // larger, or NaN
    }
  }
  return maxima;
}

}  // namespace

CertificateMaxima certificate_maxima(const void* plane, DType dtype, int64_t count,
                                     absl::Span<const MatrixException> exceptions) {
  const auto* const bytes = static_cast<const std::byte*>(plane);
  const Numbers maxima = value_bytes(dtype) == sizeof(float) ? maxima_of<float>(bytes, count, exceptions)
                                                             : maxima_of<double>(bytes, count, exceptions);
  return {maxima[0], maxima[1], maxima[2]};
}

}  // namespace svdserve::server
