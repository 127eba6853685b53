// The sweep of two groups of gram_jacobi.h by the 32 threads of a warp, for GPUs: the same rotations, the same bits as by
// sweep_group_alone(). The p-steps of a superstep wait for each other, and nothing else hides what they wait for. So the
// groups' matrices stay in registers, and threads exchange what they need of each other.
//
// Thread 16 s + 4 i + j, 0 <= i, j < 4, has the entries (i + 4 a, j + 4 b) of H and of Q - I, both of order 8, for a and b
// of 0 and 1, of the first group or the second, s = 0 or 1. In p-step v, columns c and c xor v are a pair, and so are
// rows. So every partner is at a fixed distance:
//   (i xor v, c)   thread xor 4 (v mod 4); the other a if v >= 4
//   (i, c xor v)   thread xor (v mod 4); the other b if v >= 4
// Each thread computes the rotation of pair number j of its group, for the pair's first column if i is even, else for its
// second one. Two threads compute the same, and cost no more than one would. A rotation has most of the instructions of a
// p-step, so a warp has two groups and not one.
//
// Source, method, accuracy: gram_jacobi.h. Threads: core/team.h.
#ifndef SVDSERVE_ENGINE_ALGORITHMS_BLOCKS_GRAM_GROUPS_IN_REGISTERS_H_
#define SVDSERVE_ENGINE_ALGORITHMS_BLOCKS_GRAM_GROUPS_IN_REGISTERS_H_

#include "engine/algorithms/blocks/gram_jacobi.h"

namespace svdserve {

template <class Thread, class E>
class GroupsInRegisters {
 public:
  // Groups g and g + 1.
  SVD_HD GroupsInRegisters(const Thread& thread, const GramSuperstep& step, int g, const GramWork<E>& work)
      : thread_(thread),
        step_(step),
        work_(work),
        second_(thread.index() % 32 / 16),
        i_(thread.index() % 16 / 4),
        j_(thread.index() % 4),
        g_(g + second_),
        s_(work.groups[g_]) {}

  SVD_HD void sweep() {
    const int rows[2] = {column(i_), column(i_ + 4)}, columns[2] = {column(j_), column(j_ + 4)};
    for (int a = 0; a < 2; ++a) {
      for (int b = 0; b < 2; ++b) {
        h_[a][b] = work_.h.get(rows[a], columns[b]);
        q_[a][b] = from_real<E>(0);
      }
      if (j_ == 0) s_.exponent[i_ + 4 * a] = work_.exponents[rows[a]];
    }
    thread_.sync();
    const bool wanted = has_cosine_to_rotate();
    const bool first_turned = thread_.any_of_warp(wanted && second_ == 0);
    const bool second_turned = thread_.any_of_warp(wanted && second_ == 1);
    const bool turned = second_ == 0 ? first_turned : second_turned;
    if (i_ + j_ == 0) s_.turned[step_.turn] = turned ? 1 : 0;
    if (first_turned || second_turned) {
      if (work_.signs == nullptr) {
        p_steps<false>();
      } else {
        p_steps<true>();
      }
    }
    const int lost = (counts_ | thread_.exchanged(counts_, 4)) >> 16;
    for (int a = 0; a < 2; ++a) {
      for (int b = 0; b < 2; ++b) s_.q[step_.turn][(j_ + 4 * b) * n + i_ + 4 * a] = q_[a][b];
    }
    if (!turned) return;
    for (int a = 0; a < 2; ++a) {
      for (int b = 0; b <= a; ++b) {
        if (a > b || i_ >= j_) work_.h.set(rows[a], columns[b], h_[a][b]);
      }
      if (j_ == 0) work_.exponents[rows[a]] = s_.exponent[i_ + 4 * a];
    }
    if (i_ == 0) {
      s_.rotated[j_] += counts_ & 0xff;
      s_.proper[j_] += counts_ >> 8 & 0xff;
      s_.lost[j_] |= lost != 0 ? 1 : 0;
    }
  }

 private:
  static constexpr int n = kJacobiGroup;

  SVD_HD int column(int i) const { return step_.column(g_, i); }
  // x of the group's thread that has entry (i, j).
  SVD_HD double of(double x, int i, int j) const { return thread_.from_lane(x, 16 * second_ + 4 * (i & 3) + (j & 3)); }
  SVD_HD Complex of(Complex x, int i, int j) const { return {of(x.re, i, j), of(x.im, i, j)}; }
  // x of the thread at a distance, which may be zero.
  SVD_HD double beyond(double x, int distance) const { return distance == 0 ? x : thread_.exchanged(x, distance); }
  SVD_HD Complex beyond(Complex x, int distance) const { return {beyond(x.re, distance), beyond(x.im, distance)}; }

  SVD_HD bool has_cosine_to_rotate() const {
    double of_row[2], of_column[2];
    for (int a = 0; a < 2; ++a) {
      of_row[a] = of(real_part(h_[a][a]), i_, i_);
      of_column[a] = of(real_part(h_[a][a]), j_, j_);
    }
    bool has = false;
    for (int a = 0; a < 2; ++a) {
      for (int b = 0; b < 2; ++b) {
        const bool is_of_step = (step_.steps >> ((i_ + 4 * a) ^ (j_ + 4 * b)) & 1) != 0;
        has |= is_of_step && needs_rotation(of_row[a], of_column[b], squared_modulus(h_[a][b]), work_.tolerance2);
      }
    }
    return has;
  }

  template <bool kSigned>
  SVD_HD void p_steps() {
    SVD_UNROLL for (int v = 1; v < n; ++v) {
      if ((step_.steps >> v & 1) != 0) p_step<kSigned>(v);
    }
  }

  // |x_p|^2, |x_q|^2 and x_p^H x_q of the thread's pair.
  struct Products {
    double alpha, beta;
    E gamma;
  };
  // Column p is one of the first four if a = 0, else one of the last four. So is q by b.
  SVD_HD Products products_of(int p, int q, int a, int b) const {
    return {of(real_part(h_[a][a]), p, p), of(real_part(h_[b][b]), q, q), of(h_[a][b], p, q)};
  }
  SVD_HD Products products(int v, int p, int q) const {
    if (v >= 4) return products_of(p, q, 0, 1);
    const Products low = products_of(p, q, 0, 0), high = products_of(p, q, 1, 1);
    return p < 4 ? low : high;
  }
  template <bool kSigned>
  SVD_HD PairSigns signs(int p, int q) const {
    if constexpr (kSigned) return signs_of(work_, column(p), column(q));
    return work_.sorts ? PairSigns::kBothPositive : PairSigns::kUnsorted;
  }

  template <bool kSigned>
  SVD_HD void p_step(int v) {
    const int p = group_pivot(v, j_), q = p ^ v;
    const Products x = products(v, p, q);
    const int f_p = s_.exponent[p], f_q = s_.exponent[q];
    const bool needed = needs_rotation(x.alpha, x.beta, squared_modulus(x.gamma), work_.tolerance2);
    if (!thread_.any_of_warp(needed)) return;
    const GramRotation<E> r = gram_rotation(x.alpha, x.beta, x.gamma, f_p, f_q, signs<kSigned>(p, q), needed);
    const bool was_q = (i_ % 2 != 0) != r.swapped;
    const GramColumn<E> column = column_after(r, x.alpha, x.beta, was_q);
    counts_ += needed ? (column.lost ? 0x10001 : 1) + (r.proper ? 0x100 : 0) : 0;
    thread_.sync();  // nobody reads the rotations and exponents of before
    if (i_ < 2) {
      const int place = i_ == 0 ? p : q;
      s_.rotation[place] = column.by;
      s_.norm2[place] = column.norm2;
      s_.exponent[place] = was_q ? f_q : f_p;
    }
    thread_.sync();
    apply(v);
  }

  // H := J^H H J, Q := Q + Q (J - I), with the rotations that are in shared memory.
  SVD_HD void apply(int v) {
    const int far = v >> 2, distance = v & 3;
    E u[2][2];
    for (int a = 0; a < 2; ++a) {
      const RotatedColumn<E> r = s_.rotation[i_ + 4 * a], of_row = {conjugate(r.own), conjugate(r.other)};
      for (int b = 0; b < 2; ++b) u[a][b] = soon_rotated(h_[a][b], beyond(h_[a ^ far][b], 4 * distance), of_row);
    }
    E from_h[2][2], from_q[2][2];
    for (int a = 0; a < 2; ++a) {
      for (int b = 0; b < 2; ++b) {
        from_h[a][b] = beyond(u[a][b ^ far], distance);
        from_q[a][b] = beyond(q_[a][b ^ far], distance);
      }
    }
    for (int b = 0; b < 2; ++b) {
      const RotatedColumn<E> by = s_.rotation[j_ + 4 * b];
      for (int a = 0; a < 2; ++a) {
        const E next = soon_rotated(u[a][b], from_h[a][b], by);
        h_[a][b] = a == b && i_ == j_ ? from_real<E>(s_.norm2[i_ + 4 * a]) : next;
        // a, b and far are known when this is compiled, so few of these comparisons are left.
        const E identity = a == b && i_ == j_                        ? by.own
                           : a == (b ^ far) && i_ == (j_ ^ distance) ? by.other
                                                                     : from_real<E>(0);
        q_[a][b] = rotated_less_identity(q_[a][b], from_q[a][b], by, identity);
      }
    }
  }

  const Thread& thread_;
  const GramSuperstep& step_;
  const GramWork<E>& work_;
  const int second_, i_, j_, g_;
  GramGroup<E>& s_;  // in memory that the threads share
  E h_[2][2], q_[2][2];
  int counts_ = 0;  // of pair number j: rotations, 2^8 proper ones, 2^16 times that its own column was lost
};

}  // namespace svdserve
#endif  // SVDSERVE_ENGINE_ALGORITHMS_BLOCKS_GRAM_GROUPS_IN_REGISTERS_H_
