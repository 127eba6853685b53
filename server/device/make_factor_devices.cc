#include "server/device/make_factor_devices.h"

#include <utility>

namespace svdserve::server {

std::vector<FactorDevice> MakeFactorDevices(int threads) {
  std::vector<FactorDevice> devices;
  devices.push_back({"host:0", 0, make_host_factor_engine(threads)});
  return devices;
}

}  // namespace svdserve::server
