#include "server/device/cost/calibration.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <new>
#include <vector>

namespace svdserve::server {
namespace {

constexpr int64_t kMostBytes = int64_t{4} << 20;               // of a run's operands
constexpr int64_t kStep = 32;                                  // from one number of matrices to the next
constexpr absl::Duration kLongestRun = absl::Milliseconds(4);  // expected

struct CalibrationShape {
  int64_t k;
  DType dtype;
  Method method = Method::kAuto;
};

// The widest spread first, should the time be up early. Everything else is borrowed from the nearest of them.
constexpr CalibrationShape kShapes[] = {
    {4, DType::kF64},
    {32, DType::kF64},
    {8, DType::kC64},
    {8, DType::kF64},
    {16, DType::kF64},
    {4, DType::kC64},
    {4, DType::kF32},
    {8, DType::kF32},
    {4, DType::kC128},
    {16, DType::kC64},
    {32, DType::kC64},
    {16, DType::kF32},
    {32, DType::kF32},
    {8, DType::kC128},
    {16, DType::kC128},
    {32, DType::kC128},
    {8, DType::kF64, Method::kBisection},
    {32, DType::kF64, Method::kBisection},
    {8, DType::kF64, Method::kJacobi},
    {32, DType::kF64, Method::kJacobi},
};

// Elements of [-1, 1), enough for the operands of every run.
template <class T>
std::vector<T> random_elements() {
  std::vector<T> elements(static_cast<size_t>(kMostBytes) / sizeof(T));
  uint64_t state = 1;
  for (T& x : elements) {
    state = state * 6364136223846793005 + 1442695040888963407;
    x = static_cast<T>(static_cast<int64_t>(state) >> 32) / T(2147483648);
  }
  return elements;
}

struct Buffers {
  std::vector<float> floats = random_elements<float>();
  std::vector<double> doubles = random_elements<double>();
  std::vector<std::byte> results;
  std::vector<MatrixStatus> statuses;
};

// Growing numbers of matrices of one shape. False: no more runs.
bool calibrate(const CalibrationShape& shape, CalibrationRun run, Buffers* buffers) {
  const Plan plan = *make_plan({shape.k, shape.k, shape.dtype, Order::kRowMajor}, {.method = shape.method}).plan;
  const bool is_single = value_bytes(shape.dtype) == sizeof(float);
  const void* const operands = is_single ? static_cast<const void*>(buffers->floats.data()) : buffers->doubles.data();
  const int64_t most = kMostBytes / static_cast<int64_t>(operand_bytes(plan));
  absl::Duration took;
  for (int64_t count = 1; count <= most && took * kStep <= kLongestRun; count *= kStep) {
    const size_t n = static_cast<size_t>(count);
    buffers->results.resize(std::max(buffers->results.size(), result_bytes(plan, count)));
    buffers->statuses.resize(std::max(buffers->statuses.size(), n));
    const HostSegment segment{operands, count, planes_in(plan, buffers->results.data(), count),
                              buffers->statuses.data()};
    for (int i = count == 1 ? 3 : 2; i > 0; --i) {
      const std::optional<absl::Duration> ran = run(plan, segment);
      if (!ran.has_value()) return false;
      took = *ran;
    }
  }
  return true;
}

}  // namespace

void calibrate(CalibrationRun run) {
  try {
    Buffers buffers;
    for (const CalibrationShape& shape : kShapes) {
      if (!calibrate(shape, run, &buffers)) break;
    }
  } catch (const std::bad_alloc&) {
    return;
  }
}

}  // namespace svdserve::server
