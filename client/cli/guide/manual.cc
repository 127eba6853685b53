#include "client/cli/guide/manual.h"

#include <algorithm>
#include <map>
#include <set>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"

namespace svdserve::cli {
namespace {

constexpr char kDescription[] =
    "Talks to an svdserve server: singular values, vectors and capacities of many small matrices, SVDs of\n"
    "large ones, Hermitian eigenproblems of both, and general ones.\n";
constexpr char kServer[] =
    "The server is 127.0.0.1:50051 unless --address or the environment variable SVDSERVE_ADDRESS names\n"
    "another. Several servers share the calls: a:1,b:2, or dns:///name:1 for all of a name.\n";
constexpr char kExitCodes[] =
    "Exit codes: 0 done, 1 the server or a file failed, 2 wrong usage or input, 3 some matrices are not ok.\n"
    "128 + N ended by signal N: 129 by a closed terminal, 130 by Ctrl-C, 143 by SIGTERM.\n";

// --- roff ---------------------------------------------------------------------------------------

std::string roff(const std::string& text) {
  std::string escaped = absl::StrReplaceAll(text, {{"\\", "\\e"}, {"-", "\\-"}, {"^", "\\(ha"}, {"~", "\\(ti"}});
  absl::StrReplaceAll({{"\n.", "\n\\&."}, {"\n'", "\n\\&'"}}, &escaped);
  return escaped.starts_with('.') || escaped.starts_with('\'') ? absl::StrCat("\\&", escaped) : escaped;
}

std::string bold(const std::string& text) { return absl::StrCat("\\fB", roff(text), "\\fR"); }

// "Exit codes: ..." as it stands, line by line.
std::string lines(const std::string& text) {
  return absl::StrCat(
      absl::StrReplaceAll(roff(text.ends_with('\n') ? text.substr(0, text.size() - 1) : text), {{"\n", "\n.br\n"}}),
      "\n");
}

std::string option_entry(const Syntax::Option& option) {
  const auto name = [](std::string* out, const std::string& n) { absl::StrAppend(out, bold(n)); };
  const std::string value = option.value.empty() ? "" : absl::StrCat(" \\fI", roff(option.value), "\\fR");
  return absl::StrCat(".TP\n", absl::StrJoin(option.names, ", ", name), value, "\n", roff(option.help), "\n");
}

// The options that more than half of the commands have, by their first name.
std::set<std::string> common_options(std::span<const Command> commands) {
  std::map<std::string, size_t> count;
  for (const Command& command : commands) {
    for (const Syntax::Option& option : command.syntax().options) {
      if (!option.is_heading()) ++count[option.names.front()];
    }
  }
  std::set<std::string> common;
  for (const auto& [name, n] : count) {
    if (2 * n > commands.size()) common.insert(name);
  }
  common.erase("-o");  // each command has its own
  common.erase("--method");
  common.erase("--verbose");
  return common;
}

std::string command_section(const Command& command, const std::set<std::string>& common) {
  const Syntax syntax = command.syntax();
  std::string text =
      absl::StrCat(".SS ", roff(absl::StrReplaceAll(syntax.usage, {{"\"", "'"}})), "\n", roff(syntax.summary), "\n");
  for (const Syntax::Option& option : syntax.options) {
    if (!option.is_heading() && !common.contains(option.names.front())) text += option_entry(option);
  }
  return syntax.epilogue.empty() ? text : absl::StrCat(text, ".PP\n", lines(syntax.epilogue));
}

// The options, each as the first command has it that has it.
std::string common_section(std::span<const Command> commands, std::set<std::string> common) {
  std::string text = ".SH COMMON OPTIONS\nCommands that ask a server have these options.\n";
  for (const Command& command : commands) {
    for (const Syntax::Option& option : command.syntax().options) {
      if (!option.is_heading() && common.erase(option.names.front()) > 0) text += option_entry(option);
    }
  }
  return text;
}

constexpr char kExamples[] = R"(.SH EXAMPLES
.nf
svdctl values a.npy
svdctl values a.npy \-\-json | jq .files[0].condition.max
svdctl svd a.npy \-o x
svdctl bench \-\-find\-rate\-p99=5ms
.fi
)";

}  // namespace

std::string overview(std::span<const Command> commands) {
  std::string text = absl::StrCat("Usage: svdctl COMMAND [options]\n\n", kDescription, "\nCommands:\n");
  size_t width = 0;
  for (const Command& command : commands) width = std::max(width, command.name.size() + command.operands.size() + 1);
  for (const Command& command : commands) {
    const std::string left = absl::StrCat(command.name, command.operands.empty() ? "" : " ", command.operands);
    absl::StrAppendFormat(&text, "  %-*s  %s\n", static_cast<int>(width), left, command.summary);
  }
  return absl::StrCat(text, "\nsvdctl help COMMAND explains a command.\n", kServer, "\n", kExitCodes);
}

std::string manual_page(std::span<const Command> commands, const std::string& version) {
  const std::set<std::string> common = common_options(commands);
  std::string text = absl::StrCat(
      ".\\\" Written by \"svdctl man\".\n.TH SVDCTL 1 \"\" \"svdserve ", roff(version), "\" \"User Commands\"\n",
      ".SH NAME\nsvdctl \\- singular values and eigenvalues from an svdserve server\n",
      ".SH SYNOPSIS\n.B svdctl\n.I COMMAND\n[\\fIoptions\\fR] [\\fIfiles\\fR]\n.SH DESCRIPTION\n", roff(kDescription),
      roff(kServer), ".SH COMMANDS\n");
  for (const Command& command : commands) text += command_section(command, common);
  text += common_section(commands, common);
  absl::StrAppend(&text, ".SH EXIT STATUS\n", lines(kExitCodes), ".SH ENVIRONMENT\n.TP\n", bold("SVDSERVE_ADDRESS"),
                  "\nThe address of the server, unless \\-\\-address names it.\n", kExamples);
  return text;
}

}  // namespace svdserve::cli
