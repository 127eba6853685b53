// svdctl: the command line of svdserve.
#include <malloc.h>

#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

#include "absl/synchronization/mutex.h"
#include "client/cli/commands/commands.h"

namespace {

constexpr char kHelp[] =
    "Usage: svdctl COMMAND [options]\n\n"
    "Talks to an svdserve server: singular values, vectors and capacities of many small matrices, SVDs of\n"
    "large ones, Hermitian eigenproblems of both, and general ones.\n\n"
    "Commands:\n"
    "  values IN.npy [-o OUT.npy]   singular values of the matrices in a NumPy file\n"
    "  svd IN.npy --u --s --vh      decomposition A = U diag(S) V^H of matrices of any size, into NumPy files\n"
    "  hsvd G.npy J.npy             hyperbolic decomposition of one matrix, V^H J V = J\n"
    "  eigh A.npy --w --v           eigenvalues and eigenvectors of Hermitian matrices of any size\n"
    "  eig A.npy --w --v            eigenvalues and eigenvectors of square matrices of any size\n"
    "  eigvals A.npy [-o W.npy]     their eigenvalues alone\n"
    "  capacity IN.npy --snr-db X   capacity of the matrices as MIMO channels\n"
    "  info                         version, data types, methods, limits and devices of the server\n"
    "  health                       whether it serves; exit code 0 or 1, for container health checks\n"
    "  bench                        load generator: rates and latency percentiles\n"
    "  latency                      latency of one small call beside an empty one\n\n"
    "svdctl COMMAND --help explains a command. The server is 127.0.0.1:50051 unless --address or the\n"
    "environment variable SVDSERVE_ADDRESS names another.\n\n"
    "Exit codes: 0 done, 1 the server or a file failed, 2 wrong usage or input, 3 some matrices are not ok.\n"
    "128 + N ended by signal N: 129 by a closed terminal, 130 by Ctrl-C, 143 by SIGTERM.\n";

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
  const std::vector<std::string> words(argv + std::min(argc, 2), argv + argc);
  const std::string command = argc > 1 ? argv[1] : "";
  if (command == "values") return run_values(words);
  if (command == "svd") return run_svd(words);
  if (command == "hsvd") return run_hsvd(words);
  if (command == "eigh") return run_eigh(words);
  if (command == "eig") return run_eig(words);
  if (command == "eigvals") return run_eigvals(words);
  if (command == "capacity") return run_capacity(words);
  if (command == "info") return run_info(words);
  if (command == "health") return run_health(words);
  if (command == "bench") return run_bench(words);
  if (command == "latency") return run_latency(words);
  if (command == "--help" || command == "-h" || command == "help") {
    std::fputs(kHelp, stdout);
    return kDone;
  }
  if (command == "--version") {
    std::puts("svdctl " SVDSERVE_VERSION);
    return kDone;
  }
  std::fprintf(stderr, "svdctl: %s\n\n%s", command.empty() ? "no command" : ("unknown command " + command).c_str(),
               kHelp);
  return kBadUsage;
}
