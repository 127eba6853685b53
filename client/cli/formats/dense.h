// Memory for the matrix that a text describes.
#ifndef SVDSERVE_CLIENT_CLI_FORMATS_DENSE_H_
#define SVDSERVE_CLIENT_CLI_FORMATS_DENSE_H_

#include <unistd.h>

#include <complex>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "client/cli/files/npy.h"
#include "client/cpp/types.h"

namespace svdserve::cli {

// The memory of this machine: no input may take more.
inline uint64_t memory_bytes() {
  return static_cast<uint64_t>(::sysconf(_SC_PHYS_PAGES)) * static_cast<uint64_t>(::sysconf(_SC_PAGE_SIZE));
}

// A matrix of f64 or c128, row-major, from its numbers in this order.
template <class T>
NpyArray dense_array(std::vector<T> numbers, int64_t rows, int64_t cols) {
  constexpr bool kIsComplex = sizeof(T) == 2 * sizeof(double);
  NpyArray array;
  array.header.kind = kIsComplex ? 'c' : 'f';
  array.header.item_bytes = static_cast<int>(sizeof(T));
  array.header.shape = {rows, cols};
  const auto held = std::make_shared<std::vector<T>>(std::move(numbers));
  array.data = std::as_bytes(std::span(*held));
  array.owner = held;
  return array;
}

}  // namespace svdserve::cli
#endif  // SVDSERVE_CLIENT_CLI_FORMATS_DENSE_H_
