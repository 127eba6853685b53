// Which GPUs the installed engine can use, or why none. Not having one is no fault.
#include <cstdio>
#include <string>

#include "engine/cuda_engine.h"

int main() {
  std::string why_not;
  const int count = svdserve::cuda_device_count(&why_not);
  if (count == 0) {
    std::printf("no GPU: %s\n", why_not.c_str());
    return 0;
  }
  for (int i = 0; i < count; ++i) {
    svdserve::CudaStatus status;
    const auto engine = svdserve::CudaEngine::open({.ordinal = i}, &status);
    std::printf("%d: %s\n", i, engine != nullptr ? engine->description().name.c_str() : status.text.c_str());
  }
  return 0;
}
