// The first lines that a user of C++ writes: plain ADDRESS
#include <svdserve/client.h>

#include <chrono>
#include <cmath>
#include <iostream>
#include <vector>

using namespace std::chrono_literals;

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  svdserve::client::Client client({.address = argv[1]});
  const std::vector<double> vec = {3, 0, 0, 4, 1, 1, 1, 1};  // two matrices of 2 x 2
  try {
    const auto d = client.svd(vec, {2, 2}, {.timeout = 10s}).value();
    std::cout << d.s(0)[0] << " " << d.s(0)[1] << ", " << d.s(1)[0] << " " << d.s(1)[1] << " by " << d.report.device
              << "\n";
    if (std::abs(d.s(0)[0] - 4) > 1e-14 || std::abs(std::abs(d.u(0)(1, 0)) - 1) > 1e-14) return 1;
    (void)client.svd(vec, {3, 2}).value();
  } catch (const svdserve::client::Error& error) {
    std::cout << error.what() << "\n";
    return error.status().field == "matrices.data" ? 0 : 1;
  }
  return 1;
}
