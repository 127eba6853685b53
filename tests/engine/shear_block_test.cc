// The inner sweeps of a block pair against the same steps, one pair of lines after the other on the whole matrix, in long
// double. The vector code has the bits of the scalar lane.
#include "engine/algorithms/general/shear_block.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <complex>
#include <cstring>
#include <utility>
#include <vector>

#include "engine/backends/host/shears/shear_pairs.h"
#include "tests/support/numerics/random.h"

namespace svdserve {
namespace {

using Number = std::complex<long double>;
using numerics::Random;
using Lane = scalar::ScalarLane<double>;
constexpr long double kU = 0x1p-53L;

struct Square {
  int n;
  std::vector<Number> x;
  explicit Square(int order) : n(order), x(static_cast<size_t>(order) * order) {}
  Number& operator()(int i, int j) { return x[static_cast<size_t>(j) * n + i]; }
  Number operator()(int i, int j) const { return x[static_cast<size_t>(j) * n + i]; }
};

Square identity(int n) {
  Square a(n);
  for (int i = 0; i < n; ++i) a(i, i) = 1;
  return a;
}

Square random_square(int n, uint64_t seed) {
  Random random(seed);
  Square a(n);
  for (Number& x : a.x) x = Number(random.normal(), random.normal());
  return a;
}

long double norm_of(const Square& a) {
  long double square = 0;
  for (const Number& x : a.x) square += std::norm(x);
  return std::sqrt(square);
}

// --- the reference: lines of A itself ------------------------------------------------------------------------------

struct Transform {
  int p, q;
  Number pp, pq, qp, qq;
};

Number shear_of(const Square& a, int p, int q, long double size) {
  Number c = 0;
  long double g = 0;
  for (int j = 0; j < a.n; ++j) {
    if (j == p || j == q) continue;
    c += a(p, j) * std::conj(a(q, j)) - std::conj(a(j, p)) * a(j, q);
    g += std::norm(a(p, j)) + std::norm(a(q, j)) + std::norm(a(j, p)) + std::norm(a(j, q));
  }
  const Number d = a(q, q) - a(p, p);
  c += std::conj(d) * a(p, q) - d * std::conj(a(q, p));
  if (std::abs(c) == 0) return 0;
  const Number w = c / std::abs(c), xi = std::conj(w) * a(p, q) - w * a(q, p);
  const long double z = std::abs(c) / (2 * (std::norm(d) + std::norm(xi)) + g + 4 * kU * kU * size * size);
  return z > kU ? w * std::min(0.5L, z) : Number(0);
}

// The rotation of B = S^-1 A S in rows and columns p and q.
Number rotation_of(const Square& a, int p, int q, Number z, long double size) {
  const long double r = 1 - std::norm(z);
  const Number zc = std::conj(z), pp = a(p, p), pq = a(p, q), qp = a(q, p), qq = a(q, q);
  const Number b_pp = ((pp + pq * zc) - z * (qp + qq * zc)) / r, b_pq = ((pp * z + pq) - z * (qp * z + qq)) / r;
  const Number b_qp = ((qp + qq * zc) - zc * (pp + pq * zc)) / r, b_qq = ((qp * z + qq) - zc * (pp * z + pq)) / r;
  if (std::abs(b_qp) * r <= kU * size) return 0;
  const Number h = (b_pp - b_qq) / 2.0L, root = std::sqrt(h * h + b_pq * b_qp);
  const Number m = std::abs(h + root) >= std::abs(h - root) ? h + root : h - root;
  const Number t = b_qp / m;
  return std::abs(t) > 1 ? t / std::abs(t) : t;
}

Transform transform_of(const Square& a, int p, int q, bool shears, long double size) {
  const Number z = shears ? shear_of(a, p, q, size) : 0, t = rotation_of(a, p, q, z, size);
  const long double scale = 1 / std::sqrt((1 - std::norm(z)) * (1 + std::norm(t)));
  return {p,
          q,
          (1.0L + z * t) * scale,
          (z - std::conj(t)) * scale,
          (std::conj(z) + t) * scale,
          (1.0L - std::conj(z * t)) * scale};
}

void multiply_columns(Square& a, const Transform& t) {
  for (int i = 0; i < a.n; ++i) {
    const Number p = a(i, t.p), q = a(i, t.q);
    a(i, t.p) = p * t.pp + q * t.qp;
    a(i, t.q) = p * t.pq + q * t.qq;
  }
}
void solve_rows(Square& a, const Transform& t) {
  for (int j = 0; j < a.n; ++j) {
    const Number p = a(t.p, j), q = a(t.q, j);
    a(t.p, j) = t.qq * p - t.pq * q;
    a(t.q, j) = t.pp * q - t.qp * p;
  }
}

// An inner sweep of the lines idx of a; w and inverse: K x K.
void reference_sweep(Square& a, const std::vector<int>& idx, bool shears, long double size, Square& w,
                     Square& inverse) {
  const int k = static_cast<int>(idx.size()), half = shear_half(k);
  std::vector<int> seats(2 * static_cast<size_t>(half));
  for (int i = 0; i < 2 * half; ++i) seats[static_cast<size_t>(i)] = i;
  for (int step = 0; step < 2 * half - 1; ++step) {
    std::vector<std::pair<Transform, Transform>> all;  // of a, and of w
    for (int i = 0; i < half; ++i) {
      const auto [p, q] = std::minmax(seats[static_cast<size_t>(i)], seats[static_cast<size_t>(half + i)]);
      if (q >= k) continue;
      const Transform t = transform_of(a, idx[static_cast<size_t>(p)], idx[static_cast<size_t>(q)], shears, size);
      all.push_back({t, {p, q, t.pp, t.pq, t.qp, t.qq}});
    }
    for (const auto& [whole, own] : all) {
      solve_rows(a, whole);
      multiply_columns(a, whole);
      multiply_columns(w, own);
      solve_rows(inverse, own);
    }
    std::vector<int> next(seats.size());
    for (int s = 0; s < 2 * half; ++s)
      next[static_cast<size_t>(next_shear_seat(half, s))] = seats[static_cast<size_t>(s)];
    seats = next;
  }
}

// --- the block -----------------------------------------------------------------------------------------------------

struct Block {
  std::vector<double> memory;
  ShearBlock<double> block;
  explicit Block(int k) : memory(ShearBlock<double>::memory(shear_half(k))), block(shear_half(k), memory.data()) {}

  void put(ShearMatrix m, int i, int j, Number x) {
    double* const column = block.column(m, 0, j);
    column[block.place(i)] = static_cast<double>(x.real());
    column[block.plane() + block.place(i)] = static_cast<double>(x.imag());
  }
  Number at(ShearMatrix m, int i, int j) const {
    const double* const column = block.column(m, 0, j);
    return {column[block.place(i)], column[block.plane() + block.place(i)]};
  }
};

Block block_of(const Square& a, const std::vector<int>& idx) {
  const int k = static_cast<int>(idx.size());
  Block made(k);
  for (int j = 0; j < 2 * made.block.half; ++j) {
    made.put(ShearMatrix::kW, j, j, 1);
    made.put(ShearMatrix::kInverse, j, j, 1);
  }
  for (int i = 0; i < k; ++i) {
    for (int j = 0; j < k; ++j) {
      const int p = idx[static_cast<size_t>(i)], q = idx[static_cast<size_t>(j)];
      Number rows = 0, columns = 0;
      for (int l = 0; l < a.n; ++l) {
        if (std::find(idx.begin(), idx.end(), l) != idx.end()) continue;
        rows += a(p, l) * std::conj(a(q, l));
        columns += std::conj(a(l, p)) * a(l, q);
      }
      made.put(ShearMatrix::kP, i, j, a(p, q));
      made.put(ShearMatrix::kR, i, j, rows);
      made.put(ShearMatrix::kC, i, j, columns);
    }
  }
  return made;
}

long double distance(const Block& block, ShearMatrix m, const Square& expected) {
  long double worst = 0;
  for (int j = 0; j < expected.n; ++j) {
    for (int i = 0; i < expected.n; ++i) worst = std::max(worst, std::abs(block.at(m, i, j) - expected(i, j)));
  }
  return worst;
}

// |W' W - I| <= 10 K u |W| |W'|
void expect_inverses(const Block& block, int k) {
  long double error = 0, of_w = 0, of_inverse = 0;
  for (int j = 0; j < k; ++j) {
    for (int i = 0; i < k; ++i) {
      Number sum = i == j ? -1 : 0;
      for (int l = 0; l < k; ++l) sum += block.at(ShearMatrix::kInverse, i, l) * block.at(ShearMatrix::kW, l, j);
      error += std::norm(sum);
      of_w += std::norm(block.at(ShearMatrix::kW, i, j));
      of_inverse += std::norm(block.at(ShearMatrix::kInverse, i, j));
    }
  }
  EXPECT_LE(std::sqrt(error), 10 * k * kU * std::sqrt(of_w * of_inverse));
  EXPECT_LE(std::sqrt(std::max(of_w, of_inverse) / k), 10);
}

std::vector<int> lines_of(int n, int k) {
  std::vector<int> idx;
  for (int i = 0; i < k; ++i) idx.push_back(i < k / 2 ? i + 1 : n - k + i);
  return idx;
}

TEST(ShearBlockTest, AnInnerSweepIsThatOfTheWholeMatrix) {
  for (const bool shears : {true, false}) {
    for (const auto& [n, k] : {std::pair(2, 2), std::pair(3, 3), std::pair(7, 5), std::pair(16, 16), std::pair(40, 16),
                               std::pair(40, 21), std::pair(50, 32)}) {
      SCOPED_TRACE("n " + std::to_string(n) + ", k " + std::to_string(k) + (shears ? ", shears" : ""));
      Square a = random_square(n, 5);
      // Parameters are as well determined as the 2 x 2 matrices are: distinct diagonals make them so.
      for (int i = 0; i < n; ++i) a(i, i) += 3.0L * i;
      for (Number& x : a.x) x = std::complex<double>(x);
      const long double size = norm_of(a);
      const std::vector<int> idx = n == k ? [n = n] {
        std::vector<int> all;
        for (int i = 0; i < n; ++i) all.push_back(i);
        return all;
      }() : lines_of(n, k);
      Block block = block_of(a, idx);
      scalar::ShearBlockSteps<Lane> steps(block.block);
      const auto least = static_cast<double>(kU * kU * size * size);
      const ShearBlockCounts counts = shears ? steps.sweep<true>(least) : steps.sweep<false>(least);
      EXPECT_GT(counts.transforms, 0);
      EXPECT_LE(counts.proper, counts.transforms);
      Square w = identity(k), inverse = identity(k);
      reference_sweep(a, idx, shears, size, w, inverse);
      EXPECT_LE(distance(block, ShearMatrix::kW, w), 1e-11L);
      EXPECT_LE(distance(block, ShearMatrix::kInverse, inverse), 1e-11L);
      expect_inverses(block, k);
      Square p(k);
      for (int i = 0; i < k; ++i) {
        for (int j = 0; j < k; ++j) p(i, j) = a(idx[static_cast<size_t>(i)], idx[static_cast<size_t>(j)]);
      }
      EXPECT_LE(distance(block, ShearMatrix::kP, p), 1e-11L * size);
    }
  }
}

TEST(ShearBlockTest, VectorCodeHasTheBitsOfTheScalarLane) {
  for (const int k : {2, 9, 16, 31, 48}) {
    const Square a = random_square(k + 10, 6);
    const std::vector<int> idx = lines_of(a.n, k);
    const long double size = norm_of(a);
    const auto least = static_cast<double>(kU * kU * size * size);
    for (const bool shears : {true, false}) {
      Block scalar = block_of(a, idx), vector = block_of(a, idx);
      scalar::ShearBlockSteps<Lane> steps(scalar.block);
      const ShearBlockCounts one = shears ? steps.sweep<true>(least) : steps.sweep<false>(least);
      const ShearBlockCounts other = host::shear_sweep(
          vector.block, least, shears ? host::ShearKind::kShearsAndRotations : host::ShearKind::kRotations);
      EXPECT_EQ(one.transforms, other.transforms);
      EXPECT_EQ(one.proper, other.proper);
      for (const ShearMatrix m : {ShearMatrix::kP, ShearMatrix::kW, ShearMatrix::kInverse}) {
        for (int j = 0; j < k; ++j) {
          for (int i = 0; i < k; ++i) ASSERT_EQ(scalar.at(m, i, j), vector.at(m, i, j)) << i << " " << j;
        }
      }
    }
  }
}

TEST(ShearBlockTest, ATriangleWithDistinctValuesNeedsRotationsOfNoLine) {
  Square a(16);
  for (int j = 0; j < 16; ++j) {
    for (int i = 0; i <= j; ++i) a(i, j) = Number(i + 1.0L, j);
  }
  Block block = block_of(a, [] {
    std::vector<int> all;
    for (int i = 0; i < 16; ++i) all.push_back(i);
    return all;
  }());
  const auto least = static_cast<double>(kU * kU * norm_of(a) * norm_of(a));
  EXPECT_EQ(host::shear_sweep(block.block, least, host::ShearKind::kRotations).transforms, 0);
}

}  // namespace
}  // namespace svdserve
