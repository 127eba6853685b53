// The effect of a dead GPU on a server. A real illegal access kills the context of GPU 0 while a pipeline of all GPUs
// and the host is at work. Every request must be answered with the values that the host computes, the
// device marked, the others left at work, and nothing may hang.
//   device_faults        exit code 1: something is not so
#include <cuda_runtime.h>

#include <atomic>
#include <condition_variable>
#include <cstdio>
#include <cstring>
#include <memory>
#include <mutex>
#include <random>
#include <vector>

#include "server/base/clock.h"
#include "server/device/cuda_device.h"
#include "server/device/host_device.h"
#include "server/pipeline.h"

namespace svdserve::server {
namespace {

__global__ void write_nowhere(int* nowhere) { *nowhere = 1; }

struct Memory final : public RequestMemory {
  void* allocate_results(absl::Span<const ResultPart> parts) override {
    values.resize(result_bytes(parts.front()));
    return values.data();
  }
  std::vector<double> payload;
  std::vector<unsigned char> values;
};

// One request through the pipeline; blocks until it is answered.
Answer ask(Pipeline* pipeline, const std::shared_ptr<Memory>& memory, int64_t count) {
  std::mutex mu;
  std::condition_variable answered;
  bool done = false;
  Answer out;
  Request request;
  request.problem = {4, 4, DType::kF64, Order::kRowMajor};
  request.count = count;
  request.payload = memory->payload.data();
  request.payload_bytes = memory->payload.size() * sizeof(double);
  request.memory = memory;
  pipeline->submit(std::move(request), [&](Answer answer) {
    const std::lock_guard<std::mutex> lock(mu);
    out = std::move(answer);
    done = true;
    answered.notify_all();
  });
  std::unique_lock<std::mutex> lock(mu);
  answered.wait(lock, [&] { return done; });
  return out;
}

int failures = 0;
void expect(bool good, const char* what) {
  std::printf("%s: %s\n", good ? "ok  " : "FAIL", what);
  if (!good) ++failures;
}

std::vector<unsigned char> host_values(const std::vector<double>& a, int64_t count) {
  std::vector<unsigned char> values(static_cast<size_t>(count) * 32);
  const HostSegment segment{a.data(), count, values.data(), nullptr};
  SvdEngine().execute(*make_plan({4, 4, DType::kF64, Order::kRowMajor}, {}).plan, {&segment, 1});
  return values;
}

int main_of() {
  CudaDevices cuda = make_cuda_devices({});
  if (cuda.devices.empty()) {
    std::printf("%s\n", cuda.refusals.front().c_str());
    return 2;
  }
  std::vector<std::unique_ptr<Device>> devices = std::move(cuda.devices);
  for (auto& host : make_host_devices(1, 0, Simd::kBest)) devices.push_back(std::move(host));
  const std::unique_ptr<Clock> clock = make_steady_clock();
  NullRecorder recorder;
  PipelineOptions options;
  options.on_device_lost = OnDeviceLost::kDegrade;  // serve on with what is left
  options.inline_work = absl::ZeroDuration();
  Pipeline pipeline(options, std::move(devices), clock.get(), &recorder);

  constexpr int64_t kCount = 400'000;
  std::mt19937_64 random(3);
  std::normal_distribution<double> normal;
  const auto memory = std::make_shared<Memory>();
  memory->payload.resize(kCount * 16);
  for (double& x : memory->payload) x = normal(random);
  const std::vector<unsigned char> expected = host_values(memory->payload, kCount);
  const auto right = [&](const Answer& answer) { return answer.error.ok() && memory->values == expected; };

  Answer answer = ask(&pipeline, memory, kCount);
  std::printf("before: devices %s\n", answer.devices.c_str());
  expect(right(answer) && answer.devices.find("cuda:0") != std::string::npos, "the GPU serves, with the host's bits");

  cudaSetDevice(0);
  write_nowhere<<<1, 1>>>(nullptr);
  for (int i = 0; i < 6; ++i) {
    answer = ask(&pipeline, memory, kCount);
    std::printf("after %d: devices %s %s\n", i, answer.devices.c_str(), answer.error.message.c_str());
    expect(right(answer), "answered, with the host's bits, after an illegal access on GPU 0");
  }
  std::printf("the runtime says now: %s\n", cudaGetErrorName(cudaDeviceSynchronize()));
  for (const DeviceState& state : pipeline.devices()) {
    std::printf("%s healthy %d\n", state.info.name.c_str(), state.healthy);
    if (state.info.name == "cuda:0") expect(!state.healthy, "GPU 0 is marked");
    // An illegal access ends the contexts of all GPUs of the process, so nothing is expected of the others.
    if (state.info.kind == DeviceKind::kHost) expect(state.healthy, "the host is not");
  }
  expect(pipeline.stats().ready(), "the server is ready with what is left");
  return failures == 0 ? 0 : 1;
}

}  // namespace
}  // namespace svdserve::server

int main() {
  const int code = svdserve::server::main_of();
  std::printf("the process ends by itself, code %d\n", code);
  return code;
}
