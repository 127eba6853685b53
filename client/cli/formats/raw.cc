#include "client/cli/formats/raw.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "client/cli/arguments.h"
#include "client/cli/data_type.h"
#include "client/cli/files/file_error.h"

namespace svdserve::cli {
namespace {

// Sets kind, item_bytes and big_endian. A name of the service goes before NumPy's, which are other types for f16, c32.
bool set_type(const std::string& dtype, NpyHeader* h) {
  using client::DataType;
  const auto type = dtype.empty() ? DataType::kF64 : parse_data_type(dtype);
  if (!type) return parse_type(dtype, h).ok();
  const DataType results = result_type(*type);
  const bool is_complex = results == DataType::kC64 || results == DataType::kC128;
  h->item_bytes = static_cast<int>(client::element_bytes(*type));
  h->kind = *type == DataType::kBF16   ? 'w'
            : *type == DataType::kI16  ? 'i'
            : *type == DataType::kCI16 ? 'z'
            : is_complex               ? 'c'
                                       : 'f';
  return true;
}

}  // namespace

client::Result<NpyArray> read_raw(FileBytes file, const std::string& shape, const std::string& dtype) {
  NpyArray array;
  for (const std::string& word : split_list(absl::StrReplaceAll(shape, {{"x", ","}}))) {
    const auto size = parse_int(word);
    if (!size || *size < 0) return input_error("--shape: \"" + shape + "\" is not a list of sizes, such as 1000,4,4");
    array.header.shape.push_back(*size);
  }
  if (!set_type(dtype, &array.header)) {
    return input_error(
        absl::StrCat("--dtype: \"", dtype, "\" is neither ", kDataTypeNames, " nor a type of NumPy such as <f4"));
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
