// svdctl: the command line of svdserve.
#include <malloc.h>

#include <algorithm>

#include "absl/synchronization/mutex.h"
#include "client/cli/commands/table.h"

namespace {

// Buffers of a megabyte and more would be mapped and unmapped by every call: that costs more than copying them.
void keep_memory_warm() {
  mallopt(M_MMAP_THRESHOLD, 1 << 30);
  mallopt(M_TRIM_THRESHOLD, 2147483647);
  mallopt(M_TOP_PAD, 64 << 20);
}

}  // namespace

int main(int argc, char** argv) {
  using namespace svdserve::cli;
  keep_memory_warm();
  // Debian's Abseil looks for deadlocks at every lock of gRPC's.
  absl::SetMutexDeadlockDetectionMode(absl::OnDeadlockCycle::kIgnore);
  return run_command({argv + std::min(argc, 1), argv + argc});
}
