// The engine without a server: singular values of three 2 x 3 matrices.
//   g++ -std=c++20 example.cc, linked to svdserve::engine
#include <cstdio>
#include <vector>

#include "engine/svd_engine.h"

int main() {
  // Row-major, one after the other; the last one is infinite and gets NaN and a status.
  const std::vector<double> matrices = {3, 0, 0, 0, 4, 0,  //
                                        1, 2, 3, 4, 5, 6,  //
                                        1, 2, 3, 4, 5, 1e308 * 10};
  const svdserve::Problem problem{2, 3, svdserve::DType::kF64, svdserve::Order::kRowMajor};
  const auto [plan, error] = svdserve::make_plan(problem, svdserve::Options{});
  if (!plan) {
    std::fprintf(stderr, "%s %s\n", error.field.c_str(), error.message.c_str());
    return 1;
  }

  std::vector<double> values(3 * svdserve::values_per_matrix(problem));
  std::vector<svdserve::MatrixStatus> statuses(3);
  const svdserve::HostSegment batch{matrices.data(), 3, values.data(), statuses.data()};
  const svdserve::SvdEngine engine;  // every core, the best instructions
  const auto outcome = engine.execute(*plan, {&batch, 1});

  std::printf("%s on %d threads, %s instructions\n", name(plan->method), engine.threads(), name(engine.simd()));
  for (int i = 0; i < 3; ++i) {
    std::printf("%.15g %.15g status %d\n", values[2 * i], values[2 * i + 1], static_cast<int>(statuses[i]));
  }
  return outcome.completed && outcome.report.ok == 2 && values[0] == 4 && values[1] == 3 ? 0 : 1;
}
