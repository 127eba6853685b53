#include "engine/backends/host/hermitian_eigenbasis.h"

#include <algorithm>
#include <vector>

#include "engine/backends/host/aligned_array.h"
#include "engine/backends/host/blas.h"

namespace svdserve::host {
namespace {

using factor::FactorView;

BlasInt eigenvectors(FactorView<double> g, double* values) {
  const BlasInt n = BlasInt(g.rows), ld = BlasInt(g.ld), ask = -1;
  BlasInt info = 0, iwork_size = 0;
  double work_size = 0;
  dsyevd_("V", "L", &n, g.data, &ld, values, &work_size, &ask, &iwork_size, &ask, &info, 1, 1);
  const BlasInt size = BlasInt(work_size);
  AlignedArray<double> work;
  work.reserve(size);
  std::vector<BlasInt> iwork(iwork_size);
  dsyevd_("V", "L", &n, g.data, &ld, values, work.data(), &size, iwork.data(), &iwork_size, &info, 1, 1);
  return info;
}

BlasInt eigenvectors(FactorView<Complex> g, double* values) {
  const BlasInt n = BlasInt(g.rows), ld = BlasInt(g.ld), ask = -1;
  BlasInt info = 0, iwork_size = 0;
  Complex work_size = 0;
  double rwork_size = 0;
  zheevd_("V", "L", &n, g.data, &ld, values, &work_size, &ask, &rwork_size, &ask, &iwork_size, &ask, &info, 1, 1);
  const BlasInt size = BlasInt(work_size.real()), rsize = BlasInt(rwork_size);
  AlignedArray<Complex> work;
  work.reserve(size);
  AlignedArray<double> rwork;
  rwork.reserve(rsize);
  std::vector<BlasInt> iwork(iwork_size);
  zheevd_("V", "L", &n, g.data, &ld, values, work.data(), &size, rwork.data(), &rsize, iwork.data(), &iwork_size, &info,
          1, 1);
  return info;
}

template <class E>
bool eigenbasis(FactorView<E> g, FactorView<E> v) {
  std::vector<double> values(g.rows);
  if (eigenvectors(g, values.data()) != 0) return false;
  for (int64_t j = 0; j < v.cols; ++j) {
    const E* from = g.data + (v.cols - 1 - j) * g.ld;
    std::copy(from, from + v.rows, v.data + j * v.ld);
  }
  return true;
}

}  // namespace

bool hermitian_eigenbasis(const FactorThreads&, FactorView<double> g, FactorView<double> v) { return eigenbasis(g, v); }
bool hermitian_eigenbasis(const FactorThreads&, FactorView<Complex> g, FactorView<Complex> v) {
  return eigenbasis(g, v);
}

}  // namespace svdserve::host
