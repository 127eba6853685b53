// Finds and opens the plugin. The engine has no CUDA symbol of its own: a machine without a driver, without the plugin
// or without a device gets a reason instead.
#ifndef SVDSERVE_ENGINE_BACKENDS_CUDA_DOOR_PLUGIN_LOADER_H_
#define SVDSERVE_ENGINE_BACKENDS_CUDA_DOOR_PLUGIN_LOADER_H_

#include <string>

#include "engine/backends/cuda_door/plugin_abi.h"

namespace svdserve::cuda {

struct Plugin {
  const SvdserveCudaApi* api = nullptr;  // null: `refusal` says why
  int devices = 0;                       // > 0 with an api
  std::string refusal;
};

// Opened once for the process and never closed. The order is: the driver, libcuda.so.1; the plugin,
// libsvdserve_cuda.so; its version, its release and the sizes of its structs; its devices. SVDSERVE_CUDA_PLUGIN names
// the plugin, or it lies beside the executable, in ../lib or where the linker looks. Thread-safe.
const Plugin& plugin();

}  // namespace svdserve::cuda
#endif  // SVDSERVE_ENGINE_BACKENDS_CUDA_DOOR_PLUGIN_LOADER_H_
