// Householder bidiagonalization of one matrix of moderate order, n x n, as vector code for the processor's
// instruction set:
//
//   A = Q B P^H, B real upper bidiagonal
//   step j:  H_j of column j;  z := A^H v_j;  G_j of row j;  x := A w_j - ...;  A := A - v_j z'^H - x' w_j^H
//
// The update of a step waits for the next one, which makes it in the pass over A that forms its own z. Row j after H_j is
// w but for its scale and its first number, and has its number of a column as soon as z has. So some columns at a time
// are updated, multiplied by v, and added to A w, while they are in the first cache. A step reads A once and writes it
// once. LAPACK's gebd2 reads it four times and writes it twice.
// Source: Golub and Van Loan, 3rd ed., algorithm 5.4.2; the order of the passes: Howell, Demmel, Fulton, Hammarling and
// Marmol, ACM Trans. Math. Softw. 34 (2008) article 14, section 3.
//
// Cost: 8/3 n^3 flops real (4 x complex). Accuracy: backward stable, |A - Q B P^H|_F <= c n u |A|_F with c of order
// one. Elements of A are at most about one. A column or row whose rest has a negligible square (FloatTraits) loses it.
#ifndef SVDSERVE_ENGINE_BACKENDS_HOST_FORMS_BIDIAGONAL_REDUCTION_H_
#define SVDSERVE_ENGINE_BACKENDS_HOST_FORMS_BIDIAGONAL_REDUCTION_H_

#include <cstddef>
#include <cstdint>

namespace svdserve::host {

// Bytes that planes are aligned to and a multiple of.
inline constexpr int kReductionAlignment = 64;

// Column j is `planes` planes of `ld` numbers: its real parts, and of complex columns the imaginary ones. Rows n and
// following are zero. All memory is the caller's; a and work are aligned. T: float or double.
template <class T>
struct BidiagonalReduction {
  int n = 0;
  int planes = 1;  // 1: real, 2: complex
  int ld = 0;      // a multiple of kReductionAlignment bytes
  T* a = nullptr;  // [in,out] A; then the reflectors as LAPACK's gebrd leaves them, but for diagonal and superdiagonal
  T* d = nullptr;  // [out] n, the diagonal of B
  T* e = nullptr;  // [out] n - 1, its superdiagonal
  T* tau_q = nullptr;  // [out] n of `planes` numbers each, as gebrd's; of tau_p the last is zero
  T* tau_p = nullptr;
  T* work = nullptr;  // reduction_work() numbers

  T* column(int j) const { return a + static_cast<ptrdiff_t>(j) * planes * ld; }
};
template <class T>
constexpr int reduction_ld(int n) {
  constexpr int kNumbers = kReductionAlignment / static_cast<int>(sizeof(T));
  return (n + kNumbers - 1) / kNumbers * kNumbers;
}
constexpr size_t reduction_work(int ld, int planes) { return static_cast<size_t>(ld) * planes * 8; }

void bidiagonalize(const BidiagonalReduction<float>& task);
void bidiagonalize(const BidiagonalReduction<double>& task);

}  // namespace svdserve::host
#endif  // SVDSERVE_ENGINE_BACKENDS_HOST_FORMS_BIDIAGONAL_REDUCTION_H_
