#include "client/cli/arguments.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/time/time.h"
#include "client/cli/guide/nearest.h"

namespace svdserve::cli {
namespace {

constexpr char kDuration[] = "a duration, such as 500ms, 10s or 1.5m";

}  // namespace

std::optional<int64_t> parse_int(const std::string& text) {
  int64_t value = 0;
  if (!absl::SimpleAtoi(text, &value)) return std::nullopt;
  return value;
}

std::optional<double> parse_double(const std::string& text) {
  double value = 0;
  if (!absl::SimpleAtod(text, &value)) return std::nullopt;
  return value;
}

std::optional<Duration> parse_duration(const std::string& text) {
  absl::Duration d;
  if (const auto seconds = parse_double(text)) {
    d = absl::Seconds(*seconds);
  } else if (!absl::ParseDuration(text, &d)) {
    return std::nullopt;
  }
  if (d < absl::ZeroDuration() || d > absl::Hours(24 * 365)) return std::nullopt;
  return absl::ToChronoNanoseconds(d);
}

std::vector<std::string> split_list(const std::string& text) {
  if (text.empty()) return {};
  return absl::StrSplit(text, ',');
}

void Arguments::add(Option option) { options_.push_back(std::move(option)); }

void Arguments::section(std::string title) { add({"", "", std::move(title), "", nullptr}); }

void Arguments::option(const std::string& name, const std::string& value, const std::string& help,
                       std::string* target) {
  add({name, value, target->empty() ? help : absl::StrCat(help, " (default ", *target, ")"), "a text",
       [=](const std::string& s) {
         *target = s;
         return true;
       }});
}

void Arguments::option(const std::string& name, const std::string& value, const std::string& help, int64_t* target,
                       int64_t least) {
  add({name, value, absl::StrCat(help, " (default ", *target, ")"), absl::StrCat("an integer of at least ", least),
       [=](const std::string& s) {
         const auto v = parse_int(s);
         if (!v || *v < least) return false;
         *target = *v;
         return true;
       }});
}

void Arguments::option(const std::string& name, const std::string& value, const std::string& help, double* target) {
  add({name, value, absl::StrCat(help, " (default ", *target, ")"), "a number of at least 0",
       [=](const std::string& s) {
         const auto v = parse_double(s);
         if (!v || !std::isfinite(*v) || *v < 0) return false;
         *target = *v;
         return true;
       }});
}

void Arguments::option(const std::string& name, const std::string& value, const std::string& help, Duration* target) {
  const std::string default_text = absl::StrCat(" (default ", absl::FormatDuration(absl::FromChrono(*target)), ")");
  add({name, value, *target < Duration::zero() ? help : help + default_text, kDuration, [=](const std::string& s) {
         const auto v = parse_duration(s);
         if (v) *target = *v;
         return v.has_value();
       }});
}

void Arguments::option(const std::string& name, const std::string& value, const std::string& help,
                       std::optional<Duration>* target) {
  add({name, value, help, kDuration, [=](const std::string& s) {
         *target = parse_duration(s);
         return target->has_value();
       }});
}

void Arguments::flag(const std::string& name, const std::string& help, bool* target) {
  add({name, "", help, "", [=](const std::string&) { return *target = true; }});
}

void Arguments::operand(const std::string& name, std::string* target) { operands_.emplace_back(name, target); }

const Arguments::Option* Arguments::find(const std::string& name) const {
  for (const auto& [other, real] : aliases_) {
    if (other == name) return find(real);
  }
  for (const Option& o : options_) {
    const std::vector<std::string> spellings = absl::StrSplit(o.name, ", ");
    if (std::find(spellings.begin(), spellings.end(), name) != spellings.end()) return &o;
  }
  return nullptr;
}

std::string Arguments::unknown(const std::string& name) const {
  std::vector<std::string> known;
  for (const Syntax::Option& option : syntax().options) {
    known.insert(known.end(), option.names.begin(), option.names.end());
  }
  const auto meant = nearest(name, known);
  return absl::StrCat("unknown option ", name, meant ? absl::StrCat("; did you mean ", *meant, "?") : "");
}

std::optional<std::string> Arguments::parse_option(const std::vector<std::string>& words, size_t* i) {
  const std::string& word = words[*i];
  const size_t equals = word.starts_with("--") ? word.find('=') : std::string::npos;
  const std::string name = word.substr(0, equals);
  const Option* const option = find(name);
  if (option == nullptr) return unknown(name);
  std::string value;
  if (option->value.empty()) {
    if (equals != std::string::npos) return absl::StrCat(name, " takes no value");
  } else if (equals != std::string::npos) {
    value = word.substr(equals + 1);
  } else if (++*i < words.size()) {
    value = words[*i];
  } else {
    return absl::StrCat(name, " needs a value: ", option->value);
  }
  if (value.empty() && !option->value.empty()) return absl::StrCat(name, " needs a value: ", option->value);
  if (!option->set(value)) return absl::StrCat(name, ": \"", value, "\" is not ", option->expected);
  return std::nullopt;
}

std::optional<std::string> Arguments::parse(const std::vector<std::string>& words) {
  const auto asks_for_help = [](const std::string& w) { return w == "--help" || w == "-h"; };
  help_wanted_ = std::any_of(words.begin(), std::find(words.begin(), words.end(), "--"), asks_for_help);
  if (help_wanted_) return std::nullopt;
  size_t given = 0;
  bool options_over = false;
  for (size_t i = 0; i < words.size(); ++i) {
    const std::string& word = words[i];
    if (!options_over && word == "--") {
      options_over = true;
    } else if (options_over || word.size() < 2 || word[0] != '-') {
      if (given == operands_.size() && more_ == nullptr) return absl::StrCat("unexpected operand ", word);
      if (given < operands_.size()) {
        *operands_[given++].second = word;
      } else {
        more_->push_back(word);
      }
    } else if (auto wrong = parse_option(words, &i)) {
      return wrong;
    }
  }
  if (given < operands_.size()) return absl::StrCat("missing operand ", operands_[given].first);
  return std::nullopt;
}

bool Syntax::Option::is_path() const { return value.ends_with(".npy") || value == "FILE" || value == "PREFIX"; }

Syntax Arguments::syntax() const {
  Syntax syntax{.usage = usage_, .summary = summary_, .epilogue = epilogue_};
  for (const Option& o : options_) {
    std::vector<std::string> names;
    if (!o.name.empty()) names = absl::StrSplit(o.name, ", ");
    syntax.options.push_back({std::move(names), o.value, o.help, o.choices});
  }
  for (const auto& [name, unused] : operands_) syntax.operands.push_back(name);
  return syntax;
}

std::string Arguments::help() const {
  constexpr size_t kColumn = 30;
  std::string s = absl::StrCat("Usage: ", usage_, "\n\n", summary_, "\n");
  for (const Option& o : options_) {
    if (o.name.empty()) {
      absl::StrAppend(&s, "\n", o.help, ":\n");
      continue;
    }
    std::string left = absl::StrCat("  ", o.name, o.value.empty() ? "" : " ", o.value);
    // An option that does not fit the column gets a line of its own; so does every line of a longer explanation.
    left = left.size() + 2 > kColumn ? left + "\n" + std::string(kColumn, ' ')
                                     : left + std::string(kColumn - left.size(), ' ');
    std::string text = o.help;
    for (size_t at = 0; (at = text.find('\n', at)) != std::string::npos; at += kColumn + 1) {
      text.insert(at + 1, std::string(kColumn, ' '));
    }
    absl::StrAppend(&s, left, text, "\n");
  }
  if (!epilogue_.empty()) absl::StrAppend(&s, "\n", epilogue_, "\n");
  return s;
}

}  // namespace svdserve::cli
