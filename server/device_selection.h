// Which devices a server is to use: what --devices says.
#ifndef SVDSERVE_SERVER_DEVICE_SELECTION_H_
#define SVDSERVE_SERVER_DEVICE_SELECTION_H_

#include <vector>

namespace svdserve::server {

// Whatever is named must be there, but for `automatic`.
struct DeviceSelection {
  bool automatic = true;  // every GPU that can be used, be it none, and the host; nothing else is set
  bool host = false;
  bool every_cuda = false;         // at least one
  std::vector<int> cuda_ordinals;  // ascending, each once; empty with every_cuda
};

}  // namespace svdserve::server
#endif  // SVDSERVE_SERVER_DEVICE_SELECTION_H_
