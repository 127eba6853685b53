// The devices that compute factors, as the server's configuration chooses them.
#ifndef SVDSERVE_SERVER_DEVICE_MAKE_FACTOR_DEVICES_H_
#define SVDSERVE_SERVER_DEVICE_MAKE_FACTOR_DEVICES_H_

#include <vector>

#include "server/device/factor_runner.h"

namespace svdserve::server {

// threads: of the host's engine; 0: every core the process may use. The host is always among them: it takes what nobody
// else can.
std::vector<FactorDevice> MakeFactorDevices(int threads);

}  // namespace svdserve::server
#endif  // SVDSERVE_SERVER_DEVICE_MAKE_FACTOR_DEVICES_H_
