// The last steps of singular vectors (algorithms/finish/finish_vectors.h) for a batch in device memory:
//
//   finish_vectors_kernel   completes X, fixes phases, in place, and writes certificates of up to kLargestTeamCertificate
//                           columns                                                    a team a matrix
//   gradients_kernel        gradients of MIMO numbers, of finished vectors             the same
//
// A team is a few threads for small matrices, a warp, or a block. It takes one matrix after the other, so only the teams
// that run need scratch, not the batch. A team reads only the smallest value of a full-rank matrix whose thin
// vectors are wanted as they are.
//
// How a launcher calls it, after the kernels that wrote s, X, Y and the statuses, on the same stream:
//
//   FinishCall<T> call = ..;                                   // pointers, strides, what is wanted
//   const FinishPlan plan = finish_plan<E>(call.options.k, rows, x_columns, count);
//   call.scratch = carver->take<char>(plan.scratch_bytes);     // once, in workspace_bytes() and launch()
//   finish_vectors<E>(&launch, plan, call);
#ifndef SVDSERVE_ENGINE_BACKENDS_CUDA_FINISH_FINISHING_KERNELS_H_
#define SVDSERVE_ENGINE_BACKENDS_CUDA_FINISH_FINISHING_KERNELS_H_

#include <algorithm>

#include "engine/algorithms/finish/finish_vectors.h"
#include "engine/algorithms/mimo/gradients.h"
#include "engine/backends/cuda/device/kernel_call.h"
#include "engine/backends/cuda/device/teams.h"
#include "engine/policies/cuda_tuning.h"
#include "engine/vector_layout.h"

namespace svdserve::cuda {

// X or Y of all matrices, one after the other; `layout` as engine/vector_layout.h says, of the memory it points to.
template <class T>
struct FinishVectors {
  T* data;  // [in,out] aligned to a component; null: not there
  int rows, columns;
  int64_t row_stride, col_stride, matrix_stride;  // in elements
  bool conjugate;
};
template <class T>
FinishVectors<T> finish_vectors_of(void* data, const VectorLayout& layout) {
  return {static_cast<T*>(data),
          static_cast<int>(layout.rows),
          data == nullptr ? 0 : static_cast<int>(layout.columns),
          layout.row_stride,
          layout.col_stride,
          layout.matrix_stride(),
          layout.conjugate};
}

template <class T>
struct FinishCall {
  scalar::FinishOptions options;
  int64_t count;
  FinishVectors<T> x, y;
  const T* s;                      // [in] k values a matrix, in the order of the columns
  const uint8_t* statuses;         // [in] or null: then a matrix is finite where its first value is no NaN
  const T* a;                      // [in] count matrices without gaps, as given; read for certificates alone
  int64_t row_stride, col_stride;  // of A, or of its transpose where it is wide; in elements
  bool hermitian, upper;           // A = X S X^H, by this triangle
  T* certificates;                 // [out] kCertificateNumbers a matrix, or null
  char* scratch;                   // FinishPlan::scratch_bytes, aligned to 16
};

// How a batch is divided: a function of its shape and size alone.
struct FinishPlan {
  int threads;  // of a team; kFinishBlockTeam: a whole block
  int64_t teams;
  int64_t basis_bytes, team_bytes;  // of a team's scratch, its first part and all of it
  int64_t scratch_bytes;
};

template <class E>
FinishPlan finish_plan(int k, int rows, int x_columns, int64_t count) {
  const auto aligned = [](int64_t bytes) { return (bytes + 15) / 16 * 16; };
  const int64_t work = static_cast<int64_t>(rows) * std::max(k, x_columns);
  FinishPlan plan{};
  plan.threads = work <= kFinishSmallWork ? kFinishSmallTeam : work <= kFinishWarpWork ? 32 : kFinishBlockTeam;
  plan.basis_bytes = aligned(scalar::BasisWorkspace<E>::elements(rows, k) * static_cast<int64_t>(sizeof(E)));
  const int64_t of_certificate = k > kLargestTeamCertificate ? 0 : scalar::CertificateWorkspace::numbers(rows, k);
  const int64_t numbers = std::max(of_certificate, scalar::GradientWorkspace<typename E::Lane>::numbers(k));
  plan.team_bytes = plan.basis_bytes + aligned(numbers * 8);
  const int64_t most =
      std::clamp(kFinishScratchBytes / plan.team_bytes, kFinishLeastTeams, kFinishThreads / plan.threads);
  plan.teams = std::min(count, most);
  plan.scratch_bytes = plan.teams * plan.team_bytes;
  return plan;
}

template <int kThreads>
using FinishTeam = std::conditional_t<(kThreads > 32), BlockTeam<>, WarpTeam<(kThreads > 32 ? 32 : kThreads)>>;

template <class E>
__device__ __forceinline__ scalar::VectorMatrix<E> vectors_of(const FinishVectors<typename E::Scalar>& v, int64_t m) {
  E* const data = reinterpret_cast<E*>(v.data) + (v.data == nullptr ? 0 : m * v.matrix_stride);
  return {{reinterpret_cast<char*>(data), v.row_stride, v.col_stride, v.conjugate}, v.rows, v.columns};
}

// statuses: of all matrices, or null; s: of matrix m.
template <class T>
__device__ __forceinline__ bool is_finite(const uint8_t* statuses, const T* s, int64_t m) {
  return statuses != nullptr ? statuses[m] != static_cast<uint8_t>(MatrixStatus::kNonFinite) : s[0] == s[0];
}

template <class E>
__device__ __forceinline__ scalar::FinishTask<E> finish_task(const FinishCall<typename E::Scalar>& call, int64_t m,
                                                             char* scratch, int64_t basis_bytes) {
  using T = typename E::Scalar;
  const int k = call.options.k, rows = call.x.rows;
  const T* const s = call.s + m * k;
  const bool finite = is_finite(call.statuses, s, m);
  const T* const a = call.a == nullptr ? nullptr : call.a + m * rows * k * E::kComponents;
  T* const certificate = call.certificates == nullptr ? nullptr : call.certificates + m * kCertificateNumbers;
  return {vectors_of<E>(call.x, m),
          vectors_of<E>(call.y, m),
          reinterpret_cast<const Lane<T>*>(s),
          finite,
          {{reinterpret_cast<const char*>(a), call.row_stride, call.col_stride, false}, call.hermitian, call.upper},
          certificate,
          scalar::BasisWorkspace<E>::in(reinterpret_cast<E*>(scratch), rows, k),
          scalar::CertificateWorkspace::in(reinterpret_cast<scalar::WideNumber*>(scratch + basis_bytes), rows, k)};
}

// Whether a matrix is as it should be already, so that nothing but its smallest value is read.
template <class T>
__device__ __forceinline__ bool is_finished(const FinishCall<T>& call, int64_t m) {
  const bool as_made = call.options.canonical && !call.options.fix_phases && !call.options.certificate &&
                       call.x.columns <= call.options.k;
  if (!as_made || m >= call.count) return !(m < call.count);
  if (call.hermitian) return true;
  // NaN: its vectors are NaN, too, as the kernels wrote them.
  return !(call.s[m * call.options.k + call.options.k - 1] == T(0));
}

template <class E, int kThreads>
__global__ void __launch_bounds__(kFinishBlockTeam)
    finish_vectors_kernel(const FinishCall<typename E::Scalar> call, const FinishPlan plan) {
  const FinishTeam<kThreads> team;
  const int64_t first = (static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x) / kThreads;
  if (first >= plan.teams) return;
  const auto finish = [&](int64_t m) {
    scalar::finish_vectors(team, call.options,
                           finish_task<E>(call, m, call.scratch + first * plan.team_bytes, plan.basis_bytes));
    team.sync();  // the scratch is written again
  };
  if constexpr (kThreads <= 32) {
    // A team looks at as many matrices at once as it has threads: hardly one needs more than that.
    const int rank = static_cast<int>(threadIdx.x) % kThreads;
    for (int64_t base = first * kThreads; base < call.count; base += plan.teams * kThreads) {
      const unsigned waiting = team.ballot(!is_finished(call, base + rank));
      for (int i = 0; i < kThreads; ++i) {
        if ((waiting >> i & 1) != 0) finish(base + i);
      }
    }
  } else {
    for (int64_t m = first; m < call.count; m += plan.teams) {
      if (!is_finished(call, m)) finish(m);
    }
  }
}

template <class T>
struct GradientsCall {
  int k;
  int64_t count;
  FinishVectors<T> x, y;    // finished, k columns at least
  const T* s;               // [in] k values a matrix, descending
  const uint8_t* statuses;  // [in] as FinishCall's
  MimoTask<T> mimo;
  scalar::GradientPlaces gradients;  // [out] of matrix 0
  char* scratch;                     // of the FinishPlan
};

// A kernel of its own: within the other one it would cost 5 to 14 % of the rate of all vectors (device_vectors_bench).
template <class E, int kThreads>
__global__ void __launch_bounds__(kFinishBlockTeam)
    gradients_kernel(const GradientsCall<typename E::Scalar> call, const FinishPlan plan) {
  using T = typename E::Scalar;
  const FinishTeam<kThreads> team;
  const int64_t first = (static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x) / kThreads;
  if (first >= plan.teams) return;
  const auto work = scalar::GradientWorkspace<Lane<T>>::in(
      reinterpret_cast<Lane<T>*>(call.scratch + first * plan.team_bytes), call.k);
  for (int64_t m = first; m < call.count; m += plan.teams) {
    const T* const s = call.s + m * call.k;
    const bool finite = is_finite(call.statuses, s, m);
    scalar::write_gradients(team, vectors_of<E>(call.x, m), vectors_of<E>(call.y, m),
                            reinterpret_cast<const Lane<T>*>(s), call.k, finite, call.mimo,
                            call.gradients.of_matrix(m, call.mimo.snr_count), work);
  }
}

// Enqueues the work of `plan` with a Launch (device/launch_context.h).
template <class E, class Launch>
void finish_vectors(Launch* launch, const FinishPlan& plan, const FinishCall<typename E::Scalar>& call) {
  const auto blocks = static_cast<unsigned>((plan.teams * plan.threads + kFinishBlockTeam - 1) / kFinishBlockTeam);
  if (plan.threads == kFinishSmallTeam) {
    launch->template operator()<finish_vectors_kernel<E, kFinishSmallTeam>>(blocks, kFinishBlockTeam, 0, call, plan);
  } else if (plan.threads == 32) {
    launch->template operator()<finish_vectors_kernel<E, 32>>(blocks, kFinishBlockTeam, 0, call, plan);
  } else {
    launch->template operator()<finish_vectors_kernel<E, kFinishBlockTeam>>(blocks, kFinishBlockTeam, 0, call, plan);
  }
}

// The same for gradients.
template <class E, class Launch>
void write_gradients(Launch* launch, const FinishPlan& plan, const GradientsCall<typename E::Scalar>& call) {
  const auto blocks = static_cast<unsigned>((plan.teams * plan.threads + kFinishBlockTeam - 1) / kFinishBlockTeam);
  if (plan.threads == kFinishSmallTeam) {
    launch->template operator()<gradients_kernel<E, kFinishSmallTeam>>(blocks, kFinishBlockTeam, 0, call, plan);
  } else if (plan.threads == 32) {
    launch->template operator()<gradients_kernel<E, 32>>(blocks, kFinishBlockTeam, 0, call, plan);
  } else {
    launch->template operator()<gradients_kernel<E, kFinishBlockTeam>>(blocks, kFinishBlockTeam, 0, call, plan);
  }
}

}  // namespace svdserve::cuda
#endif  // SVDSERVE_ENGINE_BACKENDS_CUDA_FINISH_FINISHING_KERNELS_H_
