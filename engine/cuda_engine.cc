#include "engine/cuda_engine.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "engine/backends/cuda_door/cuda_lane.h"
#include "engine/backends/cuda_door/plugin_loader.h"

namespace svdserve {

int cuda_device_count(std::string* why_not) {
  const cuda::Plugin& plugin = cuda::plugin();
  if (plugin.api == nullptr && why_not != nullptr) *why_not = plugin.refusal;
  return plugin.devices;
}

struct CudaEngine::Impl {
  explicit Impl(cuda::DeviceApi device_api) : api(device_api) {}

  const cuda::DeviceApi api;
  CudaDeviceDescription description;
  cuda::Traffic traffic;
  std::vector<std::unique_ptr<cuda::CudaLane>> lanes;
};

CudaEngine::CudaEngine(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
CudaEngine::~CudaEngine() = default;

std::unique_ptr<CudaEngine> CudaEngine::open(const CudaEngineOptions& options, CudaStatus* status) {
  constexpr int kNoDevice = 100;  // cudaErrorNoDevice
  const cuda::Plugin& plugin = cuda::plugin();
  *status = {};
  if (plugin.api == nullptr) {
    *status = {kNoDevice, plugin.refusal, false};
    return nullptr;
  }
  if (options.ordinal < 0 || options.ordinal >= plugin.devices) {
    *status = {kNoDevice,
               "there is no GPU " + std::to_string(options.ordinal) + ", only " + std::to_string(plugin.devices),
               false};
    return nullptr;
  }
  const cuda::DeviceApi api(plugin.api, options.ordinal);
  SvdserveCudaDevice info;
  if (*status = api.status(api->device_info(options.ordinal, &info), "asking for the device's properties");
      !status->ok()) {
    return nullptr;
  }
  auto impl = std::make_unique<Impl>(api);
  impl->description = {options.ordinal,    info.name,          info.uuid,           info.memory_bytes,
                       info.compute_major, info.compute_minor, info.multiprocessors};
  constexpr uint64_t kShareOfSlots = 12;  // the server leaves a tenth to them, contexts and libraries
  const int lanes = std::max(options.lanes, 1);
  impl->traffic.room = info.memory_bytes / kShareOfSlots;
  impl->traffic.room_of_slot = impl->traffic.room / static_cast<uint64_t>(lanes * cuda::CudaLane::kSlots);
  const uint64_t slot_bytes = std::max(options.slot_bytes, kLeastSlotBytes);
  for (int i = 0; i < lanes; ++i) {
    impl->lanes.push_back(std::make_unique<cuda::CudaLane>(api, slot_bytes, info.multiprocessors, &impl->traffic));
    if (*status = impl->lanes.back()->allocate(); !status->ok()) return nullptr;
  }
  return std::unique_ptr<CudaEngine>(new CudaEngine(std::move(impl)));
}

const CudaDeviceDescription& CudaEngine::description() const { return impl_->description; }
int CudaEngine::lanes() const { return static_cast<int>(impl_->lanes.size()); }

uint64_t CudaEngine::workspace_bytes(const Plan& plan, int64_t count) const {
  return impl_->api->workspace_bytes(&plan, count);
}

CudaStatus CudaEngine::launch(const Plan& plan, const DeviceBatch& batch, CUstream_st* stream) const {
  if (batch.count == 0) return {};
  return impl_->api.status(impl_->api->launch(impl_->api.device(), &plan, &batch, stream), "launching kernels");
}

CudaEngine::Outcome CudaEngine::execute(int lane, const Plan& plan, absl::Span<const HostSegment> segments,
                                        const std::atomic<bool>* cancel) {
  return impl_->lanes[static_cast<size_t>(lane)]->execute(plan, segments, cancel);
}

uint64_t CudaEngine::bytes_uploaded() const { return impl_->traffic.uploaded.load(std::memory_order_relaxed); }
uint64_t CudaEngine::bytes_downloaded() const { return impl_->traffic.downloaded.load(std::memory_order_relaxed); }
uint64_t CudaEngine::bytes_allocated() const { return impl_->traffic.allocated.load(std::memory_order_relaxed); }

PinnedBuffer::PinnedBuffer(size_t bytes) {
  const cuda::Plugin& plugin = cuda::plugin();
  if (plugin.api == nullptr || plugin.api->allocate_pinned(bytes, &data_) != 0) data_ = nullptr;
}
PinnedBuffer::~PinnedBuffer() {
  if (data_ != nullptr) cuda::plugin().api->release_pinned(data_);
}
PinnedBuffer::PinnedBuffer(PinnedBuffer&& other) noexcept : data_(std::exchange(other.data_, nullptr)) {}
PinnedBuffer& PinnedBuffer::operator=(PinnedBuffer&& other) noexcept {
  std::swap(data_, other.data_);
  return *this;
}

}  // namespace svdserve
