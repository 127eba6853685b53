#include "client/cli/guide/nearest.h"

#include <algorithm>
#include <cstddef>

namespace svdserve::cli {
namespace {

constexpr size_t kLongest = 64;  // of the words compared
constexpr size_t kLeastBeginning = 3;

// Damerau and Levenshtein's distance, where no two changes of places overlap.
size_t distance(const std::string& a, const std::string& b) {
  std::vector<std::vector<size_t>> d(a.size() + 1, std::vector<size_t>(b.size() + 1));
  for (size_t i = 0; i <= a.size(); ++i) d[i][0] = i;
  for (size_t j = 0; j <= b.size(); ++j) d[0][j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    for (size_t j = 1; j <= b.size(); ++j) {
      d[i][j] = std::min({d[i - 1][j] + 1, d[i][j - 1] + 1, d[i - 1][j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1)});
      const bool changed_places = i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1];
      if (changed_places) d[i][j] = std::min(d[i][j], d[i - 2][j - 2] + 1);
    }
  }
  return d[a.size()][b.size()];
}

// Without the dashes, which every option has.
std::string letters(const std::string& word) { return word.substr(std::min(word.find_first_not_of('-'), word.size())); }

}  // namespace

std::optional<std::string> nearest(const std::string& word, const std::vector<std::string>& known) {
  const std::string given = letters(word);
  if (given.empty() || given.size() > kLongest) return std::nullopt;
  std::optional<std::string> best;
  size_t least = std::max<size_t>(given.size() / 3, 1) + 1;
  for (const std::string& candidate : known) {
    const std::string other = letters(candidate);
    const bool begins_so = given.size() >= kLeastBeginning && other.starts_with(given);
    const size_t changes = begins_so ? 0 : distance(given, other);
    if (changes < least && changes < other.size()) {
      least = changes;
      best = candidate;
    }
  }
  return best;
}

}  // namespace svdserve::cli
