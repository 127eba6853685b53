// The last steps of singular vectors (algorithms/finish/finish_vectors.h) for one matrix in host memory.
//
//   FinishCall<T> call{s, x, long_layout(problem, outputs), y, short_layout(problem, outputs), ...};
//   finish_vectors(plan, call);   // after the kernel's vectors were written to x and y
//
// x and y may be the planes themselves or memory of the caller's. Where vectors of one side alone are wanted, phases
// still need U's columns for every column of V, and a certificate needs k columns of both.
#ifndef SVDSERVE_ENGINE_BACKENDS_HOST_FINISH_FINISHING_H_
#define SVDSERVE_ENGINE_BACKENDS_HOST_FINISH_FINISHING_H_

#include <array>
#include <cstddef>

#include "engine/algorithms/mimo/mimo_task.h"
#include "engine/planner.h"
#include "engine/result.h"
#include "engine/vector_layout.h"

namespace svdserve::host {

// T: the real type. Pointers to void have any alignment.
template <class T>
struct FinishCall {
  const T* s;             // [in] k values, descending
  void* x;                // [in,out] as x_layout says; null: not there
  VectorLayout x_layout;  // rows: the long side
  void* y;                // [in,out] as y_layout says; null: not there
  VectorLayout y_layout;  // rows: k
  MatrixStatus status;
  bool canonical = false;               // x and y have no -0 as they come
  const void* a = nullptr;              // [in] the matrix as given; read for a certificate alone
  void* certificate = nullptr;          // [out] kCertificateNumbers of T; null: none
  const MimoTask<T>* mimo = nullptr;    // of the plan; for gradients alone
  std::array<char*, 3> gradients = {};  // [out] in the order of kMimoGradients; null: none
  void* workspace = nullptr;            // finish_workspace_bytes(), aligned to kAlignment
};

// Scratch of one thread.
size_t finish_workspace_bytes(const Plan& plan);

// Completes x, fixes phases where the plan says so, and writes the certificate and gradients where there is a place for
// them. The floating-point environment is the caller's business (fp_environment.h).
template <class T>
void finish_vectors(const Plan& plan, const FinishCall<T>& call);

// w_i = dF / ds_i of gradient number `kind` of kMimoGradients at SNR number `snr`, k numbers from s: see
// algorithms/mimo/gradients.h. scratch: gradient_scratch(k) numbers.
template <class T>
void gradient_weights(const MimoTask<T>& task, int kind, int snr, const T* s, T* weights, T* scratch);
constexpr size_t gradient_scratch(size_t k) { return 5 * k + 3; }

extern template void finish_vectors(const Plan& plan, const FinishCall<float>& call);
extern template void finish_vectors(const Plan& plan, const FinishCall<double>& call);

}  // namespace svdserve::host
#endif  // SVDSERVE_ENGINE_BACKENDS_HOST_FINISH_FINISHING_H_
