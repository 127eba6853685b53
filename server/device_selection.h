// Which devices a server is to use: what --devices and --large-gpus say.
#ifndef SVDSERVE_SERVER_DEVICE_SELECTION_H_
#define SVDSERVE_SERVER_DEVICE_SELECTION_H_

#include <cstdint>
#include <vector>

namespace svdserve::server {

// Whatever is named must be there, but for `automatic`.
struct DeviceSelection {
  bool automatic = true;  // every GPU that can be used, be it none, and the host; nothing else is set
  bool host = false;
  bool every_cuda = false;         // at least one
  std::vector<int> cuda_ordinals;  // ascending, each once; empty with every_cuda
};

// GPUs that compute one large matrix together: so many, or where it pays as many as were measured.
enum class LargeGpus : uint8_t { kAuto = 0, kOne = 1, kTwo = 2, kFour = 4, kEight = 8 };
// Gangs have to prove their speed on GPUs first (engine/decisions/0017).
inline constexpr LargeGpus kDefaultLargeGpus = LargeGpus::kOne;
constexpr const char* name(LargeGpus gpus) {
  switch (gpus) {
    case LargeGpus::kAuto:
      return "auto";
    case LargeGpus::kOne:
      return "1";
    case LargeGpus::kTwo:
      return "2";
    case LargeGpus::kFour:
      return "4";
    case LargeGpus::kEight:
      return "8";
  }
  return "";
}

}  // namespace svdserve::server
#endif  // SVDSERVE_SERVER_DEVICE_SELECTION_H_
