#include "engine/backends/cuda_door/plugin_loader.h"

#include <dlfcn.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <vector>

namespace svdserve::cuda {
namespace {

constexpr char kFileName[] = "libsvdserve_cuda.so";

std::string error_of_dl() {
  const char* const text = dlerror();
  return text != nullptr ? text : "unknown error";
}

// Where the plugin may lie, in the order of trying.
std::vector<std::string> candidates() {
  if (const char* const named = std::getenv("SVDSERVE_CUDA_PLUGIN"); named != nullptr && *named != '\0') return {named};
  std::vector<std::string> paths;
  char self[4096];
  if (const ssize_t n = readlink("/proc/self/exe", self, sizeof(self) - 1); n > 0) {
    const std::string executable(self, static_cast<size_t>(n));
    const std::string folder = executable.substr(0, executable.rfind('/'));
    for (const char* const relative : {"/", "/../lib/", "/lib/"}) {
      const std::string path = folder + relative + kFileName;
      if (access(path.c_str(), R_OK) == 0) paths.push_back(path);
    }
  }
  paths.push_back(kFileName);
  return paths;
}

Plugin refuse(std::string why) { return {nullptr, 0, std::move(why)}; }

// Empty, or the difference between the build of this table and ours.
std::string difference(const SvdserveCudaBuild& build) {
  if (build.version != kSvdserveCudaAbiVersion) return "its table is of version " + std::to_string(build.version);
  const std::string release(build.release, strnlen(build.release, sizeof(build.release)));
  if (release != kRelease) return "its release is " + release + " instead of " + kRelease;
  for (int i = 0; i < kSvdserveCudaStructs; ++i) {
    const auto& [name, bytes] = kCrossingStructs[i];
    if (build.sizes[i] == bytes) continue;
    return "its " + std::string(name) + " has " + std::to_string(build.sizes[i]) + " bytes instead of " +
           std::to_string(bytes);
  }
  return "";
}

Plugin open() {
  void* const driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_GLOBAL);
  if (driver == nullptr) return refuse("no NVIDIA driver: " + error_of_dl());
  const std::string path = candidates().front();
  void* const library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) return refuse("the CUDA back end does not open: " + error_of_dl());
  const auto entry = reinterpret_cast<SvdserveCudaEntry>(dlsym(library, kSvdserveCudaEntryName));
  const SvdserveCudaApi* const api = entry != nullptr ? entry(kSvdserveCudaAbiVersion) : nullptr;
  if (api == nullptr) {
    return refuse(path + " is no CUDA back end of version " + std::to_string(kSvdserveCudaAbiVersion));
  }
  if (const std::string other = difference(api->build); !other.empty()) {
    return refuse(path + " is a CUDA back end of another build: " + other);
  }
  int32_t devices = 0;
  if (const int error = api->device_count(&devices); error != 0) {
    return refuse(std::string("the driver counts no devices: ") + api->error_name(error) + ", " +
                  api->error_text(error));
  }
  if (devices == 0) return refuse("the driver knows no device");
  return {api, devices, ""};
}

}  // namespace

const Plugin& plugin() {
  static const Plugin opened = open();
  return opened;
}

}  // namespace svdserve::cuda
