#include "client/cli/report/units.h"

#include <array>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace svdserve::cli {
namespace {

// Three digits without an exponent and without zeros at the end. x >= 0, below a million.
std::string three_digits(double x) {
  if (x >= 999.5) return absl::StrFormat("%.0f", x);
  const int decimals = x >= 99.95 ? 0 : x >= 9.995 ? 1 : x >= 0.9995 ? 2 : 3;
  std::string text = absl::StrFormat("%.*f", decimals, x);
  if (decimals == 0) return text;
  text.erase(text.find_last_not_of('0') + 1);
  if (text.back() == '.') text.pop_back();
  return text;
}

// "2 min 5 s": two neighbouring units.
std::string two_units(int64_t whole, int64_t parts, const char* unit, const char* part_unit) {
  return parts == 0 ? absl::StrCat(whole, " ", unit) : absl::StrCat(whole, " ", unit, " ", parts, " ", part_unit);
}

}  // namespace

std::string duration_text(double seconds) {
  if (!std::isfinite(seconds)) return absl::StrCat(seconds, " s");
  if (seconds < 0) return absl::StrCat("-", duration_text(-seconds));
  if (seconds == 0) return "0 s";
  if (seconds < 1e-6) return absl::StrCat(three_digits(seconds * 1e9), " ns");
  if (seconds < 1e-4) return absl::StrCat(three_digits(seconds * 1e6), " us");
  if (seconds < 0.9995) return absl::StrCat(three_digits(seconds * 1e3), " ms");
  if (seconds < 119.5) return absl::StrCat(three_digits(seconds), " s");
  if (seconds > 1e15) return absl::StrFormat("%.3g s", seconds);
  const int64_t whole = std::llround(seconds);
  if (whole < 7200) return two_units(whole / 60, whole % 60, "min", "s");
  const int64_t minutes = std::llround(seconds / 60);
  return two_units(minutes / 60, minutes % 60, "h", "min");
}

std::string bytes_text(int64_t bytes) {
  constexpr std::array<const char*, 6> kUnits = {"KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
  if (bytes < 0) return absl::StrCat("-", bytes_text(bytes == INT64_MIN ? INT64_MAX : -bytes));
  if (bytes < 1024) return absl::StrCat(bytes, bytes == 1 ? " byte" : " bytes");
  double amount = static_cast<double>(bytes) / 1024;
  size_t unit = 0;
  for (; amount >= 1023.5 && unit + 1 < kUnits.size(); ++unit) amount /= 1024;
  return absl::StrCat(three_digits(amount), " ", kUnits[unit]);
}

std::string amount_text(double amount) {
  if (!std::isfinite(amount)) return absl::StrCat(amount);
  if (amount < 0) return absl::StrCat("-", amount_text(-amount));
  if (amount < 9999.5) return three_digits(amount);
  if (amount < 999500) return absl::StrCat(three_digits(amount * 1e-3), " thousand");
  if (amount < 999.5e6) return absl::StrCat(three_digits(amount * 1e-6), " million");
  return amount < 999.5e12 ? absl::StrCat(three_digits(amount * 1e-9), " billion") : absl::StrFormat("%.3g", amount);
}

}  // namespace svdserve::cli
