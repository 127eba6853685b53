#include "client/cli/formats/input.h"

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <iterator>
#include <optional>
#include <string_view>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "client/cli/data_type.h"
#include "client/cli/files/file_bytes.h"
#include "client/cli/files/file_error.h"
#include "client/cli/formats/csv.h"
#include "client/cli/formats/matrix_market.h"
#include "client/cli/formats/npz.h"
#include "client/cli/formats/raw.h"

namespace svdserve::cli {
namespace {

using client::Result;
using client::Status;

// The file and the member of "a.npz:name"; a file that has such a name itself is meant before.
std::pair<std::string, std::string> split(const std::string& path) {
  constexpr std::string_view kMark = ".npz:";
  const size_t at = path.rfind(kMark);
  std::error_code error;
  if (at == std::string::npos || std::filesystem::exists(path, error)) return {path, ""};
  return {path.substr(0, at + kMark.size() - 1), path.substr(at + kMark.size())};
}

bool begins_with(std::span<const std::byte> bytes, std::string_view text) {
  return bytes.size() >= text.size() && std::memcmp(bytes.data(), text.data(), text.size()) == 0;
}

// One of kFormats; nothing where neither the options nor the file say it.
std::optional<std::string> format_of(const std::string& file, std::span<const std::byte> bytes, const InputFormat& f) {
  if (!f.format.empty()) return f.format;
  if (begins_with(bytes, "\x93NUMPY") || file.ends_with(".npy")) return "npy";
  if (begins_with(bytes, "PK\x03\x04") || begins_with(bytes, "PK\x05\x06") || file.ends_with(".npz")) return "npz";
  if (begins_with(bytes, "%%MatrixMarket") || file.ends_with(".mtx")) return "mtx";
  if (file.ends_with(".csv")) return "csv";
  if (!f.shape.empty()) return "raw";
  return std::nullopt;
}

Result<NpyArray> read(const std::string& file, const std::string& member, const InputFormat& f) {
  auto loaded = file_bytes(file);
  if (!loaded.ok()) return loaded.status();
  const auto format = format_of(file, loaded->bytes, f);
  if (!format) {
    return input_error(
        absl::StrCat(file == "-" ? "" : file + ": ",
                     "not .npy, .npz or Matrix Market, and not named .csv; say what it is by --format, or "
                     "--shape of raw numbers"));
  }
  if (*format != "raw" && !f.shape.empty()) {
    return input_error(absl::StrCat("--shape is for raw numbers, but this is a .", *format,
                                    " file; leave it out, or add --format raw"));
  }
  if (*format == "npz") return read_npz(*std::move(loaded), member);
  if (!member.empty()) return input_error("only a .npz file has members; leave :" + member + " out");
  if (*format == "npy") return to_array(loaded->bytes, std::move(loaded->owner));
  if (*format == "mtx") return read_matrix_market(loaded->bytes);
  if (*format == "csv") return read_csv(loaded->bytes);
  return read_raw(*std::move(loaded), f.shape, f.dtype);
}

// Names the file, as the caller did, before an error in it. Errors of the system name it themselves.
Status in_file(const std::string& path, Status s) {
  if (s.code != client::Code::kInvalidArgument) return s;
  const std::string name = path == "-" ? "standard input" : path;
  if (!s.message.starts_with(name)) s.message.insert(0, name + ": ");
  return s;
}

Status check(const InputFormat& f) {
  const bool known = std::ranges::find(kFormats, f.format) != std::end(kFormats);
  if (!f.format.empty() && !known)
    return input_error("--format: \"" + f.format + "\" is not npy, npz, mtx, csv or raw");
  const bool is_raw = f.format == "raw" || (f.format.empty() && !f.shape.empty());
  if (is_raw && f.shape.empty()) return input_error("--format raw needs --shape, such as --shape 1000,4,4");
  if (!is_raw && !f.shape.empty())
    return input_error("--shape is for raw numbers; leave it out with --format " + f.format);
  if (!is_raw && !f.dtype.empty()) return input_error("--dtype is for raw numbers, with --shape");
  return {};
}

}  // namespace

void InputFormat::declare(Arguments* a) {
  a->option(
      "--format", "NAME",
      "of the input: npy, npz, mtx (Matrix Market), csv or raw; default: by its first\nbytes, or by the ending .csv",
      &format);
  a->choices({std::begin(kFormats), std::end(kFormats)});
  a->option("--shape", "M,N", "the input has raw numbers without a head, in an array of this shape", &shape);
  a->option("--dtype", "T",
            absl::StrCat("of raw numbers: ", kDataTypeNames, ";\n",
                         "c32, ci16: complex of two 16-bit numbers; or a type of NumPy such as >c8;\ndefault: f64"),
            &dtype);
  a->option("--exponent", "E",
            "send integers of 16 bits as they are, times 2^E, E from -126 to 112, and compute\nin f32; without it they "
            "are computed in f64. ci16 needs it",
            &exponent);
}

Result<NpyArray> load_array(const std::string& path, const InputFormat& format) {
  if (auto s = check(format); !s.ok()) return s;
  const auto [file, member] = split(path);
  Result<NpyArray> array = read(file, member, format);
  return array.ok() ? std::move(array) : in_file(path, array.status());
}

Result<MatrixStack> load_matrices(const std::string& path, const InputFormat& format) {
  const auto exponent = parse_int(format.exponent);
  if (!format.exponent.empty() && (!exponent || *exponent < -126 || *exponent > 112)) {
    return input_error("--exponent: \"" + format.exponent + "\" is not a number from -126 to 112");
  }
  Result<NpyArray> array = load_array(path, format);
  if (!array.ok()) return array.status();
  Result<MatrixStack> stack = to_matrices(*std::move(array), exponent);
  if (!stack.ok()) return in_file(path, stack.status());
  stack->path = path;
  return stack;
}

Result<std::vector<int8_t>> load_signature(const std::string& path) {
  const Result<NpyArray> array = load_array(path);
  if (!array.ok()) return array.status();
  auto signature = to_signature(*array);
  return signature.ok() ? std::move(signature) : in_file(path, signature.status());
}

std::string input_file(const std::string& path) { return split(path).first; }

std::string output_stem(const std::string& path) {
  if (path == "-") return "stdin";
  const auto [file, member] = split(path);
  const std::string stem = std::filesystem::path(file).stem().string();
  return member.empty() ? stem : absl::StrCat(stem, ".", absl::StrReplaceAll(member, {{"/", "_"}}));
}

}  // namespace svdserve::cli
