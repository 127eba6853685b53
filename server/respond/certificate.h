// The certificate of a batch, from those of its matrices.
#ifndef SVDSERVE_SERVER_RESPOND_CERTIFICATE_H_
#define SVDSERVE_SERVER_RESPOND_CERTIFICATE_H_

#include <cstdint>

#include "absl/types/span.h"
#include "engine/problem.h"
#include "server/request.h"

namespace svdserve::server {

// The part of the certificate that is sent.
enum class CertificateScope : uint8_t { kNone, kBatch, kMatrix, kLast = kMatrix };

// The largest over the matrices of a batch; see kCertificateNumbers.
struct CertificateMaxima {
  double residual = 0;
  double left_orthogonality = 0;
  double right_orthogonality = 0;
};

// `plane`: kCertificateNumbers numbers of the real type of `dtype` for each of `count` matrices, any alignment.
// Matrices that are NON_FINITE have none and are left out; a NaN of any other makes the maximum NaN: nothing is
// certified then. `exceptions` ascend by index.
CertificateMaxima certificate_maxima(const void* plane, DType dtype, int64_t count,
                                     absl::Span<const MatrixException> exceptions);

}  // namespace svdserve::server
#endif  // SVDSERVE_SERVER_RESPOND_CERTIFICATE_H_
