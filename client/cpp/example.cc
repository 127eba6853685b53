// Singular values of a thousand random 4x4 complex matrices, by a server: example [ADDRESS]
#include <svdserve/client.h>

#include <chrono>
#include <complex>
#include <cstdio>
#include <random>
#include <vector>

int main(int argc, char** argv) {
  using namespace std::chrono_literals;
  using Complex = std::complex<float>;
  std::mt19937 generator(1);
  std::normal_distribution<float> normal;
  std::vector<Complex> channels(1000 * 4 * 4);
  for (Complex& h : channels) h = {normal(generator), normal(generator)};

  svdserve::client::Client client({.address = argc > 1 ? argv[1] : "127.0.0.1:50051"});
  const auto s = client.singular_values(channels, {4, 4}, {.timeout = 10s});
  if (!s.ok()) {
    std::fprintf(stderr, "%s\n", s.status().to_string().c_str());
    return 1;
  }
  std::printf("matrix 0:");
  for (float value : s->s(0)) std::printf(" %.6f", value);
  std::printf("\n%lld matrices on %s by %s\n", static_cast<long long>(s->report.count), s->report.device.c_str(),
              name(s->report.method).c_str());
}
