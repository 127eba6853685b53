// The sweep of one group of gram_jacobi.h by the 32 threads of a warp, for GPUs: the same rotations, the same bits as by
// sweep_group_alone(). The p-steps of a superstep wait for each other, and nothing else hides what they wait for. So the
// group's matrices stay in registers, and threads exchange what they need of each other.
//
// Thread 4 i + j, 0 <= j < 4, has the entries (i, j) and (i, j + 4) of H and of Q - I, both of order 8. In p-step v,
// columns c and c xor v are a pair, and so are rows. So every partner is at a fixed distance:
//   (i xor v, c)   thread xor 4 v
//   (i, c xor v)   thread xor (v mod 4); the other entry of the two if v >= 4
// Each thread computes the rotation of pair number j, and eight compute the same. They cost no more than one would.
//
// Cost: a p-step takes 0.7 us on an H100, for 64 columns, and 0.9 us for 128. In shared memory it took 1.0 and 1.2 us.
// Source, method, accuracy: gram_jacobi.h. Threads: core/team.h.
#ifndef SVDSERVE_ENGINE_ALGORITHMS_BLOCKS_GRAM_GROUP_IN_REGISTERS_H_
#define SVDSERVE_ENGINE_ALGORITHMS_BLOCKS_GRAM_GROUP_IN_REGISTERS_H_

#include "engine/algorithms/blocks/gram_jacobi.h"

namespace svdserve {

template <class Thread, class E>
class GroupInRegisters {
 public:
  SVD_HD GroupInRegisters(const Thread& thread, const GramSuperstep& step, int g, const GramWork<E>& work)
      : thread_(thread),
        step_(step),
        work_(work),
        s_(work.groups[g]),
        g_(g),
        lane_(thread.index() % 32),
        i_(lane_ / 4),
        j_(lane_ % 4) {}

  SVD_HD void sweep() {
    const int row = column(i_);
    for (int r = 0; r < 2; ++r) {
      h_[r] = work_.h.get(row, column(j_ + 4 * r));
      q_[r] = from_real<E>(0);
    }
    if (j_ == 0) s_.exponent[i_] = work_.exponents[row];
    thread_.sync();
    const bool turned = thread_.any_of_warp(has_cosine_to_rotate());
    if (lane_ == 0) s_.turned[step_.turn] = turned ? 1 : 0;
    SVD_UNROLL for (int v = 1; v < n; ++v) {
      if (turned && (step_.steps >> v & 1) != 0) p_step(v);
    }
    for (int r = 0; r < 2; ++r) s_.q[step_.turn][(j_ + 4 * r) * n + i_] = q_[r];
    if (!turned) return;
    for (int r = 0; r < 2; ++r) {
      if (i_ >= j_ + 4 * r) work_.h.set(row, column(j_ + 4 * r), h_[r]);
    }
    if (j_ == 0) work_.exponents[row] = s_.exponent[i_];
    if (lane_ < n / 2) {
      s_.rotated[j_] += counts_ & 0xff;
      s_.proper[j_] += counts_ >> 8 & 0xff;
      s_.lost[j_] |= counts_ >> 16 != 0 ? 1 : 0;
    }
  }

 private:
  static constexpr int n = kJacobiGroup;

  SVD_HD int column(int i) const { return step_.column(g_, i); }
  SVD_HD double of(double x, int lane) const { return thread_.from_lane(x, lane); }
  SVD_HD Complex of(Complex x, int lane) const {
    return {thread_.from_lane(x.re, lane), thread_.from_lane(x.im, lane)};
  }
  SVD_HD double beyond(double x, int distance) const { return thread_.exchanged(x, distance); }
  SVD_HD Complex beyond(Complex x, int distance) const {
    return {thread_.exchanged(x.re, distance), thread_.exchanged(x.im, distance)};
  }
  static SVD_HD constexpr int lane_of(int i, int j) { return 4 * i + (j & 3); }
  // The one of the thread's entries that may be on the diagonal.
  SVD_HD E by_row() const { return i_ >= 4 ? h_[1] : h_[0]; }

  SVD_HD bool has_cosine_to_rotate() const {
    const double norm2 = real_part(by_row());
    const double of_row = of(norm2, lane_of(i_, i_)), left = of(norm2, lane_of(j_, j_));
    const double right = of(norm2, lane_of(j_ + 4, j_ + 4));
    const auto is_of_step = [&](int c) { return (step_.steps >> (i_ ^ c) & 1) != 0; };
    return (is_of_step(j_) && needs_rotation(of_row, left, squared_modulus(h_[0]), work_.tolerance2)) ||
           (is_of_step(j_ + 4) && needs_rotation(of_row, right, squared_modulus(h_[1]), work_.tolerance2));
  }

  SVD_HD void p_step(int v) {
    const int p = group_pivot(v, j_), q = p ^ v;
    const E diagonal = by_row(), beside = v >= 4 ? h_[1] : diagonal;
    const double alpha = of(real_part(diagonal), lane_of(p, p)), beta = of(real_part(diagonal), lane_of(q, q));
    const E gamma = of(beside, lane_of(p, q));
    const int f_p = s_.exponent[p], f_q = s_.exponent[q];
    const bool needed = needs_rotation(alpha, beta, squared_modulus(gamma), work_.tolerance2);
    if (!thread_.any_of_warp(needed)) return;
    const GramRotation<E> r =
        gram_rotation(alpha, beta, gamma, f_p, f_q, signs_of(work_, column(p), column(q)), needed);
    counts_ += needed ? (r.lost ? 0x10001 : 1) + (r.proper ? 0x100 : 0) : 0;
    thread_.sync();  // nobody reads the rotations and exponents of before
    if (lane_ < n / 2) {
      s_.rotation[p] = r.p;
      s_.rotation[q] = r.q;
      s_.norm2[p] = r.alpha;
      s_.norm2[q] = r.beta;
      s_.exponent[p] = r.swapped ? f_q : f_p;
      s_.exponent[q] = r.swapped ? f_p : f_q;
    }
    thread_.sync();
    apply(v);
  }

  // H := J^H H J, Q := Q + Q (J - I), with the rotations that are in shared memory.
  SVD_HD void apply(int v) {
    const RotatedColumn<E> of_row = {conjugate(s_.rotation[i_].own), conjugate(s_.rotation[i_].other)};
    const double norm2 = s_.norm2[i_];
    E u[2];
    for (int r = 0; r < 2; ++r) u[r] = soon_rotated(h_[r], beyond(h_[r], 4 * v), of_row);
    const bool far = v >= 4;
    const E from_h[2] = {beyond(far ? u[1] : u[0], v & 3), beyond(far ? u[0] : u[1], v & 3)};
    const E from_q[2] = {beyond(far ? q_[1] : q_[0], v & 3), beyond(far ? q_[0] : q_[1], v & 3)};
    for (int r = 0; r < 2; ++r) {
      const int c = j_ + 4 * r;
      const RotatedColumn<E> by = s_.rotation[c];
      const E next = soon_rotated(u[r], from_h[r], by);
      h_[r] = c == i_ ? from_real<E>(norm2) : next;
      q_[r] = rotated_less_identity(q_[r], from_q[r], by, i_, c, c ^ v);
    }
  }

  const Thread& thread_;
  const GramSuperstep& step_;
  const GramWork<E>& work_;
  GramGroup<E>& s_;  // in memory that the threads share
  const int g_, lane_, i_, j_;
  E h_[2], q_[2];
  int counts_ = 0;  // of pair number j: rotations, 2^8 proper ones, 2^16 lost columns
};

}  // namespace svdserve
#endif  // SVDSERVE_ENGINE_ALGORITHMS_BLOCKS_GRAM_GROUP_IN_REGISTERS_H_
