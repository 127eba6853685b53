#include "engine/backends/cuda/members/cuda_member.h"

#include <algorithm>
#include <utility>

#include "engine/backends/cuda/p_steps/gram_step.h"

namespace svdserve::cuda {
namespace {

constexpr uint64_t kSlackBytes = uint64_t{64} << 20;

}  // namespace

OnDevice::OnDevice(int device) {
  require(cudaGetDevice(&before_), "asking for the device");
  require(cudaSetDevice(device), "choosing a device");
}
OnDevice::~OnDevice() {
  (void)cudaSetDevice(before_);
  (void)cudaGetLastError();
}

uint64_t ring_member_bytes(int64_t rows, int64_t v_rows, int64_t n, bool complex) {
  const uint64_t element = complex ? sizeof(Complex) : sizeof(double);
  const auto size = [&](int64_t lines) {
    return static_cast<uint64_t>(CudaLargeBackend<double>::leading_dimension(lines)) * static_cast<uint64_t>(n) *
           element;
  };
  // Half of the blocks, of either width, are the pairs of one member; twice, since a first p-step may have fewer.
  const int pairs = static_cast<int>(n / 64 + 2);
  const uint64_t step =
      complex ? gram_step_workspace_bytes<Complex>(pairs, 64)
              : std::max(gram_step_workspace_bytes<double>(pairs, 64), gram_step_workspace_bytes<double>(pairs, 128));
  const auto blocks = static_cast<uint64_t>(n / 32 + 2);
  return size(rows) + size(v_rows) + 2 * step + 4 * blocks * blocks * sizeof(int) + kSlackBytes;
}

template <class E>
CudaMember<E>::~CudaMember() {
  try {
    const OnDevice here(device_);
    free_all();
  } catch (const large::LargeStop&) {
    (void)lane_.release();  // nothing of a dead context is freed
  }
}

template <class E>
void CudaMember<E>::free_all() {
  const bool sound = lane_ == nullptr || cudaStreamSynchronize(lane_->stream) == cudaSuccess;
  backend_.reset();
  if (!sound) {
    (void)cudaGetLastError();
    (void)lane_.release();
    return;
  }
  for (cudaEvent_t event : marks_) {
    if (event != nullptr) (void)cudaEventDestroy(event);
  }
  (void)cudaFree(memory_);
  if (lane_ != nullptr) keep_lane(std::move(lane_));
  (void)cudaGetLastError();
}

template <class E>
void CudaMember<E>::reserve(const ring::RingShape& shape) {
  const OnDevice here(device_);
  lane_ = take_lane(device_);
  for (cudaEvent_t& event : marks_) {
    require(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), "creating an event");
  }
  const uint64_t bytes = ring_member_bytes(shape.rows, shape.v_rows, shape.columns, kIsComplex<E>);
  require(cudaMalloc(&memory_, bytes), "allocating a large matrix's memory");
  arena_ = std::make_unique<DeviceArena>(memory_, bytes);
  backend_ = std::make_unique<CudaLargeBackend<E>>(*lane_, *arena_, watch_);
  x_ = backend_->matrix(shape.rows, shape.columns);
  if (shape.v_rows > 0) v_ = backend_->matrix(shape.v_rows, shape.columns);
  f_ = backend_->exponents(shape.columns);
  backend_->compute_as_member(shape.blocks());
  large::PStep<E> step;
  step.x = x_;
  step.width = shape.width;
  step.tolerance = shape.tolerance;
  versions_ = backend_->block_versions(step);
  backend_->stage("sweep");
}

template <class E>
void CudaMember<E>::take(const ring::UnionPlace& place, const ring::RingColumns<E>& columns) {
  const OnDevice here(device_);
  backend_->enqueue_upload(columns.x, x_.columns(place.first, place.count));
  if (v_) backend_->enqueue_upload(columns.v, v_.columns(place.first, place.count));
  backend_->upload(columns.f, place.count, f_ + place.first);
}

template <class E>
void CudaMember<E>::give(const ring::UnionPlace& place, const ring::RingColumns<E>& columns) {
  const OnDevice here(device_);
  backend_->enqueue_download(x_.columns(place.first, place.count), columns.x);
  if (v_) backend_->enqueue_download(v_.columns(place.first, place.count), columns.v);
  backend_->download(f_ + place.first, place.count, columns.f);
}

template <class E>
void CudaMember<E>::mark(ring::RingMark mark) {
  const OnDevice here(device_);
  require(cudaEventRecord(marks_[static_cast<int>(mark)], lane_->stream), "recording an event");
}

template <class E>
void CudaMember<E>::await(const CudaMember& member, ring::RingMark mark) {
  const OnDevice here(device_);
  require(cudaStreamWaitEvent(lane_->stream, member.marks_[static_cast<int>(mark)], 0), "waiting for another GPU");
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
  const OnDevice here(device_);
  const auto from = pieces(place), onto = to.pieces(place);
  for (size_t i = 0; i < from.size(); ++i) {
    if (from[i].bytes == 0) continue;
    require(cudaMemcpyPeerAsync(onto[i].data, to.device_, from[i].data, device_, from[i].bytes, lane_->stream),
            "sending columns to another GPU");
  }
}

template <class E>
void CudaMember<E>::wait() {
  const OnDevice here(device_);
  backend_->sync();
}

template <class E>
const large::BlockPair* CudaMember<E>::kept(const large::BlockPair* pairs, int count) {
  std::vector<int> key;
  key.reserve(2 * static_cast<size_t>(count));
  for (int i = 0; i < count; ++i) {
    key.push_back(pairs[i].p);
    key.push_back(pairs[i].q);
  }
  const auto [at, is_new] = lists_.try_emplace(std::move(key));
  if (is_new) at->second.assign(pairs, pairs + count);
  return at->second.data();
}

template <class E>
void CudaMember<E>::p_step(large::PStep<E> step) {
  const OnDevice here(device_);
  step.x = x_;
  step.v = v_;
  step.f = f_;
  step.places = nullptr;
  step.pairs = kept(step.pairs, step.count);
  backend_->p_step(step);
}

template <class E>
void CudaMember<E>::reset_counters() {
  const OnDevice here(device_);
  backend_->reset_counters();
}

template <class E>
large::PStepCounters CudaMember<E>::read_counters() {
  const OnDevice here(device_);
  return backend_->read_counters();
}

template <class E>
void CudaMember<E>::tell(std::vector<LargePhaseTime>& phases) {
  if (backend_ == nullptr) return;
  const OnDevice here(device_);
  for (const LargePhaseTime& phase : backend_->phases()) phases.push_back(phase);
}

template class CudaMember<double>;
template class CudaMember<Complex>;

}  // namespace svdserve::cuda
