// The orthogonalization of a block pair from its Gram matrix: H = X^H X, of K = 64 or 128 columns X, and W such that
// the columns of X W are closer to orthogonal. H is overwritten with W^H H W; X is not needed.
//
// Method: sweeps of the two-sided Jacobi method with the relative criterion, |h_pq| > tol sqrt(h_pp h_qq), which is the
// one-sided method on X without X. A sweep visits every pair once, in supersteps of up to seven p-steps, as follows.
// Number the columns by the vectors of GF(2)^d, K = 2^d. Pairs i, i xor v of one v are a p-step. The seven v != 0 of a
// subspace S of dimension three are a superstep: its p-steps stay within the K / 8 cosets of S, which are groups of
// eight columns. So each group is swept for itself, 28 pairs on its own 8 x 8 matrix with a few threads and no wait for
// the others. Its product of rotations, Q of order 8, is then applied to the rest of H and to W as small matrix
// products. Subspaces that meet in zero alone and cover all v make a sweep (jacobi_superstep() below). A group without
// a cosine above the tolerance is left after one look, and nothing of it is applied: late sweeps are cheap.
//
// Columns carry exponents: the true column is 2^f_j x_j, with |x_j| near one. So no entry of H over- or underflows
// however far apart the columns are. W is for the scaled columns: X_new 2^f_new = X 2^f W_true, with W_true(i, j) =
// W(i, j) 2^(f_new_j - f_i). Rotations are those of algorithms/jacobi/signed_rotation.h, applied from both sides.
//
// Sources: Novakovic, SIAM J. Sci. Comput. 37 (2015) C1-C30, sections 2 and 4.3, eqs. (13)-(18): rotations, criterion,
// sorting, block-oriented (one sweep) and full-block (to the end) variants. Veselic, Numer. Math. 64 (1993) 241-269:
// the hyperbolic rotation. Subspaces: the lifted code {(u, a u)}, Gabidulin, Probl. Inf. Transm. 21 (1985) 1-12. Cost:
// 63 or 127 p-steps, 4 K^3 flops of small products in all. Accuracy: W is orthogonal (J-orthogonal) to O(K u) whatever
// H holds. H loses relative accuracy of its small entries where X is ill-conditioned even with unit columns (about 1e7
// and more). That costs sweeps and no more: the next one starts from the Gram matrix of the true columns.
//
// A block is a team of teams (core/team.h).
#ifndef SVDSERVE_ENGINE_ALGORITHMS_BLOCKS_GRAM_JACOBI_H_
#define SVDSERVE_ENGINE_ALGORITHMS_BLOCKS_GRAM_JACOBI_H_

#include <cstdint>

#include "engine/algorithms/jacobi/signed_rotation.h"
#include "engine/core/complex.h"
#include "engine/core/team.h"

namespace svdserve {

// --- which pairs, when --------------------------------------------------------------------------------------------

inline constexpr int kJacobiGroup = 8;  // columns of a group

// A subspace of GF(2)^d by a reduced basis (the highest bit of each vector is in no other), and its p-steps. Bit v of
// `steps` stands for the combination of the basis vectors whose bits v has.
struct JacobiSuperstep {
  int basis[3];
  uint32_t steps;

  // Column number i of group g, 0 <= i < 8, 0 <= g < K / 8. Ascending in i.
  SVD_HD constexpr int column(int g, int i) const {
    int base = g;
    for (int b = 0; b < 3; ++b) {  // a zero where each basis vector has its highest bit, lowest first
      const int pivot = highest_bit(basis[b]);
      base = (base >> pivot << (pivot + 1)) | (base & ((1 << pivot) - 1));
    }
    return base ^ ((i & 1) != 0 ? basis[0] : 0) ^ ((i & 2) != 0 ? basis[1] : 0) ^ ((i & 4) != 0 ? basis[2] : 0);
  }
  static SVD_HD constexpr int highest_bit(int x) { return 31 - __builtin_clz(static_cast<unsigned>(x)); }
};

constexpr SVD_HD int jacobi_supersteps(int k) { return k == 64 ? 9 : 21; }

// Superstep s of a sweep over k = 64 or 128 columns. The far pairs first: v = (u, a u), u != 0 of three bits above a u
// of three (GF(8)) or four (GF(16)), for every a of the field. Then the rest, v = (0, y). For k = 64 it is a subspace,
// for k = 128 the five subspaces of dimension two that are lines over GF(4), two cosets of which make a group.
constexpr SVD_HD JacobiSuperstep jacobi_superstep(int k, int s) {
  const int low = k == 64 ? 3 : 4;                 // bits of y
  const int modulus = k == 64 ? 0b1011 : 0b10011;  // x^3 + x + 1, x^4 + x + 1
  const auto times_x = [&](int a) { return (a << 1 >> low) != 0 ? (a << 1) ^ modulus : a << 1; };
  if (s < 1 << low) {
    const int a0 = s, a1 = times_x(a0), a2 = times_x(a1);
    return {{1 << low | a0, 2 << low | a1, 4 << low | a2}, 0b11111110};
  }
  if (k == 64) return {{1, 2, 4}, 0b11111110};
  // c and c w for w = x^2 + x, a cube root of one; then any vector outside.
  int c = 1;
  for (int i = s - (1 << low); i > 0; --i) c = times_x(c);
  int d = times_x(times_x(c)) ^ times_x(c);
  if (c > d) {
    const int t = c;
    c = d;
    d = t;
  }
  if (JacobiSuperstep::highest_bit(c) == JacobiSuperstep::highest_bit(d)) {
    d ^= c;
    if (c > d) {
      const int t = c;
      c = d;
      d = t;
    }
  }
  if ((d >> JacobiSuperstep::highest_bit(c) & 1) != 0) d ^= c;
  return {{c, d, 1 << low}, 0b00001110};
}

// --- a group ------------------------------------------------------------------------------------------------------

// H by its lower triangle, row by row.
template <class E>
struct PackedGram {
  E* data;

  static SVD_HD constexpr int size(int k) { return k * (k + 1) / 2; }
  SVD_HD E get(int i, int j) const { return i >= j ? data[at(i, j)] : conjugate(data[at(j, i)]); }
  SVD_HD void set(int i, int j, E x) const {
    if (i >= j) {
      data[at(i, j)] = x;
    } else {
      data[at(j, i)] = conjugate(x);
    }
  }
  static SVD_HD constexpr int at(int i, int j) { return i * (i + 1) / 2 + j; }
};

// The state of one group, column-major: its part of H, Q - I for what was done to its columns, a p-step's rotations.
template <class E>
struct GramGroup {
  static constexpr int n = kJacobiGroup;
  E h[n * n], q[n * n];
  E rotation[n / 2][4];       // pp, pq, qp, qq of J - I
  double diagonal[n / 2][2];  // alpha, beta
  int exponent[n];
  int rotated[n / 2], proper[n / 2], lost[n / 2];  // since gram_jacobi() began
  int turned;                                      // in this superstep
};

// A superstep as it is worked with: its columns from a table, group by group.
struct GramSuperstep {
  const uint8_t* columns;
  uint32_t steps;

  SVD_HD int column(int g, int i) const { return columns[kJacobiGroup * g + i]; }
};
// How many columns the largest cosine is looked for by, for each column.
inline constexpr int kCosineParts = 4;

// The operands, parameters and scratch memory of a block, for k columns.
template <class E>
struct GramWork {
  int k;                 // 64 or 128
  PackedGram<E> h;       // [in,out]
  E* w;                  // [out] k x k
  int w_ld;              // >= k
  int* exponents;        // [in,out] k: f_j
  const int8_t* signs;   // [in] k, each +1 or -1; or null: all +1
  GramGroup<E>* groups;  // [scratch] k / 8
  double* cosines;       // [scratch] kCosineParts k
  uint8_t* columns;      // [scratch] jacobi_supersteps(k) k: the supersteps' columns
  double tolerance2;     // the square of the tolerance
  int sweeps;            // at most
  bool sorts = true;     // without signs: the longer column of a pair comes first
};
struct GramOutcome {
  double cosine2 = 0;   // the square of the largest cosine of two columns before the first rotation
  bool active = false;  // something was rotated; else W was not written
  int rotations = 0, proper_rotations = 0;
  bool lost = false;  // a column came out as zero, or rounding errors of itself
};

// Pair number m of p-step v within a group: p < q = p xor v.
SVD_HD constexpr int group_pivot(int v, int m) {
  const int top = v >= 4 ? 2 : v >= 2 ? 1 : 0;
  return (m >> top << (top + 1)) | (m & ((1 << top) - 1));
}

template <class E>
SVD_HD PairSigns signs_of(const GramWork<E>& work, int p, int q) {
  if (work.signs == nullptr) return work.sorts ? PairSigns::kBothPositive : PairSigns::kUnsorted;
  return pair_signs(work.signs[p] > 0, work.signs[q] > 0);
}

// z + (x a + y b)
template <class E>
SVD_HD E added(E z, E x, E a, E y, E b) {
  const E sum = plus_product(plus_product(from_real<E>(0), x, a), y, b);
  return plus_product(z, sum, from_real<E>(1));
}

// Whether f(i) is true for some i < n; all are run, in any order. (A team of threads has its own.)
template <class Team, class F>
SVD_HD bool any_of(const Team& team, int n, F f) {
  bool any = false;
  team.for_each(0, n, [&](int i) { any |= f(i); });
  return any;
}

// Sweeps group g, the p-steps of `step`.
template <class Team, class E>
SVD_HD void sweep_group(const Team& team, const GramSuperstep& step, int g, const GramWork<E>& work) {
  constexpr int n = kJacobiGroup;
  GramGroup<E>& s = work.groups[g];
  team.for_each(0, n * n, [&](int e) {
    const int i = e % n, j = e / n;
    s.h[e] = work.h.get(step.column(g, i), step.column(g, j));
    s.q[e] = from_real<E>(0);
    if (j == 0) s.exponent[i] = work.exponents[step.column(g, i)];
  });
  bool turned = any_of(team, n * n, [&](int e) {
    const int i = e % n, j = e / n;
    return (step.steps >> (i ^ j) & 1) != 0 && needs_rotation(real_part(s.h[i * n + i]), real_part(s.h[j * n + j]),
                                                              squared_modulus(s.h[e]), work.tolerance2);
  });
  team.for_each(0, 1, [&](int) { s.turned = turned ? 1 : 0; });
  if (!turned) return;
  for (int v = 1; v < n; ++v) {
    if ((step.steps >> v & 1) == 0) continue;
    // The rotation of each pair.
    turned = any_of(team, n / 2, [&](int m) {
      const int p = group_pivot(v, m), q = p ^ v;
      const GramRotation<E> r =
          gram_rotation(real_part(s.h[p * n + p]), real_part(s.h[q * n + q]), s.h[q * n + p], s.exponent[p],
                        s.exponent[q], signs_of(work, step.column(g, p), step.column(g, q)), work.tolerance2);
      s.rotation[m][0] = r.pp;
      s.rotation[m][1] = r.pq;
      s.rotation[m][2] = r.qp;
      s.rotation[m][3] = r.qq;
      s.diagonal[m][0] = r.alpha;
      s.diagonal[m][1] = r.beta;
      if (r.swapped) exchange(s.exponent[p], s.exponent[q]);
      s.rotated[m] += r.rotated ? 1 : 0;
      s.proper[m] += r.proper ? 1 : 0;
      s.lost[m] |= r.lost ? 1 : 0;
      return r.rotated;
    });
    if (!turned) continue;
    // Q := Q + Q (J - I), a row of a pair each; H := J^H H J in the same way, 2 x 2 blocks, row pair a and column pair
    // b.
    team.for_each(0, n * n / 2, [&](int e) {
      const int a = e / 4 % 4, b = e % 4, row = e / 4;
      const int p = group_pivot(v, b), q = p ^ v;
      const E pp = s.rotation[b][0], pq = s.rotation[b][1], qp = s.rotation[b][2], qq = s.rotation[b][3];
      const E x = s.q[p * n + row], y = s.q[q * n + row];
      const E x1 = row == p ? plus_product(x, from_real<E>(1), from_real<E>(1)) : x;
      const E y1 = row == q ? plus_product(y, from_real<E>(1), from_real<E>(1)) : y;
      if (e < n * n / 4) {
        const int i = group_pivot(v, a), j = i ^ v;
        const E ip = s.h[p * n + i], iq = s.h[q * n + i], jp = s.h[p * n + j], jq = s.h[q * n + j];
        const E ii = conjugate(s.rotation[a][0]), ij = conjugate(s.rotation[a][1]);
        const E ji = conjugate(s.rotation[a][2]), jj = conjugate(s.rotation[a][3]);
        const E up = added(ip, ii, ip, ji, jp);
        const E uq = added(iq, ii, iq, ji, jq);
        const E lp = added(jp, ij, ip, jj, jp);
        const E lq = added(jq, ij, iq, jj, jq);
        const bool own = a == b;
        s.h[p * n + i] = own ? from_real<E>(s.diagonal[a][0]) : added(up, up, pp, uq, qp);
        s.h[q * n + j] = own ? from_real<E>(s.diagonal[a][1]) : added(lq, lp, pq, lq, qq);
        s.h[q * n + i] = added(uq, up, pq, uq, qq);
        s.h[p * n + j] = added(lp, lp, pp, lq, qp);
      }
      s.q[p * n + row] = added(x, x1, pp, y1, qp);
      s.q[q * n + row] = added(y, x1, pq, y1, qq);
    });
  }
  team.for_each(0, n * n, [&](int e) {
    const int i = e % n, j = e / n;
    if (i >= j) work.h.set(step.column(g, i), step.column(g, j), s.h[e]);
    if (j == 0) work.exponents[step.column(g, i)] = s.exponent[i];
  });
}

// --- the rest of the matrix ---------------------------------------------------------------------------------------

// H_ab := Q_a^H H_ab Q_b: the rows of group a, the columns of group b. (A team with matrix units has its own.)
template <class Team, class E>
SVD_HD void transform_gram_tile(const Team& team, const GramSuperstep& step, int a, int b, const GramWork<E>& work) {
  constexpr int n = kJacobiGroup;
  const E* const qa = work.groups[a].q;
  const E* const qb = work.groups[b].q;
  team.once([&] {
    E t[n * n];
    for (int j = 0; j < n; ++j) {
      for (int i = 0; i < n; ++i) {
        E sum = from_real<E>(0);
        for (int r = 0; r < n; ++r) {
          sum = plus_product(sum, conjugate(qa[i * n + r]), work.h.get(step.column(a, r), step.column(b, j)));
        }
        t[j * n + i] = plus_product(work.h.get(step.column(a, i), step.column(b, j)), sum, from_real<E>(1));
      }
    }
    for (int j = 0; j < n; ++j) {
      for (int i = 0; i < n; ++i) {
        E sum = from_real<E>(0);
        for (int r = 0; r < n; ++r) sum = plus_product(sum, t[r * n + i], qb[j * n + r]);
        work.h.set(step.column(a, i), step.column(b, j), plus_product(t[j * n + i], sum, from_real<E>(1)));
      }
    }
  });
}

// W := W + W (Q_b - I), W kept as W - I: rows 8 tile .. 8 tile + 7, the columns of group b.
template <class Team, class E>
SVD_HD void transform_rotations(const Team& team, const GramSuperstep& step, int tile, int b, const GramWork<E>& work) {
  constexpr int n = kJacobiGroup;
  const E* const q = work.groups[b].q;
  team.for_each(0, n, [&](int i) {
    E row[n], row1[n];
    for (int r = 0; r < n; ++r) {
      const int column = step.column(b, r);
      row[r] = work.w[column * work.w_ld + n * tile + i];
      row1[r] = plus_product(row[r], from_real<E>(column == n * tile + i ? 1 : 0), from_real<E>(1));
    }
    for (int j = 0; j < n; ++j) {
      E sum = from_real<E>(0);
      for (int r = 0; r < n; ++r) sum = plus_product(sum, row1[r], q[j * n + r]);
      work.w[step.column(b, j) * work.w_ld + n * tile + i] = plus_product(row[j], sum, from_real<E>(1));
    }
  });
}

// Applies what superstep `step` did to its groups to everything else.
template <class Block, class E>
SVD_HD void transform_rest(const Block& block, const GramSuperstep& step, const GramWork<E>& work) {
  const int groups = work.k / kJacobiGroup, tiles = groups * (groups - 1) / 2;
  const int bits = JacobiSuperstep::highest_bit(groups);
  block.for_each_team(tiles + groups * groups, [&](const auto& team, int t) {
    if (t >= tiles) {
      const int b = (t - tiles) >> bits;
      if (work.groups[b].turned != 0) transform_rotations(team, step, (t - tiles) & (groups - 1), b, work);
      return;
    }
    // Rows a and groups - a of the triangle of groups have `groups` tiles together.
    int a = (t >> bits) + 1, b = t & (groups - 1);
    if (b >= a) {
      b -= a;
      a = groups - a;
    }
    if ((work.groups[a].turned | work.groups[b].turned) != 0) transform_gram_tile(team, step, a, b, work);
  });
}

// --- the whole ----------------------------------------------------------------------------------------------------

// The larger, and not a number where one is not.
SVD_HD double larger_or_nan(double a, double b) { return a <= b || std::isnan(b) ? b : a; }

// The square of the largest cosine between two columns; those of a zero column are zero. Not finite where a column is
// not.
template <class Block, class E>
SVD_HD double largest_cosine2(const Block& block, const GramWork<E>& work) {
  const int k = work.k, bits = JacobiSuperstep::highest_bit(k);
  block.for_each(0, kCosineParts * k, [&](int e) {
    const int i = e & (k - 1);
    const double alpha = real_part(work.h.get(i, i));
    double largest = 0, of = 1;  // a quotient
    for (int j = e >> bits; j < i; j += kCosineParts) {
      const double product = alpha * real_part(work.h.get(j, j));
      const double gamma2 = squared_modulus(work.h.get(i, j));
      if (gamma2 * of > largest * product && product > 0) {
        largest = gamma2;
        of = product;
      }
    }
    work.cosines[e] = std::isfinite(alpha) ? largest / of : alpha * alpha;
  });
  constexpr int kFirst = 16;  // the first of them take the maximum in two steps
  block.for_each(0, kFirst, [&](int e) {
    double largest = work.cosines[e];
    for (int i = e + kFirst; i < kCosineParts * k; i += kFirst) largest = larger_or_nan(largest, work.cosines[i]);
    work.cosines[e] = largest;
  });
  double largest = 0;
  for (int i = 0; i < kFirst; ++i) largest = larger_or_nan(largest, work.cosines[i]);
  return largest;
}

// Norms back in [1/2, 2), by exact powers of two. Returns whether some column has become rounding errors of itself.
template <class Block, class E>
SVD_HD bool renormalize(const Block& block, const GramWork<E>& work) {
  block.for_each(0, work.k, [&](int j) {
    const double alpha = real_part(work.h.get(j, j));
    work.cosines[j] = alpha > 0 && alpha <= kLostNorm2 ? 1 : 0;
    if (!(alpha > 0) || (alpha >= 0.25 && alpha < 4)) return;
    const int e = (static_cast<int>(__builtin_bit_cast(uint64_t, alpha) >> 52) - 1023) / 2;
    const double scale = power_of_two(-e);
    E* const column = work.w + j * work.w_ld;
    for (int i = 0; i < work.k; ++i) column[i] = times_real(column[i], scale);
    column[j] = plus_product(column[j], from_real<E>(scale - 1), from_real<E>(1));
    work.exponents[j] += e;
  });
  bool lost = false;
  for (int j = 0; j < work.k; ++j) lost |= work.cosines[j] != 0;
  return lost;
}

// Every member of the block gets the outcome.
template <class Block, class E>
SVD_HD GramOutcome gram_jacobi(const Block& block, const GramWork<E>& work) {
  const int k = work.k, groups = k / kJacobiGroup, bits = JacobiSuperstep::highest_bit(k);
  GramOutcome outcome;
  outcome.cosine2 = largest_cosine2(block, work);
  outcome.active = outcome.cosine2 > work.tolerance2 && std::isfinite(outcome.cosine2);
  if (!outcome.active) return outcome;
  block.for_each(0, k * k, [&](int e) { work.w[(e >> bits) * work.w_ld + (e & (k - 1))] = from_real<E>(0); });
  block.for_each(0, jacobi_supersteps(k) * k, [&](int e) {
    const int i = e & (k - 1);
    work.columns[e] = static_cast<uint8_t>(jacobi_superstep(k, e >> bits).column(i / kJacobiGroup, i % kJacobiGroup));
  });
  block.for_each(0, groups * (kJacobiGroup / 2), [&](int e) {
    work.groups[e / 4].rotated[e % 4] = 0;
    work.groups[e / 4].proper[e % 4] = 0;
    work.groups[e / 4].lost[e % 4] = 0;
  });
  for (int sweep = 0; sweep < work.sweeps; ++sweep) {
    for (int s = 0; s < jacobi_supersteps(k); ++s) {
      const GramSuperstep step{work.columns + s * k, jacobi_superstep(k, s).steps};
      block.for_each_team(groups, [&](const auto& team, int g) { sweep_group(team, step, g, work); });
      transform_rest(block, step, work);
    }
    const int before = outcome.rotations;
    outcome.rotations = outcome.proper_rotations = 0;
    for (int g = 0; g < groups; ++g) {
      for (int m = 0; m < kJacobiGroup / 2; ++m) {
        outcome.rotations += work.groups[g].rotated[m];
        outcome.proper_rotations += work.groups[g].proper[m];
        outcome.lost |= work.groups[g].lost[m] != 0;
      }
    }
    block.sync();  // all have counted before the next sweep counts on
    if (outcome.rotations == before) break;
  }
  if (renormalize(block, work)) outcome.lost = true;
  outcome.active = outcome.rotations > 0;
  return outcome;
}

}  // namespace svdserve
#endif  // SVDSERVE_ENGINE_ALGORITHMS_BLOCKS_GRAM_JACOBI_H_
