#include "engine/algorithms/large/cluster_vectors.h"

#include <cstddef>
#include <vector>

#include "engine/algorithms/general/general_eigen.h"

namespace svdserve::large {
namespace {

// place[j]: the row in which column j goes, each row once; the largest components choose first. By rows and columns.
template <class Square>
std::vector<int> places_of_columns(int k, const Square& square_of_component) {
  std::vector<int> place(static_cast<size_t>(k), -1);
  std::vector<char> taken(static_cast<size_t>(k), 0);
  for (int count = 0; count < k; ++count) {
    double largest = -1;
    int row = 0, column = 0;
    for (int j = 0; j < k; ++j) {
      for (int i = 0; i < k && place[static_cast<size_t>(j)] < 0; ++i) {
        if (taken[static_cast<size_t>(i)] != 0) continue;
        const double square = square_of_component(i, j);
        if (square > largest) largest = square, row = i, column = j;
      }
    }
    place[static_cast<size_t>(column)] = row;
    taken[static_cast<size_t>(row)] = 1;
  }
  return place;
}

}  // namespace

bool cluster_vectors(int k, const std::complex<double>* s, std::complex<double>* y) {
  using Lane = scalar::ScalarLane<double>;
  using Element = scalar::ComplexElement<Lane>;
  using View = scalar::MatrixView<Element>;
  const size_t columns = static_cast<size_t>(k), size = columns * columns;
  std::vector<Element> elements(3 * size + columns);
  std::vector<Lane> numbers(3 * columns);
  Element* const e = elements.data();
  const View t{e, k}, v{e + size, k}, w{e + 2 * size, k};
  const scalar::GeneralWork<View, View, Lane> work{
      t, t, t, v, w, numbers.data(), e + 3 * size, numbers.data() + columns};
  const auto load = [&](View a) {
    for (int j = 0; j < k; ++j) {
      for (int i = 0; i < k; ++i) a(i, j) = {Lane(s[j * k + i].real()), Lane(s[j * k + i].imag())};
    }
  };
  Lane residuals[2] = {Lane(0), Lane(0)};
  const scalar::GeneralWanted right_alone{true, false, false};
  const Lane status =
      scalar::general_eigen<true>(scalar::Alone(), work, scalar::RuntimeSize{k}, false, right_alone, load, residuals);
  if (status.v != 0) return false;
  const std::vector<int> place = places_of_columns(k, [&](int i, int j) {
    const Element x = v(i, j);
    return x.re.v * x.re.v + x.im.v * x.im.v;
  });
  for (int j = 0; j < k; ++j) {
    for (int i = 0; i < k; ++i) y[place[static_cast<size_t>(j)] * k + i] = {v(i, j).re.v, v(i, j).im.v};
  }
  return true;
}

}  // namespace svdserve::large
