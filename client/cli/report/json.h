// JSON, to be written: values and their text.
#ifndef SVDSERVE_CLIENT_CLI_REPORT_JSON_H_
#define SVDSERVE_CLIENT_CLI_REPORT_JSON_H_

#include <concepts>
#include <cstdint>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace svdserve::cli {

// A value of JSON (RFC 8259). Members of an object keep their order.
class Json {
 public:
  using Array = std::vector<Json>;
  using Object = std::vector<std::pair<std::string, Json>>;

  Json() = default;                                                       // null
  Json(std::same_as<bool> auto b) : value_(b) {}                          // NOLINT: converts on purpose
  Json(std::signed_integral auto i) : value_(static_cast<int64_t>(i)) {}  // NOLINT
  Json(double x) : value_(x) {}                                           // NOLINT: null unless it is finite
  Json(std::string s) : value_(std::move(s)) {}                           // NOLINT: UTF-8, or made so
  Json(const char* s) : value_(std::string(s)) {}                         // NOLINT
  Json(Array a) : value_(std::move(a)) {}                                 // NOLINT
  Json(Object o) : value_(std::move(o)) {}                                // NOLINT
  template <class T>
  static Json array_of(const T& values) {
    Array a;
    for (const auto& value : values) a.emplace_back(value);
    return a;
  }

  // Each member and each element of its own on a line, but arrays of numbers and texts on one. Numbers have the fewest
  // digits that are read back exactly. A newline ends the text.
  std::string text() const;

 private:
  void append(std::string* to, size_t indent) const;
  bool is_plain() const;

  std::variant<std::monostate, bool, int64_t, double, std::string, Array, Object> value_;
};

}  // namespace svdserve::cli
#endif  // SVDSERVE_CLIENT_CLI_REPORT_JSON_H_
