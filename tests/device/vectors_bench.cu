// U, S and V of matrices that are on the GPU already, against cuSOLVER on the same data. gesvdjBatched (k <= 32,
// square) and gesvdaStridedBatched (rows >= cols; approximate) run with vectors and with their default tolerances. The
// memory ceiling is a copy measured in the same run, and the bytes that a matrix and its results must move. JACOBI has a
// rate of its own where AUTO is another method.
//   device_vectors_bench [MxN|all [quick]]     a table as CSV; M/s: million matrices a second. quick: without the peers
//   device_vectors_bench MxN few               instead, a batch of few matrices: how long it takes by itself, with a
//                                              certificate, and for the values alone; and the rate of six at once
// Random normal matrices, column-major; CUDA events; warm; best of 5.
#include <cusolverDn.h>

#include <chrono>
#include <cstdio>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "engine/cuda_engine.h"
#include "tests/device/device_bench.h"

namespace svdserve {
namespace {

using namespace device_bench;  // NOLINT: what benches share

// A batch on the device, with memory of its own.
class DeviceRun {
 public:
  DeviceRun(const CudaEngine& engine, const Plan& plan, int64_t count, const void* a)
      : engine_(engine),
        plan_(plan),
        memory_{device_memory(result_bytes(plan, count)), device_memory(count),
                device_memory(kMatrixStatuses * sizeof(uint64_t)),
                device_memory(engine.workspace_bytes(plan, count) + 256)},
        batch_{a,
               count,
               planes_in(plan, memory_[0], count),
               static_cast<uint8_t*>(memory_[1]),
               static_cast<uint64_t*>(memory_[2]),
               memory_[3]} {
    check(cudaMemset(memory_[2], 0, kMatrixStatuses * sizeof(uint64_t)), "memset");
  }
  ~DeviceRun() {
    for (void* const memory : memory_) cudaFree(memory);
  }
  DeviceRun(const DeviceRun&) = delete;
  DeviceRun& operator=(const DeviceRun&) = delete;

  void launch(CUstream_st* stream) const {
    const CudaStatus status = engine_.launch(plan_, batch_, stream);
    if (status.ok()) return;
    std::fprintf(stderr, "%s\n", status.text.c_str());
    std::exit(1);
  }

 private:
  const CudaEngine& engine_;
  const Plan& plan_;
  void* const memory_[4];  // results, statuses, counts, workspace
  const DeviceBatch batch_;
};

double engine_rate(const CudaEngine& engine, const Plan& plan, int64_t count, const void* a) {
  const DeviceRun run(engine, plan, count, a);
  return static_cast<double>(count) / best_seconds(2, [&] { run.launch(nullptr); });
}

// Matrices a second of some batches at once, each in a stream of its own, one after the other there.
double rate_of_streams(const CudaEngine& engine, const Plan& plan, int64_t count, const void* a) {
  constexpr int kStreams = 6, kTurns = 2;
  std::vector<std::unique_ptr<DeviceRun>> runs;
  std::vector<cudaStream_t> streams(kStreams);
  for (cudaStream_t& stream : streams) {
    check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "stream");
    runs.push_back(std::make_unique<DeviceRun>(engine, plan, count, a));
  }
  double best = 1e30;
  for (int round = 0; round < 4; ++round) {
    const auto begin = std::chrono::steady_clock::now();
    for (int turn = 0; turn < kTurns; ++turn) {
      for (int s = 0; s < kStreams; ++s) runs[s]->launch(streams[s]);
    }
    check(cudaDeviceSynchronize(), "streams");
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
    if (round > 0) best = std::min(best, seconds.count());
  }
  for (const cudaStream_t stream : streams) cudaStreamDestroy(stream);
  return static_cast<double>(kStreams * kTurns * count) / best;
}

// The functions of cuSOLVER for one element type.
template <class E>
struct Peer;
#define SVD_PEER(Type, RealType, letter)                                                          \
  template <>                                                                                     \
  struct Peer<Type> {                                                                             \
    using Real = RealType;                                                                        \
    static constexpr auto jacobi_size = cusolverDn##letter##gesvdjBatched_bufferSize;             \
    static constexpr auto jacobi = cusolverDn##letter##gesvdjBatched;                             \
    static constexpr auto approximate_size = cusolverDn##letter##gesvdaStridedBatched_bufferSize; \
    static constexpr auto approximate = cusolverDn##letter##gesvdaStridedBatched;                 \
  }
SVD_PEER(float, float, S);
SVD_PEER(double, double, D);
SVD_PEER(cuComplex, float, C);
SVD_PEER(cuDoubleComplex, double, Z);
#undef SVD_PEER

// Seconds of the best of three calls on a fresh copy of the input, which cuSOLVER overwrites.
template <class F>
double best_on_copy(void* copy, const void* a, size_t bytes, F f) {
  cudaEvent_t begin, end;
  check(cudaEventCreate(&begin), "event");
  check(cudaEventCreate(&end), "event");
  double best = 1e30;
  for (int round = 0; round < 4; ++round) {
    check(cudaMemcpy(copy, a, bytes, cudaMemcpyDeviceToDevice), "copy");
    cudaEventRecord(begin);
    f();
    cudaEventRecord(end);
    check(cudaEventSynchronize(end), "cuSOLVER");
    float ms = 0;
    cudaEventElapsedTime(&ms, begin, end);
    if (round > 0) best = std::min(best, ms * 1e-3);
  }
  cudaEventDestroy(begin);
  cudaEventDestroy(end);
  return best;
}

// More, and gesvdaStridedBatched does nothing at once.
constexpr int64_t kMostOfPeer = 65'535;

struct PeerRates {
  double jacobi = 0, approximate = 0;
};

template <class E>
PeerRates peer_rates(int m, int n, int count, const void* a) {
  using P = Peer<E>;
  using Real = typename P::Real;
  const auto mode = CUSOLVER_EIG_MODE_VECTOR;
  const size_t bytes = sizeof(E) * m * n * count;
  PeerRates rates;
  cusolverDnHandle_t handle;
  cusolverDnCreate(&handle);
  E* const copy = static_cast<E*>(device_memory(bytes));
  E* const u = static_cast<E*>(device_memory(sizeof(E) * m * m * count));
  E* const v = static_cast<E*>(device_memory(sizeof(E) * n * n * count));
  Real* const s = static_cast<Real*>(device_memory(sizeof(Real) * n * count));
  int* const info = static_cast<int*>(device_memory(sizeof(int) * count));
  int size = 0;
  if (m == n && n <= 32) {
    gesvdjInfo_t parameters;
    cusolverDnCreateGesvdjInfo(&parameters);
    P::jacobi_size(handle, mode, m, n, copy, m, s, u, m, v, n, &size, parameters, count);
    E* const work = static_cast<E*>(device_memory(sizeof(E) * size));
    rates.jacobi = count / best_on_copy(copy, a, bytes, [&] {
                     P::jacobi(handle, mode, m, n, copy, m, s, u, m, v, n, work, size, info, parameters, count);
                   });
    cudaFree(work);
    cusolverDnDestroyGesvdjInfo(parameters);
  }
  if (m >= n) {
    const auto step = [](int64_t x) { return static_cast<long long>(x); };
    P::approximate_size(handle, mode, n, m, n, copy, m, step(m * n), s, n, u, m, step(m * n), v, n, step(n * n), &size,
                        count);
    E* const work = static_cast<E*>(device_memory(sizeof(E) * size));
    bool refused = false;
    const double seconds = best_on_copy(copy, a, bytes, [&] {
      refused = P::approximate(handle, mode, n, m, n, copy, m, step(m * n), s, n, u, m, step(m * n), v, n, step(n * n),
                               work, size, info, nullptr, count) != CUSOLVER_STATUS_SUCCESS;
    });
    rates.approximate = refused ? 0 : count / seconds;
    cudaFree(work);
  }
  for (void* const memory : {static_cast<void*>(copy), static_cast<void*>(u), static_cast<void*>(v),
                             static_cast<void*>(s), static_cast<void*>(info)}) {
    cudaFree(memory);
  }
  cusolverDnDestroy(handle);
  return rates;
}

PeerRates peer_rates(DType t, int m, int n, int count, const void* a) {
  switch (t) {
    case DType::kF32:
      return peer_rates<float>(m, n, count, a);
    case DType::kF64:
      return peer_rates<double>(m, n, count, a);
    case DType::kC64:
      return peer_rates<cuComplex>(m, n, count, a);
    case DType::kC128:
      return peer_rates<cuDoubleComplex>(m, n, count, a);
  }
  return {};
}

const Shapes kUsualShapes = {{2, 2},   {3, 3},     {4, 4},     {6, 6},     {8, 8},    {16, 16}, {24, 24},
                             {32, 32}, {4, 64},    {64, 16},   {256, 32},  {48, 48},  {64, 64}, {64, 128},
                             {96, 96}, {128, 128}, {128, 256}, {256, 256}, {512, 512}};

constexpr size_t kUsualBytes = size_t{256} << 20;  // of a batch
constexpr DType kTypes[] = {DType::kF32, DType::kF64, DType::kC64, DType::kC128};

Plan plan_of(int m, int n, DType t, Method method, const Options& wanted = {.vectors = Vectors::kThin}) {
  Options options = wanted;
  options.method = method;
  const PlanOrError planned = make_plan({m, n, t, Order::kColumnMajor}, options);
  if (planned.plan.has_value()) return *planned.plan;
  std::fprintf(stderr, "%dx%d: %s %s\n", m, n, planned.error.field.c_str(), planned.error.message.c_str());
  std::exit(2);
}

// Batches of no more bytes than the usual ones.
int few_matrices(const CudaEngine& engine, const Shapes& shapes) {
  const Options certified{.vectors = Vectors::kThin, .certificate = true};
  std::printf(
      "shape,dtype,matrices,ours ms,JACOBI ms,ours at once M/s,JACOBI at once M/s,certified ms,values ms,JACOBI values "
      "ms\n");
  for (const auto& [m, n] : shapes) {
    for (const DType t : kTypes) {
      for (const int64_t count : {4, 16, 64, 256, 1024}) {
        const Plan plan = plan_of(m, n, t, Method::kAuto), by_jacobi = plan_of(m, n, t, Method::kJacobi);
        const size_t bytes = static_cast<size_t>(count) * matrix_bytes(plan.problem);
        if (bytes > kUsualBytes) continue;
        void* const a = normal_on_device(value_bytes(t) == 4, bytes);
        const auto milliseconds = [&](Method method, const Options& options) {
          return 1e3 * static_cast<double>(count) / engine_rate(engine, plan_of(m, n, t, method, options), count, a);
        };
        const auto rate = [&](const Plan& by) { return 1e-6 * rate_of_streams(engine, by, count, a); };
        std::printf("%dx%d,%s,%ld,%.3f,%.3f,%.4f,%.4f,%.3f,%.3f,%.3f\n", m, n, name(t), count,
                    milliseconds(Method::kAuto, {.vectors = Vectors::kThin}),
                    milliseconds(Method::kJacobi, {.vectors = Vectors::kThin}), rate(plan), rate(by_jacobi),
                    milliseconds(Method::kAuto, certified), milliseconds(Method::kAuto, {}),
                    milliseconds(Method::kJacobi, {}));
        std::fflush(stdout);
        cudaFree(a);
      }
    }
  }
  return 0;
}

int main_of(int argc, char** argv) {
  const std::string only = argc > 1 ? argv[1] : "";
  const std::string mode = argc > 2 ? argv[2] : "";
  const bool quick = mode == "quick";  // no peers
  const Shapes shapes = shapes_of(only, kUsualShapes);
  if (shapes.empty() || (mode != "" && mode != "quick" && mode != "few")) {
    std::fprintf(stderr, "usage: device_vectors_bench [MxN,..|all [quick|few]], for example 120x120,48x96\n");
    return 2;
  }
  CudaStatus status;
  const auto engine = CudaEngine::open({}, &status);
  if (engine == nullptr) {
    std::fprintf(stderr, "no GPU: %s\n", status.text.c_str());
    return 2;
  }
  if (mode == "few") return few_matrices(*engine, shapes);
  const double copy = copy_rate();
  std::printf("# %s, copy %.2f TB/s read and written; U, S, V\n", engine->description().name.c_str(), copy * 1e-12);
  std::printf(
      "shape,dtype,matrices,ours M/s,gesvdjBatched M/s,gesvdaStridedBatched M/s,ours/best peer,ceiling M/s,of "
      "ceiling,JACOBI M/s\n");
  for (const auto& [m, n] : shapes) {
    const std::string label = std::to_string(m) + "x" + std::to_string(n);
    for (const DType t : kTypes) {
      const Plan plan = plan_of(m, n, t, Method::kAuto), by_jacobi = plan_of(m, n, t, Method::kJacobi);
      const size_t one = matrix_bytes(plan.problem);
      // A multiple of 16, by which each plane of the results begins where whole elements may be stored.
      const auto count = std::min<int64_t>(static_cast<int64_t>(kUsualBytes / one), 2'000'000) / 16 * 16;
      void* const a = normal_on_device(value_bytes(t) == 4, static_cast<size_t>(count) * one);
      const double ours = engine_rate(*engine, plan, count, a);
      const double jacobi = plan.method == Method::kJacobi ? 0 : engine_rate(*engine, by_jacobi, count, a);
      const PeerRates peers =
          quick ? PeerRates()
                : peer_rates(t, m, n, static_cast<int>(std::min<int64_t>({count, 400'000 / n, kMostOfPeer})), a);
      const double ceiling = copy / static_cast<double>(one + result_bytes(plan, 1));
      const double best = std::max(peers.jacobi, peers.approximate);
      std::printf("%s,%s,%ld,%.4f,%.4f,%.4f,%.1f,%.0f,%.3f,%.4f\n", label.c_str(), name(t), count, ours * 1e-6,
                  peers.jacobi * 1e-6, peers.approximate * 1e-6, best > 0 ? ours / best : 0, ceiling * 1e-6,
                  ours / ceiling, jacobi * 1e-6);
      std::fflush(stdout);
      cudaFree(a);
    }
  }
  return 0;
}

}  // namespace
}  // namespace svdserve

int main(int argc, char** argv) { return svdserve::main_of(argc, argv); }
