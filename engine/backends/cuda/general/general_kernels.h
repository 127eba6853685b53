// QR (algorithms/general/general_eigen.h) or JACOBI (general_jacobi.h) for general matrices:
//
//   k <= 4     a thread a matrix, in registers
//   k <= 32    a team of 4 (JACOBI), 8, 16 or 32 threads a matrix, in shared memory
//
// QR: a matrix that balancing has spoilt is decomposed once more by its team, without. JACOBI: a matrix that has missed
// its bound is marked, and a launch of QR takes the marked ones (general_outcome.h).
#ifndef SVDSERVE_ENGINE_BACKENDS_CUDA_GENERAL_GENERAL_KERNELS_H_
#define SVDSERVE_ENGINE_BACKENDS_CUDA_GENERAL_GENERAL_KERNELS_H_

#include "engine/algorithms/general/general_jacobi.h"
#include "engine/algorithms/general/general_outcome.h"
#include "engine/backends/cuda/device/teams.h"
#include "engine/backends/cuda/general/general_launch.h"
#include "engine/backends/cuda/lanes/element_access.h"

namespace svdserve::cuda {

// The phases of algorithms/general/line_phases.h. Most members have one line or two: nothing is unrolled.
template <int kThreads, class F>
__device__ __forceinline__ void each_line(const WarpTeam<kThreads>& team, int first, int last, F f) {
#pragma unroll 1
  for (int i = first + team.rank(); i < last; i += kThreads) f(i);
}
template <int kThreads, class F>
__device__ __forceinline__ void one(const WarpTeam<kThreads>& team, F f) {
  if (team.rank() == 0) f();
}

// The threads of a team as numbers: which of them a thread is, of how many.
struct Member {
  int rank, threads;
};

// Conditions need W, too.
template <class T>
__host__ __device__ __forceinline__ bool wants_left(const GeneralCall<T>& call) {
  return call.w.data != nullptr || call.conditions != nullptr;
}

// One matrix of a call. `member`: of its team.
template <class E, bool kVectors, bool kJacobi, class Team, class Size, class Work>
struct GeneralTask {
  using T = typename E::Scalar;
  using L = Lane<T>;
  using C = Complex<T>;

  const GeneralCall<T>& call;
  const int64_t m;
  const Team& team;
  const Member member;
  const Size k;
  const Work work;
  scalar::PairTransform<L>* const transforms;  // JACOBI's

  // f(i, j, x) for elements x = i + j k of the member. Neighbouring threads have neighbouring elements.
  template <class F>
  __device__ __forceinline__ void for_my_elements(F f) const {
    if constexpr (Size::kValue != 0) {
      SVD_UNROLL for (int j = 0; j < k; ++j) { SVD_UNROLL for (int i = 0; i < k; ++i) f(i, j, j * k + i); }
    } else {
      int i = member.rank % k, j = member.rank / k;
      const int columns = member.threads / k, rows = member.threads % k;
      for (int x = member.rank; x < k * k; x += member.threads) {
        f(i, j, x);
        i += rows;
        j += columns;
        if (i >= k) {
          i -= k;
          ++j;
        }
      }
    }
  }

  template <class A>
  __device__ __forceinline__ void load(A a, const void* matrices) const {
    using X = typename A::Element;
    const X* const matrix = static_cast<const X*>(matrices) + m * k * k;
    for_my_elements([&](int i, int j, int x) { (call.row_major ? a(j, i) : a(i, j)) = load_element(matrix + x); });
    team.sync();
  }

  __device__ __forceinline__ GeneralOutcome<T> decompose(bool plain) const {
    L squares[2] = {L(T(0)), L(T(0))}, status;
    const auto load_into = [&](auto a) { load(a, call.a); };
    const scalar::GeneralWanted wanted{kVectors, kVectors && wants_left(call), kVectors && call.conditions != nullptr};
    if constexpr (kJacobi) {
      const auto load_start = [&](auto v) { load(v, call.start); };
      const scalar::GeneralStart<decltype(load_start)> start{call.start != nullptr, load_start};
      status = scalar::general_jacobi(team, work, k, call.max_sweeps, wanted, start, transforms, load_into, squares);
    } else {
      status = scalar::general_eigen<kVectors>(team, work, k, plain, wanted, load_into, squares);
    }
    return {static_cast<MatrixStatus>(static_cast<int>(status.v)), worst_of(squares[0].v, squares[1].v)};
  }

  __device__ __forceinline__ void run() const { kJacobi ? run_jacobi() : run_qr(); }

 private:
  __device__ __forceinline__ void run_jacobi() const {
    const GeneralOutcome<T> outcome = decompose(false);
    const bool missed = is_missed(outcome, k);
    if (member.rank == 0) call.missed[m] = missed;
    if (missed) return;
    store(outcome);
    record(outcome.status);
  }
  // Whether balancing has scaled anything; if not, a plain attempt is the same.
  __device__ __forceinline__ bool is_balanced() const {
    bool scaled = false;
    SVD_UNROLL for (int i = 0; i < k; ++i) scaled |= work.d[i].v != 0;
    return scaled;
  }
  // Balanced, then plain where that is spoilt, which replaces it where it is better.
  __device__ __forceinline__ void run_qr() const {
    GeneralOutcome<T> kept{};
#pragma unroll 1
    for (int attempt = 0; attempt < 2; ++attempt) {
      const GeneralOutcome<T> outcome = decompose(attempt == 1);
      if (attempt == 1 && !is_better(outcome, kept)) break;
      kept = outcome;
      store(kept);
      if (!is_spoilt(kept, k) || !is_balanced()) break;
    }
    record(call.missed != nullptr ? status_by_qr(kept.status) : kept.status);
  }

  __device__ __forceinline__ static C written(C x, bool conjugate, bool finite) {
    const L zero(T(0)), nan(FloatTraits<T>::nan());
    return {finite ? x.re + zero : nan, finite ? (conjugate ? -x.im : x.im) + zero : nan};
  }
  template <class A>
  __device__ __forceinline__ void store_vectors(A x, const GeneralVectors<T>& to, bool finite) const {
    if (to.data == nullptr) return;
    C* const first = to.data + m * k * k;
    // Columns beside each other in memory, or rows.
    const bool by_columns = to.row_stride == 1;
    for_my_elements([&](int i, int j, int n) {
      store_element(written(by_columns ? x(i, j) : x(j, i), to.conjugate, finite), first + n);
    });
  }
  __device__ __forceinline__ void store(const GeneralOutcome<T>& kept) const {
    const bool finite = kept.status != MatrixStatus::kNonFinite;
    team.for_each(0, k, [&](int j) { store_element(written(work.lambda[j], false, finite), call.values + m * k + j); });
    if constexpr (kVectors) {
      store_vectors(work.v, call.v, finite);
      store_vectors(work.w, call.w, finite);
    }
    if (call.conditions != nullptr) {
      team.for_each(0, k,
                    [&](int j) { call.conditions[m * k + j] = finite ? work.parts[j].v : FloatTraits<T>::nan(); });
    }
    if (member.rank == 0 && call.certificates != nullptr) {
      const T none = finite ? T(0) : FloatTraits<T>::nan();
      T* const numbers = call.certificates + m * kCertificateNumbers;
      numbers[0] = finite ? sqrt(L(kept.residual)).v : none;
      numbers[1] = numbers[2] = none;
    }
    team.sync();  // another attempt writes where this one has read
  }
  __device__ __forceinline__ void record(MatrixStatus of) const {
    if (member.rank != 0) return;
    const auto status = static_cast<uint8_t>(of);
    if (call.statuses != nullptr) call.statuses[m] = status;
    if (status != 0) atomicAdd(reinterpret_cast<unsigned long long*>(&call.exception_counts[status]), 1ull);
  }
};

// Whether the launch takes matrix m: QR after JACOBI takes the marked ones.
template <bool kJacobi, class T>
__device__ __forceinline__ bool takes(const GeneralCall<T>& call, int64_t m) {
  return m < call.count && (kJacobi || call.missed == nullptr || call.missed[m] != 0);
}

template <class E, int K, bool kVectors, bool kJacobi>
__global__ void __launch_bounds__(kGeneralLaneBlock) lane_general_kernel(const GeneralCall<typename E::Scalar> call) {
  using L = Lane<typename E::Scalar>;
  using C = Complex<typename E::Scalar>;
  using Work = scalar::GeneralWork<scalar::MatrixView<E>, scalar::MatrixView<C>, L>;
  const int64_t m = static_cast<int64_t>(blockIdx.x) * kGeneralLaneBlock + threadIdx.x;
  if (!takes<kJacobi>(call, m)) return;
  E h[K * K], z[K * K];
  C t[K * K], v[K * K], w[K * K], lambda[K];
  L d[K], parts[2 * K];
  const Work work{{h, K}, {z, K}, {t, K}, {v, K}, {w, K}, d, lambda, parts};
  scalar::PairTransform<L> transforms[round_robin_pairs(K)];
  const scalar::Alone alone;
  GeneralTask<E, kVectors, kJacobi, scalar::Alone, scalar::FixedSize<K>, Work>{call, m,    alone,     {0, 1},
                                                                               {},   work, transforms}
      .run();
}

// A matrix in shared memory whose elements are aligned to their size, so that an access takes one instruction.
template <class E>
struct AlignedView {
  using Element = E;
  E* data;
  int ld;
  __device__ __forceinline__ E& operator()(int i, int j) const {
    return *static_cast<E*>(__builtin_assume_aligned(data + (j * ld + i), sizeof(E)));
  }
};

// All banks of shared memory.
inline constexpr int kBankBytes = 128;

// A team's part of shared memory. Columns have an odd length, so that rows and columns are read without bank conflicts.
template <class E, bool kJacobi>
struct GeneralStorage {
  using T = typename E::Scalar;
  using L = Lane<T>;
  using C = Complex<T>;
  using Work = scalar::GeneralWork<AlignedView<E>, AlignedView<C>, L>;

  // JACOBI has a basis without vectors, too, and is complex for real matrices.
  SVD_HD static bool has_t(bool vectors) { return E::kComplex || vectors || kJacobi; }
  SVD_HD static bool has_v(bool vectors) { return vectors || kJacobi; }
  // Bytes, a multiple of 16. A matrix that is not wanted takes none. JACOBI's teams of a warp access memory at once. They
  // have banks of their own, because the bytes are an odd multiple of what a team's threads access.
  SVD_HD static int bytes(int k, int threads, bool vectors, bool left) {
    const int matrix = (k | 1) * k, reals = E::kComplex ? 0 : vectors && !kJacobi ? 2 : 1;
    const int complexes = has_t(vectors) + has_v(vectors) + left;
    const int numbers = matrix * (reals + 2 * complexes) + 5 * k;
    const int all = transform_bytes(k) + (numbers * static_cast<int>(sizeof(T)) + 15) / 16 * 16;
    const int access = threads * static_cast<int>(sizeof(C)), units = (all + access - 1) / access;
    return kJacobi && access < kBankBytes ? (units | 1) * access : all;
  }
  __device__ __forceinline__ static Work work(unsigned char* bytes, int k, bool vectors, bool left) {
    const int ld = k | 1, matrix = ld * k;
    C* complex = reinterpret_cast<C*>(bytes + transform_bytes(k));
    const auto next = [&](bool wanted) {
      C* const at = complex;
      if (wanted) complex += matrix;
      return AlignedView<C>{at, ld};
    };
    const auto t = next(has_t(vectors)), v = next(has_v(vectors)), w = next(left);
    C* const lambda = complex;
    L* const d = reinterpret_cast<L*>(lambda + k);
    E* const real = reinterpret_cast<E*>(d + 3 * k);
    return {{real, ld}, {real + matrix, ld}, t, v, w, d, lambda, d + k};
  }
  // They come first, where they are aligned.
  __device__ __forceinline__ static scalar::PairTransform<L>* transforms(unsigned char* bytes) {
    return reinterpret_cast<scalar::PairTransform<L>*>(bytes);
  }
  SVD_HD static int transform_bytes(int k) {
    return kJacobi ? round_robin_pairs(k) * static_cast<int>(sizeof(scalar::PairTransform<L>)) : 0;
  }
};

template <class E, int kThreads, bool kVectors, bool kJacobi>
__global__ void __launch_bounds__(kGeneralTeamBlock, kJacobi ? kGeneralTeamBlocks : 0)
    team_general_kernel(const GeneralCall<typename E::Scalar> call) {
  using Storage = GeneralStorage<E, kJacobi>;
  extern __shared__ __align__(16) unsigned char shared_bytes[];
  const int teams = static_cast<int>(blockDim.x) / kThreads, mine = static_cast<int>(threadIdx.x) / kThreads;
  const int64_t m = static_cast<int64_t>(blockIdx.x) * teams + mine;
  if (!takes<kJacobi>(call, m)) return;
  const bool left = wants_left(call);
  const WarpTeam<kThreads> team;
  unsigned char* const bytes = shared_bytes + mine * Storage::bytes(call.k, kThreads, kVectors, left);
  const auto work = Storage::work(bytes, call.k, kVectors, left);
  GeneralTask<E, kVectors, kJacobi, WarpTeam<kThreads>, scalar::RuntimeSize, typename Storage::Work>{
      call, m, team, {team.rank(), kThreads}, {call.k}, work, Storage::transforms(bytes)}
      .run();
}

// --- launching ---------------------------------------------------------------------------------------------------

template <class E, int kThreads, bool kVectors, bool kJacobi>
void launch_general_teams(Launch* launch, const GeneralCall<typename E::Scalar>& call) {
  const int bytes = GeneralStorage<E, kJacobi>::bytes(call.k, kThreads, kVectors, wants_left(call));
  int block = kGeneralTeamBlock;
  while (block > kThreads && block > 32 && block / kThreads * bytes > kTeamBlockBytes) block /= 2;
  const int teams = block / kThreads;
  launch->operator()<team_general_kernel<E, kThreads, kVectors, kJacobi>>(blocks_for(call.count, teams), block,
                                                                          teams * bytes, call);
}

template <class E, bool kVectors, bool kJacobi, int K>
void launch_general(Launch* launch, const GeneralCall<typename E::Scalar>& call) {
  if constexpr (K <= kLargestGeneralInRegisters) {
    if (call.k != K) return launch_general<E, kVectors, kJacobi, K + 1>(launch, call);
    launch->operator()<lane_general_kernel<E, K, kVectors, kJacobi>>(blocks_for(call.count, kGeneralLaneBlock),
                                                                     kGeneralLaneBlock, 0, call);
  } else if (kJacobi && call.k <= kLargestOfFour) {
    launch_general_teams<E, 4, kVectors, kJacobi>(launch, call);
  } else if (call.k <= largest_of_small_team(E::kComplex, sizeof(typename E::Scalar))) {
    launch_general_teams<E, 8, kVectors, kJacobi>(launch, call);
  } else if (call.k <= 16) {
    launch_general_teams<E, 16, kVectors, kJacobi>(launch, call);
  } else {
    launch_general_teams<E, 32, kVectors, kJacobi>(launch, call);
  }
}

template <class E, bool kJacobi>
void GeneralLaunch<E, kJacobi>::decompose(Launch* launch, const GeneralCall<typename E::Scalar>& call) {
  call.vectors ? launch_general<E, true, kJacobi, 1>(launch, call) : launch_general<E, false, kJacobi, 1>(launch, call);
}

}  // namespace svdserve::cuda
#endif  // SVDSERVE_ENGINE_BACKENDS_CUDA_GENERAL_GENERAL_KERNELS_H_
