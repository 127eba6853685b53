#include "client/cli/commands/commands.h"

#include <cstdio>

#include "client/cli/printable.h"

namespace svdserve::cli {

std::optional<int> parse_or_explain(Arguments* arguments, const std::string& command,
                                    const std::vector<std::string>& words) {
  if (const auto wrong = arguments->parse(words)) return bad_usage(command, *wrong);
  if (!arguments->help_wanted()) return std::nullopt;
  std::fputs(arguments->help().c_str(), stdout);
  return kDone;
}

std::optional<client::Method> parse_method(const std::string& text) {
  for (const auto m :
       {client::Method::kAuto, client::Method::kBidiagonal, client::Method::kBisection, client::Method::kJacobi}) {
    if (text == name(m)) return m;
  }
  return std::nullopt;
}

int fail(const std::string& command, const client::Status& status) {
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
