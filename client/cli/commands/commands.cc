#include "client/cli/commands/commands.h"

#include <algorithm>
#include <cstdio>
#include <iterator>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "client/cli/printable.h"

namespace svdserve::cli {

std::optional<int> parse_or_explain(Arguments* arguments, const std::string& command,
                                    const std::vector<std::string>& words) {
  if (const auto wrong = arguments->parse(words)) return bad_usage(command, *wrong);
  if (!arguments->help_wanted()) return std::nullopt;
  std::fputs(arguments->help().c_str(), stdout);
  return kDone;
}

std::string names_of(std::span<const client::Method> methods) {
  std::string names;
  for (const client::Method& m : methods) {
    const char* const between = &m == &methods.front() ? "" : &m == &methods.back() ? " or " : ", ";
    absl::StrAppend(&names, between, name(m));
  }
  return names;
}

std::optional<client::Method> parse_method(const std::string& text) {
  for (const client::Method m : client::kSvdMethods) {
    if (text == name(m)) return m;
  }
  return std::nullopt;
}

namespace {

// The option that sets a field of the request, such as "--top-k"; empty: none does.
std::string option_of(const std::string& field) {
  if (!field.starts_with("options.") && !field.starts_with("open.options.")) return "";
  const std::string name = field.substr(field.rfind('.') + 1);
  if (name == "pivot_strategy") return "--strategy";
  if (name == "block_variant") return "--variant";
  if (name == "starting_vectors") return "--start";
  constexpr const char* kSame[] = {"method",      "tolerance", "max_sweeps", "top_k",      "fix_phases",
                                   "certificate", "condition", "snr_db",     "group_size", "water_filling"};
  if (std::find(std::begin(kSame), std::end(kSame), name) == std::end(kSame)) return "";
  return "--" + absl::StrReplaceAll(name, {{"_", "-"}});
}

// The status with the option in the place of a field that it sets.
client::Status with_option(client::Status status) {
  const std::string option = option_of(status.field), field = status.field + ": ";
  if (option.empty()) return status;
  status.message.replace(0, status.message.starts_with(field) ? field.size() : 0, option + ": ");
  status.field.clear();
  return status;
}

}  // namespace

int fail(const std::string& command, const client::Status& reported) {
  const client::Status status = with_option(reported);
  // kUnknown says nothing that its message does not.
  const std::string text =
      status.code == client::Code::kUnknown && !status.message.empty() ? status.message : status.to_string();
  std::fprintf(stderr, "svdctl %s: %s\n", command.c_str(), printable(text).c_str());
  return status.code == client::Code::kInvalidArgument ? kBadUsage : kFailed;
}

int bad_usage(const std::string& command, const std::string& why) {
  std::fprintf(stderr, "svdctl %s: %s\nTry svdctl %s --help.\n", command.c_str(), printable(why).c_str(),
               command.c_str());
  return kBadUsage;
}

}  // namespace svdserve::cli
