// The MIMO answers wanted from the singular values of a batch of channels. Kernels take it as plain data, by value.
#ifndef SVDSERVE_ENGINE_ALGORITHMS_MIMO_MIMO_TASK_H_
#define SVDSERVE_ENGINE_ALGORITHMS_MIMO_MIMO_TASK_H_

#include <cmath>
#include <cstdint>

#include "engine/options.h"

namespace svdserve {

// A positive number in any range: mantissa 2^exponent, mantissa in [1, 2], and 1 / mantissa.
template <class T>
struct ScaledNumber {
  T mantissa, reciprocal, exponent;
};

template <class T>
ScaledNumber<T> make_scaled_number(double x) {
  int exponent = 0;
  const double mantissa = 2 * std::frexp(x, &exponent);
  return {static_cast<T>(mantissa), static_cast<T>(1 / mantissa), static_cast<T>(exponent - 1)};
}

// The SNRs are those of `Outputs`, for water_filling; for what has equal power on every antenna each is divided by
// their number.
template <class T>
struct MimoTask {
  int k;          // singular values of a matrix
  int snr_count;  // <= kMaxSnrs
  T rank_threshold;
  ScaledNumber<T> snr[kMaxSnrs];
  ScaledNumber<T> snr_over_cols[kMaxSnrs];
};

template <class T>
MimoTask<T> make_mimo_task(int64_t rows, int64_t cols, const double* snr, int snr_count, double rank_threshold) {
  MimoTask<T> task{};
  task.k = static_cast<int>(rows < cols ? rows : cols);
  task.snr_count = snr_count;
  task.rank_threshold = static_cast<T>(rank_threshold);
  for (int i = 0; i < snr_count; ++i) {
    task.snr[i] = make_scaled_number<T>(snr[i]);
    task.snr_over_cols[i] = make_scaled_number<T>(snr[i] / static_cast<double>(cols));
  }
  return task;
}

}  // namespace svdserve
#endif  // SVDSERVE_ENGINE_ALGORITHMS_MIMO_MIMO_TASK_H_
