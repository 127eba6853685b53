#include "client/cli/formats/raw.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "client/cli/arguments.h"
#include "client/cli/files/file_error.h"

namespace svdserve::cli {
namespace {

// The service's names, in NumPy's words.
std::string numpy_type(const std::string& dtype) {
  for (const auto type : {client::DataType::kF16, client::DataType::kF32, client::DataType::kF64,
                          client::DataType::kC64, client::DataType::kC128}) {
    if (dtype == name(type)) return npy_type(type);
  }
  return dtype.empty() ? "f8" : dtype;
}

}  // namespace

client::Result<NpyArray> read_raw(FileBytes file, const std::string& shape, const std::string& dtype) {
  NpyArray array;
  for (const std::string& word : split_list(absl::StrReplaceAll(shape, {{"x", ","}}))) {
    const auto size = parse_int(word);
    if (!size || *size < 0) return input_error("--shape: \"" + shape + "\" is not a list of sizes, such as 1000,4,4");
    array.header.shape.push_back(*size);
  }
  if (!parse_type(numpy_type(dtype), &array.header).ok()) {
    return input_error("--dtype: \"" + dtype + "\" is not f16, f32, f64, c64, c128 or a type of NumPy such as <f4");
  }
  const auto bytes = array_bytes(array.header);
  if (!bytes || *bytes != file.bytes.size()) {
    return input_error(absl::StrCat("has ", file.bytes.size(), " bytes, but --shape ", shape, " of ",
                                    dtype.empty() ? "f64" : dtype, " is ",
                                    bytes ? absl::StrCat(*bytes, " bytes") : "larger than any file"));
  }
  array.data = file.bytes;
  array.owner = std::move(file.owner);
  return array;
}

}  // namespace svdserve::cli
