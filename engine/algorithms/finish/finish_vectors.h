// From the vectors that a decomposition wrote to those that are given: the last steps of one matrix, in its planes.
//
//   1. complete      columns of X that belong to zero values, and those beyond k (basis_completion.h); of the
//                    eigenvectors X = Y of a Hermitian matrix there is nothing to complete
//   2. fix phases    if asked for (fix_phases.h)
//   3. canonical     every zero +0; of a matrix that is not finite every component NaN
//   4. certificate   if asked for, of what the first three left (certificate.h)
//
// One matrix a team; the bits do not depend on it. Where nothing is to be done, nothing is read but s.
#if defined(SVDSERVE_ENGINE_ALGORITHMS_FINISH_FINISH_VECTORS_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef SVDSERVE_ENGINE_ALGORITHMS_FINISH_FINISH_VECTORS_H_
#undef SVDSERVE_ENGINE_ALGORITHMS_FINISH_FINISH_VECTORS_H_
#else
#define SVDSERVE_ENGINE_ALGORITHMS_FINISH_FINISH_VECTORS_H_
#endif

#include "engine/algorithms/finish/basis_completion.h"
#include "engine/algorithms/finish/certificate.h"
#include "engine/algorithms/finish/fix_phases.h"

SVD_KERNEL_BEGIN

// The finishing options, the same for all matrices.
struct FinishOptions {
  int k;             // min(rows, cols) of A
  bool wide;         // Y holds the columns of U
  bool fix_phases;   // where V has a column j < k, U has it, too
  bool canonical;    // the columns that are known have no -0
  bool certificate;  // x and y have at least k columns
};

template <class E>
struct FinishTask {
  VectorMatrix<E> x, y;             // [in,out] columns in descending order of s; columns = 0: not there
  const typename E::Lane* s;        // [in] k values, in the order of the columns
  bool finite;                      // status of the matrix; s is not read where it is false
  OperandMatrix<E> t;               // [in] rows x k; for the certificate alone
  typename E::Scalar* certificate;  // [out] kCertificateNumbers, or null
  BasisWorkspace<E> basis;          // of x.rows and k
  CertificateWorkspace sums;        // of x.rows and k; for the certificate alone
};

template <class Team, class E>
SVD_HD void finish_vectors(const Team& team, const FinishOptions& options, const FinishTask<E>& task) {
  using T = typename E::Scalar;
  const VectorMatrix<E>&x = task.x, &y = task.y;
  if (!task.finite) {
    x.for_each(team, 0, x.columns, [&](int i, int j) SVD_LAMBDA { x.at.set_nan(i, j); });
    y.for_each(team, 0, y.columns, [&](int i, int j) SVD_LAMBDA { y.at.set_nan(i, j); });
  } else {
    if (x.columns > 0 && !task.t.hermitian) complete_basis(team, x, options.k, task.s, task.basis);
    if (options.fix_phases) {
      const int both = x.columns < y.columns ? x.columns : y.columns, pairs = both < options.k ? both : options.k;
      fix_phases(team, options.wide ? y : x, options.wide ? x : y, pairs);
    } else if (!options.canonical) {
      x.for_each(team, 0, x.columns, [&](int i, int j) SVD_LAMBDA { x.at.set(i, j, x.at(i, j)); });
      y.for_each(team, 0, y.columns, [&](int i, int j) SVD_LAMBDA { y.at.set(i, j, y.at(i, j)); });
    }
  }
  if (!options.certificate) return;
  const VectorMatrix<E>& right = task.t.hermitian ? x : y;
  const Certificate c = certificate(team, task.t, x, right, task.s, options.k, options.wide, task.finite, task.sums);
  if (task.certificate == nullptr) return;
  team.once([&]() SVD_LAMBDA {
    task.certificate[0] = static_cast<T>(c.residual.v);
    task.certificate[1] = static_cast<T>(c.left.v);
    task.certificate[2] = static_cast<T>(c.right.v);
  });
}

SVD_KERNEL_END

#endif
