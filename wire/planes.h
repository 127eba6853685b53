// The planes of a reply to a batch: where each is in a DecomposeResponse or an EigendecomposeResponse, and how many
// numbers it has. The order is that of Plane, of the engine and of the C++ client.
#ifndef SVDSERVE_WIRE_PLANES_H_
#define SVDSERVE_WIRE_PLANES_H_

#include <svdserve/v1/svd_service.pb.h>

#include <array>
#include <cstdint>

namespace svdserve::wire {

// The sizes that a plane's size depends on. Matrices are m x n, k = min(m, n).
struct PlaneExtents {
  int64_t one = 1;
  int64_t three = 3;          // residual and two orthogonalities
  int64_t rows = 0;           // m
  int64_t cols = 0;           // n
  int64_t streams = 0;        // k
  int64_t values = 0;         // singular values of a matrix in the reply
  int64_t left_columns = 0;   // of U in the reply
  int64_t right_columns = 0;  // of V in the reply
  int64_t snrs = 0;
  int64_t snr_rows = 0;  // rows of a matrix for each SNR
};
using Extent = int64_t PlaneExtents::*;

// One plane: height x width numbers for each matrix or each group of them.
struct PlaneOnWire {
  Extent height, width;
  bool has_elements;      // numbers of the matrices' type; else of its real type
  bool of_group;          // for each group of matrices; else for each matrix
  int message;            // the field of the response that holds the plane's message; 0: the response itself
  int field;              // of the plane in that message
  int columns_field = 0;  // the field instead of it where leading columns were asked for, not U and V^H; 0: the same
  int option = 0;         // the field of MimoOptions, a bool, that asks for the plane; 0: another does

  constexpr int field_of(bool has_vectors) const { return has_vectors || columns_field == 0 ? field : columns_field; }
};

// One row a plane.
inline constexpr auto kPlanesOnWire = [] {
  using E = PlaneExtents;
  using R = v1::DecomposeResponse;
  using M = v1::MimoResult;
  using O = v1::MimoOptions;
  constexpr int kCertificate = R::kCertificateFieldNumber;
  constexpr bool kElements = true, kNumbers = false, kGroup = true, kMatrix = false;
  constexpr auto mimo = [](Extent height, Extent width, bool of_group, int field, int option) {
    return PlaneOnWire{height, width, kNumbers, of_group, R::kMimoFieldNumber, field, 0, option};
  };
  constexpr auto gradient = [](Extent height, int field) {
    return PlaneOnWire{height, &E::cols, kElements, kMatrix, R::kMimoFieldNumber, field};
  };
  return std::to_array<PlaneOnWire>({
      {&E::values, &E::one, kNumbers, kMatrix, 0, R::kSingularValuesFieldNumber},
      {&E::rows, &E::left_columns, kElements, kMatrix, 0, R::kLeftVectorsFieldNumber, R::kCombinersFieldNumber},
      {&E::right_columns, &E::cols, kElements, kMatrix, 0, R::kRightVectorsAdjointFieldNumber,
       R::kPrecodersFieldNumber},
      mimo(&E::snrs, &E::one, kGroup, M::kCapacityFieldNumber, O::kCapacityFieldNumber),
      mimo(&E::snrs, &E::one, kGroup, M::kWaterFillingFieldNumber, O::kWaterFillingFieldNumber),
      mimo(&E::snrs, &E::streams, kMatrix, M::kStreamSnrFieldNumber, O::kStreamSnrFieldNumber),
      mimo(&E::one, &E::one, kMatrix, M::kConditionNumberFieldNumber, O::kConditionNumberFieldNumber),
      mimo(&E::one, &E::one, kMatrix, M::kEffectiveRankFieldNumber, O::kEffectiveRankFieldNumber),
      mimo(&E::one, &E::one, kMatrix, M::kThresholdRankFieldNumber, 0),
      {&E::three, &E::one, kNumbers, kMatrix, kCertificate, v1::Certificate::kEachMatrixFieldNumber},
      {&E::values, &E::one, kNumbers, kMatrix, 0, v1::EigendecomposeResponse::kEigenvalueConditionsFieldNumber},
      gradient(&E::snr_rows, M::kCapacityGradientFieldNumber),
      gradient(&E::snr_rows, M::kWaterFillingGradientFieldNumber),
      gradient(&E::rows, M::kEffectiveRankGradientFieldNumber),
  });
}();

}  // namespace svdserve::wire
#endif  // SVDSERVE_WIRE_PLANES_H_
