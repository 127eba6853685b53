// Instantiates the lane kernels of one element type for the target at hand and lists them in KernelTables.
#if defined(SVDSERVE_ENGINE_BACKENDS_HOST_KERNEL_SET_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef SVDSERVE_ENGINE_BACKENDS_HOST_KERNEL_SET_H_
#undef SVDSERVE_ENGINE_BACKENDS_HOST_KERNEL_SET_H_
#else
#define SVDSERVE_ENGINE_BACKENDS_HOST_KERNEL_SET_H_
#endif

#include "engine/algorithms/jacobi_vectors.h"
#include "engine/backends/host/kernel_table.h"

// A target without a fused multiply-add instruction would need a call for each one: it is served by the scalar lane.
#if !defined(HWY_HIGHWAY_INCLUDED) || HWY_NATIVE_FMA

SVD_KERNEL_BEGIN

template <class E, class Size>
SVD_HD void load_matrix(const host::ValuesCall<typename E::Scalar>& call, Size k, MatrixView<E> a) {
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
  constexpr int kStep = E::kComponents * Lane::kLanes;
  SVD_UNROLL for (int j = 0; j < k; ++j) {
    SVD_UNROLL for (int i = 0; i < k; ++i) {
      x(i, j) = load_element<E>(call.a + static_cast<ptrdiff_t>(i * call.row_stride + j * call.col_stride) * kStep);
    }
  }
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

template <Method kMethod, class E>
constexpr void list_fixed_sizes(host::KernelTable<typename E::Scalar>& table) {
  auto& row = table.values[host::index_of(kMethod)];
  row[1] = fixed_values<kMethod, E, 1>;
  row[2] = fixed_values<kMethod, E, 2>;
  row[3] = fixed_values<kMethod, E, 3>;
  row[4] = fixed_values<kMethod, E, 4>;
  row[5] = fixed_values<kMethod, E, 5>;
  row[6] = fixed_values<kMethod, E, 6>;
  row[7] = fixed_values<kMethod, E, 7>;
  row[8] = fixed_values<kMethod, E, 8>;
}

template <class E>
constexpr host::KernelTable<typename E::Scalar> list_runtime_sizes() {
  host::KernelTable<typename E::Scalar> table{};
  table.lanes = E::Lane::kLanes;
  table.components = E::kComponents;
  table.values[host::index_of(Method::kBidiagonal)][0] = runtime_values<Method::kBidiagonal, E>;
  table.values[host::index_of(Method::kBisection)][0] = runtime_values<Method::kBisection, E>;
  table.values[host::index_of(Method::kJacobi)][0] = runtime_values<Method::kJacobi, E>;
  table.vectors[0] = runtime_vectors<E>;
  table.tile = tile_kernel<E>;
  table.join = join_kernel<E>;
  table.keep_tile = keep_tile_kernel<E>;
  table.keep_join = keep_join_kernel<E>;
  table.apply_tile = apply_tile_kernel<E>;
  table.apply_join = apply_join_kernel<E>;
  return table;
}

// Element is RealElement or ComplexElement, T the real type.
template <template <class> class Element, class T>
const host::KernelTables<T>* make_kernels() {
  using Wide = Element<WideLane<T>>;
  static constexpr host::KernelTables<T> kTables = [] {
    host::KernelTables<T> t{list_runtime_sizes<Wide>(), list_runtime_sizes<Element<NarrowLane<T>>>()};
    list_fixed_sizes<Method::kBidiagonal, Wide>(t.wide);
    list_fixed_sizes<Method::kBisection, Wide>(t.wide);
    list_fixed_sizes<Method::kJacobi, Wide>(t.wide);
    t.wide.vectors[1] = fixed_vectors<Wide, 1>;
    t.wide.vectors[2] = fixed_vectors<Wide, 2>;
    t.wide.vectors[3] = fixed_vectors<Wide, 3>;
    t.wide.vectors[4] = fixed_vectors<Wide, 4>;
    return t;
  }();
  return &kTables;
}

SVD_KERNEL_END

#endif

#endif
