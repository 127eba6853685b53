// From the array in a file to a stack of matrices, and back to a file.

#include <algorithm>
#include <bit>
#include <charconv>
#include <cmath>
#include <cstring>
#include <functional>
#include <numeric>

#include "absl/strings/str_cat.h"
#include "client/cli/files/npy.h"

namespace svdserve::cli {
namespace {

using client::DataType;
using client::MemoryOrder;
using client::Result;
using client::Status;

Status refused(std::string message) { return {.code = client::Code::kInvalidArgument, .message = std::move(message)}; }

template <class T>
T read_as(const std::byte* bytes) {
  T value;
  std::memcpy(&value, bytes, sizeof value);
  return value;
}

// An integer or bool of the file as a number.
double to_double(const std::byte* item, const NpyHeader& h) {
  uint64_t bits = 0;
  for (int i = 0; i < h.item_bytes; ++i) {
    const int at = h.big_endian ? i : h.item_bytes - 1 - i;
    bits = bits << 8 | std::to_integer<uint64_t>(item[at]);
  }
  if (h.kind != 'i') return static_cast<double>(bits);
  const int unused = 64 - 8 * h.item_bytes;
  return static_cast<double>(static_cast<int64_t>(bits << unused) >> unused);
}

// IEEE 754's binary16: a sign, 5 bits of exponent, 10 of significand.
double half_to_double(uint16_t bits) {
  const int exponent = bits >> 10 & 31, significand = bits & 1023;
  double size = 0;
  if (exponent == 31) {
    size = significand == 0 ? HUGE_VAL : std::nan("");
  } else if (exponent == 0) {
    size = std::ldexp(significand, -24);
  } else {
    size = std::ldexp(significand + 1024, exponent - 25);
  }
  return bits >> 15 != 0 ? -size : size;
}

// A part of an element of a 16-bit type. Exact.
float narrow_to_float(uint16_t bits, DataType type, int32_t exponent) {
  if (type == DataType::kBF16) return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16);
  const bool is_integer = type == DataType::kI16 || type == DataType::kCI16;
  return static_cast<float>(is_integer ? std::ldexp(static_cast<int16_t>(bits), exponent) : half_to_double(bits));
}

// Any real number of the file, but extended precision.
double to_real(const std::byte* item, const NpyHeader& h) {
  if (h.kind != 'f') return to_double(item, h);
  std::byte bytes[8];
  for (int i = 0; i < h.item_bytes; ++i) bytes[i] = item[h.big_endian ? h.item_bytes - 1 - i : i];
  if (h.item_bytes == 2) return half_to_double(read_as<uint16_t>(bytes));
  return h.item_bytes == 4 ? static_cast<double>(read_as<float>(bytes)) : read_as<double>(bytes);
}

// The element types of the service; integers and bools become kF64, but for those of 16 bits that have an exponent.
Result<DataType> data_type(const NpyHeader& h, bool has_exponent) {
  if (has_exponent && h.kind == 'i' && h.item_bytes == 2) return DataType::kI16;
  if (has_exponent && h.kind == 'z') return DataType::kCI16;
  if (has_exponent) return refused("--exponent is for integers of 16 bits with a sign, as NumPy's int16; leave it out");
  if (h.kind == 'z')
    return refused("ci16 needs --exponent E: its integers are times 2^E, so 0 leaves them as they are");
  if (h.kind == 'w') return DataType::kBF16;
  if (h.kind == 'f' && h.item_bytes == 2) return DataType::kF16;
  if (h.kind == 'f' && h.item_bytes == 4) return DataType::kF32;
  if (h.kind == 'f' && h.item_bytes == 8) return DataType::kF64;
  if (h.kind == 'c' && h.item_bytes == 4) return DataType::kC32;
  if (h.kind == 'c' && h.item_bytes == 8) return DataType::kC64;
  if (h.kind == 'c' && h.item_bytes == 16) return DataType::kC128;
  if (h.kind == 'f' || h.kind == 'c') {
    return refused(absl::StrCat("numbers of extended precision, NumPy's ", h.kind == 'c' ? "clongdouble" : "longdouble",
                                ", are not supported, as in numpy.linalg; convert with astype"));
  }
  return DataType::kF64;
}

using Bytes = std::shared_ptr<std::byte[]>;

Bytes allocate(size_t size) { return std::make_shared_for_overwrite<std::byte[]>(std::max<size_t>(size, 1)); }

// Items in the machine's byte order, and as `type`; the order of the items stays.
Bytes converted(const std::byte* data, int64_t items, const NpyHeader& h, DataType type) {
  if (type == DataType::kF64 && h.kind != 'f') {
    Bytes out = allocate(static_cast<size_t>(items) * sizeof(double));
    auto* values = reinterpret_cast<double*>(out.get());
    for (int64_t i = 0; i < items; ++i) values[i] = to_double(data + i * h.item_bytes, h);
    return out;
  }
  const int64_t part = h.kind == 'c' ? h.item_bytes / 2 : h.item_bytes;
  const int64_t bytes = items * h.item_bytes;
  Bytes out = allocate(static_cast<size_t>(bytes));
  for (int64_t at = 0; at < bytes; at += part) std::reverse_copy(data + at, data + at + part, out.get() + at);
  return out;
}

// A Fortran-ordered array (b..., m, n) holds the elements of one place of all matrices side by side. Gathers each
// matrix, row-major, the matrices in C order of b.
Bytes gathered(const std::byte* data, const std::vector<int64_t>& batch_shape, int64_t m, int64_t n, size_t item) {
  const int64_t count = std::accumulate(batch_shape.begin(), batch_shape.end(), int64_t{1}, std::multiplies<int64_t>());
  // C index of each batch entry, in the file's order: the first dimension runs fastest.
  std::vector<int64_t> c_index(static_cast<size_t>(count));
  for (int64_t f = 0; f < count; ++f) {
    int64_t rest = f, c = 0;
    for (const int64_t size : batch_shape) {
      c = c * size + rest % size;
      rest /= size;
    }
    c_index[static_cast<size_t>(f)] = c;
  }
  Bytes out = allocate(static_cast<size_t>(count * m * n) * item);
  constexpr int64_t kBlock = 256;  // matrices at a time, so that both sides stay in the cache
  for (int64_t first = 0; first < count; first += kBlock) {
    const int64_t last = std::min(first + kBlock, count);
    for (int64_t j = 0; j < n; ++j) {
      for (int64_t i = 0; i < m; ++i) {
        const std::byte* from = data + static_cast<size_t>(count * (i + m * j)) * item;
        for (int64_t f = first; f < last; ++f) {
          const int64_t to = (c_index[static_cast<size_t>(f)] * m + i) * n + j;
          std::memcpy(out.get() + static_cast<size_t>(to) * item, from + static_cast<size_t>(f) * item, item);
        }
      }
    }
  }
  return out;
}

}  // namespace

Result<MatrixStack> to_matrices(NpyArray array, std::optional<int32_t> exponent) {
  const NpyHeader* const h = &array.header;
  if (h->shape.size() < 2) {
    return refused(absl::StrCat("the array has ", h->shape.size(), h->shape.size() == 1 ? " dimension" : " dimensions",
                                ", but needs at least 2"));
  }
  const Result<DataType> type = data_type(*h, exponent.has_value());
  if (!type.ok()) return type.status();
  MatrixStack stack;
  stack.batch_shape.assign(h->shape.begin(), h->shape.end() - 2);
  client::Batch& b = stack.batch;
  b.rows = h->shape[h->shape.size() - 2];
  b.cols = h->shape.back();
  b.data_type = *type;
  b.exponent = exponent.value_or(0);
  const bool empty = std::find(h->shape.begin(), h->shape.end(), 0) != h->shape.end();
  // Beside a side of length 0 the other sizes may be anything: their product is not computed.
  b.count = b.rows == 0 || b.cols == 0 ? 0 : 1;
  for (const int64_t size : stack.batch_shape) b.count = empty ? 0 : b.count * size;
  b.data = array.data.data();
  b.owner = std::move(array.owner);
  if (empty) return stack;

  const bool is_sent_as_it_is = *type != DataType::kF64 || h->kind == 'f';
  if (!is_sent_as_it_is || h->big_endian) {
    const Bytes numbers = converted(static_cast<const std::byte*>(b.data), b.count * b.rows * b.cols, *h, *type);
    b.data = numbers.get();
    b.owner = numbers;
  }
  if (h->fortran_order && b.count == 1) {
    b.memory_order = MemoryOrder::kColumnMajor;
  } else if (h->fortran_order) {
    const Bytes matrices = gathered(static_cast<const std::byte*>(b.data), stack.batch_shape, b.rows, b.cols,
                                    client::element_bytes(b.data_type));
    b.data = matrices.get();
    b.owner = matrices;
  }
  return stack;
}

MatrixStack widened(MatrixStack stack) {
  client::Batch& b = stack.batch;
  const DataType wide = result_type(b.data_type);
  if (b.data_type == wide) return stack;
  const int64_t numbers = b.count * b.rows * b.cols * (wide == DataType::kC64 ? 2 : 1);
  const auto* const from = static_cast<const std::byte*>(b.data);
  Bytes out = allocate(static_cast<size_t>(numbers) * sizeof(float));
  for (int64_t i = 0; i < numbers; ++i) {
    const float number = narrow_to_float(read_as<uint16_t>(from + i * 2), b.data_type, b.exponent);
    std::memcpy(out.get() + static_cast<size_t>(i) * sizeof(float), &number, sizeof(float));
  }
  b.data = out.get();
  b.owner = std::move(out);
  b.data_type = wide;
  b.exponent = 0;
  return stack;
}

namespace {

// With as many digits as tell it from its neighbours.
std::string shortest(double x) {
  char text[32];
  return {text, std::to_chars(text, text + sizeof text, x).ptr};
}

}  // namespace

Result<std::vector<int8_t>> to_signature(const NpyArray& array) {
  const NpyHeader& h = array.header;
  const bool is_line = h.shape.size() == 2 && (h.shape[0] == 1 || h.shape[1] == 1);
  if (h.shape.size() != 1 && !is_line) return refused("must be the diagonal of J, an array of one dimension");
  if (h.kind == 'c' || (h.kind == 'f' && h.item_bytes > 8)) {
    return refused("the diagonal of J must have real numbers or integers");
  }
  std::vector<int8_t> signature(static_cast<size_t>(is_line ? h.shape[0] * h.shape[1] : h.shape[0]));
  const std::byte* item = array.data.data();
  for (size_t i = 0; i < signature.size(); ++i, item += h.item_bytes) {
    const double x = to_real(item, h);
    if (x != 1 && x != -1) return refused(absl::StrCat("entry ", i, " is ", shortest(x), ", but must be 1 or -1"));
    signature[i] = static_cast<int8_t>(x);
  }
  return signature;
}

}  // namespace svdserve::cli
