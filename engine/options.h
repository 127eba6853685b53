// How a batch is to be decomposed, and what of the decomposition is wanted. Values only.
#ifndef SVDSERVE_ENGINE_OPTIONS_H_
#define SVDSERVE_ENGINE_OPTIONS_H_

#include <cstdint>
#include <vector>

namespace svdserve {

enum class Method : uint8_t {
  kAuto,        // the planner's choice, a function of the problem alone
  kBidiagonal,  // Householder bidiagonalization, then dqds
  kBisection,   // Householder bidiagonalization, then Sturm bisection on B^T B to a chosen tolerance
  kJacobi,  // one-sided Jacobi: high relative accuracy, and the method that gives vectors. General: shears and rotations
  kFactored,     // large Hermitian: indefinite factorization, then hyperbolic Jacobi: high relative accuracy
  kTridiagonal,  // Hermitian: tridiagonal form, then QL, or divide and conquer of larger ones: absolute accuracy
  kQr,           // general: Hessenberg form, then shifted QR
  kLast = kQr,
};

constexpr const char* name(Method m) {
  switch (m) {
    case Method::kAuto:
      return "auto";
    case Method::kBidiagonal:
      return "bidiagonal";
    case Method::kBisection:
      return "bisection";
    case Method::kJacobi:
      return "jacobi";
    case Method::kFactored:
      return "factored";
    case Method::kTridiagonal:
      return "tridiagonal";
    case Method::kQr:
      return "qr";
  }
  return "?";
}

// The decomposition of a batch.
enum class Decomposition : uint8_t {
  kSvd,        // A = U S V^H
  kHermitian,  // A = U L U^H, A Hermitian, its eigenvalues L ascending
  kGeneral,    // A V = V L, W^H A = L W^H, unit columns; the results are complex, whatever the matrices are
  kLast = kGeneral,
};

// The triangle of a Hermitian matrix that is read, as NumPy's UPLO. Imaginary parts of the diagonal are not read.
enum class Triangle : uint8_t { kLower, kUpper, kLast = kUpper };

// Which singular vectors are wanted. Thin: U is m x k, V^H k x n. Full: m x m and n x n.
enum class Vectors : uint8_t { kNone, kThin, kFull, kLast = kFull };

// Numbers that a MIMO system wants of its channels y = H x + noise, H rows x cols: rows receive, cols transmit
// antennas. SNR is the transmitted power over the noise power of one receive antenna; capacities are in bit/s/Hz. A
// zero channel has capacity 0, effective rank 0 and an infinite condition number; one that is not finite has NaN.
//   capacity       sum_i log2(1 + SNR s_i^2 / cols): equal power on every transmit antenna. Telatar (1999), section 3
//   water_filling  sum_i log2(max(1, mu g_i)), g_i = SNR s_i^2, sum_i max(0, mu - 1 / g_i) = 1. Telatar, section 3.1
//   stream_snr     SNR s_i^2 / cols, linear
//   condition      s_1 / s_k
//   effective rank exp(- sum_i p_i ln p_i), p_i = s_i / sum s. Roy and Vetterli (2007)
//   threshold rank the number of s_i > rank_threshold s_1
// The capacity of a group of matrices (subcarriers) is the sum. Water-filling divides the power of all of them, `group`
// times that of one, among the streams of all of them.
struct MimoOptions {
  bool capacity = false, water_filling = false, stream_snr = false;
  bool condition_number = false, effective_rank = false;
  bool threshold_rank = false;
  bool gradient = false;      // of each of capacity, water_filling and effective_rank that is wanted, one at least
  double rank_threshold = 0;  // of threshold_rank: in (0, 1)
  std::vector<double> snr_db = {};  // of capacity, water_filling, stream_snr: 1 .. kMaxSnrs, finite, within +-kMaxSnrDb
  int64_t group = 1;                // 1 .. kMaxGroup
  int64_t precoder_columns = 0;     // leading columns of V, instead of Options::vectors; 0: none
  int64_t combiner_columns = 0;     // leading columns of U; 0: none

  friend bool operator==(const MimoOptions&, const MimoOptions&) = default;
};
inline constexpr int kMaxSnrs = 64;
inline constexpr double kMaxSnrDb = 300;
inline constexpr int64_t kMaxGroup = 16384;

struct Options {
  Decomposition decomposition = Decomposition::kSvd;
  Triangle triangle = Triangle::kLower;  // of kHermitian alone
  // kHermitian: kAuto or kJacobi, which beyond some order are both kTridiagonal (planner.h); kGeneral: kAuto, kQr or kJacobi.
  Method method = Method::kAuto;
  // BISECTION: delta, the relative width |b - a| / (|a| + |b|) at which an interval around lambda = s^2 is narrow
  // enough, in (0, 1/2]. JACOBI: the cosine of the angle between two columns below which they count as orthogonal, in
  // (0, 1]. 0 means the method's default. Other methods take none; kAuto of vectors and of kHermitian is JACOBI with one,
  // and so below.
  double tolerance = 0;
  // JACOBI: sweeps after which a matrix is given up as NOT_CONVERGED, or decomposed by QR if it is general. 0 means the
  // default. Other methods take none.
  int32_t max_sweeps = 0;
  bool values = true;                // the singular values; false with other outputs alone
  Vectors vectors = Vectors::kNone;  // of kHermitian kThin: all of U; of kGeneral kThin: V, kFull: V and W^H
  int64_t top_k = 0;                 // only the leading top_k singular triplets, with Vectors::kThin or none; 0: all
  // The largest component (the first of equals) of every column of U becomes real and positive, V follows: so that
  // results of different programs can be compared. With vectors only.
  bool fix_phases = false;
  bool certificate = false;  // residual and orthogonality of each matrix; with vectors only
  bool condition = false;    // of kGeneral: the condition number of each eigenvalue, and the status kNearDefective
  // Of kGeneral: JACOBI, which kAuto then is, starts from HostSegment::starting_vectors.
  bool starting_vectors = false;
  MimoOptions mimo = {};

  friend bool operator==(const Options&, const Options&) = default;
};

}  // namespace svdserve
#endif  // SVDSERVE_ENGINE_OPTIONS_H_
