#include "engine/backends/cuda/large/simultaneous_steps.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "engine/algorithms/large/cluster_vectors.h"
#include "engine/backends/cuda/large/eigenpair_kernels.h"
#include "engine/backends/cuda/large/library_work.h"

namespace svdserve::cuda {
namespace {

// A coupling as the kernel writes it, in whatever order.
struct Found {
  int32_t i, j;
  double square;
};

// found, `most` of them at most, := the couplings of s; *count: how many there are.
struct FindCouplings {
  ComplexView s;
  const Complex* d;
  double least;
  unsigned long long* count;
  int64_t most;
  Found* found;
  __device__ void operator()(int64_t i, int64_t j) const {
    const Complex x = s.data[j * s.ld + i];
    const double size = squared_modulus(x);
    const double gap = squared_modulus(Complex{d[j].re - d[i].re, d[j].im - d[i].im});
    if (i == j || !(size > least * least) || size <= large::kLargestShear * large::kLargestShear * gap) return;
    const auto at = static_cast<int64_t>(atomicAdd(count, 1ull));
    if (at < most) found[at] = {static_cast<int32_t>(i), static_cast<int32_t>(j), size / gap};
  }
};

// to := (turn a) + (turn a)^H
struct HermitianPart {
  ComplexView a, to;
  Complex turn;
  __device__ void operator()(int64_t i, int64_t j) const {
    const Complex x = plus_product(Complex{0, 0}, turn, a.data[j * a.ld + i]);
    const Complex y = plus_product(Complex{0, 0}, turn, a.data[i * a.ld + j]);
    to.data[j * to.ld + i] = {x.re + y.re, x.im - y.im};
  }
};

// A line of a cluster: the first line of its cluster in the list, the cluster's size, where its numbers begin.
struct Line {
  int32_t line, first, size;
  int64_t numbers;
};

// to := S(c, c) of each cluster. Row r of the column that is line `at` of the list.
struct GatherParts {
  ComplexView s;
  const Line* lines;
  Complex* to;
  __device__ void operator()(int64_t r, int64_t at) const {
    const Line line = lines[at];
    if (r >= line.size) return;
    to[line.numbers + (at - line.first) * line.size + r] = s.data[line.line * s.ld + lines[line.first + r].line];
  }
};

// to(:, c) := V(:, c) Y_c
struct MultiplyClusters {
  ComplexView v, to;
  const Line* lines;
  const Complex* y;
  __device__ void operator()(int64_t i, int64_t at) const {
    const Line line = lines[at];
    const Complex* const column = y + line.numbers + (at - line.first) * line.size;
    Complex sum{0, 0};
    for (int r = 0; r < line.size; ++r) {
      sum = plus_product(sum, v.data[lines[line.first + r].line * v.ld + i], column[r]);
    }
    to.data[line.line * to.ld + i] = sum;
  }
};

// The lines of all clusters, and the numbers of their parts.
struct LineList {
  explicit LineList(const std::vector<large::Cluster>& clusters) {
    for (const large::Cluster& c : clusters) {
      const auto first = static_cast<int32_t>(lines.size()), size = static_cast<int32_t>(c.size());
      for (const int32_t line : c) lines.push_back({line, first, size, numbers});
      numbers += int64_t{size} * size;
    }
  }
  std::vector<Line> lines;
  int64_t numbers = 0;
};

// A copy of host memory in a piece of the arena.
template <class T>
class Uploaded {
 public:
  Uploaded(LargeLane& lane, DeviceArena& arena, const T* from, int64_t n)
      : arena_(arena), data_(take_piece<T>(arena, std::max<int64_t>(n, 1))) {
    require(cudaMemcpyAsync(data_, from, static_cast<size_t>(n) * sizeof(T), cudaMemcpyHostToDevice, lane.stream),
            "uploading");
    require(cudaStreamSynchronize(lane.stream), "uploading");
  }
  ~Uploaded() { arena_.give_back(data_); }
  Uploaded(const Uploaded&) = delete;
  Uploaded& operator=(const Uploaded&) = delete;
  T* data() const { return data_; }

 private:
  DeviceArena& arena_;
  T* const data_;
};

}  // namespace

SimultaneousSteps::SimultaneousSteps(LargeLane& lane, DeviceArena& arena, CudaLargeBackend<Complex>& backend,
                                     SimultaneousMatrices& matrices)
    : lane_(lane), arena_(arena), backend_(backend), m_(matrices), n_(matrices.a.cols) {
  values_ = take_piece<Complex>(arena, n_);
  squares_ = take_piece<double>(arena, n_);
  kinds_ = take_piece<ColumnKind>(arena, n_);
  require(cudaMemsetAsync(kinds_, static_cast<int>(ColumnKind::kComplex), static_cast<size_t>(n_), lane.stream),
          "clearing memory");
}
SimultaneousSteps::~SimultaneousSteps() {
  arena_.give_back(kinds_);
  arena_.give_back(squares_);
  arena_.give_back(values_);
}

template <class F>
void SimultaneousSteps::each(int64_t rows, int64_t cols, F f) {
  const int64_t most = int64_t{16} * lane_.limits.multiprocessors;
  const auto grid = static_cast<unsigned>(std::min(most, (rows * cols + 255) / 256));
  entries_kernel<<<grid, 256, 0, lane_.stream>>>(rows, cols, f);
  require(cudaGetLastError(), "launching a kernel");
}

void SimultaneousSteps::normalize_and_multiply() {
  unit_columns_kernel<<<static_cast<unsigned>(n_), kColumnThreads, 0, lane_.stream>>>(m_.v, kinds_);
  require(cudaGetLastError(), "launching a kernel");
  backend_.gemm(large::Op::kNone, large::Op::kNone, 1, m_.a, m_.v, 0, m_.s);
}

double SimultaneousSteps::residual() {
  normalize_and_multiply();
  const auto blocks = static_cast<unsigned>(n_);
  rayleigh_kernel<<<blocks, kColumnThreads, 0, lane_.stream>>>(m_.v, m_.s, kinds_, values_);
  residual_kernel<<<blocks, kColumnThreads, 0, lane_.stream>>>(m_.v, m_.s, values_, squares_);
  require(cudaGetLastError(), "launching a kernel");
  std::vector<double> squares(static_cast<size_t>(n_));
  download(lane_, squares.data(), squares_, n_);
  return std::sqrt(std::accumulate(squares.begin(), squares.end(), 0.0));
}

std::vector<std::complex<double>> SimultaneousSteps::values() const {
  std::vector<std::complex<double>> values(static_cast<size_t>(n_));
  download(lane_, reinterpret_cast<Complex*>(values.data()), values_, n_);
  return values;
}

bool SimultaneousSteps::similar() {
  backend_.copy(m_.v, m_.factors);
  if (!backend_.lu(m_.factors, m_.pivots)) return false;
  backend_.solve_lu(large::Op::kNone, m_.factors, m_.pivots, m_.s);
  return true;
}

double SimultaneousSteps::least_pivot() {
  backend_.copy(m_.v, m_.factors);
  if (!backend_.lu(m_.factors, m_.pivots)) return 0;
  const std::vector<double> pivots = backend_.diagonal(m_.factors);
  return *std::min_element(pivots.begin(), pivots.end());
}

bool SimultaneousSteps::start_nearly_normal() {
  const auto norm_of = [&](ComplexView x) {
    const auto squares = backend_.column_products(x, x);
    return std::sqrt(std::accumulate(squares.begin(), squares.end(), 0.0));
  };
  backend_.gemm(large::Op::kNone, large::Op::kAdjoint, 1, m_.a, m_.a, 0, m_.s);
  backend_.gemm(large::Op::kAdjoint, large::Op::kNone, -1, m_.a, m_.a, 1, m_.s);
  const double size = norm_of(m_.a);
  if (!(norm_of(m_.s) <= large::kNearlyNormal * size * size)) return false;
  const std::complex<double> turn = std::polar(0.5, large::kTurn);
  each(n_, n_, HermitianPart{m_.a, m_.s, {turn.real(), turn.imag()}});
  return backend_.eigenbasis(m_.s, m_.v, large::Precision::kDouble);
}

std::optional<std::vector<large::Coupling>> SimultaneousSteps::couplings(double least, int64_t most) {
  each(n_, 1, CopyDiagonal{m_.s, values_});
  auto* const found = take_piece<Found>(arena_, most);
  auto* const count = take_piece<unsigned long long>(arena_, 1);
  require(cudaMemsetAsync(count, 0, sizeof(*count), lane_.stream), "clearing memory");
  each(n_, n_, FindCouplings{m_.s, values_, least, count, most, found});
  unsigned long long all = 0;
  download(lane_, &all, count, 1);
  const bool fits = all <= static_cast<unsigned long long>(most);
  std::vector<Found> host(fits ? all : 0);
  if (!host.empty()) download(lane_, host.data(), found, static_cast<int64_t>(all));
  arena_.give_back(count);
  arena_.give_back(found);
  if (!fits) return std::nullopt;
  std::vector<large::Coupling> couplings;
  for (const Found& x : host) couplings.push_back({x.i, x.j, large::size_of_coupling(x.square)});
  return couplings;
}

std::vector<std::complex<double>> SimultaneousSteps::parts(const std::vector<large::Cluster>& clusters) {
  const LineList list(clusters);
  const auto lines = static_cast<int64_t>(list.lines.size());
  const Uploaded<Line> device(lane_, arena_, list.lines.data(), lines);
  auto* const numbers = take_piece<Complex>(arena_, list.numbers);
  each(static_cast<int64_t>(large::kLargestCluster), lines, GatherParts{m_.s, device.data(), numbers});
  std::vector<std::complex<double>> parts(static_cast<size_t>(list.numbers));
  download(lane_, reinterpret_cast<Complex*>(parts.data()), numbers, list.numbers);
  arena_.give_back(numbers);
  return parts;
}

bool SimultaneousSteps::vectors(int k, const std::complex<double>* s, std::complex<double>* y) const {
  return large::cluster_vectors(k, s, y);
}

void SimultaneousSteps::multiply(const std::vector<large::Cluster>& clusters,
                                 const std::vector<std::complex<double>>& y) {
  const LineList list(clusters);
  const auto lines = static_cast<int64_t>(list.lines.size());
  const Uploaded<Line> device(lane_, arena_, list.lines.data(), lines);
  const Uploaded<Complex> vectors(lane_, arena_, reinterpret_cast<const Complex*>(y.data()), list.numbers);
  backend_.copy(m_.v, m_.next);
  each(n_, lines, MultiplyClusters{m_.v, m_.next, device.data(), vectors.data()});
  require(cudaStreamSynchronize(lane_.stream), "multiplying vectors");
  std::swap(m_.v, m_.next);
  normalize_and_multiply();
}

void SimultaneousSteps::eliminate() {
  each(n_, 1, CopyDiagonal{m_.s, values_});
  each(n_, n_, ShearFactors{m_.s, values_, large::kLargestShear});
  backend_.gemm(large::Op::kNone, large::Op::kNone, 1, m_.v, m_.s, 0, m_.next);
  std::swap(m_.v, m_.next);
}

void SimultaneousSteps::orthonormalize() {
  Complex* const tau = backend_.scalars(n_);
  backend_.qr(m_.v, tau);
  backend_.set_identity(m_.next);
  backend_.apply_q(large::Op::kNone, m_.v, tau, m_.next);
  backend_.release(tau);
  std::swap(m_.v, m_.next);
}

}  // namespace svdserve::cuda
