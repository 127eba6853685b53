#include "engine/backends/cuda/members/cuda_member.h"

#include <algorithm>
#include <utility>

namespace svdserve::cuda {
namespace {

constexpr uint64_t kSlackBytes = uint64_t{64} << 20;

}  // namespace

uint64_t ring_member_bytes(int64_t rows, int64_t v_rows, int64_t n, bool complex) {
  const uint64_t element = complex ? sizeof(Complex) : sizeof(double);
  const auto size = [&](int64_t lines) {
    return static_cast<uint64_t>(CudaLargeBackend<double>::leading_dimension(lines)) * static_cast<uint64_t>(n) *
           element;
  };
  // One member may have all pairs; twice, since a first p-step may have fewer.
  const uint64_t step =
      complex ? CudaLargeBackend<Complex>::p_step_bytes(n) : CudaLargeBackend<double>::p_step_bytes(n);
  const auto blocks = static_cast<uint64_t>(n / 32 + 2);
  return size(rows) + size(v_rows) + 2 * step + 4 * blocks * blocks * sizeof(int) + kSlackBytes;
}

template <class E>
void CudaMember<E>::reserve(const ring::RingShape& shape) {
  part_.open(ring_member_bytes(shape.rows, shape.v_rows, shape.columns, kIsComplex<E>), watch_);
  for (cudaEvent_t& event : marks_) event = part_.new_event();
  const OnDevice here(device());
  CudaLargeBackend<E>& backend = part_.backend();
  x_ = backend.matrix(shape.rows, shape.columns);
  if (shape.v_rows > 0) v_ = backend.matrix(shape.v_rows, shape.columns);
  f_ = backend.exponents(shape.columns);
  backend.compute_as_member(shape.blocks());
  large::PStep<E> step;
  step.x = x_;
  step.width = shape.width;
  step.tolerance = shape.tolerance;
  versions_ = backend.block_versions(step);
}

template <class E>
void CudaMember<E>::take(const ring::UnionPlace& place, const ring::RingColumns<E>& columns) {
  const OnDevice here(device());
  part_.backend().stage("checkpoint");
  part_.backend().enqueue_upload(columns.x, x_.columns(place.first, place.count));
  if (v_) part_.backend().enqueue_upload(columns.v, v_.columns(place.first, place.count));
  part_.backend().upload(columns.f, place.count, f_ + place.first);
}

template <class E>
void CudaMember<E>::give(const ring::UnionPlace& place, const ring::RingColumns<E>& columns) {
  const OnDevice here(device());
  part_.backend().stage("checkpoint");
  part_.backend().enqueue_download(x_.columns(place.first, place.count), columns.x);
  if (v_) part_.backend().enqueue_download(v_.columns(place.first, place.count), columns.v);
  part_.backend().download(f_ + place.first, place.count, columns.f);
  part_.backend().stage("idle");
}

// Times of a swap: waits for the partner, then copies, then waits for its copies.
template <class E>
void CudaMember<E>::mark(ring::RingMark mark) {
  const OnDevice here(device());
  part_.backend().stage("wait");
  require(cudaEventRecord(marks_[static_cast<int>(mark)], stream()), "recording an event");
}

template <class E>
void CudaMember<E>::await(const CudaMember& member, ring::RingMark mark) {
  const OnDevice here(device());
  require(cudaStreamWaitEvent(stream(), member.marks_[static_cast<int>(mark)], 0), "waiting for another GPU");
}

template <class E>
auto CudaMember<E>::pieces(const ring::UnionPlace& place) const -> std::array<Piece, 4> {
  const auto columns = [&](const View& a) -> Piece {
    if (!a) return {};
    return {a.columns(place.first, place.count).data, static_cast<size_t>(place.count * a.ld) * sizeof(E)};
  };
  std::array<Piece, 4> pieces = {columns(x_), columns(v_)};
  pieces[2] = {f_ + place.first, static_cast<size_t>(place.count) * sizeof(int32_t)};
  if (versions_ != nullptr) {
    pieces[3] = {versions_ + place.first_block, static_cast<size_t>(place.blocks) * sizeof(int)};
  }
  return pieces;
}

template <class E>
void CudaMember<E>::send(const ring::UnionPlace& place, CudaMember& to, int /*to_slot*/) {
  const OnDevice here(device());
  const auto from = pieces(place), onto = to.pieces(place);
  part_.backend().stage("swap");
  for (size_t i = 0; i < from.size(); ++i) {
    if (from[i].bytes == 0) continue;
    require(cudaMemcpyPeerAsync(onto[i].data, to.device(), from[i].data, device(), from[i].bytes, stream()),
            "sending columns to another GPU");
  }
}

template <class E>
void CudaMember<E>::wait() {
  const OnDevice here(device());
  part_.backend().sync();
}

template <class E>
void CudaMember<E>::p_steps(std::vector<large::PStep<E>> steps) {
  const OnDevice here(device());
  for (large::PStep<E>& step : steps) {
    step.x = x_;
    step.v = v_;
    step.f = f_;
    step.places = nullptr;
  }
  part_.backend().stage("sweep");
  part_.backend().p_steps(steps);
}

template <class E>
void CudaMember<E>::reset_counters() {
  const OnDevice here(device());
  part_.backend().reset_counters();
}

template <class E>
large::PStepCounters CudaMember<E>::read_counters() {
  const OnDevice here(device());
  return part_.backend().read_counters();
}

template <class E>
void CudaMember<E>::tell(std::vector<LargePhaseTime>& phases) {
  if (!part_.is_open()) return;
  const OnDevice here(device());
  for (const LargePhaseTime& phase : part_.backend().phases()) phases.push_back(phase);
}

template class CudaMember<double>;
template class CudaMember<Complex>;

}  // namespace svdserve::cuda
