// svdctl: the command line of svdserve.
#include <malloc.h>

#include <algorithm>
#include <cstdlib>

#include "absl/synchronization/mutex.h"
#include "client/cli/commands/table.h"

namespace {

// Buffers of a megabyte and more would be mapped and unmapped by every call: that costs more than copying them.
void keep_memory_warm() {
  mallopt(M_MMAP_THRESHOLD, 1 << 30);
  mallopt(M_TRIM_THRESHOLD, 2147483647);
  mallopt(M_TOP_PAD, 64 << 20);
}

// gRPC's own lines about a failed connection would stand before the one message that says what to do. A user who wants
// them sets the variable.
void keep_grpc_silent() { setenv("GRPC_VERBOSITY", "NONE", 0); }

}  // namespace

int main(int argc, char** argv) {
  using namespace svdserve::cli;
  keep_memory_warm();
  keep_grpc_silent();
  // Debian's Abseil looks for deadlocks at every lock of gRPC's.
  absl::SetMutexDeadlockDetectionMode(absl::OnDeadlockCycle::kIgnore);
  return run_command({argv + std::min(argc, 1), argv + argc});
}
