#include "server/device/make_devices.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "server/device/host_device.h"

namespace svdserve::server {
namespace {

// The selected devices that are not among `devices`; empty: none.
std::string missing(const DeviceSelection& selection, const std::vector<std::unique_ptr<Device>>& devices) {
  if (selection.every_cuda && devices.empty()) return "cuda";
  std::vector<std::string> names;
  for (const int ordinal : selection.cuda_ordinals) {
    const std::string name = absl::StrCat("cuda:", ordinal);
    const auto is_it = [&name](const std::unique_ptr<Device>& device) { return device->info().name == name; };
    if (std::none_of(devices.begin(), devices.end(), is_it)) names.push_back(name);
  }
  return absl::StrJoin(names, ",");
}

}  // namespace

MadeDevices make_devices(const DeviceOptions& options, const CudaFactory& cuda) {
  const DeviceSelection& selection = options.selection;
  MadeDevices made;
  if (selection.automatic || selection.every_cuda || !selection.cuda_ordinals.empty()) {
    CudaDevices found = cuda({selection.cuda_ordinals, options.cuda_lanes, options.cuda_slot_bytes});
    made.devices = std::move(found.devices);
    made.refusals = std::move(found.refusals);
    const std::string names = missing(selection, made.devices);
    if (!names.empty()) {
      made.devices.clear();
      made.error = absl::StrCat("--devices names ", names, ", which cannot be used", made.refusals.empty() ? "" : ": ",
                                absl::StrJoin(made.refusals, "; "));
      return made;
    }
  }
  if (selection.automatic || selection.host) {
    std::vector<std::unique_ptr<Device>> host = make_host_devices(options.host_devices, options.threads, options.simd);
    made.devices.insert(made.devices.end(), std::make_move_iterator(host.begin()), std::make_move_iterator(host.end()));
  }
  return made;
}

}  // namespace svdserve::server
