// A batch's results: planes. A plane is an array with the same number of bytes for every group of matrices. A group is
// one matrix but where MIMO numbers are sums over neighbouring ones (MimoOptions::group). Values only, no ownership.
#ifndef SVDSERVE_ENGINE_OUTPUTS_H_
#define SVDSERVE_ENGINE_OUTPUTS_H_

#include <array>
#include <cstddef>
#include <cstdint>

#include "engine/options.h"
#include "engine/problem.h"

namespace svdserve {

// Numbers are of the real type that belongs to the matrices' type, elements of their type. Matrices of a plane are in
// the order (row- or column-major) of the operands.
enum class Plane : uint8_t {
  kValues,           // a matrix: its leading singular values, descending; or its eigenvalues, ascending
  kLeft,             // a matrix: columns of U, rows x left_columns; or its eigenvectors, of a general one V
  kRight,            // a matrix: rows of V^H, right_columns x cols; or columns of V, cols x right_columns; or W^H
  kCapacity,         // a group: a number for each SNR
  kWaterFilling,     // a group: a number for each SNR
  kStreamSnr,        // a matrix: for each SNR a number for each of the k streams
  kConditionNumber,  // a matrix: a number
  kEffectiveRank,    // a matrix: a number
  kThresholdRank,    // a matrix: a number
  kCertificate,      // a matrix: |A - U S V^H|_F / |A|_F, |I - U^H U|_F, |I - V^H V|_F; of a Hermitian one V = U; of a
                     // general one |A V - V L|_F / |A|_F, or |A^H W - W L^H|_F / |A|_F where that is larger, 0, 0
  kEigenvalueCondition,  // a general matrix: for each eigenvalue 1 / |w^H v| of its unit vectors, inf where that is 1 / 0
  kCapacityGradient,     // a matrix: for each SNR the gradient of kCapacity, rows x cols elements
  kWaterFillingGradient,   // a matrix: likewise of kWaterFilling; groups have one matrix
  kEffectiveRankGradient,  // a matrix: the gradient of kEffectiveRank
  kLast = kEffectiveRankGradient,
};
inline constexpr int kPlanes = static_cast<int>(Plane::kLast) + 1;
inline constexpr int64_t kCertificateNumbers = 3;

constexpr int index_of(Plane plane) { return static_cast<int>(plane); }

// Where the planes of a batch are; null: not wanted, or not asked for by the plan.
struct PlanePointers {
  std::array<void*, kPlanes> at{};

  PlanePointers() = default;
  PlanePointers(void* values) { at[0] = values; }  // NOLINT: most batches give values alone
  void*& operator[](Plane plane) { return at[static_cast<size_t>(plane)]; }
  void* operator[](Plane plane) const { return at[static_cast<size_t>(plane)]; }
};

// The requested results, resolved from Options for one problem.
struct Outputs {
  bool complex = false;       // values and vectors are complex: those of general matrices, in no order
  int64_t values = 0;         // leading singular values of each matrix; 0: none
  int64_t left_columns = 0;   // of U; 0: none; beyond k: U is completed to an orthonormal basis
  int64_t right_columns = 0;  // of V; as left_columns
  bool right_adjoint = true;  // V^H, as LAPACK and NumPy give it; false: V
  bool fix_phases = false;    // Options::fix_phases
  bool certificate = false;   // plane kCertificate
  bool condition = false;     // plane kEigenvalueCondition
  bool capacity = false, water_filling = false, stream_snr = false;
  bool condition_number = false, effective_rank = false, threshold_rank = false;
  bool capacity_gradient = false, water_filling_gradient = false, effective_rank_gradient = false;
  double rank_threshold = 0;           // relative to the largest singular value
  int64_t group = 1;                   // matrices of a group; a batch has a multiple of it
  std::array<double, kMaxSnrs> snr{};  // linear, the first snr_count
  int32_t snr_count = 0;

  bool gradients() const { return capacity_gradient || water_filling_gradient || effective_rank_gradient; }
  bool vectors() const { return left_columns > 0 || right_columns > 0 || certificate || fix_phases || gradients(); }
  bool answers() const;  // has MIMO numbers; gradients aside
  friend bool operator==(const Outputs&, const Outputs&) = default;
};

// A plane of MIMO numbers: the option that asks for it, the output that has it, and how many numbers it has.
struct MimoPlane {
  // Named, because nvcc writes other pointers to members in a way that GCC warns of.
  using Option = bool MimoOptions::*;
  using Output = bool Outputs::*;
  Plane plane;
  Option option;
  Output output;
  enum : uint8_t { kSnrsOfGroup, kStreamsOfMatrix, kOneOfMatrix } extent;  // the first two: for each SNR
};
inline constexpr MimoPlane kMimoPlanes[] = {
    {Plane::kCapacity, &MimoOptions::capacity, &Outputs::capacity, MimoPlane::kSnrsOfGroup},
    {Plane::kWaterFilling, &MimoOptions::water_filling, &Outputs::water_filling, MimoPlane::kSnrsOfGroup},
    {Plane::kStreamSnr, &MimoOptions::stream_snr, &Outputs::stream_snr, MimoPlane::kStreamsOfMatrix},
    {Plane::kConditionNumber, &MimoOptions::condition_number, &Outputs::condition_number, MimoPlane::kOneOfMatrix},
    {Plane::kEffectiveRank, &MimoOptions::effective_rank, &Outputs::effective_rank, MimoPlane::kOneOfMatrix},
    {Plane::kThresholdRank, &MimoOptions::threshold_rank, &Outputs::threshold_rank, MimoPlane::kOneOfMatrix},
};

// A plane of gradients, and the number that they are of.
struct MimoGradient {
  Plane plane;
  MimoPlane::Option of;
  MimoPlane::Output output;
  bool for_each_snr;
};
inline constexpr MimoGradient kMimoGradients[] = {
    {Plane::kCapacityGradient, &MimoOptions::capacity, &Outputs::capacity_gradient, true},
    {Plane::kWaterFillingGradient, &MimoOptions::water_filling, &Outputs::water_filling_gradient, true},
    {Plane::kEffectiveRankGradient, &MimoOptions::effective_rank, &Outputs::effective_rank_gradient, false},
};

inline bool Outputs::answers() const {
  for (const MimoPlane& m : kMimoPlanes) {
    if (this->*m.output) return true;
  }
  return false;
}

// Numbers of the plane for one group of matrices, where it is given.
constexpr int64_t numbers_of_group(const Problem& p, const Outputs& o, const MimoPlane& m) {
  if (m.extent == MimoPlane::kSnrsOfGroup) return o.snr_count;
  return o.group * (m.extent == MimoPlane::kStreamsOfMatrix ? o.snr_count * values_per_matrix(p) : 1);
}

// Bytes of a plane for one group of matrices; 0: the plane is not given.
constexpr size_t plane_bytes(const Problem& p, const Outputs& o, Plane plane) {
  const size_t number = value_bytes(p.dtype);
  for (const MimoPlane& m : kMimoPlanes) {
    if (m.plane == plane) return o.*m.output ? static_cast<size_t>(numbers_of_group(p, o, m)) * number : 0;
  }
  const size_t element = o.complex ? 2 * number : element_bytes(p.dtype), value = o.complex ? 2 * number : number;
  const auto size = [](int64_t n) { return static_cast<size_t>(n); };
  const size_t group = size(o.group);
  for (const MimoGradient& g : kMimoGradients) {
    if (g.plane != plane) continue;
    return o.*g.output ? group * size(g.for_each_snr ? o.snr_count : 1) * size(p.rows * p.cols) * element : 0;
  }
  switch (plane) {
    case Plane::kValues:
      return group * size(o.values) * value;
    case Plane::kLeft:
      return group * size(p.rows) * size(o.left_columns) * element;
    case Plane::kRight:
      return group * size(p.cols) * size(o.right_columns) * element;
    case Plane::kCertificate:
      return o.certificate ? group * size(kCertificateNumbers) * number : 0;
    case Plane::kEigenvalueCondition:
      return o.condition ? group * size(o.values) * number : 0;
    default:
      return 0;
  }
}

}  // namespace svdserve
#endif  // SVDSERVE_ENGINE_OUTPUTS_H_
