// The lane kernels for the target at hand, and list_kernels(), which puts one part of them into KernelTables.
#if defined(SVDSERVE_ENGINE_BACKENDS_HOST_PACKS_KERNEL_SET_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef SVDSERVE_ENGINE_BACKENDS_HOST_PACKS_KERNEL_SET_H_
#undef SVDSERVE_ENGINE_BACKENDS_HOST_PACKS_KERNEL_SET_H_
#else
#define SVDSERVE_ENGINE_BACKENDS_HOST_PACKS_KERNEL_SET_H_
#endif

#include <type_traits>
#include <utility>

#include "engine/algorithms/general/general_eigen.h"
#include "engine/algorithms/lanes/hermitian_eigen.h"
#include "engine/algorithms/lanes/jacobi_vectors.h"
#include "engine/backends/host/packs/kernel_table.h"

// A target without a fused multiply-add instruction would need a call for each one: it is served by the scalar lane.
#if !defined(HWY_HIGHWAY_INCLUDED) || HWY_NATIVE_FMA

SVD_KERNEL_BEGIN

// call: any with a, row_stride and col_stride.
template <class E, class Call, class Size>
SVD_HD void load_matrix(const Call& call, Size k, MatrixView<E> a) {
  constexpr int kStep = E::kComponents * E::Lane::kLanes;
  SVD_UNROLL for (int j = 0; j < k; ++j) {
    SVD_UNROLL for (int i = 0; i < k; ++i) {
      a(i, j) = load_element<E>(call.a + static_cast<ptrdiff_t>(i * call.row_stride + j * call.col_stride) * kStep);
    }
  }
}

template <Method kMethod, class E, class Size>
SVD_HD void compute_values(const host::ValuesCall<typename E::Scalar>& call, Size k, MatrixView<E> a) {
  using Lane = typename E::Lane;
  constexpr auto kLargest = kMethod == Method::kJacobi ? kShapeLimits.max_values : kLargestReproducible;
  constexpr int kStorage = Size::kValue != 0 ? Size::kValue : static_cast<int>(kLargest);
  load_matrix(call, k, a);
  Lane given[kStorage], exponents[kStorage], kept[3 * kStorage], s[kStorage];
  if (call.exponents != nullptr) {
    SVD_UNROLL for (int j = 0; j < k; ++j) given[j] = Lane::load(call.exponents + j * Lane::kLanes);
  }
  const ValuesTask<Lane> task{call.exponents != nullptr ? given : nullptr, Lane(call.tolerance), call.max_sweeps,
                              exponents, kept};
  matrix_values<kMethod>(a, k, task, s).store(call.statuses);
  SVD_UNROLL for (int i = 0; i < k; ++i) s[i].store(call.values + i * Lane::kLanes);
}

template <Method kMethod, class E, int K>
void fixed_values(const host::ValuesCall<typename E::Scalar>& call) {
  E storage[K * K];
  compute_values<kMethod>(call, FixedSize<K>(), MatrixView<E>{storage, K});
}

template <Method kMethod, class E>
void runtime_values(const host::ValuesCall<typename E::Scalar>& call) {
  compute_values<kMethod>(call, RuntimeSize{call.k}, MatrixView<E>{reinterpret_cast<E*>(call.scratch), call.k});
}

template <class E, class Size>
SVD_HD void compute_vectors(const host::VectorsCall<typename E::Scalar>& call, Size k, MatrixView<E> x,
                            MatrixView<E> y) {
  using Lane = typename E::Lane;
  constexpr int kStorage = Size::kValue != 0 ? Size::kValue : static_cast<int>(kShapeLimits.max_values);
  load_matrix(call, k, x);
  Lane given[kStorage], s[kStorage], rank[kStorage];
  ColumnScale<Lane> scales[kStorage];
  if (call.exponents != nullptr) {
    SVD_UNROLL for (int j = 0; j < k; ++j) given[j] = Lane::load(call.exponents + j * Lane::kLanes);
  }
  jacobi_vectors(x, y, k, call.exponents != nullptr ? given : nullptr, Lane(call.tolerance), call.max_sweeps, scales, s,
                 rank)
      .store(call.statuses);
  SVD_UNROLL for (int j = 0; j < k; ++j) {
    s[j].store(call.values + j * Lane::kLanes);
    rank[j].store(call.ranks + j * Lane::kLanes);
  }
}

template <class E, int K>
void fixed_vectors(const host::VectorsCall<typename E::Scalar>& call) {
  constexpr int kStep = E::kComponents * E::Lane::kLanes;
  E x[K * K], y[K * K];
  compute_vectors<E>(call, FixedSize<K>(), MatrixView<E>{x, K}, MatrixView<E>{y, K});
  for (int i = 0; i < K * K; ++i) {
    store_element(x[i], call.x + i * kStep);
    store_element(y[i], call.y + i * kStep);
  }
}

template <class E>
void runtime_vectors(const host::VectorsCall<typename E::Scalar>& call) {
  compute_vectors<E>(call, RuntimeSize{call.k}, MatrixView<E>{reinterpret_cast<E*>(call.x), call.k},
                     MatrixView<E>{reinterpret_cast<E*>(call.y), call.k});
}

template <class E, class Size>
SVD_HD void compute_hermitian(const host::HermitianCall<typename E::Scalar>& call, Size k, MatrixView<E> u,
                              MatrixView<E> m) {
  using Lane = typename E::Lane;
  constexpr int kStorage = Size::kValue != 0 ? Size::kValue : static_cast<int>(kLargestReproducible);
  load_matrix(call, k, m);
  Lane lambda[kStorage], rank[kStorage];
  ColumnScale<Lane> scales[kStorage];
  hermitian_eigen(u, m, k, call.upper, Lane(call.tolerance), call.max_sweeps, scales, lambda, rank)
      .store(call.statuses);
  SVD_UNROLL for (int j = 0; j < k; ++j) {
    lambda[j].store(call.values + j * Lane::kLanes);
    rank[j].store(call.ranks + j * Lane::kLanes);
  }
}

template <class E, int K>
void fixed_hermitian(const host::HermitianCall<typename E::Scalar>& call) {
  E u[K * K], m[K * K];
  compute_hermitian<E>(call, FixedSize<K>(), MatrixView<E>{u, K}, MatrixView<E>{m, K});
  for (int i = 0; i < K * K; ++i) store_element(u[i], call.u + i * E::kComponents * E::Lane::kLanes);
}

template <class E>
void runtime_hermitian(const host::HermitianCall<typename E::Scalar>& call) {
  compute_hermitian<E>(call, RuntimeSize{call.k}, MatrixView<E>{reinterpret_cast<E*>(call.u), call.k},
                       MatrixView<E>{reinterpret_cast<E*>(call.scratch), call.k});
}

template <bool kVectors, class E, class Size, class Work>
SVD_HD void compute_general(const host::GeneralCall<typename E::Scalar>& call, Size k, const Work& work) {
  using Lane = typename E::Lane;
  constexpr int kStep = E::kComponents * Lane::kLanes;
  constexpr int kStorage = Size::kValue != 0 ? Size::kValue : static_cast<int>(kLargestGeneral);
  if constexpr (E::kComplex) {
    load_matrix(call, k, work.t);
  } else {
    load_matrix(call, k, work.h);
  }
  const auto at = [&](int i, int j) SVD_LAMBDA {
    return load_element<E>(call.a + static_cast<ptrdiff_t>(i * call.row_stride + j * call.col_stride) * kStep);
  };
  Lane d[kStorage], residuals[2] = {Lane(0), Lane(0)};
  ComplexElement<Lane> lambda[kStorage];
  general_eigen<kVectors>(work, k, call.plain, call.w != nullptr, at, d, lambda, residuals).store(call.statuses);
  SVD_UNROLL for (int j = 0; j < k; ++j) store_element(lambda[j], call.values + j * 2 * Lane::kLanes);
  for (int side = 0; side < 2; ++side) residuals[side].store(call.residuals + side * Lane::kLanes);
}

// Scratch holds h and z, then t.
template <class E, class Size>
SVD_HD void run_general(const host::GeneralCall<typename E::Scalar>& call, Size k) {
  using C = ComplexElement<typename E::Lane>;
  E* const real = reinterpret_cast<E*>(call.scratch);
  C* const complex = reinterpret_cast<C*>(real + 2 * k * k);
  const GeneralWork<MatrixView<E>, MatrixView<C>> work{
      {real, k}, {real + k * k, k}, {complex, k}, {reinterpret_cast<C*>(call.v), k}, {reinterpret_cast<C*>(call.w), k}};
  call.v != nullptr ? compute_general<true, E>(call, k, work) : compute_general<false, E>(call, k, work);
}

template <class E, int K>
void fixed_general(const host::GeneralCall<typename E::Scalar>& call) {
  run_general<E>(call, FixedSize<K>());
}
template <class E>
void runtime_general(const host::GeneralCall<typename E::Scalar>& call) {
  run_general<E>(call, RuntimeSize{call.k});
}

template <class E>
void store_triangle(MatrixView<E> a, int k, int rows, typename E::Scalar* r) {
  constexpr int kStep = E::kComponents * E::Lane::kLanes;
  for (int i = 0; i < k; ++i) {
    for (int j = 0; j < k; ++j) {
      store_element(j >= i && i < rows ? a(i, j) : zero_element<E>(), r + (i * k + j) * kStep);
    }
  }
}

template <class E>
void tile_kernel(const host::TileCall<typename E::Scalar>& call) {
  using Lane = typename E::Lane;
  constexpr int kStep = E::kComponents * Lane::kLanes;
  const MatrixView<E> a{reinterpret_cast<E*>(call.scratch), call.rows};
  for (int j = 0; j < call.k; ++j) {
    const Pow2<Lane> scale = make_pow2(-Lane::load(call.exponents + j * Lane::kLanes));
    for (int i = 0; i < call.rows; ++i) a(i, j) = scaled(load_element<E>(call.a + (i * call.k + j) * kStep), scale);
  }
  tall_qr(Alone(), a, call.rows, RuntimeSize{call.k});
  store_triangle(a, call.k, call.rows, call.r);
}

template <class E>
void join_kernel(const host::JoinCall<typename E::Scalar>& call) {
  constexpr int kStep = E::kComponents * E::Lane::kLanes;
  const int k = call.k;
  const MatrixView<E> top{reinterpret_cast<E*>(call.scratch), k};
  const MatrixView<E> bottom{reinterpret_cast<E*>(call.scratch) + k * k, k};
  for (int i = 0; i < k; ++i) {
    for (int j = i; j < k; ++j) {
      top(i, j) = load_element<E>(call.top + (i * k + j) * kStep);
      bottom(i, j) = load_element<E>(call.bottom + (i * k + j) * kStep);
    }
  }
  join_qr(Alone(), top, bottom, RuntimeSize{k});
  store_triangle(top, k, k, call.top);
}

template <class E>
MatrixView<E> packed_view(const typename E::Scalar* data, int ld) {
  return {reinterpret_cast<E*>(const_cast<typename E::Scalar*>(data)), ld};
}

template <class E>
void keep_tile_kernel(const host::KeepTileCall<typename E::Scalar>& call) {
  using Lane = typename E::Lane;
  const int k = call.k, rows = call.rows;
  const auto a = packed_view<E>(call.a, rows), r = packed_view<E>(call.r, k);
  for (int j = 0; j < k; ++j) {
    const Pow2<Lane> scale = make_pow2(-Lane::load(call.exponents + j * Lane::kLanes));
    for (int i = 0; i < rows; ++i) a(i, j) = scaled(a(i, j), scale);
  }
  E diagonal[kShapeLimits.max_values];
  keep_tall_qr(Alone(), a, rows, RuntimeSize{k}, reinterpret_cast<Lane*>(call.g), diagonal);
  for (int j = 0; j < k; ++j) {
    for (int i = 0; i < k; ++i) r(i, j) = i < j ? a(i, j) : i == j ? diagonal[j] : zero_element<E>();
  }
}

template <class E>
void keep_join_kernel(const host::KeepJoinCall<typename E::Scalar>& call) {
  keep_join_qr(Alone(), packed_view<E>(call.top, call.k), packed_view<E>(call.bottom, call.k), RuntimeSize{call.k},
               reinterpret_cast<typename E::Lane*>(call.g), reinterpret_cast<E*>(call.heads));
}

template <class E>
void apply_tile_kernel(const host::ApplyTileCall<typename E::Scalar>& call) {
  const int k = call.k, rows = call.rows;
  const auto y = packed_view<E>(call.y, rows), top = packed_view<E>(call.top, k);
  for (int j = 0; j < k; ++j) {
    for (int i = 0; i < rows; ++i) y(i, j) = i < k ? top(i, j) : zero_element<E>();
  }
  apply_tall_q(Alone(), packed_view<E>(call.factor, rows), rows, k, reinterpret_cast<const typename E::Lane*>(call.g),
               y, k);
}

template <class E>
void apply_join_kernel(const host::ApplyJoinCall<typename E::Scalar>& call) {
  const int k = call.k;
  const auto factor = packed_view<E>(call.factor, k), bottom = packed_view<E>(call.scratch, k);
  apply_join_q(Alone(), factor, k, reinterpret_cast<const typename E::Lane*>(call.g),
               reinterpret_cast<const E*>(call.heads), packed_view<E>(call.top, k), bottom, k);
  for (int j = 0; j < k; ++j) {
    for (int i = 0; i < k; ++i) factor(i, j) = bottom(i, j);
  }
}

template <Method kMethod, class Wide, class Narrow, int... kBelow>
void list_values(std::integer_sequence<int, kBelow...>, host::KernelTables<typename Wide::Scalar>& tables) {
  auto& wide = tables.wide.values[host::index_of(kMethod)];
  wide[0] = runtime_values<kMethod, Wide>;
  ((wide[kBelow + 1] = fixed_values<kMethod, Wide, kBelow + 1>), ...);
  tables.narrow.values[host::index_of(kMethod)][0] = runtime_values<kMethod, Narrow>;
}

template <class Wide, class Narrow, int... kBelow>
void list_vectors(std::integer_sequence<int, kBelow...>, host::KernelTables<typename Wide::Scalar>& tables) {
  tables.wide.vectors[0] = runtime_vectors<Wide>;
  ((tables.wide.vectors[kBelow + 1] = fixed_vectors<Wide, kBelow + 1>), ...);
  tables.narrow.vectors[0] = runtime_vectors<Narrow>;
}

template <class Wide, class Narrow, int... kBelow>
void list_hermitian(std::integer_sequence<int, kBelow...>, host::KernelTables<typename Wide::Scalar>& tables) {
  tables.wide.hermitian[0] = runtime_hermitian<Wide>;
  ((tables.wide.hermitian[kBelow + 1] = fixed_hermitian<Wide, kBelow + 1>), ...);
  tables.narrow.hermitian[0] = runtime_hermitian<Narrow>;
}

template <class Wide, class Narrow, int... kBelow>
void list_general(std::integer_sequence<int, kBelow...>, host::KernelTables<typename Wide::Scalar>& tables) {
  tables.wide.general[0] = runtime_general<Wide>;
  ((tables.wide.general[kBelow + 1] = fixed_general<Wide, kBelow + 1>), ...);
  tables.narrow.general[0] = runtime_general<Narrow>;
}

template <class E>
void list_tall(host::KernelTable<typename E::Scalar>& table) {
  table.lanes = E::Lane::kLanes;
  table.components = E::kComponents;
  table.tile = tile_kernel<E>;
  table.join = join_kernel<E>;
  table.keep_tile = keep_tile_kernel<E>;
  table.keep_join = keep_join_kernel<E>;
  table.apply_tile = apply_tile_kernel<E>;
  table.apply_join = apply_join_kernel<E>;
}

template <host::KernelPart kPart, DType kType>
void list_kernels(host::KernelTables<host::RealOf<kType>>& tables) {
  using T = host::RealOf<kType>;
  using Wide = std::conditional_t<is_complex(kType), ComplexElement<WideLane<T>>, RealElement<WideLane<T>>>;
  using Narrow = std::conditional_t<is_complex(kType), ComplexElement<NarrowLane<T>>, RealElement<NarrowLane<T>>>;
  constexpr auto kSizes = std::make_integer_sequence<int, host::kLargestFixedValues>();
  if constexpr (kPart == host::KernelPart::kBidiagonal) {
    list_values<Method::kBidiagonal, Wide, Narrow>(kSizes, tables);
  } else if constexpr (kPart == host::KernelPart::kBisection) {
    list_values<Method::kBisection, Wide, Narrow>(kSizes, tables);
  } else if constexpr (kPart == host::KernelPart::kJacobi) {
    list_values<Method::kJacobi, Wide, Narrow>(kSizes, tables);
  } else if constexpr (kPart == host::KernelPart::kHermitian) {
    list_hermitian<Wide, Narrow>(std::make_integer_sequence<int, host::kLargestFixedVectors>(), tables);
  } else if constexpr (kPart == host::KernelPart::kGeneral) {
    list_general<Wide, Narrow>(std::make_integer_sequence<int, host::kLargestFixedVectors>(), tables);
  } else {
    list_vectors<Wide, Narrow>(std::make_integer_sequence<int, host::kLargestFixedVectors>(), tables);
    list_tall<Wide>(tables.wide);
    list_tall<Narrow>(tables.narrow);
  }
}

SVD_KERNEL_END

#endif

#endif
