// The element types by the names that a command line gives them, which are the service's own.
#ifndef SVDSERVE_CLIENT_CLI_DATA_TYPE_H_
#define SVDSERVE_CLIENT_CLI_DATA_TYPE_H_

#include <optional>
#include <string_view>

#include "client/cpp/types.h"

namespace svdserve::cli {

inline constexpr char kDataTypeNames[] = "f32, f64, c64, c128, f16, bf16, c32, i16 or ci16";

// Nothing where the text is none of kDataTypeNames. NumPy's codes are others: its f16 and c32 are extended precision.
inline std::optional<client::DataType> parse_data_type(std::string_view text) {
  for (int i = 0; i <= static_cast<int>(client::DataType::kLast); ++i) {
    if (const auto t = static_cast<client::DataType>(i); text == name(t)) return t;
  }
  return std::nullopt;
}

}  // namespace svdserve::cli
#endif  // SVDSERVE_CLIENT_CLI_DATA_TYPE_H_
