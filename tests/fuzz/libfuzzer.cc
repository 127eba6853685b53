// The entries of libFuzzer: the target is the argument --target=NAME.
#include <cstdio>
#include <cstdlib>
#include <string>

#include "tests/fuzz/targets.h"

namespace {

const svdserve::fuzz::Target* chosen = nullptr;

}  // namespace

extern "C" int LLVMFuzzerInitialize(int* argc, char*** argv) {
  constexpr const char* kFlag = "--target=";
  for (int i = 1; i < *argc; ++i) {
    const std::string argument = (*argv)[i];
    if (argument.starts_with(kFlag)) chosen = svdserve::fuzz::find_target(argument.substr(9));
  }
  if (chosen != nullptr) return 0;
  std::fprintf(stderr, "give --target=NAME, one of:");
  for (const svdserve::fuzz::Target& target : svdserve::fuzz::all_targets()) std::fprintf(stderr, " %s", target.name);
  std::fprintf(stderr, "\n");
  std::exit(2);
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  chosen->run({data, size});
  return 0;
}
