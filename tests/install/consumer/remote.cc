// Singular values from a server, and the SVD of a large matrix, by the installed client: remote ADDRESS
#include <svdserve/client.h>

#include <cmath>
#include <complex>
#include <cstdio>
#include <vector>

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  svdserve::client::Client client({.address = argv[1]});

  const auto info = client.server_info({.timeout = std::chrono::seconds(10)});
  if (!info.ok()) {
    std::fprintf(stderr, "server_info: %s\n", info.status().to_string().c_str());
    return 1;
  }
  const std::vector<std::complex<double>> matrices = {{3, 0}, {0, 0}, {0, 0}, {0, 4}};
  const auto s = client.singular_values(std::span<const std::complex<double>>(matrices), 2, 2, 1);
  if (!s.ok()) {
    std::fprintf(stderr, "singular_values: %s\n", s.status().to_string().c_str());
    return 1;
  }
  std::printf("svdserve %s: %g %g\n", info.value().version.c_str(), (*s).values[0], (*s).values[1]);
  if (std::abs((*s).values[0] - 4) > 1e-14 || std::abs((*s).values[1] - 3) > 1e-14) return 1;

  std::vector<float> a(60 * 50);
  for (size_t i = 0; i < 50; ++i) a[i * 50 + i] = static_cast<float>(i + 1);
  const auto large = client.svd_large(std::span<const float>(a), 60, 50);
  if (!large.ok()) {
    std::fprintf(stderr, "svd_large: %s\n", large.status().to_string().c_str());
    return 1;
  }
  std::printf("large: %g .. %g by %s\n", large->values.front(), large->values.back(), large->report.device.c_str());
  return std::abs(large->values.front() - 50) < 1e-4 && std::abs(large->values.back() - 1) < 1e-4 ? 0 : 1;
}
