// Code shared by benches of the large path's parts: a lane with memory, matrices to it and back, times on its stream.
#ifndef SVDSERVE_TESTS_DEVICE_LARGE_DEVICE_H_
#define SVDSERVE_TESTS_DEVICE_LARGE_DEVICE_H_

#include <algorithm>
#include <cstdint>
#include <memory>
#include <vector>

#include "engine/backends/cuda/large/library_work.h"
#include "tests/device/device_bench.h"

namespace svdserve::device_bench {

// The first GPU's lane and 12 GiB.
struct LargeDevice {
  LargeDevice() : lane(cuda::take_lane(0)), memory(device_memory(kBytes)), arena(memory, kBytes) {}
  static constexpr uint64_t kBytes = uint64_t{12} << 30;
  std::unique_ptr<cuda::LargeLane> lane;
  void* memory;
  cuda::DeviceArena arena;
  LargeControl control;
  large::LargeWatch watch{control};
};

template <class E>
large::LargeView<E> matrix(LargeDevice& device, int64_t rows, int64_t cols) {
  const int64_t ld = (rows + 15) / 16 * 16;
  return {cuda::take_piece<E>(device.arena, ld * cols), rows, cols, ld};
}
template <class E>
void upload(large::LargeView<E> to, const std::vector<E>& from) {
  check(cudaMemcpy2D(to.data, to.ld * sizeof(E), from.data(), to.rows * sizeof(E), to.rows * sizeof(E), to.cols,
                     cudaMemcpyHostToDevice),
        "upload");
  check(cudaDeviceSynchronize(),
        "upload");  // from pageable memory it may be under way, and the lane's stream waits for none
}
template <class E>
std::vector<E> fetch(large::LargeView<E> from) {
  std::vector<E> to(static_cast<size_t>(from.rows * from.cols));
  check(cudaMemcpy2D(to.data(), from.rows * sizeof(E), from.data, from.ld * sizeof(E), from.rows * sizeof(E), from.cols,
                     cudaMemcpyDeviceToHost),
        "download");
  return to;
}

// The median of some milliseconds that f takes on the stream, after before(). The first one is left out.
template <class Before, class F>
double median_ms(cudaStream_t stream, int rounds, Before before, F f) {
  std::vector<double> ms;
  cudaEvent_t marks[2];
  for (cudaEvent_t& mark : marks) check(cudaEventCreate(&mark), "cudaEventCreate");
  for (int i = 0; i <= rounds; ++i) {
    before();
    check(cudaEventRecord(marks[0], stream), "recording");
    f();
    check(cudaEventRecord(marks[1], stream), "recording");
    check(cudaEventSynchronize(marks[1]), "a timed call");
    float elapsed = 0;
    check(cudaEventElapsedTime(&elapsed, marks[0], marks[1]), "cudaEventElapsedTime");
    if (i > 0) ms.push_back(static_cast<double>(elapsed));
  }
  for (cudaEvent_t& mark : marks) cudaEventDestroy(mark);
  std::sort(ms.begin(), ms.end());
  return ms[ms.size() / 2];
}

}  // namespace svdserve::device_bench
#endif  // SVDSERVE_TESTS_DEVICE_LARGE_DEVICE_H_
