// The orthogonalization of a block pair from its Gram matrix: H = X^H X, of K = 64 or 128 columns X, and W such that
// the columns of X W are closer to orthogonal. H is overwritten with W^H H W; X is not needed.
//
// Method: sweeps of the two-sided Jacobi method with the relative criterion, |h_pq| > tol sqrt(h_pp h_qq), which is the
// one-sided method on X without X. A sweep visits every pair once, in supersteps of up to seven p-steps, as follows.
// Number the columns by the vectors of GF(2)^d, K = 2^d. Pairs i, i xor v of one v are a p-step. The seven v != 0 of a
// subspace S of dimension three are a superstep: its p-steps stay within the K / 8 cosets of S, which are groups of
// eight columns. So each group is swept for itself, 28 pairs on its own 8 x 8 matrix, by a few threads that wait for no
// barrier of the block. Its product of rotations, Q of order 8, is then applied to the rest of H and to W as small matrix
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
  SVD_HD E get(int i, int j) const {
    const E x = data[i >= j ? at(i, j) : at(j, i)];
    return i >= j ? x : conjugate(x);
  }
  SVD_HD void set(int i, int j, E x) const { data[i >= j ? at(i, j) : at(j, i)] = i >= j ? x : conjugate(x); }
  static SVD_HD constexpr int at(int i, int j) { return i * (i + 1) / 2 + j; }
};

// W - I by columns, k x k.
template <class E>
struct GramRotations {
  E* data;
  int k;
  // ld = k: columns lie in their order. ld = k + 4: each lies at spread(j), for shared memory, which has banks. Threads
  // read columns 0, 2, 4 and 6 of a group together. In most supersteps these differ in high bits of j, of which spread()
  // makes the two lowest, and so in their banks.
  int ld;

  SVD_HD E* column(int j) const { return data + (ld == k ? j : spread(j)) * ld; }

 private:
  SVD_HD int spread(int j) const {
    return k == 64 ? (j << 2 & 63) | j >> 4 : (j << 2 & 127) | ((j >> 5) ^ (j >> 4 & 1));
  }
};

// A group's part of a superstep: Q - I for what was done to its columns, column-major. Two of them, in
// turns: one superstep's are still applied to W when the next one's are found.
template <class E>
struct GramGroup {
  static constexpr int n = kJacobiGroup;
  E q[2][n * n];
  RotatedColumn<E> rotation[n];  // of a p-step, the columns of J - I
  double norm2[n];               // of the columns after it
  int exponent[n];
  int turned[2];                                   // 0: Q is I
  int rotated[n / 2], proper[n / 2], lost[n / 2];  // since gram_jacobi() began
};

// A superstep as it is worked with: its columns from a table, group by group.
struct GramSuperstep {
  const uint8_t* columns;
  uint32_t steps;
  int turn;  // 0 or 1: which of the groups' Q are its own

  SVD_HD int column(int g, int i) const { return columns[kJacobiGroup * g + i]; }
};
// How many columns the largest cosine is looked for by, for each column.
inline constexpr int kCosineParts = 4;

// The operands, parameters and scratch memory of a block, for k columns.
template <class E>
struct GramWork {
  int k;                 // 64 or 128
  PackedGram<E> h;       // [in,out]
  GramRotations<E> w;    // [out] k x k
  int* exponents;        // [in,out] k: f_j
  const int8_t* signs;   // [in] k, each +1 or -1; or null: all +1
  GramGroup<E>* groups;  // [scratch] k / 8
  double* cosines;       // [scratch] kCosineParts k
  uint8_t* columns;      // [scratch] jacobi_supersteps(k) k: the supersteps' columns
  double tolerance2;     // the square of the tolerance
  int sweeps;            // at most
  bool sorts = true;     // without signs: the longer column of a pair comes first
  // With both, not null: the exponents as they came in, k, and [out] k: W_true(j, j) - 1. See renormalize().
  const int* exponents_before = nullptr;
  E* diagonal = nullptr;
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

// z + (z a + y b), which rounds z once. It keeps the digits of what is small beside z.
template <class E>
SVD_HD E rotated(E z, E y, RotatedColumn<E> by) {
  const E sum = plus_product(plus_product(from_real<E>(0), z, by.own), y, by.other);
  return plus_product(z, sum, from_real<E>(1));
}
// (z + z a) + y b, which is sooner known: rotations wait for H, of which the next p-step of blocks begins anew.
template <class E>
SVD_HD E soon_rotated(E z, E y, RotatedColumn<E> by) {
  return plus_product(plus_product(z, z, by.own), y, by.other);
}
// The entry z of Q - I, with y, that of the pair's other column. of_identity: what the identity adds to the product.
template <class E>
SVD_HD E rotated_less_identity(E z, E y, RotatedColumn<E> by, E of_identity) {
  const E sum = plus_product(plus_product(of_identity, z, by.own), y, by.other);
  return plus_product(z, sum, from_real<E>(1));
}
// It, in row i and column c.
template <class E>
SVD_HD E of_identity(RotatedColumn<E> by, int i, int c, int other) {
  return i == c ? by.own : i == other ? by.other : from_real<E>(0);
}

// The rotations of p-step v: H := J^H H J, Q := Q + Q (J - I).
template <class E>
SVD_HD void apply_rotations(const GramGroup<E>& s, int v, E* h, E* q) {
  constexpr int n = kJacobiGroup;
  const auto conjugated = [&](int i) {
    return RotatedColumn<E>{conjugate(s.rotation[i].own), conjugate(s.rotation[i].other)};
  };
  for (int j = 0; j < n; ++j) {
    for (int i = 0; i < n; ++i) {
      if (i > (i ^ v)) continue;
      const E x = h[j * n + i], y = h[j * n + (i ^ v)];
      h[j * n + i] = soon_rotated(x, y, conjugated(i));
      h[j * n + (i ^ v)] = soon_rotated(y, x, conjugated(i ^ v));
    }
  }
  for (int j = 0; j < n; ++j) {
    const int other = j ^ v;
    if (j > other) continue;
    for (int i = 0; i < n; ++i) {
      const E x = h[j * n + i], y = h[other * n + i], x_of_q = q[j * n + i], y_of_q = q[other * n + i];
      h[j * n + i] = i == j ? from_real<E>(s.norm2[j]) : soon_rotated(x, y, s.rotation[j]);
      h[other * n + i] = i == other ? from_real<E>(s.norm2[other]) : soon_rotated(y, x, s.rotation[other]);
      const RotatedColumn<E> by = s.rotation[j], other_by = s.rotation[other];
      q[j * n + i] = rotated_less_identity(x_of_q, y_of_q, by, of_identity(by, i, j, other));
      q[other * n + i] = rotated_less_identity(y_of_q, x_of_q, other_by, of_identity(other_by, i, other, j));
    }
  }
}

// The rotations of p-step v of group g, each of pair number m. Returns whether there is one.
template <class E>
SVD_HD bool find_rotations(const GramSuperstep& step, int g, int v, const E* h, const GramWork<E>& work) {
  constexpr int n = kJacobiGroup;
  GramGroup<E>& s = work.groups[g];
  bool any = false;
  for (int m = 0; m < n / 2; ++m) {
    const int p = group_pivot(v, m), q = p ^ v;
    const double alpha = real_part(h[p * n + p]), beta = real_part(h[q * n + q]);
    const E gamma = h[q * n + p];
    const bool needed = needs_rotation(alpha, beta, squared_modulus(gamma), work.tolerance2);
    const PairSigns signs = signs_of(work, step.column(g, p), step.column(g, q));
    const GramRotation<E> r = gram_rotation(alpha, beta, gamma, s.exponent[p], s.exponent[q], signs, needed);
    const GramColumn<E> first = column_after(r, alpha, beta, r.swapped);
    const GramColumn<E> second = column_after(r, alpha, beta, !r.swapped);
    s.rotation[p] = first.by;
    s.rotation[q] = second.by;
    s.norm2[p] = first.norm2;
    s.norm2[q] = second.norm2;
    if (r.swapped) exchange(s.exponent[p], s.exponent[q]);
    if (!needed) continue;
    ++s.rotated[m];
    s.proper[m] += r.proper ? 1 : 0;
    s.lost[m] |= first.lost || second.lost ? 1 : 0;
    any = true;
  }
  return any;
}

// Sweeps group g, the p-steps of `step`.
template <class E>
SVD_HD void sweep_group_alone(const GramSuperstep& step, int g, const GramWork<E>& work) {
  constexpr int n = kJacobiGroup;
  GramGroup<E>& s = work.groups[g];
  E h[n * n];
  E* const q = s.q[step.turn];
  for (int j = 0; j < n; ++j) {
    for (int i = 0; i < n; ++i) {
      h[j * n + i] = work.h.get(step.column(g, i), step.column(g, j));
      q[j * n + i] = from_real<E>(0);
    }
    s.exponent[j] = work.exponents[step.column(g, j)];
  }
  bool turned = false;
  for (int j = 0; j < n; ++j) {
    for (int i = 0; i < n; ++i) {
      turned |= (step.steps >> (i ^ j) & 1) != 0 && needs_rotation(real_part(h[i * n + i]), real_part(h[j * n + j]),
                                                                   squared_modulus(h[j * n + i]), work.tolerance2);
    }
  }
  s.turned[step.turn] = turned ? 1 : 0;
  if (!turned) return;
  for (int v = 1; v < n; ++v) {
    if ((step.steps >> v & 1) != 0 && find_rotations(step, g, v, h, work)) apply_rotations(s, v, h, q);
  }
  for (int j = 0; j < n; ++j) {
    for (int i = j; i < n; ++i) work.h.set(step.column(g, i), step.column(g, j), h[j * n + i]);
    work.exponents[step.column(g, j)] = s.exponent[j];
  }
}
// Groups g and g + 1. (A team that is a warp has its own: gram_groups_in_registers.h.)
template <class Team, class E>
SVD_HD void sweep_groups(const Team& team, const GramSuperstep& step, int g, const GramWork<E>& work) {
  team.once([&] {
    sweep_group_alone(step, g, work);
    sweep_group_alone(step, g + 1, work);
  });
}

// --- the rest of the matrix ---------------------------------------------------------------------------------------

// The part of H with the rows of group a and the columns of group b < a.
struct GramTile {
  int a, b;

  // Number t of the `groups` (groups - 1) / 2, groups = 2^bits: rows a and groups - a have `groups` tiles together.
  static SVD_HD GramTile at(int t, int bits) {
    const int a = (t >> bits) + 1, b = t & ((1 << bits) - 1);
    return b < a ? GramTile{a, b} : GramTile{(1 << bits) - a, b - a};
  }
};

// H_ab := Q_a^H H_ab Q_b. H alone takes Q with its identity: a rounding of H costs at most a sweep.
template <class E>
SVD_HD void transform_gram_tile(const GramSuperstep& step, GramTile tile, const GramWork<E>& work) {
  constexpr int n = kJacobiGroup;
  const auto with_identity = [&](int group, int i, int j) {
    return plus_real(work.groups[group].q[step.turn][j * n + i], i == j ? 1 : 0);
  };
  E t[n * n];
  for (int j = 0; j < n; ++j) {
    for (int i = 0; i < n; ++i) {
      E sum = from_real<E>(0);
      for (int r = 0; r < n; ++r) {
        sum = plus_product(sum, conjugate(with_identity(tile.a, r, i)),
                           work.h.get(step.column(tile.a, r), step.column(tile.b, j)));
      }
      t[j * n + i] = sum;
    }
  }
  for (int j = 0; j < n; ++j) {
    for (int i = 0; i < n; ++i) {
      E sum = from_real<E>(0);
      for (int r = 0; r < n; ++r) sum = plus_product(sum, with_identity(tile.b, r, j), t[r * n + i]);
      work.h.set(step.column(tile.a, i), step.column(tile.b, j), sum);
    }
  }
}
// Two of them, which do not wait for each other. (A team with matrix units has its own.)
template <class Team, class E>
SVD_HD void transform_gram_tiles(const Team& team, const GramSuperstep& step, GramTile first, GramTile second,
                                 const GramWork<E>& work) {
  team.once([&] {
    transform_gram_tile(step, first, work);
    transform_gram_tile(step, second, work);
  });
}

// W := W + W (Q_b - I), W kept as W - I: the columns of group b. (A team with matrix units has its own.)
template <class Team, class E>
SVD_HD void transform_rotations(const Team& team, const GramSuperstep& step, int b, const GramWork<E>& work) {
  constexpr int n = kJacobiGroup;
  const E* const q = work.groups[b].q[step.turn];
  team.for_each(0, work.k, [&](int i) {
    E row[n], row1[n];
    for (int r = 0; r < n; ++r) {
      const int column = step.column(b, r);
      row[r] = work.w.column(column)[i];
      row1[r] = plus_product(row[r], from_real<E>(column == i ? 1 : 0), from_real<E>(1));
    }
    for (int j = 0; j < n; ++j) {
      E sum = from_real<E>(0);
      for (int r = 0; r < n; ++r) sum = plus_product(sum, row1[r], q[j * n + r]);
      work.w.column(step.column(b, j))[i] = plus_product(row[j], sum, from_real<E>(1));
    }
  });
}

// Applies what superstep `step` did to its groups to the rest of H.
template <class Block, class E>
SVD_HD void transform_gram(const Block& block, const GramSuperstep& step, const GramWork<E>& work) {
  const int groups = work.k / kJacobiGroup, bits = JacobiSuperstep::highest_bit(groups);
  block.for_each_team(groups * (groups - 1) / 4, [&](const auto& team, int t) {
    const GramTile first = GramTile::at(2 * t, bits), second = GramTile::at(2 * t + 1, bits);
    const auto turned = [&](GramTile tile) {
      return work.groups[tile.a].turned[step.turn] | work.groups[tile.b].turned[step.turn];
    };
    if ((turned(first) | turned(second)) != 0) transform_gram_tiles(team, step, first, second, work);
  });
}
// The same for the columns of W that are those of group g.
template <class Team, class E>
SVD_HD void rotate_columns(const Team& team, const GramSuperstep& step, int g, const GramWork<E>& work) {
  if (work.groups[g].turned[step.turn] != 0) transform_rotations(team, step, g, work);
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
//
// A column may grow by many powers of two, where a longer one was lost. Then W(j, j) - 1 becomes -1 and loses W(j, j). X
// has columns of norm one and needs no more digits than are left. V has the true columns and needs them all, so its
// diagonal entries are kept from before.
template <class Block, class E>
SVD_HD bool renormalize(const Block& block, const GramWork<E>& work) {
  // W_true(j, j) - 1. Sorting may have given the column another exponent.
  const auto true_less_one = [&](int j) {
    const E entry = work.w.column(j)[j];
    const int shift = work.exponents[j] - work.exponents_before[j];
    if (shift == 0) return entry;
    const double by = power_of_two(shift < -1022 ? -1022 : shift > kLargestDistance ? kLargestDistance : shift);
    return plus_product(times_real(entry, by), from_real<E>(by - 1), from_real<E>(1));
  };
  block.for_each(0, work.k, [&](int j) {
    const double alpha = real_part(work.h.get(j, j));
    work.cosines[j] = alpha > 0 && alpha <= kLostNorm2 ? 1 : 0;
    if (work.diagonal != nullptr) work.diagonal[j] = true_less_one(j);
    if (!(alpha > 0) || (alpha >= 0.25 && alpha < 4)) return;
    const int e = (static_cast<int>(__builtin_bit_cast(uint64_t, alpha) >> 52) - 1023) / 2;
    const double scale = power_of_two(-e);
    E* const column = work.w.column(j);
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
  block.for_each(0, k * k, [&](int e) { work.w.column(e >> bits)[e & (k - 1)] = from_real<E>(0); });
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
    GramSuperstep step{work.columns, 0, 1};
    for (int s = 0; s < jacobi_supersteps(k); ++s) {
      // W waits for nobody, and nobody for W: it takes a superstep's rotations while the next one finds its own.
      const GramSuperstep before = step;
      step = {work.columns + s * k, jacobi_superstep(k, s).steps, s % 2};
      block.for_each_team(
          groups / 2, [&](const auto& team, int two) { sweep_groups(team, step, 2 * two, work); },  //
          s > 0 ? groups : 0, [&](const auto& team, int g) { rotate_columns(team, before, g, work); });
      transform_gram(block, step, work);
    }
    block.for_each_team(groups, [&](const auto& team, int g) { rotate_columns(team, step, g, work); });
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
