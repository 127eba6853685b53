#include "engine/backends/host/finish/finishing.h"

#include <algorithm>
#include <cstring>

#include "engine/algorithms/finish/finish_vectors.h"
#include "engine/algorithms/mimo/gradients.h"

// Instructions for fused multiply-adds are used where the processor has them; a call of std::fma gives the same bits.
// AddressSanitizer's builds have the calls alone, since flattened code takes it minutes to compile.
#if defined(__x86_64__) && !defined(__FMA__) && !defined(__SANITIZE_ADDRESS__)
#define SVD_ASKS_FOR_FMA 1
#else
#define SVD_ASKS_FOR_FMA 0
#endif

namespace svdserve::host {
namespace {

template <class E>
scalar::VectorMatrix<E> vectors(void* data, const VectorLayout& layout) {
  return {{static_cast<char*>(data), layout.row_stride, layout.col_stride, layout.conjugate},
          static_cast<int>(layout.rows),
          data == nullptr ? 0 : static_cast<int>(layout.columns)};
}

// The strides of A, or of its transpose where it is wide.
struct LongStrides {
  int64_t row, col;
};
LongStrides long_strides(const Problem& p) {
  const bool by_rows = (p.order == Order::kRowMajor) == (p.rows >= p.cols);
  return {by_rows ? values_per_matrix(p) : 1, by_rows ? 1 : std::max(p.rows, p.cols)};
}

template <class E>
scalar::OperandMatrix<E> long_matrix(const Plan& plan, const void* a) {
  const auto [row_stride, col_stride] = long_strides(plan.problem);
  return {{static_cast<const char*>(a), row_stride, col_stride, false},
          plan.decomposition == Decomposition::kHermitian,
          plan.triangle == Triangle::kUpper};
}

template <class E>
struct Finishing {
  using T = typename E::Scalar;
  scalar::FinishOptions options;
  scalar::FinishTask<E> task;
  const MimoTask<T>* mimo = nullptr;  // null: no gradients
  scalar::GradientPlaces gradients;
  scalar::GradientWorkspace<typename E::Lane> gradient_work;  // it shares the certificate's memory

  Finishing(const Plan& plan, const FinishCall<T>& call) {
    const Problem& p = plan.problem;
    const int k = static_cast<int>(values_per_matrix(p)), rows = static_cast<int>(std::max(p.rows, p.cols));
    options = {k, p.cols > p.rows, plan.outputs.fix_phases, call.canonical, call.certificate != nullptr};
    E* const elements = static_cast<E*>(call.workspace);
    auto* const numbers = reinterpret_cast<scalar::WideNumber*>(static_cast<char*>(call.workspace) + basis_bytes(plan));
    task = {vectors<E>(call.x, call.x_layout),
            vectors<E>(call.y, call.y_layout),
            reinterpret_cast<const typename E::Lane*>(call.s),
            call.status != MatrixStatus::kNonFinite,
            long_matrix<E>(plan, call.a),
            certificate,
            scalar::BasisWorkspace<E>::in(elements, rows, k),
            scalar::CertificateWorkspace::in(numbers, rows, k)};
    if (!plan.outputs.gradients()) return;
    mimo = call.mimo;
    gradients = gradient_places(p, call);
    gradient_work = scalar::GradientWorkspace<typename E::Lane>::in(reinterpret_cast<typename E::Lane*>(numbers), k);
  }

  void run() const {
    scalar::finish_vectors(scalar::Alone(), options, task);
    if (mimo == nullptr) return;
    scalar::write_gradients(scalar::Alone(), task.x, task.y, task.s, options.k, task.finite, *mimo, gradients,
                            gradient_work);
  }

  static scalar::GradientPlaces gradient_places(const Problem& p, const FinishCall<T>& call) {
    const auto [row_stride, col_stride] = long_strides(p);
    return {call.gradients[0], call.gradients[1], call.gradients[2],
            row_stride,        col_stride,        static_cast<int64_t>(matrix_bytes(p))};
  }

  // A multiple of the size of a double.
  static size_t basis_bytes(const Plan& plan) {
    const Problem& p = plan.problem;
    const auto elements = scalar::BasisWorkspace<E>::elements(static_cast<int>(std::max(p.rows, p.cols)),
                                                              static_cast<int>(values_per_matrix(p)));
    return (static_cast<size_t>(elements) * sizeof(E) + 15) / 16 * 16;
  }

  Finishing(const Finishing&) = delete;  // task points into it
  Finishing& operator=(const Finishing&) = delete;

  T certificate[kCertificateNumbers];
};

#if SVD_ASKS_FOR_FMA
// Flattened, since a run() that is not inlined would be compiled without the instructions.
template <class E>
__attribute__((target("fma"), flatten)) void finish_with_fma(const Finishing<E>& f) {
  f.run();
}
#endif

template <class E>
void finish(const Finishing<E>& f) {
#if SVD_ASKS_FOR_FMA
  static const bool has_fma = __builtin_cpu_supports("fma");
  if (has_fma) return finish_with_fma(f);
#endif
  f.run();
}

template <class E>
void finish_elements(const Plan& plan, const FinishCall<typename E::Scalar>& call) {
  Finishing<E> f(plan, call);
  finish(f);
  if (call.certificate != nullptr) std::memcpy(call.certificate, f.certificate, sizeof(f.certificate));
}

template <class T>
using Real = scalar::RealElement<scalar::ScalarLane<T>>;
template <class T>
using Complex = scalar::ComplexElement<scalar::ScalarLane<T>>;

template <class E>
size_t workspace_bytes(const Plan& plan) {
  const Problem& p = plan.problem;
  const int rows = static_cast<int>(std::max(p.rows, p.cols)), k = static_cast<int>(values_per_matrix(p));
  const auto numbers =
      std::max(scalar::CertificateWorkspace::numbers(rows, k), scalar::GradientWorkspace<typename E::Lane>::numbers(k));
  return Finishing<E>::basis_bytes(plan) + static_cast<size_t>(numbers) * sizeof(double);
}

}  // namespace

size_t finish_workspace_bytes(const Plan& plan) {
  switch (plan.problem.dtype) {
    case DType::kF32:
      return workspace_bytes<Real<float>>(plan);
    case DType::kF64:
      return workspace_bytes<Real<double>>(plan);
    case DType::kC64:
      return workspace_bytes<Complex<float>>(plan);
    case DType::kC128:
      return workspace_bytes<Complex<double>>(plan);
  }
  return 0;
}

template <class T>
void finish_vectors(const Plan& plan, const FinishCall<T>& call) {
  is_complex(plan.problem.dtype) ? finish_elements<Complex<T>>(plan, call) : finish_elements<Real<T>>(plan, call);
}

template <class T>
void gradient_weights(const MimoTask<T>& task, int kind, int snr, const T* s, T* weights, T* scratch) {
  using Lane = scalar::ScalarLane<T>;
  static_assert(sizeof(Lane) == sizeof(T));
  const auto* const values = reinterpret_cast<const Lane*>(s);
  auto work = scalar::GradientWorkspace<Lane>::in(reinterpret_cast<Lane*>(scratch), task.k);
  work.weights = reinterpret_cast<Lane*>(weights);
  if (kMimoGradients[kind].plane == Plane::kCapacityGradient) {
    for (int i = 0; i < task.k; ++i) {
      weights[i] = scalar::capacity_weight(values[i], task.snr_over_cols[snr]).v;
    }
  } else if (kMimoGradients[kind].plane == Plane::kWaterFillingGradient) {
    scalar::water_filling_weights(scalar::Alone(), task.k, values, task.snr[snr], work);
  } else {
    scalar::effective_rank_weights(scalar::Alone(), task.k, values, work);
  }
}

template void gradient_weights(const MimoTask<float>&, int, int, const float*, float*, float*);
template void gradient_weights(const MimoTask<double>&, int, int, const double*, double*, double*);
template void finish_vectors(const Plan& plan, const FinishCall<float>& call);
template void finish_vectors(const Plan& plan, const FinishCall<double>& call);

}  // namespace svdserve::host
