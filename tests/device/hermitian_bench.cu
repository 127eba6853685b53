// Eigenvalues and eigenvectors of Hermitian matrices that are on the GPU already, against cusolverDnXsyevBatched on the
// same data. The rate of U, S and V of that shape is in the same run. Every rate stands beside its residual.
//   device_hermitian_bench [quick] [ORDER ...]     a table as CSV; M/s: million matrices a second
// The lower triangle of random normal matrices, column-major; CUDA events; warm; best of 5.
#include <cusolverDn.h>

#include <cmath>
#include <complex>
#include <string>
#include <vector>

#include "engine/cuda_engine.h"
#include "tests/device/device_bench.h"

namespace svdserve {
namespace {

using namespace device_bench;  // NOLINT: what benches share

struct Rate {
  double per_second = 0;
  double residual = 0;  // the largest of some matrices, |M U - U L|_F / (u |M|_F)
};

std::complex<double> element(DType t, const std::vector<std::byte>& bytes, int64_t i) {
  const auto number = [&](int64_t at) -> double {
    return value_bytes(t) == 4 ? reinterpret_cast<const float*>(bytes.data())[at]
                               : reinterpret_cast<const double*>(bytes.data())[at];
  };
  return is_complex(t) ? std::complex<double>(number(2 * i), number(2 * i + 1)) : number(i);
}

// The first matrices of a batch, by columns, that are decomposed in device memory.
double worst_residual(DType t, int64_t n, int64_t count, const void* a, const void* u, const void* values) {
  const int64_t some = std::min<int64_t>(count, n <= 128 ? 64 : 2);
  const auto download = [](const void* from, size_t bytes) {
    std::vector<std::byte> to(bytes);
    check(cudaMemcpy(to.data(), from, bytes, cudaMemcpyDeviceToHost), "download");
    return to;
  };
  const size_t elements = static_cast<size_t>(some * n * n);
  const auto of_a = download(a, elements * element_bytes(t)), of_u = download(u, elements * element_bytes(t));
  const auto of_values = download(values, static_cast<size_t>(some * n) * value_bytes(t));
  const DType real = value_bytes(t) == 4 ? DType::kF32 : DType::kF64;
  double worst = 0;
  for (int64_t m = 0; m < some; ++m) {
    const auto at = [&](int64_t i, int64_t j) {
      const auto x = element(t, of_a, (m * n + std::min(i, j)) * n + std::max(i, j));
      return i == j ? x.real() : i > j ? x : std::conj(x);
    };
    double error = 0, norm = 0;
    for (int64_t j = 0; j < n; ++j) {
      for (int64_t i = 0; i < n; ++i) {
        std::complex<double> sum = -element(real, of_values, m * n + j).real() * element(t, of_u, (m * n + j) * n + i);
        for (int64_t l = 0; l < n; ++l) sum += at(i, l) * element(t, of_u, (m * n + j) * n + l);
        error += std::norm(sum);
        norm += std::norm(at(i, j));
      }
    }
    const double residual = std::sqrt(error / norm);
    worst = residual <= worst ? worst : residual;  // and where it is NaN
  }
  return worst / (value_bytes(t) == 4 ? 0x1p-24 : 0x1p-53);
}

Rate engine_rate(const CudaEngine& engine, const Problem& problem, const Options& options, int64_t count,
                 const void* a) {
  const Plan plan = *make_plan(problem, options).plan;
  void* const results = device_memory(result_bytes(plan, count));
  auto* const statuses = static_cast<uint8_t*>(device_memory(count));
  auto* const counts = static_cast<uint64_t*>(device_memory(kMatrixStatuses * sizeof(uint64_t)));
  void* const workspace = device_memory(engine.workspace_bytes(plan, count) + 256);
  check(cudaMemset(counts, 0, kMatrixStatuses * sizeof(uint64_t)), "memset");
  const DeviceBatch batch{a, count, planes_in(plan, results, count), statuses, counts, workspace};
  const double s = best_seconds(2, [&] {
    const CudaStatus status = engine.launch(plan, batch, nullptr);
    if (!status.ok()) {
      std::fprintf(stderr, "%s\n", status.text.c_str());
      std::exit(1);
    }
  });
  Rate rate{static_cast<double>(count) / s, 0};
  if (plan.decomposition == Decomposition::kHermitian && plan.outputs.left_columns > 0) {
    rate.residual =
        worst_residual(problem.dtype, problem.rows, count, a, batch.planes[Plane::kLeft], batch.planes[Plane::kValues]);
  }
  for (void* const memory : {results, static_cast<void*>(statuses), static_cast<void*>(counts), workspace}) {
    cudaFree(memory);
  }
  return rate;
}

cudaDataType type_of(DType t) {
  constexpr cudaDataType kTypes[] = {CUDA_R_32F, CUDA_R_64F, CUDA_C_32F, CUDA_C_64F};
  return kTypes[static_cast<int>(t)];
}

// cusolverDnXsyevBatched, which overwrites its input: the best of three calls on fresh copies. Zero: it refused.
Rate peer_rate(DType t, int64_t n, int64_t count, const void* a) {
  const size_t bytes = static_cast<size_t>(count * n * n) * element_bytes(t);
  const cudaDataType type = type_of(t), real = type_of(value_bytes(t) == 4 ? DType::kF32 : DType::kF64);
  cusolverDnHandle_t handle;
  cusolverDnParams_t parameters;
  cusolverDnCreate(&handle);
  cusolverDnCreateParams(&parameters);
  void* const u = device_memory(bytes);
  void* const values = device_memory(static_cast<size_t>(count * n) * value_bytes(t));
  auto* const info = static_cast<int*>(device_memory(sizeof(int) * count));
  size_t on_device = 0, on_host = 0;
  cusolverDnXsyevBatched_bufferSize(handle, parameters, CUSOLVER_EIG_MODE_VECTOR, CUBLAS_FILL_MODE_LOWER, n, type, u, n,
                                    real, values, type, &on_device, &on_host, count);
  void* const work = device_memory(on_device + 256);
  std::vector<std::byte> host_work(on_host + 1);
  cudaEvent_t begin, end;
  check(cudaEventCreate(&begin), "event");
  check(cudaEventCreate(&end), "event");
  double best = 1e30;
  bool refused = false;
  for (int round = 0; round < 4 && !refused; ++round) {
    check(cudaMemcpy(u, a, bytes, cudaMemcpyDeviceToDevice), "copy");
    cudaEventRecord(begin);
    refused = cusolverDnXsyevBatched(handle, parameters, CUSOLVER_EIG_MODE_VECTOR, CUBLAS_FILL_MODE_LOWER, n, type, u,
                                     n, real, values, type, work, on_device, host_work.data(), on_host, info,
                                     count) != CUSOLVER_STATUS_SUCCESS;
    cudaEventRecord(end);
    check(cudaEventSynchronize(end), "cuSOLVER");
    float ms = 0;
    cudaEventElapsedTime(&ms, begin, end);
    if (round > 0) best = std::min(best, ms * 1e-3);
  }
  Rate rate;
  if (!refused) rate = {static_cast<double>(count) / best, worst_residual(t, n, count, a, u, values)};
  cudaEventDestroy(begin);
  cudaEventDestroy(end);
  for (void* const memory : {u, values, static_cast<void*>(info), work}) cudaFree(memory);
  cusolverDnDestroyParams(parameters);
  cusolverDnDestroy(handle);
  return rate;
}

int main_of(int argc, char** argv) {
  const bool quick = argc > 1 && std::string(argv[1]) == "quick";  // no peers
  std::vector<int64_t> orders;
  for (int i = quick ? 2 : 1; i < argc; ++i) orders.push_back(std::atoll(argv[i]));
  if (orders.empty()) orders = {2, 3, 4, 8, 16, 24, 32, 64, 128, 256, 512};
  CudaStatus status;
  const auto engine = CudaEngine::open({}, &status);
  if (engine == nullptr) {
    std::fprintf(stderr, "no GPU: %s\n", status.text.c_str());
    return 2;
  }
  std::printf("# %s; eigenvalues and eigenvectors of Hermitian matrices\n", engine->description().name.c_str());
  std::printf(
      "shape,dtype,matrices,ours M/s,residual / u,values alone M/s,U S V M/s,ours/U S V,XsyevBatched M/s,"
      "its residual / u,ours/XsyevBatched\n");
  for (const int64_t n : orders) {
    for (const DType t : {DType::kF32, DType::kF64, DType::kC64, DType::kC128}) {
      const Problem problem{n, n, t, Order::kColumnMajor};
      const size_t one = matrix_bytes(problem);
      // Beyond 128 whole waves of one matrix a multiprocessor.
      const auto count = n > 128 ? 528 : std::min<int64_t>((int64_t{128} << 20) / static_cast<int64_t>(one), 1'000'000);
      void* const a = normal_on_device(value_bytes(t) == 4, static_cast<size_t>(count) * one);
      Options options{.decomposition = Decomposition::kHermitian, .vectors = Vectors::kThin};
      const Rate ours = engine_rate(*engine, problem, options, count, a);
      options.vectors = Vectors::kNone;
      const Rate values = engine_rate(*engine, problem, options, count, a);
      const Rate svd = engine_rate(*engine, problem, {.vectors = Vectors::kThin}, count, a);
      // It failed with batches of 65 536.
      const Rate peer = quick ? Rate() : peer_rate(t, n, std::min<int64_t>({count, 400'000 / n, 50'000}), a);
      std::printf("%ldx%ld,%s,%ld,%.4f,%.1f,%.4f,%.4f,%.2f,%.4f,%.1f,%.1f\n", n, n, name(t), count,
                  ours.per_second * 1e-6, ours.residual, values.per_second * 1e-6, svd.per_second * 1e-6,
                  ours.per_second / svd.per_second, peer.per_second * 1e-6, peer.residual,
                  peer.per_second > 0 ? ours.per_second / peer.per_second : 0);
      std::fflush(stdout);
      cudaFree(a);
    }
  }
  return 0;
}

}  // namespace
}  // namespace svdserve

int main(int argc, char** argv) { return svdserve::main_of(argc, argv); }
