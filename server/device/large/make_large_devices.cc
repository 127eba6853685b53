#include "server/device/large/make_large_devices.h"

#include <algorithm>
#include <functional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace svdserve::server {
namespace {

// The rest is for lanes (engine/cuda_engine.cc), contexts, and the workspaces of libraries.
constexpr double kShareForLarge = 0.9;

// --large-gpus=auto. A sweep on four GPUs was 2.6 times as fast as on one at this order, and 1.6 to 2.1 times at half of
// it (engine/decisions/0017). Eight were not measured.
constexpr int kAutoGpus = 4;
constexpr int64_t kAutoLeastOrder = 8192;

// GPUs by their place among those that are there.
using Gang = std::vector<size_t>;

// Gangs of `count` of these GPUs. First come those whose members reach each other; *near: how many
// these are.
std::vector<Gang> gangs_of(size_t count, const std::vector<int>& ordinals, const CudaReach& reach, size_t* near) {
  std::vector<Gang> gangs;
  std::vector<bool> used(ordinals.size(), false);
  const auto add = [&](const std::function<bool(size_t, size_t)>& fit) {
    for (size_t first = 0; first < ordinals.size(); ++first) {
      Gang gang;
      for (size_t i = first; i < ordinals.size() && gang.size() < count; ++i) {
        const auto fits = [&](size_t member) { return fit(member, i); };
        if (!used[i] && std::all_of(gang.begin(), gang.end(), fits)) gang.push_back(i);
      }
      if (gang.size() < count) continue;
      for (const size_t member : gang) used[member] = true;
      gangs.push_back(std::move(gang));
    }
  };
  add([&](size_t i, size_t j) { return reach(ordinals[i], ordinals[j]); });
  *near = gangs.size();
  add([](size_t, size_t) { return true; });
  return gangs;
}

// Without an engine: *status says why not.
LargeDevice make_gang(const std::vector<LargeDevice>& gpus, const std::vector<int>& ordinals, const Gang& members,
                      const CudaRingFactory& ring, CudaStatus* status) {
  LargeDevice gang;
  std::vector<std::string> names;
  std::vector<int> its_ordinals;
  gang.memory_bytes = gpus[members[0]].memory_bytes;
  for (const size_t i : members) {
    names.push_back(gpus[i].name);
    its_ordinals.push_back(ordinals[i]);
    gang.members.push_back(static_cast<int>(i));
    gang.memory_bytes = std::min(gang.memory_bytes, gpus[i].memory_bytes);
  }
  gang.name = absl::StrJoin(names, ",");
  gang.engine = ring(its_ordinals, status);
  return gang;
}

// Adds the gangs of `count` of the GPUs that are there, which have these ordinals.
void add_gangs_of(size_t count, int64_t least_order, const std::vector<int>& ordinals, const CudaRingFactory& ring,
                  const CudaReach& reach, MadeLargeDevices* made) {
  size_t near = 0;
  const std::vector<Gang> gangs = gangs_of(count, ordinals, reach, &near);
  for (size_t i = 0; i < gangs.size(); ++i) {
    CudaStatus status;
    LargeDevice gang = make_gang(made->devices, ordinals, gangs[i], ring, &status);
    gang.least_order = least_order;
    if (gang.engine == nullptr) {
      made->refusals.push_back(absl::StrCat(gang.name, " compute no large matrix together: ", status.text));
      continue;
    }
    if (!status.ok()) {
      made->warnings.push_back(absl::StrCat(gang.name, " survive no fault of a GPU together: ", status.text));
    }
    if (i >= near) {
      made->warnings.push_back(absl::StrCat(
          gang.name, " do not reach each other's memory: what they send to each other goes through the host"));
    }
    made->devices.push_back(std::move(gang));
  }
}

void add_gangs(LargeGpus wanted, const std::vector<int>& ordinals, const CudaRingFactory& ring, const CudaReach& reach,
               MadeLargeDevices* made) {
  const bool automatic = wanted == LargeGpus::kAuto;
  const auto most = static_cast<size_t>(automatic ? kAutoGpus : static_cast<int>(wanted));
  if (!automatic && most > ordinals.size() && !ordinals.empty()) {
    made->refusals.push_back(
        absl::StrCat("--large-gpus=", most, ", but ", ordinals.size(), " GPUs compute large matrices"));
  }
  for (size_t count = most; count >= 2; count /= 2) {
    add_gangs_of(count, automatic ? kAutoLeastOrder : 0, ordinals, ring, reach, made);
  }
}

}  // namespace

std::unique_ptr<LargeEngine> open_gang(const std::vector<int>& ordinals, CudaStatus* status, RingMembers members) {
  auto engine = open_cuda_ring_engine(ordinals, status, members);
  if (engine != nullptr || members == RingMembers::kInProcess) return engine;
  CudaStatus of_process;
  engine = open_cuda_ring_engine(ordinals, &of_process);
  if (engine == nullptr) *status = of_process;
  return engine;
}

MadeLargeDevices make_large_devices(absl::Span<const DeviceInfo> batch_devices, int threads, LargeGpus gpus,
                                    const CudaLargeFactory& cuda, const CudaRingFactory& ring, const CudaReach& reach) {
  MadeLargeDevices made;
  std::vector<int> ordinals;
  for (const DeviceInfo& info : batch_devices) {
    if (info.kind != DeviceKind::kCuda) continue;
    CudaStatus status;
    std::unique_ptr<LargeEngine> engine = cuda(info.ordinal, &status);
    if (engine == nullptr) {
      made.refusals.push_back(absl::StrCat(info.name, " computes no large matrices: ", status.text));
      continue;
    }
    const auto bytes = static_cast<int64_t>(kShareForLarge * static_cast<double>(info.memory_bytes));
    made.devices.push_back({info.name, bytes, std::move(engine)});
    ordinals.push_back(info.ordinal);
  }
  add_gangs(gpus, ordinals, ring, reach, &made);
  made.devices.push_back({"host:0", 0, make_host_large_engine(threads)});
  return made;
}

}  // namespace svdserve::server
