// The GPU's results for matrices of more than 32 values, whose bits need not be the CPU's, against the contract.
// References of higher precision judge values and vectors of every kind of matrix, dtype and class of shape. Matrices
// with dead lines must need no more than the usual sweeps. Certificates, phases, leading columns and statuses are
// checked, and MIMO numbers against the CPU's. The same matrix has the same bits in another batch, at another place and
// in the other order.
//   device_contract [all or small: every kernel once] [one dtype]
//   device_contract repeat [one dtype] [rounds] [most rows] [least rows]   the same batches again and again: the bits
//       of a race would differ
// Exit code 1: something is not as promised, and what is printed.
#include <algorithm>
#include <cmath>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "engine/cuda_engine.h"
#include "engine/svd_engine.h"
#include "tests/support/numerics/contract.h"
#include "tests/support/numerics/dead_lines.h"
#include "tests/support/numerics/engine_run.h"
#include "tests/support/numerics/hermitian_samples.h"
#include "tests/support/numerics/matrix_generators.h"
#include "tests/support/numerics/reference_svd.h"
#include "tests/support/numerics/vector_checks.h"

namespace svdserve::numerics {
namespace {

// A sample, with the reference that it is compared with.
struct Sample {
  Kind kind;
  Matrix matrix;
  bool finite;
  std::vector<long double> reference;
};

struct Shape {
  int64_t rows, cols;
  bool all_kinds;
};

const std::vector<Shape>& shapes() {
  static const std::vector<Shape> all{
      {33, 33, true},    {48, 48, true},     {50, 50, true},    {64, 64, true},     {65, 65, true},   {96, 96, true},
      {100, 100, false}, {113, 113, true},   {128, 128, true},  {34, 33, true},     {40, 200, true},  {300, 64, false},
      {90, 100, false},  {1000, 128, false}, {128, 700, false}, {33, 16384, false}, {125, 121, true}, {129, 129, true},
      {200, 200, false}, {131, 200, false},  {300, 140, false}, {70, 66, true},     {96, 200, true},  {113, 500, true}};
  return all;
}
const std::vector<Shape>& reduced_shapes() {
  static const std::vector<Shape> all{{33, 33, false}, {66, 66, false}, {35, 40, false}};
  return all;
}

std::vector<Sample> make_samples(const Shape& shape, DType dtype) {
  std::vector<Sample> samples;
  const std::vector<Kind> few{Kind::kNormal, Kind::kColumnGraded, Kind::kLowRank, Kind::kZero, Kind::kOverflowing};
  for (const Kind kind : shape.all_kinds ? kinds(dtype) : few) {
    Matrix a = generate(kind, dtype, shape.rows, shape.cols, 3);
    auto reference = reference_singular_values(a);
    samples.push_back({kind, std::move(a), true, std::move(reference)});
  }
  Sample poisoned{Kind::kNormal, samples[0].matrix, false, {}};
  poisoned.matrix.elements.back() = poison_value(Poison::kQuietNan);
  samples.insert(samples.begin() + 1, poisoned);
  return samples;
}

std::vector<std::byte> pack_samples(const std::vector<Sample>& samples, Order order) {
  std::vector<Matrix> matrices;
  for (const Sample& s : samples) matrices.push_back(s.matrix);
  return pack(matrices, order);
}

class Contract {
 public:
  explicit Contract(CudaEngine* gpu) : gpu_(gpu) {}

  void test(const Shape& shape, DType dtype) {
    shape_ = std::string(name(dtype)) + " " + std::to_string(shape.rows) + "x" + std::to_string(shape.cols);
    worst_ = {};
    const std::vector<Sample> samples = make_samples(shape, dtype);
    const auto count = static_cast<int64_t>(samples.size());
    const Problem problem{shape.rows, shape.cols, dtype, Order::kRowMajor};
    const auto bytes = pack_samples(samples, Order::kRowMajor);
    const PlanesResult vectors = run(plan_of(problem, {.vectors = Vectors::kThin}), bytes.data(), count);
    test_leading(problem, vectors, bytes, count);
    for (const Method method : {Method::kAuto, Method::kJacobi}) {
      const Plan thin = plan_of(problem, {.method = method, .vectors = Vectors::kThin, .certificate = true});
      const PlanesResult certified = run(thin, bytes.data(), count);
      for (int64_t i = 0; i < count; ++i) judge_vectors(thin, samples[static_cast<size_t>(i)], certified, i);
      test_batches(problem, {.method = method, .vectors = Vectors::kThin}, samples, certified, bytes);
      const Options alone{.method = method};
      const PlanesResult values = run(plan_of(problem, alone), bytes.data(), count);
      for (int64_t i = 0; i < count; ++i) {
        judge_values(plan_of(problem, alone), samples[static_cast<size_t>(i)], values, i);
      }
      test_batches(problem, alone, samples, values, bytes);
    }
    test_answers(problem, samples);
    test_gradients(problem, samples);
    if (shape.rows + shape.cols < 300) test_full(problem, samples, vectors, bytes);
    print_worst(count);
  }

  // A group that is larger than a slot, on engines whose slots must grow for it: the bits of slots that are large enough.
  void test_growth(int rounds) {
    shape_ = "f64 1000x128, growing slots";
    constexpr int64_t kCount = 12;
    std::vector<Matrix> matrices;
    for (int64_t m = 0; m < kCount; ++m) {
      matrices.push_back(generate(Kind::kNormal, DType::kF64, 1000, 128, static_cast<uint64_t>(m)));
    }
    const auto bytes = pack(matrices, Order::kRowMajor);
    Options options;
    options.mimo.capacity = true;
    options.mimo.snr_db = {20};
    options.mimo.group = kCount;
    const Plan plan = plan_of({1000, 128, DType::kF64, Order::kRowMajor}, options);
    (void)run(plan, bytes.data(), kCount);
    const PlanesResult expected = run(plan, bytes.data(), kCount);
    CudaEngine* const grown = gpu_;
    for (int round = 0; round < rounds; ++round) {
      CudaStatus status;
      const auto fresh = CudaEngine::open({.slot_bytes = kLeastSlotBytes}, &status);
      gpu_ = fresh.get();
      if (gpu_ == nullptr) {
        fail("round %d: %s", round, status.text.c_str());
      } else if (run(plan, bytes.data(), kCount).planes != expected.planes) {
        fail("round %d: other bits than with slots that are large enough", round);
      }
      gpu_ = grown;
    }
    std::printf("%s: %d rounds\n", shape_.c_str(), rounds);
  }

  // Values alone, with vectors, and MIMO numbers of a group: each `rounds` times, with the bits of the first.
  void test_repeated(const Shape& shape, DType dtype, int rounds) {
    shape_ = std::string(name(dtype)) + " " + std::to_string(shape.rows) + "x" + std::to_string(shape.cols);
    constexpr int64_t kCount = 6;
    std::vector<Matrix> matrices;
    for (int64_t m = 0; m < kCount; ++m) {
      matrices.push_back(generate(m == 2   ? Kind::kColumnGraded
                                  : m == 4 ? Kind::kLowRank
                                           : Kind::kNormal,
                                  dtype, shape.rows, shape.cols, static_cast<uint64_t>(m)));
    }
    matrices[1].elements.back() = poison_value(Poison::kQuietNan);
    const auto bytes = pack(matrices, Order::kRowMajor);
    const Problem problem{shape.rows, shape.cols, dtype, Order::kRowMajor};
    Options answers;
    answers.mimo.capacity = answers.mimo.effective_rank = true;
    answers.mimo.snr_db = {20};
    answers.mimo.group = kCount;
    for (const Options& options : {Options{}, Options{.vectors = Vectors::kThin, .certificate = true}, answers}) {
      const Plan plan = plan_of(problem, options);
      const PlanesResult first = run(plan, bytes.data(), kCount);
      for (int round = 1; round < rounds; ++round) {
        const PlanesResult again = run(plan, bytes.data(), kCount);
        for (int p = 0; p < kPlanes; ++p) {
          const auto &a = first.planes[static_cast<size_t>(p)], &b = again.planes[static_cast<size_t>(p)];
          if (a == b) continue;
          const auto at = std::mismatch(a.begin(), a.end(), b.begin()).first - a.begin();
          int64_t different = 0;
          for (size_t x = 0; x < a.size(); ++x) different += a[x] != b[x] ? 1 : 0;
          fail("round %d: plane %d differs in %ld of %zu bytes, from byte %ld on", round, p,
               static_cast<long>(different), a.size(), static_cast<long>(at));
        }
      }
    }
    std::printf("%s repeated %d times\n", shape_.c_str(), rounds);
    std::fflush(stdout);
  }

  // Larger ones, of which long double references take minutes: vectors that are right bound the errors of values, too.
  // They have the same bits in a batch of more than a GPU computes at once.
  void test_order(int64_t order, DType dtype, Method method) {
    shape_ = std::string(name(dtype)) + " " + std::to_string(order) + "x" + std::to_string(order) + " " + name(method);
    worst_ = {};
    std::vector<Sample> samples;
    for (const Kind kind : {Kind::kNormal, Kind::kColumnGraded, Kind::kLowRank}) {
      samples.push_back({kind, generate(kind, dtype, order, order, 3), true, {}});
    }
    const auto count = static_cast<int64_t>(samples.size());
    const Problem problem{order, order, dtype, Order::kRowMajor};
    const auto bytes = pack_samples(samples, Order::kRowMajor);
    const Plan thin = plan_of(problem, {.method = method, .vectors = Vectors::kThin, .certificate = true});
    const PlanesResult vectors = run(thin, bytes.data(), count);
    for (int64_t i = 0; i < count; ++i) judge_vectors(thin, samples[static_cast<size_t>(i)], vectors, i);
    print_worst(count);
    constexpr int64_t kTimes = 50;
    std::vector<std::byte> repeated;
    for (int64_t i = 0; i < kTimes; ++i) repeated.insert(repeated.end(), bytes.begin(), bytes.end());
    const PlanesResult many = run(thin, repeated.data(), kTimes * count);
    for (const Plane plane : {Plane::kValues, Plane::kLeft, Plane::kRight}) {
      const auto &few = vectors.planes[index_of(plane)], &all = many.planes[index_of(plane)];
      for (size_t at = 0; at < all.size(); at += few.size()) {
        if (std::memcmp(all.data() + at, few.data(), few.size()) != 0) fail("other bits in a large batch");
      }
    }
  }

  // Lines that are zero or repeat others are done within the sweeps of other matrices, values alone, too.
  void test_dead_lines(int64_t k, DType dtype) {
    constexpr int32_t kUsualSweeps = 24;
    shape_ = std::string(name(dtype)) + " " + std::to_string(k) + "x" + std::to_string(k) + " dead lines";
    worst_ = {};
    const int64_t half = (k + 1) / 2;
    std::vector<Sample> samples;
    for (const DeadLines& lines : std::vector<DeadLines>{{.rows = half},
                                                         {.rows = half, .copies = true},
                                                         {.rows = k - 5},
                                                         {.rows = k - 5, .copies = true},
                                                         {.rows = half, .cols = k - 3, .copies = true},
                                                         {.rows = half, .cols = k - 3}}) {
      for (uint64_t seed = 0; seed < 4; ++seed) {
        Matrix a = with_dead_lines(generate(Kind::kNormal, dtype, k, k, seed), lines);
        auto reference = reference_singular_values(a);
        samples.push_back({Kind::kZeroLines, std::move(a), true, std::move(reference)});
      }
    }
    const auto count = static_cast<int64_t>(samples.size());
    const Problem problem{k, k, dtype, Order::kRowMajor};
    const auto bytes = pack_samples(samples, Order::kRowMajor);
    const Plan alone = plan_of(problem, {.method = Method::kJacobi, .max_sweeps = kUsualSweeps});
    const Plan thin =
        plan_of(problem, {.method = Method::kJacobi, .max_sweeps = kUsualSweeps, .vectors = Vectors::kThin});
    const Plan by_auto = plan_of(problem, {.vectors = Vectors::kThin});
    const PlanesResult values = run(alone, bytes.data(), count), vectors = run(thin, bytes.data(), count);
    const PlanesResult of_auto = run(by_auto, bytes.data(), count);
    for (int64_t i = 0; i < count; ++i) {
      judge_values(alone, samples[static_cast<size_t>(i)], values, i);
      judge_vectors(thin, samples[static_cast<size_t>(i)], vectors, i);
      judge_vectors(by_auto, samples[static_cast<size_t>(i)], of_auto, i);
    }
    print_worst(count);
  }

  // Eigenproblems of the first families; each matrix has the same bits elsewhere in a batch.
  void test_hermitian(int64_t n, DType dtype, Method method, size_t families) {
    shape_ = std::string(name(dtype)) + " " + std::to_string(n) + "x" + std::to_string(n) + " hermitian";
    if (method == Method::kJacobi) shape_ += " JACOBI";
    std::vector<Matrix> matrices;
    families = std::min(families, hermitian_families().size());
    for (size_t i = 0; i < families; ++i) matrices.push_back(hermitian_families()[i].make(dtype, n, random_));
    const auto count = static_cast<int64_t>(matrices.size());
    const Problem problem{n, n, dtype, n % 2 == 0 ? Order::kRowMajor : Order::kColumnMajor};
    Options options{.decomposition = Decomposition::kHermitian,
                    .triangle = n % 3 == 0 ? Triangle::kUpper : Triangle::kLower,
                    .method = method,
                    .vectors = Vectors::kThin,
                    .certificate = true};
    const Plan plan = plan_of(problem, options);
    const PlanesResult result = run(plan, pack(matrices, problem.order).data(), count);
    options.vectors = Vectors::kNone;
    options.certificate = false;
    const PlanesResult alone = run(plan_of(problem, options), pack(matrices, problem.order).data(), count);
    std::reverse(matrices.begin(), matrices.end());
    const PlanesResult reversed = run(plan, pack(matrices, problem.order).data(), count);
    std::reverse(matrices.begin(), matrices.end());
    HermitianErrors worst;
    const double units = 10 * static_cast<double>(n), u = real_type(dtype).unit_roundoff;
    for (int64_t i = 0; i < count; ++i) {
      const char* const family = hermitian_families()[static_cast<size_t>(i)].name;
      const auto lambda = result.numbers(dtype, Plane::kValues, i * n, n);
      const auto given = result.numbers(dtype, Plane::kCertificate, 3 * i, 3);
      const HermitianErrors errors =
          hermitian_errors(plan, matrices[static_cast<size_t>(i)], result, i, lambda, n < 40);
      const bool within = errors.eigenvalue <= units && errors.residual <= units && errors.orthogonality <= units;
      if (!within || result.statuses[static_cast<size_t>(i)] != MatrixStatus::kOk) {
        fail("%s: %g %g %g of %g", family, errors.eigenvalue, errors.residual, errors.orthogonality, units);
      }
      if (!std::is_sorted(lambda.begin(), lambda.end())) fail("%s: not ascending", family);
      judge_eigenvalues_alone(family, alone.numbers(dtype, Plane::kValues, i * n, n), lambda, units * u);
      if (!(given[1] <= units * u && given[2] == given[1])) fail("%s: certificate %g", family, given[1]);
      for (const Plane plane : {Plane::kValues, Plane::kLeft}) {
        if (!same(plan, plane, result, static_cast<size_t>(i), reversed, static_cast<size_t>(count - 1 - i))) {
          fail("%s: plane %d of a copy differs", family, index_of(plane));
        }
      }
      worst.eigenvalue = std::max(worst.eigenvalue, errors.eigenvalue);
      worst.residual = std::max(worst.residual, errors.residual);
      worst.orthogonality = std::max(worst.orthogonality, errors.orthogonality);
    }
    std::printf("%-22s %3ld matrices: eigenvalues %.1f, residual %.1f, orthogonality %.1f of %.0f u\n", shape_.c_str(),
                count, worst.eigenvalue, worst.residual, worst.orthogonality, units);
  }

  int failures() const { return failures_; }

 private:
  // Beyond what registers hold they are bisected, and keep the bound. Else they are those that come with vectors.
  void judge_eigenvalues_alone(const char* family, const std::vector<double>& alone, const std::vector<double>& lambda,
                               double bound) {
    if (static_cast<int64_t>(lambda.size()) <= kLargestInGrid) {
      if (alone != lambda) fail("%s: other values alone", family);
      return;
    }
    double norm = 0, most = 0;
    for (size_t i = 0; i < lambda.size(); ++i) {
      norm = std::hypot(norm, lambda[i]);
      const double difference = std::abs(alone[i] - lambda[i]);
      most = difference <= most ? most : difference;  // and where it is NaN
    }
    if (!(most <= bound * norm)) fail("%s: values alone are %g off", family, most);
    if (!std::is_sorted(alone.begin(), alone.end())) fail("%s: values alone are not ascending", family);
  }
  struct Worst {
    double value = 0, bound = 0;
    long double residual = 0, left = 0, right = 0;
  };

  void print_worst(int64_t count) const {
    std::printf("%-16s %3ld matrices: values %.2f of %.0f u s_max, residual %.2Lf, U %.2Lf, V %.2Lf of 10\n",
                shape_.c_str(), count, worst_.value, worst_.bound, worst_.residual, worst_.left, worst_.right);
    std::fflush(stdout);
  }

  __attribute__((format(printf, 2, 3))) void fail(const char* format, ...) {
    if (++failures_ > 40) return;
    std::va_list arguments;
    va_start(arguments, format);
    std::printf("FAILED %s: ", shape_.c_str());
    std::vprintf(format, arguments);
    std::printf("\n");
    va_end(arguments);
  }

  PlanesResult run(const Plan& plan, const std::byte* matrices, int64_t count) {
    PlanesResult result;
    result.statuses.resize(static_cast<size_t>(count), MatrixStatus{99});
    HostSegment segment{matrices, count, {}, result.statuses.data()};
    for (int p = 0; p < kPlanes; ++p) {
      auto& bytes = result.planes[static_cast<size_t>(p)];
      bytes.assign(plane_bytes(plan, static_cast<Plane>(p), count), std::byte{0xa5});
      if (!bytes.empty()) segment.planes[static_cast<Plane>(p)] = bytes.data();
    }
    const CudaEngine::Outcome outcome = gpu_->execute(0, plan, {&segment, 1});
    if (!outcome.status.ok()) {
      std::printf("%s: %s\n", shape_.c_str(), outcome.status.text.c_str());
      std::exit(1);
    }
    return result;
  }

  void judge_values(const Plan& plan, const Sample& sample, const PlanesResult& result, int64_t i) {
    const int64_t k = values_per_matrix(plan.problem);
    const auto s = result.numbers(plan.problem.dtype, Plane::kValues, i * k, k);
    const MatrixStatus status = result.statuses[static_cast<size_t>(i)];
    if (!sample.finite) {
      const bool all_nan = std::all_of(s.begin(), s.end(), [](double x) { return std::isnan(x); });
      if (!all_nan || status != MatrixStatus::kNonFinite) fail("a matrix that is not finite is not said to be so");
      return;
    }
    if (sample.reference.empty()) {
      if (status != MatrixStatus::kOk || !std::is_sorted(s.rbegin(), s.rend())) fail("%s: values", name(sample.kind));
      return;
    }
    const Verdict verdict = check(plan, s, status, sample.reference);
    if (!verdict.failure.empty()) {
      fail("%s: %s, asked for vectors: %d", name(sample.kind), verdict.failure.c_str(), plan.outputs.vectors());
    }
    if (worst_.bound == 0 || verdict.ratio() > worst_.value / worst_.bound) {
      worst_.value = verdict.error;
      worst_.bound = verdict.bound;
    }
    if (sample.kind != Kind::kColumnGraded || plan.method != Method::kJacobi) return;
    const double error = relative_error(plan.problem.dtype, s, sample.reference);
    const double bound = relative_bound(plan.problem) * unit_column_condition(sample.matrix) *
                         real_type(plan.problem.dtype).unit_roundoff;
    if (!(error <= bound)) fail("column-graded: relative error %g, bound %g", error, bound);
  }

  void judge_vectors(const Plan& plan, const Sample& sample, const PlanesResult& result, int64_t i) {
    judge_values(plan, sample, result, i);
    const Problem& p = plan.problem;
    const int64_t k = values_per_matrix(p);
    const Dense u = load(p, result, Plane::kLeft, i, p.rows, plan.outputs.left_columns);
    const Dense vh = load(p, result, Plane::kRight, i, plan.outputs.right_columns, p.cols);
    const auto given =
        plan.outputs.certificate ? result.numbers(p.dtype, Plane::kCertificate, 3 * i, 3) : std::vector<double>();
    if (!sample.finite) {
      const auto nan = [](const auto& z) { return std::isnan(z.real()); };
      if (!std::all_of(u.at_.begin(), u.at_.end(), nan) || !std::all_of(vh.at_.begin(), vh.at_.end(), nan) ||
          !std::all_of(given.begin(), given.end(), [](double x) { return std::isnan(x); })) {
        fail("vectors of a matrix that is not finite");
      }
      return;
    }
    const RealType real = real_type(p.dtype);
    const long double left = orthogonality(u, false), right = orthogonality(vh, true);
    const long double left_units = left / (static_cast<long double>(p.rows) * real.unit_roundoff);
    const long double right_units = right / (static_cast<long double>(p.cols) * real.unit_roundoff);
    if (!(left_units <= 10 && right_units <= 10)) {
      fail("%s: orthogonality %Lg and %Lg", name(sample.kind), left_units, right_units);
    }
    worst_.left = std::max(worst_.left, left_units);
    worst_.right = std::max(worst_.right, right_units);
    long double largest = 0;
    for (const auto& z : sample.matrix.elements) {
      largest = std::max<long double>({largest, std::abs(z.real()), std::abs(z.imag())});
    }
    const bool tiny = largest < real.smallest_normal / real.unit_roundoff;
    if (result.statuses[static_cast<size_t>(i)] == MatrixStatus::kOutOfRange || tiny) return;
    const auto s = result.numbers(p.dtype, Plane::kValues, i * k, k);
    const long double r = residual(sample.matrix, u, s, vh);
    const auto longer = static_cast<long double>(std::max(p.rows, p.cols));
    if (!(r <= 10 * longer * real.unit_roundoff)) fail("%s: residual %Lg", name(sample.kind), r);
    worst_.residual = std::max(worst_.residual, r / (longer * real.unit_roundoff));
    if (given.empty()) return;
    // The certificate of f64 and c128 has rounding errors of its own: about sqrt(k) u, and a part of what it measures.
    // The measured value consists of rounding errors, too.
    const bool exact = value_bytes(p.dtype) == 4;
    const double slack = (exact ? 4 : 2 * std::sqrt(static_cast<double>(k))) * real.unit_roundoff;
    const auto agree = [&](double said, long double is) {
      const auto expected = static_cast<double>(is);
      return std::abs(said - expected) <= slack + (exact ? 0 : 0.3) * expected;
    };
    if (!(agree(given[0], r) && agree(given[1], left) && agree(given[2], right))) {
      fail("%s: certificate %g %g %g, is %Lg %Lg %Lg", name(sample.kind), given[0], given[1], given[2], r, left, right);
    }
  }

  // Leading columns, and phases: the columns of all, or what they promise.
  void test_leading(const Problem& p, const PlanesResult& whole, const std::vector<std::byte>& bytes, int64_t count) {
    const int64_t k = values_per_matrix(p), top = 5;
    const PlanesResult some = run(plan_of(p, {.vectors = Vectors::kThin, .top_k = top}), bytes.data(), count);
    const PlanesResult fixed = run(plan_of(p, {.vectors = Vectors::kThin, .fix_phases = true}), bytes.data(), count);
    const double slack = 16 * real_type(p.dtype).unit_roundoff;
    for (int64_t i = 0; i < count; ++i) {
      if (whole.statuses[static_cast<size_t>(i)] == MatrixStatus::kNonFinite) continue;
      const Dense u = load(p, whole, Plane::kLeft, i, p.rows, k), u_top = load(p, some, Plane::kLeft, i, p.rows, top);
      const Dense vh = load(p, whole, Plane::kRight, i, k, p.cols);
      const Dense vh_top = load(p, some, Plane::kRight, i, top, p.cols);
      const Dense phased = load(p, fixed, Plane::kLeft, i, p.rows, k);
      for (int64_t j = 0; j < top; ++j) {
        bool same = true;
        for (int64_t r = 0; r < p.rows; ++r) same = same && u.at(r, j) == u_top.at(r, j);
        for (int64_t c = 0; c < p.cols; ++c) same = same && vh.at(j, c) == vh_top.at(j, c);
        // The columns that complete a basis differ for a rank below `top`: there are fewer of them.
        const double s = whole.numbers(p.dtype, Plane::kValues, i * k + j, 1)[0];
        if (!same && s > 0) fail("leading column %ld of matrix %ld is another one", j, i);
      }
      for (int64_t j = 0; j < k; ++j) {
        long double largest = 0;
        for (int64_t r = 0; r < p.rows; ++r) largest = std::max(largest, std::norm(phased.at(r, j)));
        bool real = false;  // one of the largest, which may be equal but for rounding
        for (int64_t r = 0; r < p.rows; ++r) {
          const auto z = phased.at(r, j);
          real = real || (std::norm(z) >= largest * (1 - slack) && z.real() > 0 && std::abs(z.imag()) <= slack);
        }
        if (!real) fail("phase of column %ld of matrix %ld", j, i);
      }
    }
  }

  // Every matrix alone, in reverse order, in a batch that fills the device, and by columns: as in `first`.
  void test_batches(const Problem& p, const Options& options, const std::vector<Sample>& samples,
                    const PlanesResult& first, const std::vector<std::byte>& bytes) {
    const size_t size = matrix_bytes(p), count = samples.size();
    const size_t copies = std::max<size_t>(3, std::min<size_t>(600, (size_t{64} << 20) / (size * count)));
    std::vector<std::byte> reversed(size * count * copies);
    for (size_t i = 0; i < count * copies; ++i) {
      std::memcpy(reversed.data() + i * size, bytes.data() + (count - 1 - i % count) * size, size);
    }
    const Plan plan = plan_of(p, options);
    const PlanesResult many = run(plan, reversed.data(), static_cast<int64_t>(count * copies));
    for (size_t i = 0; i < count * copies; ++i) {
      const size_t original = count - 1 - i % count;
      for (const Plane plane : {Plane::kValues, Plane::kLeft, Plane::kRight}) {
        if (!same(plan, plane, first, original, many, i)) fail("plane %d of a copy differs", index_of(plane));
      }
    }
    Problem turned = p;
    turned.order = Order::kColumnMajor;
    const auto by_columns = pack_samples(samples, Order::kColumnMajor);
    const PlanesResult other = run(plan_of(turned, options), by_columns.data(), static_cast<int64_t>(count));
    for (size_t i = 0; i < count; ++i) {
      const auto m = static_cast<int64_t>(i);
      if (!samples[i].finite) continue;  // NaN is not equal to itself
      const int64_t left = plan.outputs.left_columns, right = plan.outputs.right_columns;
      const bool equal =
          load(p, first, Plane::kLeft, m, p.rows, left).at_ == load(turned, other, Plane::kLeft, m, p.rows, left).at_ &&
          load(p, first, Plane::kRight, m, right, p.cols).at_ ==
              load(turned, other, Plane::kRight, m, right, p.cols).at_ &&
          same(plan, Plane::kValues, first, i, other, i);
      if (!equal) fail("matrix %zu differs by columns", i);
    }
  }
  static bool same(const Plan& plan, Plane plane, const PlanesResult& a, size_t i, const PlanesResult& b, size_t j) {
    const size_t size = plane_bytes(plan, plane, 1), p = static_cast<size_t>(plane);
    return std::memcmp(a.planes[p].data() + i * size, b.planes[p].data() + j * size, size) == 0;
  }

  void test_full(const Problem& p, const std::vector<Sample>& samples, const PlanesResult& thin,
                 const std::vector<std::byte>& bytes) {
    const Plan plan = plan_of(p, {.vectors = Vectors::kFull});
    const auto count = static_cast<int64_t>(samples.size());
    const PlanesResult full = run(plan, bytes.data(), count);
    if (full.planes[0].size() != thin.planes[0].size() ||
        std::memcmp(full.planes[0].data(), thin.planes[0].data(), full.planes[0].size()) != 0) {
      fail("values beside full bases differ");
    }
    for (int64_t i = 0; i < count; ++i) judge_vectors(plan, samples[static_cast<size_t>(i)], full, i);
  }

  // MIMO numbers are made of values that differ from the CPU's by a few units of the largest. So numbers that depend on
  // the smallest values are compared where these are not small. The matrix whose s_1 is the largest finite number but
  // for rounding has none, because it may be in range or not. No sample has a gap's end at the threshold of the ranks.
  void test_answers(const Problem& p, std::vector<Sample> samples) {
    std::erase_if(samples, [](const Sample& s) { return s.kind == Kind::kOverflowEntry; });
    const auto bytes = pack_samples(samples, Order::kRowMajor);
    const auto count = static_cast<int64_t>(samples.size());
    for (const int64_t group : {int64_t{1}, count}) {
      Options options;
      options.method = Method::kJacobi;  // the GPU's; AUTO on a CPU has larger errors of small values
      options.mimo.capacity = options.mimo.water_filling = options.mimo.effective_rank = true;
      options.mimo.stream_snr = options.mimo.condition_number = options.mimo.threshold_rank = group == 1;
      options.mimo.rank_threshold = group == 1 ? 1e-2 : 0;
      options.mimo.snr_db = {-10, 20};
      options.mimo.group = group;
      const Plan plan = plan_of(p, options);
      const PlanesResult gpu = run(plan, bytes.data(), count);
      const PlanesResult cpu = run_planes(cpu_, plan, bytes.data(), count);
      const double slack = 1e4 * real_type(p.dtype).unit_roundoff;
      for (const Plane plane : {Plane::kCapacity, Plane::kWaterFilling, Plane::kEffectiveRank, Plane::kThresholdRank}) {
        const auto numbers = static_cast<int64_t>(plane_bytes(plan, plane, count) / value_bytes(p.dtype));
        const auto a = gpu.numbers(p.dtype, plane, 0, numbers), b = cpu.numbers(p.dtype, plane, 0, numbers);
        for (size_t x = 0; x < a.size(); ++x) {
          const bool near = std::abs(a[x] - b[x]) <= slack * std::max(1.0, std::abs(b[x]));
          if (!near && !(std::isnan(a[x]) && std::isnan(b[x])) && a[x] != b[x]) {
            fail("plane %d number %zu in groups of %ld: %g, the CPU's %g", index_of(plane), x, group, a[x], b[x]);
          }
        }
      }
      if (group > 1) continue;
      // The first matrix is a random one.
      const double condition = gpu.numbers(p.dtype, Plane::kConditionNumber, 0, 1)[0];
      const double expected = cpu.numbers(p.dtype, Plane::kConditionNumber, 0, 1)[0];
      if (!(std::abs(condition - expected) <= slack * expected * expected)) fail("condition number %g", condition);
      const int64_t k = values_per_matrix(p);
      const auto a = gpu.numbers(p.dtype, Plane::kStreamSnr, 0, 2 * k);
      const auto b = cpu.numbers(p.dtype, Plane::kStreamSnr, 0, 2 * k);
      for (size_t x = 0; x < a.size(); ++x) {
        if (!(std::abs(a[x] - b[x]) <= slack * b[x / static_cast<size_t>(k) * static_cast<size_t>(k)])) {
          fail("stream %zu: %g, the CPU's %g", x, a[x], b[x]);
        }
      }
    }
  }

  // |G - G_cpu|_F. Both have the error of docs/accuracy.md; a capacity at 0 dB has L = 2 / (ln 2 cols). The others
  // are compared for the first matrix, a random one.
  void test_gradients(const Problem& p, const std::vector<Sample>& samples) {
    const auto bytes = pack_samples(samples, Order::kRowMajor);
    const auto count = static_cast<int64_t>(samples.size());
    Options options;
    options.method = Method::kJacobi;
    options.mimo.capacity = options.mimo.water_filling = options.mimo.effective_rank = options.mimo.gradient = true;
    options.mimo.snr_db = {0};
    const Plan plan = plan_of(p, options);
    const PlanesResult gpu = run(plan, bytes.data(), count);
    const PlanesResult cpu = run_planes(cpu_, plan, bytes.data(), count);
    const int64_t size = static_cast<int64_t>(matrix_bytes(p) / value_bytes(p.dtype));
    const RealType real = real_type(p.dtype);
    const auto sides = static_cast<double>(std::max(p.rows, p.cols)), k = static_cast<double>(values_per_matrix(p));
    for (const MimoGradient& g : kMimoGradients) {
      for (int64_t i = 0; i < (g.plane == Plane::kCapacityGradient ? count : 1); ++i) {
        if (gpu.statuses[static_cast<size_t>(i)] != MatrixStatus::kOk) continue;
        const auto ours = gpu.numbers(p.dtype, g.plane, i * size, size);
        const auto expected = cpu.numbers(p.dtype, g.plane, i * size, size);
        std::vector<double> difference(ours.size());
        for (size_t x = 0; x < ours.size(); ++x) difference[x] = ours[x] - expected[x];
        double of_a = 0;
        for (const auto& e : samples[static_cast<size_t>(i)].matrix.elements) of_a = std::hypot(of_a, std::abs(e));
        const double lipschitz = g.plane == Plane::kCapacityGradient ? 2.9 / static_cast<double>(p.cols) : 100;
        const double bound = 2 * real.unit_roundoff * (10 * sides * lipschitz * of_a + 20 * k * norm(expected)) +
                             k * sides * real.smallest_normal;
        if (!(norm(difference) <= bound)) {
          fail("gradient in plane %d of %s: off by %g of %g", index_of(g.plane),
               name(samples[static_cast<size_t>(i)].kind), norm(difference), bound);
        }
      }
    }
  }
  static double norm(const std::vector<double>& x) {
    double norm = 0;
    for (const double e : x) norm = std::hypot(norm, e);
    return norm;
  }

  CudaEngine* gpu_;
  const SvdEngine cpu_;
  std::string shape_;
  Worst worst_;
  Random random_{7};
  int failures_ = 0;
};

int main_of(int argc, char** argv) {
  const bool small = argc > 1 && std::string(argv[1]) == "small";  // under a sanitizer every launch is slow
  const std::string only = argc > 2 ? argv[2] : "";
  CudaStatus status;
  const auto gpu = CudaEngine::open({}, &status);
  if (gpu == nullptr) {
    std::printf("no GPU: %s\n", status.text.c_str());
    return 2;
  }
  Contract contract(gpu.get());
  if (argc > 1 && std::string(argv[1]) == "repeat") {
    for (const DType dtype : {DType::kF32, DType::kF64, DType::kC64, DType::kC128}) {
      if (!only.empty() && only != name(dtype)) continue;
      const auto number = [&](int at, int otherwise) { return argc > at ? std::atoi(argv[at]) : otherwise; };
      for (const Shape& shape : shapes()) {
        if (shape.rows > number(4, 1 << 20) || shape.rows < number(5, 1)) continue;
        contract.test_repeated(shape, dtype, number(3, 200));
      }
    }
    std::printf("repeated: %d failures\n", contract.failures());
    return contract.failures() == 0 ? 0 : 1;
  }
  for (const DType dtype : {DType::kF32, DType::kF64, DType::kC64, DType::kC128}) {
    if (!only.empty() && only != name(dtype)) continue;
    for (const Shape& shape : small ? reduced_shapes() : shapes()) contract.test(shape, dtype);
    for (const int64_t k :
         small ? std::vector<int64_t>{34} : std::vector<int64_t>{33, 55, 64, 65, 81, 96, 100, 127, 128}) {
      contract.test_dead_lines(k, dtype);
      for (const Method method : {Method::kAuto, Method::kJacobi}) contract.test_hermitian(k, dtype, method, 100);
    }
    // Larger ones take the host long: its sums are in long double.
    for (const auto& [k, families] : {std::pair<int64_t, size_t>{129, 100}, {200, 100}, {257, 6}, {512, 2}}) {
      if (!small) contract.test_hermitian(k, dtype, Method::kAuto, families);
    }
    for (const int64_t order : {256, 257, 512}) {
      if (small) continue;
      for (const Method method : {Method::kAuto, Method::kJacobi}) contract.test_order(order, dtype, method);
    }
  }
  if (!small) contract.test_growth(20);
  std::printf("contract of k > 32: %d failures on %s\n", contract.failures(), gpu->description().name.c_str());
  return contract.failures() == 0 ? 0 : 1;
}

}  // namespace
}  // namespace svdserve::numerics

int main(int argc, char** argv) { return svdserve::numerics::main_of(argc, argv); }
