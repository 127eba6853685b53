// The kernels of a p-step, each by itself, against the same on the host: Gram matrices, their orthogonalization by
// algorithms/blocks/gram_jacobi.h, postmultiplication. One line a check; the exit status says whether all passed. Then
// how long the orthogonalization of 32 pairs takes, by how much there is to rotate.
#include <cmath>
#include <cstring>
#include <random>
#include <type_traits>
#include <vector>

#include "engine/backends/cuda/p_steps/gram_step_kernels.h"
#include "tests/device/device_bench.h"

namespace svdserve::cuda {
namespace {

using device_bench::check;

int failures = 0;

void expect(const char* what, const char* element, int k, int width, int64_t rows, double error, double bound) {
  const bool ok = error <= bound;  // false of a NaN
  failures += ok ? 0 : 1;
  std::printf("%-22s %-7s K %3d, blocks of %2d, %4lld rows: %.2e, at most %.0e  %s\n", what, element, k, width,
              static_cast<long long>(rows), error, bound, ok ? "ok" : "FAILED");
}

template <class T>
class DeviceArray {
 public:
  explicit DeviceArray(const std::vector<T>& from) : size_(from.size()) {
    check(cudaMalloc(&data_, std::max<size_t>(size_, 1) * sizeof(T)), "cudaMalloc");
    check(cudaMemcpy(data_, from.data(), size_ * sizeof(T), cudaMemcpyHostToDevice), "upload");
  }
  ~DeviceArray() { cudaFree(data_); }
  DeviceArray(const DeviceArray&) = delete;
  DeviceArray& operator=(const DeviceArray&) = delete;
  T* get() const { return data_; }
  std::vector<T> fetch() const {
    std::vector<T> to(size_);
    check(cudaMemcpy(to.data(), data_, size_ * sizeof(T), cudaMemcpyDeviceToHost), "download");
    return to;
  }

 private:
  T* data_ = nullptr;
  size_t size_;
};

std::mt19937_64 bits(7);

template <class E>
E random_element() {
  static std::normal_distribution<double> normal;
  if constexpr (kIsComplex<E>) {
    return {normal(bits), normal(bits)};
  } else {
    return normal(bits);
  }
}
double modulus(double x) { return std::fabs(x); }
double modulus(Complex x) { return std::hypot(x.re, x.im); }
double distance(double x, double y) { return modulus(x - y); }
double distance(Complex x, Complex y) { return modulus(Complex{x.re - y.re, x.im - y.im}); }
// The largest of values that may be NaN.
double worse(double a, double b) { return b > a || std::isnan(b) ? b : a; }

// Three blocks, the last one with fewer columns; pair (0, 2), and with other columns (1, none).
template <class E, int K>
struct Case {
  int width;
  int64_t rows, cols, ld;
  std::vector<E> x;
  std::vector<GramStepPair> pairs{{0, 2}, {1, 3}};

  Case(int w, int64_t m) : width(w), rows(m), cols(3 * w - 2), ld((m + 15) / 16 * 16) {
    for (int64_t i = 0; i < ld * cols; ++i) x.push_back(random_element<E>());
    for (int64_t j = 0; j < cols; ++j) {
      double sum = 0;
      for (int64_t i = 0; i < rows; ++i) sum += squared_modulus(at(i, j));
      for (int64_t i = 0; i < rows; ++i) x[j * ld + i] = times_real(at(i, j), 1 / std::sqrt(sum));
    }
  }
  E at(int64_t i, int64_t j) const { return x[static_cast<size_t>(j * ld + i)]; }
  int64_t column(GramStepPair pair, int j) const {
    const int at = j % (K / 2);
    const int64_t column = at < width ? int64_t{j < K / 2 ? pair.p : pair.q} * width + at : cols;
    return column < cols ? column : -1;
  }
  E entry(GramStepPair pair, int64_t i, int j) const {
    const int64_t c = column(pair, j);
    return c < 0 ? from_real<E>(0) : at(i, c);
  }
  std::vector<E> gram(GramStepPair pair) const {
    std::vector<E> h(K * K, from_real<E>(0));
    for (int i = 0; i < K; ++i) {
      for (int j = 0; j < K; ++j) {
        for (int64_t r = 0; r < rows; ++r) {
          h[i * K + j] = plus_product(h[i * K + j], conjugate(entry(pair, r, i)), entry(pair, r, j));
        }
      }
    }
    return h;
  }
};

template <class E>
const char* element_name() {
  return kIsComplex<E> ? "complex" : "real";
}

template <class Kernel>
void allow(Kernel kernel, int bytes) {
  check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes), "shared memory");
}

// The lower triangle of a matrix by rows.
template <class E, int K>
std::vector<E> packed_triangle(const std::vector<E>& h) {
  std::vector<E> packed(PackedGram<E>::size(K));
  for (int i = 0; i < K; ++i) {
    for (int j = 0; j <= i; ++j) packed[PackedGram<E>::at(i, j)] = h[i * K + j];
  }
  return packed;
}

template <class E, int K>
void check_gram(const Case<E, K>& c) {
  constexpr int kSplits = 3;
  const DeviceArray<E> x(c.x), partial(std::vector<E>(2 * kSplits * PackedGram<E>::size(K)));
  const DeviceArray<GramStepPair> pairs(c.pairs);
  const DeviceArray<int> active_count({5});  // of the p-step before
  using Shape = GramShape<E, K>;
  constexpr int kStages = 4, kBytes = Shape::shared_bytes(kStages);
  allow(gram_kernel<E, K, kStages>, kBytes);
  gram_kernel<E, K, kStages><<<dim3(kSplits, 2), Shape::kThreads, kBytes>>>(
      GramStepMatrix<E>{x.get(), c.rows, c.cols, c.ld}, pairs.get(), GramStepVersions{}, GramStepStack{}, c.width,
      partial.get(), active_count.get());
  check(cudaDeviceSynchronize(), "gram_kernel");
  if (active_count.fetch()[0] != 0) expect("count of active pairs", element_name<E>(), K, c.width, c.rows, 1, 0);
  const std::vector<E> parts = partial.fetch();
  double error = 0;
  for (int p = 0; p < 2; ++p) {
    const std::vector<E> h = c.gram(c.pairs[p]);
    for (int i = 0; i < K; ++i) {
      for (int j = 0; j <= i; ++j) {
        E sum = from_real<E>(0);
        for (int s = 0; s < kSplits; ++s) {
          const E part = parts[(p * kSplits + s) * PackedGram<E>::size(K) + PackedGram<E>::at(i, j)];
          sum = plus_product(sum, part, from_real<E>(1));
        }
        error = worse(error, distance(sum, h[i * K + j]));
      }
    }
  }
  expect("Gram matrix", element_name<E>(), K, c.width, c.rows, error, 1e-13);
}

// W of true columns, from W - I of scaled ones and the exponents before and after.
template <class E, int K>
std::vector<E> true_rotations(const E* less_identity, const std::vector<int>& before, const std::vector<int>& after) {
  std::vector<E> w(less_identity, less_identity + K * K);
  for (int j = 0; j < K; ++j) {
    w[j * K + j] = plus_product(w[j * K + j], from_real<E>(1), from_real<E>(1));
    for (int i = 0; i < K; ++i) w[j * K + i] = times_real(w[j * K + i], std::ldexp(1.0, after[j] - before[i]));
  }
  return w;
}

// W^H A W, column-major; A by rows.
template <class E, int K, class F>
std::vector<E> transformed(const std::vector<E>& w, F a) {
  std::vector<E> aw(K * K, from_real<E>(0)), result = aw;
  for (int j = 0; j < K; ++j) {
    for (int r = 0; r < K; ++r) {
      for (int i = 0; i < K; ++i) aw[j * K + i] = plus_product(aw[j * K + i], a(i, r), w[j * K + r]);
    }
    for (int i = 0; i < K; ++i) {
      for (int r = 0; r < K; ++r) {
        result[j * K + i] = plus_product(result[j * K + i], conjugate(w[i * K + r]), aw[j * K + r]);
      }
    }
  }
  return result;
}

// The largest entry of W^H J W - J.
template <class E, int K>
double distance_from_unitary(const std::vector<E>& w, const std::vector<int8_t>& signs) {
  const std::vector<E> j_of_w =
      transformed<E, K>(w, [&](int i, int j) { return from_real<E>(i == j ? static_cast<double>(signs[i]) : 0); });
  double error = 0;
  for (int j = 0; j < K; ++j) {
    for (int i = 0; i < K; ++i) {
      error = worse(error, distance(j_of_w[j * K + i], from_real<E>(i == j ? static_cast<double>(signs[i]) : 0)));
    }
  }
  return error;
}

// The root of the sum of squares of the cosines that W leaves between columns whose Gram matrix is h.
template <class E, int K>
double cosines_left(const std::vector<E>& w, const E* h, const std::vector<int>& f) {
  const std::vector<E> left =
      transformed<E, K>(w, [&](int i, int j) { return times_real(h[i * K + j], std::ldexp(1.0, f[i] + f[j])); });
  double sum = 0;
  for (int j = 0; j < K; ++j) {
    for (int i = 0; i < j; ++i) {
      const double norms = real_part(left[i * K + i]) * real_part(left[j * K + j]);
      if (norms > 0) sum += squared_modulus(left[j * K + i]) / norms;
    }
  }
  return std::sqrt(sum);
}

// Angles are rough, and differently so on host and device. So W is held to what it is for.
template <class E, int K>
void check_inner(const Case<E, K>& c, bool shared_w, int64_t positive, int32_t smallest = large::kZeroColumn) {
  std::vector<E> h, triangles;
  for (const GramStepPair pair : c.pairs) {
    const std::vector<E> own = c.gram(pair), triangle = packed_triangle<E, K>(own);
    h.insert(h.end(), own.begin(), own.end());
    triangles.insert(triangles.end(), triangle.begin(), triangle.end());
  }
  std::vector<int32_t> f(static_cast<size_t>(c.cols));
  for (size_t j = 0; j < f.size(); ++j) f[j] = -static_cast<int>(j) / 7;
  const DeviceArray<E> partial(triangles), w(std::vector<E>(2 * K * (K + 1)));
  const DeviceArray<GramStepPair> pairs(c.pairs);
  const DeviceArray<int32_t> exponents(f);
  const DeviceArray<int> changes(std::vector<int>(4 * K)), active(std::vector<int>(2)), active_count({0});
  const DeviceArray<GramStepCounts> counts({GramStepCounts{}});
  const InnerCall<E> call{pairs.get(),
                          partial.get(),
                          1,
                          w.get(),
                          exponents.get(),
                          changes.get(),
                          active.get(),
                          active_count.get(),
                          counts.get(),
                          GramStepVersions{},
                          c.width,
                          c.cols,
                          positive,
                          1e-15,
                          smallest,
                          1,
                          shared_w};
  using Shape = InnerShape<E, K>;
  allow(inner_kernel<E, K>, Shape::shared_bytes(shared_w));
  inner_kernel<E, K><<<2, Shape::kThreads, static_cast<size_t>(Shape::shared_bytes(shared_w))>>>(call);
  check(cudaDeviceSynchronize(), "inner_kernel");
  const std::vector<E> got = w.fetch();
  const std::vector<int32_t> f_after = exponents.fetch();

  double error = 0, difference = 0;
  int64_t rotations = 0;
  for (int p = 0; p < 2; ++p) {
    std::vector<E> packed = packed_triangle<E, K>({h.begin() + p * K * K, h.begin() + (p + 1) * K * K}), own_w(K * K);
    std::vector<GramGroup<E>> groups(K / kJacobiGroup);
    std::vector<double> cosines(kCosineParts * K);
    std::vector<uint8_t> columns(jacobi_supersteps(K) * K);
    std::vector<int> own_f(K);
    std::vector<int8_t> signs(K);
    for (int i = 0; i < K; ++i) {
      const int64_t column = c.column(c.pairs[p], i);
      own_f[i] = column < 0 ? 0 : f[column];
      signs[i] = (column < 0 ? c.cols : column) < positive ? 1 : -1;
    }
    const GramWork<E> work{K,
                           {packed.data()},
                           {own_w.data(), K, K},
                           own_f.data(),
                           positive < c.cols ? signs.data() : nullptr,
                           groups.data(),
                           cosines.data(),
                           columns.data(),
                           1e-30,
                           1};
    const std::vector<int> before = own_f;
    rotations += gram_jacobi(scalar::Alone(), work).rotations;
    const std::vector<E> w_of_device = true_rotations<E, K>(&got[p * K * (K + 1)], before, own_f);
    const std::vector<E> w_of_host = true_rotations<E, K>(own_w.data(), before, own_f);
    error = worse(error, distance_from_unitary<E, K>(w_of_device, signs));
    const double expected_cosines = cosines_left<E, K>(w_of_host, &h[p * K * K], before);
    difference =
        worse(difference, std::fabs(cosines_left<E, K>(w_of_device, &h[p * K * K], before) - expected_cosines));
    for (int i = 0; i < K; ++i) {
      const int64_t column = c.column(c.pairs[p], i);
      const int32_t expected = own_f[i] < smallest ? large::kZeroColumn : own_f[i];
      if (column >= 0 && f_after[column] != expected) error = worse(error, 1);
    }
  }
  const auto counted = static_cast<int64_t>(counts.fetch()[0].rotations);
  error = worse(error, counted == rotations ? 0 : 1);
  const char* const name = smallest > large::kZeroColumn ? "vanishing columns"
                           : positive < c.cols           ? "hyperbolic rotations"
                           : shared_w                    ? "rotations"
                                                         : "rotations, W outside";
  expect(name, element_name<E>(), K, c.width, c.rows, error, 1e-11);
  expect("  cosines beside a host's", element_name<E>(), K, c.width, c.rows, difference, 1e-4);
}

template <class E, int K>
void check_post(const Case<E, K>& c) {
  std::vector<E> w, v(c.x.size());
  for (int e = 0; e < 2 * K * (K + 1); ++e) w.push_back(random_element<E>());
  for (E& e : v) e = random_element<E>();
  std::vector<int> changes(4 * K);
  for (int& e : changes) e = static_cast<int>(bits() % 5);
  const DeviceArray<E> x(c.x), v_on_device(v), w_on_device(w);
  const DeviceArray<GramStepPair> pairs(c.pairs);
  const DeviceArray<int> changes_on_device(changes), active(std::vector<int>{1, 0}), active_count({2});
  // Some columns of X become zero; what V gets does not know of it.
  std::vector<int32_t> f(static_cast<size_t>(c.cols), 0);
  for (size_t j = 3; j < f.size(); j += 11) f[j] = large::kZeroColumn;
  const DeviceArray<int32_t> exponents(f);
  using Shape = PostShape<E, K>;
  const int slabs = static_cast<int>((c.rows + Slab<E, K, false>::kRows - 1) / Slab<E, K, false>::kRows);
  const PostCall<E> call{{x.get(), c.rows, c.cols, c.ld},
                         {v_on_device.get(), c.rows, c.cols, c.ld},
                         pairs.get(),
                         w_on_device.get(),
                         exponents.get(),
                         changes_on_device.get(),
                         active.get(),
                         active_count.get(),
                         c.width,
                         slabs,
                         slabs};
  constexpr int kStages = 3, kBytes = Shape::shared_bytes(kStages);
  allow(postmultiply_kernel<E, K, kStages>, kBytes);
  // Three blocks: their shares begin and end within a pair's slabs.
  postmultiply_kernel<E, K, kStages><<<3, Shape::kThreads, kBytes>>>(call);
  check(cudaDeviceSynchronize(), "postmultiply_kernel");
  const std::vector<E> x_after = x.fetch(), v_after = v_on_device.fetch();
  double error_x = 0, error_v = 0;
  for (int p = 0; p < 2; ++p) {
    const auto own = [&](const std::vector<E>& a, int64_t i, int j) {
      const int64_t column = c.column(c.pairs[p], j);
      return column < 0 ? from_real<E>(0) : a[column * c.ld + i];
    };
    for (int j = 0; j < K; ++j) {
      if (c.column(c.pairs[p], j) < 0) continue;
      for (int64_t i = 0; i < c.rows; ++i) {
        E sum_x = own(c.x, i, j), sum_v = own(v, i, j);
        for (int r = 0; r < K; ++r) {
          const E* const of_pair = &w[p * K * (K + 1)];
          const E entry = of_pair[j * K + r];
          sum_x = plus_product(sum_x, own(c.x, i, r), entry);
          // The diagonal of V's is given.
          const double by = std::ldexp(1.0, changes[p * 2 * K + K + j] - changes[p * 2 * K + r]);
          sum_v = plus_product(sum_v, own(v, i, r), r == j ? of_pair[K * K + j] : times_real(entry, by));
        }
        if (f[static_cast<size_t>(c.column(c.pairs[p], j))] == large::kZeroColumn) sum_x = from_real<E>(0);
        error_x = worse(error_x, distance(own(x_after, i, j), sum_x));
        error_v = worse(error_v, distance(own(v_after, i, j), sum_v) * 0x1p-4);
      }
    }
  }
  expect("X W", element_name<E>(), K, c.width, c.rows, error_x, 1e-12);
  expect("V W", element_name<E>(), K, c.width, c.rows, error_v, 1e-12);
}

template <class E, int K>
void check_all() {
  for (const int width : {K / 2, K / 2 - 3}) {
    for (const int64_t rows : {int64_t{7}, int64_t{192}, int64_t{333}}) {
      const Case<E, K> c(width, rows);
      check_gram(c);
      check_post(c);
      if (rows < K) continue;
      check_inner(c, true, c.cols);
      if (K == 64) check_inner(c, false, c.cols);
      check_inner(c, true, int64_t{width} + 5);
      check_inner(c, true, c.cols, -4);
    }
  }
}

// The off-diagonal entries that are not zero: all, one, none.
template <class E, int K>
void time_inner() {
  constexpr int kPairs = 32, kSplits = 4, kLaunches = 20;
  using Shape = InnerShape<E, K>;
  allow(inner_kernel<E, K>, Shape::shared_bytes(true));
  std::vector<GramStepPair> list;
  for (int i = 0; i < kPairs; ++i) list.push_back({2 * i, 2 * i + 1});
  const DeviceArray<GramStepPair> pairs(list);
  const DeviceArray<E> w(std::vector<E>(kPairs * K * (K + 1)));
  const std::vector<int> zeros(kPairs * 2 * K);
  const DeviceArray<int> changes(zeros), active(zeros), active_count({0});
  const DeviceArray<GramStepCounts> counts({GramStepCounts{}});
  cudaEvent_t begin = nullptr, end = nullptr;
  check(cudaEventCreate(&begin), "cudaEventCreate");
  check(cudaEventCreate(&end), "cudaEventCreate");
  std::printf("orthogonalization, %s K %3d, us of %d pairs:", element_name<E>(), K, kPairs);
  for (const char* const kind : {"all pairs", "one pair", "no pair"}) {
    constexpr int kSize = PackedGram<E>::size(K);
    std::vector<E> h(kPairs * kSplits * kSize, from_real<E>(0));
    for (int p = 0; p < kPairs; ++p) {
      const PackedGram<E> part{h.data() + p * kSplits * kSize};
      for (int i = 0; i < K; ++i) part.set(i, i, from_real<E>(1));
      for (int i = 0; i < K && *kind == 'a'; ++i) {
        for (int j = 0; j < i; ++j) part.set(i, j, times_real(random_element<E>(), 0.2 / K));
      }
      if (*kind == 'o') part.set(40, 3, from_real<E>(1e-9));
    }
    const DeviceArray<E> partial(h);
    const DeviceArray<int32_t> exponents(zeros);
    const InnerCall<E> call{pairs.get(),
                            partial.get(),
                            kSplits,
                            w.get(),
                            exponents.get(),
                            changes.get(),
                            active.get(),
                            active_count.get(),
                            counts.get(),
                            GramStepVersions{},
                            K / 2,
                            kPairs * K,
                            kPairs * K,
                            1e-15,
                            large::kZeroColumn,
                            1,
                            true};
    const auto launch = [&] {
      inner_kernel<E, K><<<kPairs, Shape::kThreads, static_cast<size_t>(Shape::shared_bytes(true))>>>(call);
    };
    launch();
    check(cudaEventRecord(begin), "cudaEventRecord");
    for (int i = 0; i < kLaunches; ++i) launch();
    check(cudaEventRecord(end), "cudaEventRecord");
    check(cudaDeviceSynchronize(), "inner_kernel");
    float ms = 0;
    check(cudaEventElapsedTime(&ms, begin, end), "cudaEventElapsedTime");
    std::printf("  %s %.1f", kind, static_cast<double>(ms) * 1e3 / kLaunches);
  }
  std::printf("\n");
  check(cudaEventDestroy(begin), "cudaEventDestroy");
  check(cudaEventDestroy(end), "cudaEventDestroy");
}

int run() {
  check_all<double, 64>();
  check_all<double, 128>();
  check_all<Complex, 64>();
  time_inner<double, 64>();
  time_inner<double, 128>();
  time_inner<Complex, 64>();
  std::printf("%d failures\n", failures);
  return failures == 0 ? 0 : 1;
}

}  // namespace
}  // namespace svdserve::cuda

int main() { return svdserve::cuda::run(); }
