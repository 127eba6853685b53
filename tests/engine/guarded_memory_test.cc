// No kernel, no driver and no routine of BLAS or LAPACK that they call reads or writes beyond the end of its memory.
// This program's heap ends each block at a page that may not be touched (guarded_heap.cc).
#include <gtest/gtest.h>

#include <complex>
#include <cstddef>
#include <random>
#include <vector>

#include "engine/backends/host/dense/blas.h"
#include "engine/backends/host/general/general_eigen.h"
#include "engine/large_engine.h"
#include "engine/svd_engine.h"

namespace svdserve {
namespace {

constexpr DType kDTypes[] = {DType::kF32, DType::kF64, DType::kC64, DType::kC128};

template <class T>
void fill(void* memory, size_t bytes) {
  std::mt19937_64 random(1);
  std::normal_distribution<double> normal;
  T* const numbers = static_cast<T*>(memory);
  for (size_t i = 0; i < bytes / sizeof(T); ++i) numbers[i] = static_cast<T>(normal(random));
}

std::vector<char> random_numbers(DType dtype, size_t bytes) {
  std::vector<char> numbers(bytes);
  const bool single = dtype == DType::kF32 || dtype == DType::kC64;
  single ? fill<float>(numbers.data(), bytes) : fill<double>(numbers.data(), bytes);
  return numbers;
}

LargeStatus decompose(const LargeEngine& engine, const Problem& problem, const LargeOptions& options) {
  const LargePlan plan = *plan_large(problem, options).plan;
  std::vector<char> operand = random_numbers(problem.dtype, plan.operand_bytes());
  std::vector<char> left(plan.left_bytes()), values(plan.values_bytes()), right(plan.right_bytes());
  LargeOperands operands;
  operands.matrix = operand.data();
  operands.left = left.empty() ? nullptr : left.data();
  operands.values = values.data();
  operands.right = right.empty() ? nullptr : right.data();
  return engine.decompose(plan, operands, {}).status;
}

TEST(GuardedMemoryTest, LargeSingularValues) {
  const auto engine = make_host_large_engine(2);
  for (const Method method : {Method::kAuto, Method::kJacobi}) {
    for (const DType dtype : kDTypes) {
      for (const auto& [rows, cols] : {std::pair{1, 1}, {33, 33}, {64, 64}, {130, 130}, {40, 200}, {1001, 7}}) {
        LargeOptions options;
        options.method = method;
        options.vectors = Vectors::kThin;
        options.certificate = true;
        EXPECT_EQ(decompose(*engine, {rows, cols, dtype, Order::kRowMajor}, options), LargeStatus::kOk);
      }
    }
  }
}

TEST(GuardedMemoryTest, LargeEigenvalues) {
  const auto engine = make_host_large_engine(2);
  for (const Method method : {Method::kTridiagonal, Method::kFactored}) {
    for (const DType dtype : kDTypes) {
      for (const int64_t n : {1, 2, 33, 64, 130, 256}) {
        LargeOptions options;
        options.kind = LargeKind::kHermitian;
        options.method = method;
        options.vectors = Vectors::kThin;
        options.certificate = true;
        EXPECT_EQ(decompose(*engine, {n, n, dtype, Order::kColumnMajor}, options), LargeStatus::kOk);
      }
    }
  }
}

template <class E>
void solve_general(int64_t n) {
  std::vector<E> a(n * n);
  fill<double>(a.data(), a.size() * sizeof(E));
  for (E& x : a) x /= static_cast<double>(n);
  std::vector<std::complex<double>> values, right(n * n), left(n * n);
  const host::LargeThreads threads(nullptr, 1, nullptr);
  host::Balancing balancing;
  EXPECT_TRUE(host::general_eigen<E>(threads, {a.data(), n, n, n},
                                     {values, {right.data(), n, n, n}, {left.data(), n, n, n}}, {}, &balancing));
}

TEST(GuardedMemoryTest, GeneralEigenvalues) {
  const host::BlasThreads one_thread_a_call;
  for (const int64_t n : {1, 2, 3, 33, 64, 77, 130, 256}) {
    solve_general<double>(n);
    solve_general<std::complex<double>>(n);
  }
}

TEST(GuardedMemoryTest, Batches) {
  const SvdEngine engine({.threads = 2});
  for (const auto decomposition : {Decomposition::kSvd, Decomposition::kHermitian, Decomposition::kGeneral}) {
    for (const DType dtype : kDTypes) {
      for (const int64_t n : {1, 2, 3, 4, 7, 8, 16, 31, 33, 64, 129, 300}) {
        for (const Vectors vectors : {Vectors::kNone, Vectors::kThin, Vectors::kFull}) {
          if (decomposition == Decomposition::kHermitian && vectors == Vectors::kFull) continue;
          if (decomposition == Decomposition::kGeneral && n > kLargestGeneral) continue;
          if (decomposition == Decomposition::kHermitian && n > kLargestHermitian) continue;
          Options options;
          options.decomposition = decomposition;
          options.vectors = vectors;
          const Plan plan = *make_plan({n, n, dtype, Order::kRowMajor}, options).plan;
          const int64_t count = n < 33 ? 37 : 2;
          const std::vector<char> matrices = random_numbers(dtype, matrix_bytes(plan.problem) * count);
          std::vector<std::vector<std::byte>> planes(kPlanes);
          PlanePointers pointers;
          for (int p = 0; p < kPlanes; ++p) {
            planes[p].resize(plane_bytes(plan, static_cast<Plane>(p), count));
            if (!planes[p].empty()) pointers[static_cast<Plane>(p)] = planes[p].data();
          }
          std::vector<MatrixStatus> statuses(count, MatrixStatus{99});
          const HostSegment segment = {reinterpret_cast<const std::byte*>(matrices.data()), count,
                                       planes_from(plan, pointers, 0), statuses.data()};
          EXPECT_TRUE(engine.execute(plan, {&segment, 1}).completed);
          for (const MatrixStatus status : statuses) EXPECT_EQ(status, MatrixStatus::kOk);
        }
      }
    }
  }
}

}  // namespace
}  // namespace svdserve
