// One GPU against the CPU: the values and statuses of the same matrices, bit for bit, for every dtype, method and a
// list of shapes. Graded, denormal, non-finite and all the other kinds of matrix_generators.h are among them.
//   device_same_bits [matrices of each case, 13000] [all or small: every kernel once] [one dtype]
// Exit code 1: something differs, and the first matrices that do are printed.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "engine/cuda_engine.h"
#include "engine/svd_engine.h"
#include "tests/support/numerics/engine_run.h"
#include "tests/support/numerics/matrix_generators.h"
#include "tests/support/numerics/narrow.h"
#include "tests/support/numerics/reference_mimo.h"

namespace svdserve::numerics {
namespace {

struct Shape {
  int64_t rows, cols;
  double share;  // of the matrices of a case
};

const std::vector<Shape>& shapes() {
  static const std::vector<Shape> all{
      {1, 1, 20},  {2, 2, 20},  {3, 3, 20},  {4, 4, 20},  {5, 5, 10},  {6, 6, 10},  {7, 7, 10},  {8, 8, 10}, {9, 9, 1},
      {13, 13, 1}, {16, 16, 1}, {12, 12, 1}, {20, 20, 1}, {24, 24, 1}, {31, 31, 1}, {32, 32, 1}, {9, 4, 1},  {4, 64, 1},
      {64, 4, 1},  {65, 3, 1},  {8, 200, 1}, {40, 17, 1}, {32, 33, 1}, {2, 5, 1},   {300, 8, 1}, {1, 7, 1}};
  return all;
}
// Tiles in registers (backends/cuda/tall/tall_registers.h), each shape of them, whole and not: some hundreds of each.
const std::vector<Shape>& tile_shapes() {
  static const std::vector<Shape> all{{16, 1, 0},  {2, 16, 0},   {16, 4, 0},   {7, 16, 0},  {32, 2, 0},  {4, 32, 0},
                                      {32, 8, 0},  {12, 32, 0},  {32, 24, 0},  {64, 1, 0},  {2, 64, 0},  {64, 8, 0},
                                      {16, 64, 0}, {64, 32, 0},  {27, 64, 0},  {256, 2, 0}, {4, 100, 0}, {100, 7, 0},
                                      {12, 70, 0}, {130, 16, 0}, {19, 128, 0}, {256, 32, 0}};
  return all;
}
// Every kernel once.
const std::vector<Shape>& reduced_shapes() {
  static const std::vector<Shape> all{{4, 4, 1},   {8, 8, 1},  {17, 17, 1}, {9, 3, 1},
                                      {5, 130, 1}, {16, 6, 1}, {11, 32, 1}, {64, 20, 1}};
  return all;
}
// Too long for many of each: a few.
const std::vector<Shape>& long_shapes() {
  static const std::vector<Shape> all{{16384, 2, 0}, {5, 16384, 0}, {4096, 32, 0}, {10, 2100, 0}};
  return all;
}

// Matrices of every kind, a pool of them repeated; the rest random at random scales; a few not finite.
std::vector<std::byte> make_batch(const Problem& problem, int64_t count, Random& random) {
  const size_t size = matrix_bytes(problem);
  std::vector<std::byte> bytes(static_cast<size_t>(count) * size);
  const std::vector<Kind> all = kinds(problem.dtype);
  const bool large = problem.rows * problem.cols > 5000;
  std::vector<std::vector<std::byte>> pool;
  for (size_t i = 0; i < (large ? 0 : all.size() * 6); ++i) {
    Matrix a = generate(all[i % all.size()], problem.dtype, problem.rows, problem.cols, i);
    if (random.integer(0, 20) == 0) {
      a.elements[random.bits() % a.elements.size()] =
          poison_value(random.coin() ? Poison::kInfinity : Poison::kQuietNan);
    }
    pool.emplace_back(size);
    store(a, problem.order, pool.back().data());
  }
  const int largest_exponent = value_bytes(problem.dtype) == 4 ? 100 : 900;
  const size_t numbers = size / value_bytes(problem.dtype);
  for (int64_t i = 0; i < count; ++i) {
    std::byte* const to = bytes.data() + static_cast<size_t>(i) * size;
    if (!pool.empty() && random.integer(0, 3) == 0) {
      std::memcpy(to, pool[random.bits() % pool.size()].data(), size);
      continue;
    }
    const double scale =
        std::ldexp(1.0, random.coin() ? 0 : static_cast<int>(random.integer(-largest_exponent, largest_exponent)));
    for (size_t x = 0; x < numbers; ++x) {
      const double number = random.uniform(-1, 1) * scale;
      if (value_bytes(problem.dtype) == 4) {
        const float f = static_cast<float>(number);
        std::memcpy(to + x * sizeof(f), &f, sizeof(f));
      } else {
        std::memcpy(to + x * sizeof(number), &number, sizeof(number));
      }
    }
  }
  return bytes;
}

class Comparison {
 public:
  explicit Comparison(CudaEngine* gpu) : gpu_(gpu) {}

  void run_case(const Problem& problem, int64_t count) {
    const std::vector<std::byte> bytes =
        is_narrow(problem) ? narrow_batch(problem, count, random_) : make_batch(problem, count, random_);
    cpu_bytes_ = is_narrow(problem) ? widened_bytes(bytes, problem) : bytes;
    std::vector<Options> options{{.method = Method::kBidiagonal},
                                 {.method = Method::kBisection},
                                 {.method = Method::kBisection, .tolerance = 1e-4},
                                 {.method = Method::kJacobi},
                                 {.method = Method::kJacobi, .max_sweeps = 2},
                                 {.vectors = Vectors::kThin},
                                 {.max_sweeps = 2, .vectors = Vectors::kThin},
                                 {.vectors = Vectors::kThin, .top_k = 1},
                                 {.vectors = Vectors::kThin, .fix_phases = true, .certificate = true},
                                 {.vectors = Vectors::kThin, .top_k = 1, .fix_phases = true, .certificate = true}};
    if (std::max(problem.rows, problem.cols) <= 100) options.push_back({.vectors = Vectors::kFull});
    if (problem.rows == problem.cols) add_hermitian(problem.rows, &options);
    if (problem.rows == problem.cols && problem.rows <= kLargestGeneral) add_general(&options);
    for (const Options& o : options) compare(plan_of(problem, o), bytes, count);
    compare_answers(problem, bytes, count);
    if (problem.rows == problem.cols && problem.rows <= kLargestGeneral) compare_starts(problem, bytes, count);
  }

  // k > kLargestReproducible, where a CPU has other bits: the GPU's for narrow operands and for the floats they become.
  void run_beyond(const Problem& problem, int64_t count) {
    const std::vector<std::byte> bytes = narrow_batch(problem, count, random_), wide = widened_bytes(bytes, problem);
    std::vector<Options> all{{}, {.vectors = Vectors::kThin, .fix_phases = true, .certificate = true}};
    if (problem.rows == problem.cols && problem.rows <= kLargestHermitian) {
      all.push_back({.decomposition = Decomposition::kHermitian, .vectors = Vectors::kThin});
    }
    for (const Options& o : all) {
      const Plan plan = plan_of(problem, o), wide_plan = plan_of(widened(problem), o);
      if (gpu_bytes(plan, bytes, count) != gpu_bytes(wide_plan, wide, count)) {
        std::printf("%s: differs from floats on the GPU\n", describe(plan).c_str());
        differing_ += count;
      }
      compared_ += count;
    }
  }

  int64_t compared() const { return compared_; }
  int64_t differing() const { return differing_; }

 private:
  // All results, then the statuses.
  std::vector<std::byte> gpu_bytes(const Plan& plan, const std::vector<std::byte>& bytes, int64_t count) {
    std::vector<std::byte> results(result_bytes(plan, count));
    std::vector<MatrixStatus> statuses(static_cast<size_t>(count));
    const HostSegment segment{bytes.data(), count, planes_in(plan, results.data(), count), statuses.data()};
    const CudaEngine::Outcome outcome = gpu_->execute(0, plan, {&segment, 1});
    if (!outcome.status.ok()) {
      std::printf("%s: %s\n", describe(plan).c_str(), outcome.status.text.c_str());
      std::exit(1);
    }
    const auto* const first = reinterpret_cast<const std::byte*>(statuses.data());
    results.insert(results.end(), first, first + statuses.size());
    return results;
  }

  // By either triangle of matrices of which the other one is another's.
  static void add_hermitian(int64_t n, std::vector<Options>* options) {
    for (const Triangle triangle : {Triangle::kLower, Triangle::kUpper}) {
      Options o{.decomposition = Decomposition::kHermitian, .triangle = triangle};
      options->push_back(o);
      o.vectors = Vectors::kThin;
      options->push_back(o);
      o.max_sweeps = 2;
      options->push_back(o);
      o.max_sweeps = 0;
      o.fix_phases = o.certificate = true;
      options->push_back(o);
      if (n > kLargestTridiagonal) continue;
      o.method = Method::kJacobi;  // which AUTO is beyond
      options->push_back(o);
    }
  }

  // Eigenvalues alone, and with right, then both kinds of eigenvectors. After two sweeps JACOBI leaves most to QR.
  static void add_general(std::vector<Options>* options) {
    for (const Method method : {Method::kQr, Method::kJacobi}) {
      Options o{.decomposition = Decomposition::kGeneral, .method = method};
      options->push_back(o);
      o.certificate = true;
      for (const Vectors vectors : {Vectors::kThin, Vectors::kFull}) {
        o.vectors = vectors;
        options->push_back(o);
      }
      o.condition = true;
      options->push_back(o);
      o.condition = false;
      if (method != Method::kJacobi) continue;
      o.max_sweeps = 2;
      options->push_back(o);
    }
  }

  // From the eigenvectors of the batch in its opposite order, one of them singular, and after two sweeps.
  void compare_starts(const Problem& problem, const std::vector<std::byte>& bytes, int64_t count) {
    Options o{.decomposition = Decomposition::kGeneral, .vectors = Vectors::kThin};
    const Plan cold = plan_of(problem, o);
    std::vector<std::byte> results(result_bytes(cold, count)), starts;
    const HostSegment segment{bytes.data(), count, planes_in(cold, results.data(), count), nullptr};
    if (!cpu_.execute(cold, {&segment, 1}).completed) std::exit(1);
    const size_t one = plane_bytes(cold, Plane::kLeft, 1);
    const auto* const vectors = static_cast<const std::byte*>(segment.planes[Plane::kLeft]);
    for (int64_t i = count - 1; i >= 0; --i) starts.insert(starts.end(), vectors + i * one, vectors + (i + 1) * one);
    std::fill_n(starts.begin(), one, std::byte{0});
    o.starting_vectors = true;
    for (const int32_t sweeps : {0, 2}) {
      o.max_sweeps = sweeps;
      compare(plan_of(problem, o), bytes, count, starts.data());
      compare(plan_of(problem, o), bytes, count, vectors);
    }
  }

  // All MIMO answers, of matrices and of groups, with the values and without.
  void compare_answers(const Problem& problem, const std::vector<std::byte>& bytes, int64_t count) {
    for (const int64_t group : {1, 7, 100}) {
      Options options{.values = group != 7,
                      .mimo = all_mimo_numbers({-300, -60, -7, 0, 10, 25, 100, 300}, group, 0.01)};
      if (count >= group) compare(plan_of(problem, options), bytes, count / group * group);
    }
    Options gradients{.values = false};
    gradients.mimo.capacity = gradients.mimo.water_filling = gradients.mimo.effective_rank = true;
    gradients.mimo.gradient = true;
    gradients.mimo.snr_db = {-300, 5, 300};
    compare(plan_of(problem, gradients), bytes, count);
    gradients.mimo.precoder_columns = 1;
    compare(plan_of(problem, gradients), bytes, count);
  }

  // Narrow operands are widened for the CPU by the test's own arithmetic.
  void compare(const Plan& plan, const std::vector<std::byte>& bytes, int64_t count,
               const std::byte* starts = nullptr) {
    Plan cpu_plan = plan;
    cpu_plan.problem = widened(plan.problem);
    std::vector<std::byte> expected(result_bytes(plan, count)), actual(expected.size(), std::byte{0x5a});
    std::vector<MatrixStatus> expected_status(static_cast<size_t>(count)), actual_status(expected_status);
    const HostSegment on_cpu{cpu_bytes_.data(), count, planes_in(plan, expected.data(), count), expected_status.data(),
                             starts};
    const HostSegment on_gpu{bytes.data(), count, planes_in(plan, actual.data(), count), actual_status.data(), starts};
    const ExecutionOutcome cpu = cpu_.execute(cpu_plan, {&on_cpu, 1});
    const CudaEngine::Outcome gpu = gpu_->execute(0, plan, {&on_gpu, 1});
    compared_ += count;
    if (!gpu.status.ok()) {
      std::printf("%s: %s\n", describe(plan).c_str(), gpu.status.text.c_str());
      std::exit(1);
    }
    if (!(cpu.report == gpu.execution.report) || !gpu.execution.completed) {
      std::printf("%s: the reports differ\n", describe(plan).c_str());
      ++differing_;
    }
    std::vector<bool> differs(static_cast<size_t>(count));
    for (int64_t i = 0; i < count; ++i) differs[i] = expected_status[i] != actual_status[i];
    for (int p = 0; p < kPlanes; ++p) {
      const auto plane = static_cast<Plane>(p);
      const int64_t group = plan.outputs.group;
      const size_t row = plane_bytes(plan, plane, group);
      for (int64_t i = 0; row > 0 && i < count; i += group) {
        const auto* const mine = static_cast<const std::byte*>(planes_from(plan, on_cpu.planes, i)[plane]);
        const auto* const other = static_cast<const std::byte*>(planes_from(plan, on_gpu.planes, i)[plane]);
        if (std::memcmp(mine, other, row) == 0) continue;
        if (!differs[i] && differing_ < 20) print(plan, p, i, mine, other, row, cpu_bytes_);
        differs[i] = true;
      }
    }
    const int64_t here = std::count(differs.begin(), differs.end(), true);
    if (here > 0) std::printf(" %s: %ld of %ld differ\n", describe(plan).c_str(), here, count);
    differing_ += here;
  }

  static std::string describe(const Plan& plan) {
    char text[200];
    const char* const kind = plan.decomposition == Decomposition::kHermitian ? "hermitian "
                             : plan.decomposition == Decomposition::kGeneral ? "general "
                                                                             : "";
    std::snprintf(text, sizeof(text), "%s %s%s tolerance %g sweeps %d %ldx%ld order %d U %ld V %ld",
                  operand_name(plan.problem), kind, name(plan.method), plan.tolerance, plan.max_sweeps,
                  plan.problem.rows, plan.problem.cols, static_cast<int>(plan.problem.order), plan.outputs.left_columns,
                  plan.outputs.right_columns);
    return text;
  }

  static void print(const Plan& plan, int plane, int64_t matrix, const std::byte* mine, const std::byte* other,
                    size_t bytes, const std::vector<std::byte>& operands) {
    const DType dtype = plan.problem.dtype;
    const auto numbers = static_cast<int64_t>(std::min<size_t>(bytes / value_bytes(dtype), 64));
    const auto elements = std::min<int64_t>(plan.problem.rows * plan.problem.cols, 64) * (is_complex(dtype) ? 2 : 1);
    std::printf("DIFFERS %s plane %d matrix %ld\n cpu:%s\n gpu:%s\n a:%s\n", describe(plan).c_str(), plane, matrix,
                hex_values(dtype, mine, numbers).c_str(), hex_values(dtype, other, numbers).c_str(),
                hex_values(dtype, operands.data() + static_cast<size_t>(matrix) * matrix_bytes(plan.problem), elements)
                    .c_str());
  }

  CudaEngine* const gpu_;
  const SvdEngine cpu_;
  Random random_{7};
  std::vector<std::byte> cpu_bytes_;  // the operands of a case for the CPU
  int64_t compared_ = 0, differing_ = 0;
};

// Operands of 16-bit numbers that become `dtype`: every kernel by every option, rows and columns, and odd numbers of
// matrices.
void run_narrow(Comparison* comparison, DType dtype, int64_t each) {
  for (int i = 0; i <= static_cast<int>(OperandType::kLast); ++i) {
    const OperandTypeTraits& type = kOperandTypes[i];
    if (type.dtype != dtype || type.storage == Storage::kNative) continue;
    std::vector<Shape> all = reduced_shapes();
    all.insert(all.end(), {{1, 1, 1}, {3, 3, 1}, {300, 8, 1}});
    for (const Shape& shape : all) {
      for (const Order order : {Order::kRowMajor, Order::kColumnMajor}) {
        Problem problem{shape.rows, shape.cols, dtype, order, type.storage};
        if (type.storage == Storage::kI16) problem.exponent = order == Order::kRowMajor ? -12 : kLargestExponent;
        comparison->run_case(problem, shape.rows * shape.cols > 64 ? std::max<int64_t>(each / 16, 7) : each | 1);
      }
    }
    for (const Shape& shape : {Shape{33, 33, 1}, {70, 40, 1}, {100, 128, 1}, {140, 140, 1}}) {
      const int32_t exponent = type.storage == Storage::kI16 ? kLeastExponent : 0;
      comparison->run_beyond({shape.rows, shape.cols, dtype, Order::kColumnMajor, type.storage, exponent}, 9);
    }
    std::printf("%-4s %10ld matrices so far, %ld differ\n", type.name, comparison->compared(), comparison->differing());
    std::fflush(stdout);
  }
}

int main_of(int argc, char** argv) {
  const int64_t each = argc > 1 ? std::atoll(argv[1]) : 13000;
  const bool small = argc > 2 && std::string(argv[2]) == "small";  // under a sanitizer every launch is slow
  const std::string only = argc > 3 ? argv[3] : "";
  CudaStatus status;
  const auto gpu = CudaEngine::open({}, &status);
  if (gpu == nullptr) {
    std::printf("no GPU: %s\n", status.text.c_str());
    return 2;
  }
  Comparison comparison(gpu.get());
  for (const DType dtype : {DType::kF32, DType::kF64, DType::kC64, DType::kC128}) {
    if (!only.empty() && only != name(dtype)) continue;
    int parity = 0;
    for (const Shape& shape : small ? reduced_shapes() : shapes()) {
      const Order order = ++parity % 2 == 0 ? Order::kRowMajor : Order::kColumnMajor;
      const Problem problem{shape.rows, shape.cols, dtype, order};
      comparison.run_case(problem, each);
      Problem other = problem;
      other.order = order == Order::kRowMajor ? Order::kColumnMajor : Order::kRowMajor;
      comparison.run_case(other, std::max<int64_t>(each / 8, 8));
      if (shape.share > 1) {  // more of the cheap ones, by the method that AUTO chooses
        comparison.run_case(problem, static_cast<int64_t>(static_cast<double>(each) * shape.share / 10));
      }
    }
    for (const Shape& shape : small ? std::vector<Shape>() : tile_shapes()) {
      comparison.run_case({shape.rows, shape.cols, dtype, Order::kRowMajor}, std::max<int64_t>(each / 60, 8));
      comparison.run_case({shape.rows, shape.cols, dtype, Order::kColumnMajor}, std::max<int64_t>(each / 60, 8));
    }
    for (const Shape& shape : small ? std::vector<Shape>() : long_shapes()) {
      comparison.run_case({shape.rows, shape.cols, dtype, Order::kRowMajor}, 3);
      comparison.run_case({shape.rows, shape.cols, dtype, Order::kColumnMajor}, 3);
    }
    std::printf("%-4s %10ld matrices so far, %ld differ\n", name(dtype), comparison.compared(), comparison.differing());
    std::fflush(stdout);
    run_narrow(&comparison, dtype, std::max<int64_t>(each / 10, 7));
  }
  std::printf("same bits: %ld matrices on %s, %ld differ\n", comparison.compared(), gpu->description().name.c_str(),
              comparison.differing());
  return comparison.differing() == 0 ? 0 : 1;
}

}  // namespace
}  // namespace svdserve::numerics

int main(int argc, char** argv) { return svdserve::numerics::main_of(argc, argv); }
