// A GPU's speeds, for the progress of large matrices. No CUDA here: the engine predicts without the plugin.
#ifndef SVDSERVE_ENGINE_BACKENDS_CUDA_DEVICE_CUDA_WORK_SPEEDS_H_
#define SVDSERVE_ENGINE_BACKENDS_CUDA_DEVICE_CUDA_WORK_SPEEDS_H_

#include <cmath>

#include "engine/algorithms/large/predicted_work.h"

namespace svdserve::cuda {

// Fitted to the tables of one H100 at n = 1024 to 8192 in BENCHMARKS.md: large matrices, their QR, Hermitian and general
// eigenproblems.
inline large::WorkSpeeds cuda_work_speeds() {
  large::WorkSpeeds speeds;
  speeds.products = {35e12, 0};
  speeds.qr = {34e12, 2.1e-6};
  speeds.eigenbasis = {6.9e12, 9.8e-6};
  speeds.single_eigenbasis = 0.8;
  speeds.indefinite_factor = {2e12, 7.5e-6};
  speeds.sweeps = {31e12, 2.1e-6};
  speeds.general_qr = {2.6e12, 1.7e-4};
  speeds.bytes = 8e9;
  speeds.reads_in_place = false;
  return speeds;
}

// Those of so many GPUs together, by device_ring_bench at n = 8192 and 16384. In sweeps two have 1.75 times the speed of
// one, and four 2 to 2.9 times. The finish is products: there two have 1.35 to 1.65 times, and four 1.4 to 1.5.
inline large::WorkSpeeds cuda_ring_work_speeds(int gpus) {
  large::WorkSpeeds speeds = cuda_work_speeds();
  speeds.sweeps.operations *= std::pow(gpus, 0.75);
  speeds.products.operations *= std::sqrt(gpus);
  return speeds;
}

}  // namespace svdserve::cuda
#endif  // SVDSERVE_ENGINE_BACKENDS_CUDA_DEVICE_CUDA_WORK_SPEEDS_H_
