// NumPy's .npy files: matrices in, results out.
#ifndef SVDSERVE_CLIENT_CLI_FILES_NPY_H_
#define SVDSERVE_CLIENT_CLI_FILES_NPY_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "client/cpp/types.h"

namespace svdserve::cli {

// The header of a .npy file. Versions 1, 2 and 3.
struct NpyHeader {
  // As in NumPy: b bool, i signed, u unsigned, f float, c complex. Raw numbers may be of types that NumPy lacks, too:
  // c of 4 bytes, w bfloat16, z complex integers.
  char kind = 0;
  int item_bytes = 0;
  bool big_endian = false;
  bool fortran_order = false;
  std::vector<int64_t> shape = {};
  size_t data_offset = 0;
};

// Fails with INVALID_ARGUMENT where the bytes are not a .npy file, or one of an unsupported type. The same where the
// file is not exactly as long as its header says.
client::Result<NpyHeader> parse_npy(std::span<const std::byte> file);

// An array with its numbers, which the owner keeps. The header's data_offset has no meaning here.
struct NpyArray {
  NpyHeader header = {};
  std::span<const std::byte> data = {};
  std::shared_ptr<const void> owner = {};
};

// Reads a type as NumPy writes it, such as "<c8" or "f4", into the header's kind, item_bytes and big_endian. Fails as
// parse_npy() does.
client::Status parse_type(const std::string& text, NpyHeader* to);
// The bytes of the array; nothing where the product is too large.
std::optional<uint64_t> array_bytes(const NpyHeader& header);
// The array of a .npy file.
client::Result<NpyArray> to_array(std::span<const std::byte> file, std::shared_ptr<const void> owner);

// A stack of matrices, ready to be sent.
struct MatrixStack {
  std::vector<int64_t> batch_shape = {};  // the dimensions before the last two
  client::Batch batch = {};               // its owner keeps the data
  std::string path = {};                  // of the file, if it came from one
};

// Makes the last two dimensions matrices: no copy where the file's bytes can be sent as they lie, as half precision can.
// Integers and bools become f64, as in numpy.linalg; extended precision is refused, as there. exponent: integers of 16
// bits, and no others, are sent as they are, times 2^exponent; complex ones need it.
client::Result<MatrixStack> to_matrices(NpyArray array, std::optional<int32_t> exponent = std::nullopt);
// The same matrices as f32 or c64 where they are of 16-bit numbers, for calls that take none.
MatrixStack widened(MatrixStack stack);
// The diagonal of J: an array of one dimension, or one row or column, of numbers 1 and -1 of any type.
client::Result<std::vector<int8_t>> to_signature(const NpyArray& array);

// The head of a little-endian file of `type`, 'f' (float) or 'c' (complex) and the bytes of an item, such as "c8":
// version 1, padded to 64 bytes.
std::string npy_header(const std::string& type, const std::vector<int64_t>& shape, bool fortran_order = false);
// "f4", "c16" and so on: of the results of such matrices, and of their singular values.
std::string npy_type(client::DataType type);
std::string npy_value_type(client::DataType type);

}  // namespace svdserve::cli
#endif  // SVDSERVE_CLIENT_CLI_FILES_NPY_H_
