#include "engine/backends/cuda/large/geev.h"

#include <algorithm>
#include <type_traits>

#include "engine/backends/cuda/large/eigenpair_kernels.h"
#include "engine/backends/cuda/large/library_work.h"

namespace svdserve::cuda {
namespace {

using Values = std::vector<std::complex<double>>;

// T: element of the matrix; kValue: of the values, complex ones of its precision.
template <class T>
struct LibraryType;
template <>
struct LibraryType<float> {
  using Value = Pair<float>;
  static constexpr cudaDataType kElement = CUDA_R_32F, kValue = CUDA_C_32F;
};
template <>
struct LibraryType<double> {
  using Value = Pair<double>;
  static constexpr cudaDataType kElement = CUDA_R_64F, kValue = CUDA_C_64F;
};
template <>
struct LibraryType<Pair<float>> {
  using Value = Pair<float>;
  static constexpr cudaDataType kElement = CUDA_C_32F, kValue = CUDA_C_32F;
};
template <>
struct LibraryType<Pair<double>> {
  using Value = Pair<double>;
  static constexpr cudaDataType kElement = CUDA_C_64F, kValue = CUDA_C_64F;
};

// Empty: a value has no conjugate beside it.
std::vector<ColumnKind> kinds_of(const Values& values, bool real) {
  std::vector<ColumnKind> kinds(values.size(), real ? ColumnKind::kReal : ColumnKind::kComplex);
  for (size_t j = 0; real && j < values.size(); ++j) {
    if (values[j].imag() == 0) continue;
    if (!(values[j].imag() > 0) || j + 1 == values.size() || values[j + 1] != std::conj(values[j])) return {};
    kinds[j] = ColumnKind::kFirst;
    kinds[++j] = ColumnKind::kSecond;
  }
  return kinds;
}

template <class F>
void each(const LargeLane& lane, ComplexView a, F f) {
  const int64_t most = int64_t{16} * lane.limits.multiprocessors;
  const auto grid = static_cast<unsigned>(std::min(most, (a.rows * a.cols + 255) / 256));
  entries_kernel<<<grid, 256, 0, lane.stream>>>(a.rows, a.cols, f);
  require(cudaGetLastError(), "launching a kernel");
}

template <class T>
class Geev {
 public:
  Geev(LargeLane& lane, DeviceArena& arena, const GeevCall& call) : lane_(lane), arena_(arena), call_(call) {}
  ~Geev() {
    for (void* const piece : {static_cast<void*>(a_), static_cast<void*>(v_), static_cast<void*>(values_)}) {
      if (piece != nullptr) arena_.give_back(piece);
    }
  }
  Geev(const Geev&) = delete;
  Geev& operator=(const Geev&) = delete;

  Values run() {
    const int64_t n = call_.a.rows;
    a_ = take_piece<T>(arena_, n * n);
    if (call_.v) v_ = take_piece<T>(arena_, n * n);
    values_ = take_piece<Value>(arena_, n);
    each(lane_, call_.a, ToLibrary<T>{call_.a, a_});
    if (!solve()) return {};
    std::vector<Value> found(static_cast<size_t>(n));
    download(lane_, found.data(), values_, n);
    Values values;
    values.reserve(found.size());
    for (const Value& x : found) values.emplace_back(x.re, x.im);
    const std::vector<ColumnKind> kinds = kinds_of(values, call_.real);
    if (kinds.empty()) return {};
    require(cudaMemcpyAsync(call_.kinds, kinds.data(), kinds.size(), cudaMemcpyHostToDevice, lane_.stream),
            "uploading");
    if (call_.v) each(lane_, call_.v, FromLibrary<T>{v_, call_.kinds, call_.v});
    return values;
  }

 private:
  using Type = LibraryType<T>;
  using Value = typename Type::Value;

  bool solve() {
    const Libraries& l = libraries();
    const int64_t n = call_.a.rows;
    const auto right = call_.v ? CUSOLVER_EIG_MODE_VECTOR : CUSOLVER_EIG_MODE_NOVECTOR;
    LibraryWork work(lane_, arena_);
    require(l.cusolverDnXgeev_bufferSize(lane_.cusolver, lane_.params, CUSOLVER_EIG_MODE_NOVECTOR, right, n,
                                         Type::kElement, a_, n, Type::kValue, values_, Type::kElement, nullptr, n,
                                         Type::kElement, v_, n, Type::kElement, &work.device_bytes, &work.host_bytes),
            "sizing an eigenproblem");
    work.allocate();
    require(l.cusolverDnXgeev(lane_.cusolver, lane_.params, CUSOLVER_EIG_MODE_NOVECTOR, right, n, Type::kElement, a_, n,
                              Type::kValue, values_, Type::kElement, nullptr, n, Type::kElement, v_, n, Type::kElement,
                              work.device, work.device_bytes, work.host.get(), work.host_bytes, work.info),
            "solving an eigenproblem");
    return work.result() == 0;
  }

  LargeLane& lane_;
  DeviceArena& arena_;
  const GeevCall& call_;
  T *a_ = nullptr, *v_ = nullptr;
  Value* values_ = nullptr;
};

}  // namespace

Values geev(LargeLane& lane, DeviceArena& arena, const GeevCall& call) {
  if (call.real) {
    return call.single ? Geev<float>(lane, arena, call).run() : Geev<double>(lane, arena, call).run();
  }
  return call.single ? Geev<Pair<float>>(lane, arena, call).run() : Geev<Pair<double>>(lane, arena, call).run();
}

}  // namespace svdserve::cuda
