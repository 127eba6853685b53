#include "engine/ranks.h"

#include <complex>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "engine/backends/cuda_door/plugin_loader.h"
#include "engine/backends/host/base/fp_environment.h"
#include "engine/backends/host/members/host_rank.h"
#include "engine/backends/ranks/rank_process.h"
#include "engine/backends/ranks/serve_rank.h"

namespace svdserve {
namespace {

int serve_host_rank(int threads) {
  ranks::RankSocket socket(ranks::begin_rank());
  const host::FpEnvironment environment;
  host::HostRankKind kind(threads);
  ranks::serve_rank<host::HostRankKind, std::complex<double>>(socket, kind);
  return EXIT_SUCCESS;
}

int serve_cuda_rank(int device) {
  ranks::Descriptor socket = ranks::begin_rank();
  const cuda::Plugin& plugin = cuda::plugin();
  if (plugin.api == nullptr) {
    std::fprintf(stderr, "svdserve: no rank of GPU %d: %s\n", device, plugin.refusal.c_str());
    return EXIT_FAILURE;
  }
  plugin.api->serve_rank(socket.release(), device);
  return EXIT_SUCCESS;
}

}  // namespace

std::optional<int> run_as_rank(int argc, char** argv) {
  const std::vector<std::string> arguments(argv, argv + argc);
  if (argc < 2 || arguments[1] != ranks::kRankArgument) {
    ranks::may_start() = true;
    return std::nullopt;
  }
  if (argc == 5 && arguments[2] == "host") return serve_host_rank(std::atoi(argv[3]));
  if (argc == 4 && arguments[2] == "cuda") return serve_cuda_rank(std::atoi(argv[3]));
  std::fprintf(stderr, "%s: %s is for the program's own use: it starts a rank with it\n", argv[0],
               ranks::kRankArgument);
  return 2;
}

}  // namespace svdserve
