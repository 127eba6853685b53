// Eigenvalues and eigenvectors of general matrices that are on the GPU already. The residual, |A V - V L|_F / (u |A|_F),
// stands beside each rate: the largest of the certificates. Peer: torch_peer.py eig.
//   device_general_bench     a table as CSV; M/s: million matrices a second
// Warm starts: A + 1e-3 N from the eigenvectors of A, whose numbers are normal, too.
// Random normal matrices, column-major; CUDA events; warm; best of 5.
#include <cmath>
#include <string>
#include <vector>

#include "engine/cuda_engine.h"
#include "tests/device/device_bench.h"

namespace svdserve {
namespace {

using namespace device_bench;  // NOLINT: what benches share

// The largest first number of the certificates, in units of u.
template <class T>
double largest_residual(const void* certificates, int64_t count) {
  std::vector<T> numbers(static_cast<size_t>(count) * kCertificateNumbers);
  check(cudaMemcpy(numbers.data(), certificates, numbers.size() * sizeof(T), cudaMemcpyDeviceToHost), "download");
  double worst = 0;
  for (size_t i = 0; i < numbers.size(); i += kCertificateNumbers) {
    worst = numbers[i] <= worst ? worst : numbers[i];  // and where it is NaN
  }
  return worst / (sizeof(T) == 4 ? 0x1p-24 : 0x1p-53);
}

// to := a + 1e-3 b, where b are the numbers of a from elsewhere in it.
template <class T>
__global__ void disturb(const T* a, T* to, size_t count) {
  const size_t i = static_cast<size_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i < count) to[i] = a[i] + T(1e-3) * a[(i + count / 3) % count];
}
void* neighbours_of(const Problem& problem, const void* a, size_t bytes) {
  void* const to = device_memory(bytes);
  const size_t count = bytes / value_bytes(problem.dtype);
  const auto blocks = static_cast<unsigned>((count + 255) / 256);
  if (value_bytes(problem.dtype) == 4) {
    disturb<<<blocks, 256>>>(static_cast<const float*>(a), static_cast<float*>(to), count);
  } else {
    disturb<<<blocks, 256>>>(static_cast<const double*>(a), static_cast<double*>(to), count);
  }
  check(cudaGetLastError(), "disturb");
  return to;
}

struct Rate {
  double per_second = 0;
  double residual = 0;
  uint64_t by_qr = 0;  // matrices of a launch that JACOBI left to QR
};

// keep: the right eigenvectors of the last call, device memory that the caller frees. starts: for options that take them.
Rate rate_of(const CudaEngine& engine, const Problem& problem, const Options& options, int64_t count, const void* a,
             void** keep = nullptr, const void* starts = nullptr) {
  const Plan plan = *make_plan(problem, options).plan;
  void* const results = device_memory(result_bytes(plan, count));
  auto* const statuses = static_cast<uint8_t*>(device_memory(count));
  auto* const counts = static_cast<uint64_t*>(device_memory(kMatrixStatuses * sizeof(uint64_t)));
  void* const workspace = device_memory(engine.workspace_bytes(plan, count) + 256);
  check(cudaMemset(counts, 0, kMatrixStatuses * sizeof(uint64_t)), "memset");
  const DeviceBatch batch{a, count, planes_in(plan, results, count), statuses, counts, workspace, starts};
  Rate rate;
  rate.per_second = static_cast<double>(count) / best_seconds(2, [&] {
                      const CudaStatus status = engine.launch(plan, batch, nullptr);
                      if (!status.ok()) {
                        std::fprintf(stderr, "%s\n", status.text.c_str());
                        std::exit(1);
                      }
                    });
  if (plan.outputs.certificate) {
    const void* const certificates = batch.planes[Plane::kCertificate];
    rate.residual = value_bytes(problem.dtype) == 4 ? largest_residual<float>(certificates, count)
                                                    : largest_residual<double>(certificates, count);
  }
  uint64_t exceptions[kMatrixStatuses];
  check(cudaMemset(counts, 0, sizeof(exceptions)), "memset");
  if (!engine.launch(plan, batch, nullptr).ok()) std::exit(1);
  check(cudaMemcpy(exceptions, counts, sizeof(exceptions), cudaMemcpyDeviceToHost), "download");
  if (keep != nullptr) {
    const size_t bytes = plane_bytes(plan, Plane::kLeft, count);
    *keep = device_memory(bytes);
    check(cudaMemcpy(*keep, batch.planes[Plane::kLeft], bytes, cudaMemcpyDeviceToDevice), "copy");
  }
  rate.by_qr = exceptions[static_cast<int>(MatrixStatus::kByQr)];
  for (void* const memory : {results, static_cast<void*>(statuses), static_cast<void*>(counts), workspace}) {
    cudaFree(memory);
  }
  return rate;
}

int main_of() {
  CudaStatus status;
  const auto engine = CudaEngine::open({}, &status);
  if (engine == nullptr) {
    std::fprintf(stderr, "no GPU: %s\n", status.text.c_str());
    return 2;
  }
  std::printf("# %s; eigenvalues and eigenvectors of general matrices\n", engine->description().name.c_str());
  std::printf(
      "shape,dtype,matrices,right M/s,residual / u,values alone M/s,right and left M/s,JACOBI right M/s,residual / u "
      "of JACOBI,left to QR,warm JACOBI M/s,residual / u of warm JACOBI,left to QR of warm\n");
  for (const int64_t n : {2, 3, 4, 8, 16, 24, 32}) {
    for (const DType t : {DType::kF32, DType::kF64, DType::kC64, DType::kC128}) {
      const Problem problem{n, n, t, Order::kColumnMajor};
      const size_t one = matrix_bytes(problem);
      const auto count = std::min<int64_t>((int64_t{128} << 20) / static_cast<int64_t>(one), 1'000'000);
      void* const a = normal_on_device(value_bytes(t) == 4, static_cast<size_t>(count) * one);
      Options options{.decomposition = Decomposition::kGeneral};
      const Rate values = rate_of(*engine, problem, options, count, a);
      options.vectors = Vectors::kThin;
      options.certificate = true;
      const Rate right = rate_of(*engine, problem, options, count, a);
      options.vectors = Vectors::kFull;
      const Rate both = rate_of(*engine, problem, options, count, a);
      options.vectors = Vectors::kThin;
      options.method = Method::kJacobi;
      void* vectors = nullptr;
      const Rate jacobi = rate_of(*engine, problem, options, count, a, &vectors);
      void* const neighbours = neighbours_of(problem, a, static_cast<size_t>(count) * one);
      options.starting_vectors = true;
      const Rate warm = rate_of(*engine, problem, options, count, neighbours, nullptr, vectors);
      std::printf("%ldx%ld,%s,%ld,%.4f,%.1f,%.4f,%.4f,%.4f,%.1f,%llu,%.4f,%.1f,%llu\n", n, n, name(t), count,
                  right.per_second * 1e-6, right.residual, values.per_second * 1e-6, both.per_second * 1e-6,
                  jacobi.per_second * 1e-6, jacobi.residual, static_cast<unsigned long long>(jacobi.by_qr),
                  warm.per_second * 1e-6, warm.residual, static_cast<unsigned long long>(warm.by_qr));
      std::fflush(stdout);
      for (void* const memory : {a, vectors, neighbours}) cudaFree(memory);
    }
  }
  return 0;
}

}  // namespace
}  // namespace svdserve

int main() { return svdserve::main_of(); }
