// The engine fed from pinned host memory: upload, kernels and download of successive pieces overlapped, on one GPU and
// on several. The rate at which their buses alone carry the operands is measured in the same run.
//   device_host_bench [seconds of each measurement, 2]
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <numeric>
#include <random>
#include <thread>
#include <vector>

#include "engine/backends/cuda_door/plugin_loader.h"
#include "engine/cuda_engine.h"

namespace svdserve {
namespace {

constexpr int64_t kMatrices = 1'000'000;
constexpr int kLanes = 2;

using Clock = std::chrono::steady_clock;
double seconds_since(Clock::time_point begin) { return std::chrono::duration<double>(Clock::now() - begin).count(); }

// One GPU with its operands and results.
struct Fed {
  std::unique_ptr<CudaEngine> engine;
  std::vector<PinnedBuffer> operands, values;  // of each lane

  static std::unique_ptr<Fed> open(int ordinal, const Problem& problem) {
    auto fed = std::make_unique<Fed>();
    CudaStatus status;
    fed->engine = CudaEngine::open({ordinal, kLanes, uint64_t{8} << 20}, &status);
    if (fed->engine == nullptr) {
      std::printf("cuda:%d: %s\n", ordinal, status.text.c_str());
      return nullptr;
    }
    for (int lane = 0; lane < kLanes; ++lane) {
      fed->operands.emplace_back(kMatrices * matrix_bytes(problem));
      fed->values.emplace_back(kMatrices * values_bytes(problem));
      std::minstd_rand random(static_cast<unsigned>(lane + 1));
      auto* const x = static_cast<float*>(fed->operands.back().data());
      for (size_t i = 0; i < kMatrices * matrix_bytes(problem) / sizeof(float); ++i) {
        x[i] = static_cast<float>(random()) * 0x1p-31f - 0.5f;
      }
    }
    return fed;
  }
};

// Bytes a second of uploads from pinned memory to all GPUs together, nothing else on their buses. 0: an error.
double bus_rate(const std::vector<Fed*>& gpus, uint64_t bytes, double seconds) {
  const SvdserveCudaApi* const api = cuda::plugin().api;
  std::vector<std::thread> threads;
  std::vector<double> rates(gpus.size());
  for (size_t g = 0; g < gpus.size(); ++g) {
    threads.emplace_back([&, g] {
      const int device = gpus[g]->engine->description().ordinal;
      void* memory = nullptr;
      CUstream_st* stream = nullptr;
      CUevent_st* event = nullptr;
      if (api->allocate(device, bytes, &memory) != 0 || api->create_stream(device, &stream) != 0 ||
          api->create_event(device, &event) != 0) {
        return;
      }
      constexpr int kCopies = 8;
      int64_t done = 0;
      const auto begin = Clock::now();
      while (seconds_since(begin) < seconds) {
        for (int i = 0; i < kCopies; ++i) {
          api->copy_to_device(device, memory, gpus[g]->operands[0].data(), bytes, stream);
        }
        api->record(device, event, stream);
        api->wait(device, event);
        done += kCopies;
      }
      rates[g] = static_cast<double>(done) * static_cast<double>(bytes) / seconds_since(begin);
      api->release(device, memory);
      api->destroy_event(device, event);
      api->destroy_stream(device, stream);
    });
  }
  for (std::thread& t : threads) t.join();
  return std::accumulate(rates.begin(), rates.end(), 0.0);
}

// Matrices a second of all GPUs together, every lane with a thread of its own and batches of kMatrices.
double fed_rate(const std::vector<Fed*>& gpus, const Plan& plan, double seconds) {
  std::vector<std::thread> threads;
  std::vector<int64_t> done(gpus.size() * kLanes);
  const auto begin = Clock::now();
  for (size_t g = 0; g < gpus.size(); ++g) {
    for (int lane = 0; lane < kLanes; ++lane) {
      threads.emplace_back([&, g, lane] {
        Fed& fed = *gpus[g];
        const HostSegment batch{fed.operands[lane].data(), kMatrices, fed.values[lane].data(), nullptr};
        while (seconds_since(begin) < seconds) {
          if (!fed.engine->execute(lane, plan, {&batch, 1}).status.ok()) std::exit(1);
          done[g * kLanes + lane] += kMatrices;
        }
      });
    }
  }
  for (std::thread& t : threads) t.join();
  int64_t all = 0;
  for (const int64_t n : done) all += n;
  return static_cast<double>(all) / seconds_since(begin);
}

int main_of(int argc, char** argv) {
  const double seconds = argc > 1 ? std::atof(argv[1]) : 2;
  std::string why_not;
  const int count = cuda_device_count(&why_not);
  if (count == 0) {
    std::printf("no GPU: %s\n", why_not.c_str());
    return 2;
  }
  const Problem problem{4, 4, DType::kC64, Order::kColumnMajor};
  const Plan plan = *make_plan(problem, {}).plan;
  std::vector<std::unique_ptr<Fed>> all;
  for (int i = 0; i < count; ++i) {
    all.push_back(Fed::open(i, problem));
    if (all.back() == nullptr) return 1;
  }
  const uint64_t bytes = kMatrices * matrix_bytes(problem);
  std::printf("4x4 c64, batches of %ld from pinned memory and back, %d lanes\n", kMatrices, kLanes);
  fed_rate({all[0].get()}, plan, 0.3);
  double one = 0, one_bus = 0;
  std::vector<Fed*> gpus;
  for (int n = 1; n <= count; n *= 2) {
    gpus.clear();
    for (int i = 0; i < n; ++i) gpus.push_back(all[static_cast<size_t>(i)].get());
    const double bus = bus_rate(gpus, bytes, seconds / 2);
    double best = 0;
    for (int round = 0; round < 3; ++round) best = std::max(best, fed_rate(gpus, plan, seconds));
    const double of_bus = best * static_cast<double>(matrix_bytes(problem)) / bus;
    if (n == 1) {
      one = best;
      one_bus = bus;
      std::printf("bus %.1f GB/s; one GPU %.1f M/s = %.1f GB/s of operands, %.3f of the bus\n", bus * 1e-9, best * 1e-6,
                  best * static_cast<double>(matrix_bytes(problem)) * 1e-9, of_bus);
    } else {
      std::printf("%d GPUs %.1f M/s, %.2f times one; their buses %.1f GB/s, %.2f times one, %.3f of them used\n", n,
                  best * 1e-6, best / one, bus * 1e-9, bus / one_bus, of_bus);
    }
  }
  return 0;
}

}  // namespace
}  // namespace svdserve

int main(int argc, char** argv) { return svdserve::main_of(argc, argv); }
