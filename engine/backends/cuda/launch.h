// From a plan to kernels: the launcher of one element type. It chooses the subjects that a plan needs, and gives each
// its part of the workspace. Thresholds of shape are in the subjects' headers and in policies/cuda_tuning.h. None
// changes a bit.
//
//   m != n        tall/tall_launch.h      to k x k triangles with exponents, then as square matrices
//   k > 32        blocks/block_launch.h   JACOBI; a matrix with m != n is one tile
//                 by_rows/bidiagonal_launch.h   BIDIAGONAL with vectors, and beyond k = 128 without
//   k > 128       side_by_side/side_by_side_launch.h   JACOBI, of any m and n, and of some smaller k, too
//   Hermitian     lanes/hermitian_kernels.h; k > 32: blocks/block_launch.h, or by_rows/tridiagonal_launch.h for
//                 TRIDIAGONAL; then finish/finishing_kernels.h
//   general       general/general_launch.h
//   vectors       lanes/vectors_launch.h  then Q times X, and finish/finishing_kernels.h
//   certificates  finish/certificate_kernels.h   k > 32; the others are finish/finishing_kernels.h's
//   otherwise     lanes/values_launch.h
//   MIMO answers  mimo/answers.h          after the values of all matrices, which stay on the device
#ifndef SVDSERVE_ENGINE_BACKENDS_CUDA_LAUNCH_H_
#define SVDSERVE_ENGINE_BACKENDS_CUDA_LAUNCH_H_

#include "engine/backends/cuda/blocks/block_launch.h"
#include "engine/backends/cuda/by_rows/bidiagonal_launch.h"
#include "engine/backends/cuda/by_rows/tridiagonal_launch.h"
#include "engine/backends/cuda/device/batch_shape.h"
#include "engine/backends/cuda/device/launch_context.h"
#include "engine/backends/cuda/finish/certificate_kernels.h"
#include "engine/backends/cuda/finish/finishing_kernels.h"
#include "engine/backends/cuda/general/general_launch.h"
#include "engine/backends/cuda/lanes/hermitian_kernels.h"
#include "engine/backends/cuda/lanes/values_launch.h"
#include "engine/backends/cuda/lanes/vectors_launch.h"
#include "engine/backends/cuda/mimo/answers.h"
#include "engine/backends/cuda/side_by_side/side_by_side_launch.h"
#include "engine/backends/cuda/tall/tall_launch.h"
#include "engine/cuda_outcome.h"
#include "engine/planner.h"
#include "engine/vector_layout.h"

namespace svdserve::cuda {

template <class E>
class Launcher {
 public:
  using T = typename E::Scalar;

  // `plan` must outlive the object.
  explicit Launcher(const Plan& plan) : shape_(plan) {}

  uint64_t workspace_bytes(int64_t count) const {
    if (shape_.general()) return shape_.plan.method == Method::kJacobi ? count : 0;  // GeneralCall::missed
    Carver carver(nullptr);
    (void)Workspace(shape_, nullptr, count, &carver);
    return carver.used();
  }

  // Enqueues everything. The workspace and the planes are the batch's.
  cudaError_t launch(const DeviceBatch& batch, int device, cudaStream_t stream) const {
    const Plan& plan = shape_.plan;
    Launch launch{device, stream};
    if (shape_.general()) {
      general(&launch, batch);
      return launch.error;
    }
    Carver carver(batch.workspace);
    const Workspace w(shape_, static_cast<const T*>(batch.matrices), batch.count, &carver);
    SquareCall<T> call{w.tall.a,
                       nullptr,
                       batch.count,
                       shape_.k,
                       plan.problem.order == Order::kRowMajor,
                       static_cast<T>(plan.tolerance),
                       plan.max_sweeps,
                       shape_.gives_all_values() ? static_cast<T*>(batch.planes[Plane::kValues]) : w.values,
                       batch.statuses,
                       batch.exception_counts};
    if (shape_.is_reduced()) {
      shape_.is_large() ? BlockLaunch<E>::reduce(&launch, w.tall) : launch_reduction<E>(&launch, w.tall);
      call.a = w.tall.triangles;
      call.exponents = w.tall.exponents;
      call.row_major = true;
    }
    if (shape_.hermitian()) {
      hermitian(&launch, call, batch, w);
    } else if (shape_.with_vectors()) {
      vectors(&launch, call, batch, w);
    } else if (shape_.by_blocks() || shape_.by_rows()) {
      decompose_large(&launch, {call, {}, {}}, PlacedParts::kValues, w);
    } else {
      w.lanes.enqueue(&launch, call);
    }
    if (!shape_.gives_all_values()) copy_leading_values(&launch, call, batch);
    if (launch.error == cudaSuccess && plan.outputs.answers()) {
      launch.error = launch_answers(plan, batch, call.values, stream);
    }
    return launch.error;
  }

 private:
  // The parts of the workspace in their order; null where a plan does not need one.
  struct Workspace {
    Workspace(const BatchShape& shape, const T* a, int64_t count, Carver* carver)
        : values(shape.gives_all_values() ? nullptr : carver->take<T>(count * shape.k)),
          tall(carve_tall_call<E>(shape, a, count, carver)),
          staged_x(shape.staged() ? carver->take<E>(count * shape.long_side * shape.k) : nullptr),
          staged_y(shape.staged() ? carver->take<E>(count * shape.k * shape.k) : nullptr),
          finishing(finishes(shape) ? carver->take<char>(finishing_plan(shape, count).scratch_bytes) : nullptr),
          tiles(tiles_certificates(shape) ? carver->take<double>(count * tiles_of(shape).numbers()) : nullptr),
          blocks(shape.by_blocks() || shape.by_rows() ? carver->take<char>(block_bytes(shape, count)) : nullptr),
          lanes(shape, count, carver) {}

    T* values;  // all k of each matrix, where the plane has not room for them
    TallCall<T> tall;
    E *staged_x, *staged_y;
    char* finishing;
    double* tiles;  // of certificates
    char* blocks;
    ValuesLaunch<E> lanes;
  };

  static PlacedParts parts_of(const BatchShape& shape) {
    return shape.with_vectors() ? PlacedParts::kBoth : PlacedParts::kValues;
  }
  static int64_t block_bytes(const BatchShape& shape, int64_t count) {
    if (shape.hermitian()) {
      return shape.by_rows() ? TridiagonalLaunch<E>::workspace_bytes(shape.k, count, shape.with_vectors())
                             : BlockLaunch<E>::hermitian_workspace_bytes(shape.k, count);
    }
    if (shape.by_rows()) return BidiagonalLaunch<E>::workspace_bytes(shape.k, count, shape.with_vectors());
    if (shape.side_by_side()) return SideBySideLaunch<E>::workspace_bytes(shape, count);
    return BlockLaunch<E>::workspace_bytes(shape.k, parts_of(shape), count);
  }

  // Without X, Y needs no finishing but for phases. Eigenvectors need it for phases and certificates alone.
  static bool finishes(const BatchShape& shape) {
    const Outputs& o = shape.plan.outputs;
    if (shape.hermitian()) return o.fix_phases || o.certificate;
    return shape.with_vectors() && shape.x_columns() > 0;
  }
  // Whether certificates are written by tiles, and not by the teams that finish vectors.
  static bool tiles_certificates(const BatchShape& shape) {
    return shape.plan.outputs.certificate && shape.k > kLargestTeamCertificate;
  }
  static CertificateTiles tiles_of(const BatchShape& shape) {
    return {static_cast<int>(shape.long_side), shape.k, shape.hermitian()};
  }
  static FinishPlan finishing_plan(const BatchShape& shape, int64_t count) {
    return finish_plan<E>(shape.k, static_cast<int>(shape.long_side), static_cast<int>(shape.x_columns()), count);
  }

  void copy_leading_values(Launch* launch, const SquareCall<T>& call, const DeviceBatch& batch) const {
    const size_t row = sizeof(T) * static_cast<size_t>(shape_.plan.outputs.values);
    if (launch->error != cudaSuccess || row == 0 || call.count == 0) return;
    launch->error = cudaMemcpy2DAsync(batch.planes[Plane::kValues], row, call.values, sizeof(T) * shape_.k, row,
                                      static_cast<size_t>(call.count), cudaMemcpyDeviceToDevice, launch->stream);
  }

  // Those of k > kLargestReproducible.
  void decompose_large(Launch* launch, const VectorsCall<E>& call, PlacedParts parts, const Workspace& w) const {
    if (shape_.by_rows()) return BidiagonalLaunch<E>::decompose(launch, call, w.blocks);
    shape_.side_by_side() ? SideBySideLaunch<E>::decompose(launch, shape_, call, w.blocks)
                          : BlockLaunch<E>::decompose(launch, call, parts, w.blocks);
  }

  void vectors(Launch* launch, const SquareCall<T>& square, const DeviceBatch& batch, const Workspace& w) const {
    const Plan& plan = shape_.plan;
    const int k = shape_.k;
    const bool staged = shape_.staged();
    const VectorLayout wanted_x = long_layout(plan.problem, plan.outputs);
    const VectorLayout wanted_y = short_layout(plan.problem, plan.outputs);
    const VectorLayout x_layout = staged ? staged_layout(wanted_x, k) : wanted_x;
    const VectorLayout y_layout = staged ? staged_layout(wanted_y, k) : wanted_y;
    void* const x_data = staged ? w.staged_x : shape_.x_columns() > 0 ? batch.planes[wanted_x.plane] : nullptr;
    void* const y_data = staged ? w.staged_y : y_layout.columns > 0 ? batch.planes[wanted_y.plane] : nullptr;
    const Columns<E> x = columns_of<E>(x_layout, x_data), y = columns_of<E>(y_layout, y_data);
    const Columns<E> triangles{reinterpret_cast<E*>(w.tall.triangles), k * k, k, 1, k, false};
    const VectorsCall<E> call{square, shape_.keeps_factors() ? triangles : x, y};
    shape_.is_large() ? decompose_large(launch, call, PlacedParts::kBoth, w) : launch_vectors(launch, call);
    if (shape_.keeps_factors()) {
      shape_.is_large() ? BlockLaunch<E>::expand(launch, w.tall, x) : launch_expansion(launch, w.tall, x);
    }
    if (finishes(shape_)) {
      finish(launch, square, batch, w, finish_vectors_of<T>(x_data, x_layout), finish_vectors_of<T>(y_data, y_layout));
    }
    if (plan.outputs.gradients()) {
      gradients(launch, square, batch, w, finish_vectors_of<T>(x_data, x_layout),
                finish_vectors_of<T>(y_data, y_layout));
    }
    if (staged) {
      launch_copy_columns(launch, w.staged_x, k, square.count, wanted_x, batch.planes[wanted_x.plane]);
      launch_copy_columns(launch, w.staged_y, k, square.count, wanted_y, batch.planes[wanted_y.plane]);
    }
  }

  void general(Launch* launch, const DeviceBatch& batch) const {
    const Plan& plan = shape_.plan;
    const auto vectors_in = [&](Plane plane) {
      const VectorLayout layout = layout_of_plane(plan.problem, plan.outputs, plane);
      void* const data = layout.columns > 0 ? batch.planes[plane] : nullptr;
      return GeneralVectors<T>{static_cast<Complex<T>*>(data), layout.row_stride, layout.col_stride, layout.conjugate};
    };
    const GeneralCall<T> call{
        .a = static_cast<const T*>(batch.matrices),
        .count = batch.count,
        .k = shape_.k,
        .row_major = plan.problem.order == Order::kRowMajor,
        .vectors = makes_vectors(plan),
        .start = plan.starting_vectors ? static_cast<const Complex<T>*>(batch.starting_vectors) : nullptr,
        .values = static_cast<Complex<T>*>(batch.planes[Plane::kValues]),
        .v = vectors_in(Plane::kLeft),
        .w = vectors_in(Plane::kRight),
        .conditions = static_cast<T*>(batch.planes[Plane::kEigenvalueCondition]),
        .certificates = static_cast<T*>(batch.planes[Plane::kCertificate]),
        .statuses = batch.statuses,
        .exception_counts = batch.exception_counts,
        .max_sweeps = plan.max_sweeps,
        .missed = plan.method == Method::kJacobi ? static_cast<uint8_t*>(batch.workspace) : nullptr};
    if (call.missed != nullptr) GeneralLaunch<E, true>::decompose(launch, call);
    GeneralLaunch<E, false>::decompose(launch, call);
  }

  void hermitian(Launch* launch, const SquareCall<T>& square, const DeviceBatch& batch, const Workspace& w) const {
    const Plan& plan = shape_.plan;
    const VectorLayout layout = long_layout(plan.problem, plan.outputs);
    void* const u = layout.columns > 0 ? batch.planes[layout.plane] : nullptr;
    const HermitianCall<E> call{square, plan.method, plan.triangle == Triangle::kUpper, columns_of<E>(layout, u)};
    if (shape_.by_rows()) {
      TridiagonalLaunch<E>::decompose(launch, call, w.blocks);
    } else {
      shape_.is_large() ? BlockLaunch<E>::hermitian(launch, call, w.blocks) : launch_hermitian(launch, call);
    }
    if (finishes(shape_)) {
      const VectorLayout none = short_layout(plan.problem, plan.outputs);
      finish(launch, square, batch, w, finish_vectors_of<T>(u, layout), finish_vectors_of<T>(nullptr, none));
    }
  }

  void finish(Launch* launch, const SquareCall<T>& square, const DeviceBatch& batch, const Workspace& w,
              const FinishVectors<T>& x, const FinishVectors<T>& y) const {
    const Outputs& outputs = shape_.plan.outputs;
    FinishCall<T> call{};
    const bool by_tiles = tiles_certificates(shape_);
    call.options = {shape_.k, shape_.wide(), outputs.fix_phases, true, outputs.certificate && !by_tiles};
    call.count = square.count;
    call.x = x;
    call.y = y;
    call.s = square.values;
    call.statuses = batch.statuses;
    call.a = static_cast<const T*>(batch.matrices);
    call.row_stride = shape_.rows_contiguous() ? shape_.k : 1;
    call.col_stride = shape_.rows_contiguous() ? 1 : shape_.long_side;
    call.hermitian = shape_.hermitian();
    call.upper = shape_.plan.triangle == Triangle::kUpper;
    call.certificates = static_cast<T*>(batch.planes[Plane::kCertificate]);
    call.scratch = w.finishing;
    finish_vectors<E>(launch, finishing_plan(shape_, square.count), call);
    if (by_tiles) write_certificates<E>(launch, call, tiles_of(shape_), w.tiles);
  }

  void gradients(Launch* launch, const SquareCall<T>& square, const DeviceBatch& batch, const Workspace& w,
                 const FinishVectors<T>& x, const FinishVectors<T>& y) const {
    const Problem& p = shape_.plan.problem;
    const Outputs& o = shape_.plan.outputs;
    const auto plane = [&](Plane of) { return static_cast<char*>(batch.planes[of]); };
    const GradientsCall<T> call{
        shape_.k,
        square.count,
        x,
        y,
        square.values,
        batch.statuses,
        make_mimo_task<T>(p.rows, p.cols, o.snr.data(), o.snr_count, o.rank_threshold),
        {plane(Plane::kCapacityGradient), plane(Plane::kWaterFillingGradient), plane(Plane::kEffectiveRankGradient),
         shape_.rows_contiguous() ? shape_.k : 1, shape_.rows_contiguous() ? 1 : shape_.long_side,
         static_cast<int64_t>(matrix_bytes(p))},
        w.finishing};
    write_gradients<E>(launch, finishing_plan(shape_, square.count), call);
  }

  const BatchShape shape_;
};

// The functions that a translation unit of one element type defines.
struct TypeLauncher {
  uint64_t (*workspace_bytes)(const Plan& plan, int64_t count);
  cudaError_t (*launch)(const Plan& plan, const DeviceBatch& batch, int device, cudaStream_t stream);
};

template <class E>
TypeLauncher type_launcher() {
  return {[](const Plan& plan, int64_t count) { return Launcher<E>(plan).workspace_bytes(count); },
          [](const Plan& plan, const DeviceBatch& batch, int device, cudaStream_t stream) {
            return Launcher<E>(plan).launch(batch, device, stream);
          }};
}

TypeLauncher f32_launcher();
TypeLauncher f64_launcher();
TypeLauncher c64_launcher();
TypeLauncher c128_launcher();

}  // namespace svdserve::cuda
#endif  // SVDSERVE_ENGINE_BACKENDS_CUDA_LAUNCH_H_
