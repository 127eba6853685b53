#include "tests/fuzz/targets.h"

#include <grpcpp/support/slice.h>

#include <algorithm>
#include <bit>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "wire/crc32c.h"

namespace svdserve::fuzz {
namespace {

constexpr Target kTargets[] = {
    {"configuration", configuration},
    {"eigen_request", eigen_request},
    {"http_head", http_head},
    {"large_reply", large_reply},
    {"large_request", large_request},
    {"npy", npy},
    {"reply", reply},
    {"status", status},
    {"stream_request", stream_request},
    {"unary_request", unary_request},
};

}  // namespace

std::span<const Target> all_targets() { return kTargets; }

const Target* find_target(const std::string& name) {
  const auto* const found = std::ranges::find_if(kTargets, [&](const Target& t) { return t.name == name; });
  return found == std::end(kTargets) ? nullptr : found;
}

void require(bool good, const char* what) {
  if (good) return;
  std::fprintf(stderr, "\n%s\n", what);
  std::abort();
}

uint32_t hash_of(Bytes bytes) { return crc32c(0, bytes.data(), bytes.size()); }

grpc::ByteBuffer sliced(Bytes bytes) {
  const uint32_t hash = hash_of(bytes);
  const size_t most = hash % 4 == 0 ? bytes.size() : 1 + hash / 4 % 61;
  std::vector<grpc::Slice> slices;
  for (Bytes rest = bytes; !rest.empty();) {
    const size_t size = std::min(most, rest.size());
    slices.emplace_back(rest.data(), size);
    rest = rest.subspan(size);
  }
  return grpc::ByteBuffer(slices.data(), slices.size());
}

bool same(double a, double b) { return std::bit_cast<uint64_t>(a) == std::bit_cast<uint64_t>(b); }

}  // namespace svdserve::fuzz
