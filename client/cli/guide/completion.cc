#include "client/cli/guide/completion.h"

#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"

namespace svdserve::cli {
namespace {

// The options but for headings, and the one that every command has.
std::vector<Syntax::Option> options_of(const Command& command) {
  std::vector<Syntax::Option> options;
  for (Syntax::Option& option : command.syntax().options) {
    if (!option.is_heading()) options.push_back(std::move(option));
  }
  options.push_back({{"-h", "--help"}, "", "print the help"});
  return options;
}

std::vector<std::string> names_of(std::span<const Command> commands) {
  std::vector<std::string> names;
  for (const Command& command : commands) names.push_back(command.name);
  return names;
}

bool takes_files(const Command& command) { return command.words.empty() && !command.syntax().operands.empty(); }

// The help as one line, its first clause.
std::string first_clause(const Syntax::Option& option) {
  const std::string line = absl::StrReplaceAll(option.help, {{"\n", " "}});
  return line.substr(0, line.find(';'));
}

// --- bash ---------------------------------------------------------------------------------------

std::string bash_case(const Command& command) {
  std::vector<std::string> all, paths, others;
  std::string choices;
  for (const Syntax::Option& option : options_of(command)) {
    all.insert(all.end(), option.names.begin(), option.names.end());
    if (option.value.empty()) continue;
    const std::string pattern = absl::StrJoin(option.names, "|");
    if (!option.choices.empty()) {
      absl::StrAppend(&choices, "        ", pattern, ") words='", absl::StrJoin(option.choices, " "), "' ;;\n");
    } else {
      (option.is_path() ? paths : others).push_back(pattern);
    }
  }
  std::string text = absl::StrCat("    ", command.name, ")\n      options='", absl::StrJoin(all, " "), "'\n");
  if (!command.words.empty()) absl::StrAppend(&text, "      operands='", absl::StrJoin(command.words, " "), "'\n");
  if (takes_files(command)) absl::StrAppend(&text, "      files=1\n");
  absl::StrAppend(&text, "      case $previous in\n", choices);
  if (!paths.empty()) absl::StrAppend(&text, "        ", absl::StrJoin(paths, "|"), ") kind='file' ;;\n");
  if (!others.empty()) absl::StrAppend(&text, "        ", absl::StrJoin(others, "|"), ") kind='text' ;;\n");
  return text + "      esac\n      ;;\n";
}

constexpr char kBashHead[] = R"(# Completion of svdctl for bash; written by "svdctl completion bash".
_svdctl() {
  local current=${COMP_WORDS[COMP_CWORD]} previous=${COMP_WORDS[COMP_CWORD - 1]}
  local options='' operands='' words='' files='' kind=''
  # bash takes the = of --option=value for a word.
  if [[ $current == '=' ]]; then
    current=''
  elif [[ $previous == '=' ]]; then
    previous=${COMP_WORDS[COMP_CWORD - 2]}
  fi
  COMPREPLY=()
  if ((COMP_CWORD == 1)); then
)";
constexpr char kBashTail[] = R"(  esac
  if [[ $words ]]; then
    mapfile -t COMPREPLY < <(compgen -W "$words" -- "$current")
  elif [[ $kind == file ]]; then
    mapfile -t COMPREPLY < <(compgen -f -- "$current")
  elif [[ $kind == text ]]; then
    return
  elif [[ $current == -* ]]; then
    mapfile -t COMPREPLY < <(compgen -W "$options" -- "$current")
  elif [[ $operands ]]; then
    mapfile -t COMPREPLY < <(compgen -W "$operands" -- "$current")
  elif [[ $files ]]; then
    mapfile -t COMPREPLY < <(compgen -f -- "$current")
  fi
}
complete -o filenames -F _svdctl svdctl
)";

// --- zsh ----------------------------------------------------------------------------------------

// Within single quotes of zsh, and there within a description in brackets or behind a colon.
std::string zsh_text(const std::string& text) {
  return absl::StrReplaceAll(text, {{"'", "'\\''"}, {"[", "\\["}, {"]", "\\]"}, {":", "\\:"}});
}

std::string zsh_option(const Syntax::Option& option) {
  std::string values;
  if (!option.value.empty()) {
    const std::string action = !option.choices.empty() ? absl::StrCat("(", absl::StrJoin(option.choices, " "), ")")
                               : option.is_path()      ? "_files"
                                                       : "";
    values = absl::StrCat(":", zsh_text(option.value), ":", action);
  }
  std::string text;
  for (const std::string& name : option.names) {
    const std::string others = option.names.size() > 1 ? absl::StrCat("(", absl::StrJoin(option.names, " "), ")") : "";
    const char* const equals = !option.value.empty() && name.starts_with("--") ? "=" : "";
    absl::StrAppend(&text, " \\\n        '", others, name, equals, "[", zsh_text(first_clause(option)), "]", values,
                    "'");
  }
  return text;
}

std::string zsh_case(const Command& command) {
  std::string text = absl::StrCat("      (", command.name, ")\n        _arguments -s -S");
  for (const Syntax::Option& option : options_of(command)) text += zsh_option(option);
  if (!command.words.empty()) {
    absl::StrAppend(&text, " \\\n        '1:word:(", absl::StrJoin(command.words, " "), ")'");
  } else if (takes_files(command)) {
    text += " \\\n        '*:file:_files'";
  }
  return text + "\n        ;;\n";
}

// --- fish ---------------------------------------------------------------------------------------

std::string fish_text(const std::string& text) {
  return absl::StrCat("'", absl::StrReplaceAll(text, {{"\\", "\\\\"}, {"'", "\\'"}}), "'");
}

std::string fish_option(const Command& command, const Syntax::Option& option) {
  std::string text = absl::StrCat("complete -c svdctl -n '__fish_seen_subcommand_from ", command.name, "'");
  for (const std::string& name : option.names) {
    absl::StrAppend(&text, name.starts_with("--") ? " -l " : " -s ", name.substr(name.find_first_not_of('-')));
  }
  if (!option.choices.empty()) {
    absl::StrAppend(&text, " -x -a ", fish_text(absl::StrJoin(option.choices, " ")));
  } else if (!option.value.empty()) {
    text += option.is_path() ? " -r -F" : " -x";
  }
  return absl::StrCat(text, " -d ", fish_text(first_clause(option)), "\n");
}

}  // namespace

std::string bash_completion(std::span<const Command> commands) {
  std::string text = absl::StrCat(kBashHead, "    words='", absl::StrJoin(names_of(commands), " "),
                                  " --help --version'\n  fi\n  case ${COMP_WORDS[1]} in\n");
  for (const Command& command : commands) text += bash_case(command);
  return text + kBashTail;
}

std::string zsh_completion(std::span<const Command> commands) {
  std::string text =
      "#compdef svdctl\n# Completion of svdctl for zsh; written by \"svdctl completion zsh\".\n_svdctl() {\n"
      "  local -a commands\n  commands=(\n";
  for (const Command& command : commands) {
    absl::StrAppend(&text, "    '", command.name, ":", zsh_text(command.summary), "'\n");
  }
  text +=
      "  )\n  if (( CURRENT == 2 )); then\n    _describe -t commands command commands\n    return\n  fi\n"
      "  local command=$words[2]\n  shift words\n  (( CURRENT-- ))\n  case $command in\n";
  for (const Command& command : commands) text += zsh_case(command);
  return text + "  esac\n}\nif [[ $funcstack[1] == _svdctl ]]; then _svdctl \"$@\"; else compdef _svdctl svdctl; fi\n";
}

std::string fish_completion(std::span<const Command> commands) {
  std::string text = "# Completion of svdctl for fish; written by \"svdctl completion fish\".\ncomplete -c svdctl -f\n";
  for (const Command& command : commands) {
    absl::StrAppend(&text, "complete -c svdctl -n __fish_use_subcommand -a ", command.name, " -d ",
                    fish_text(command.summary), "\n");
  }
  for (const Command& command : commands) {
    const std::string seen = absl::StrCat("complete -c svdctl -n '__fish_seen_subcommand_from ", command.name, "' ");
    if (takes_files(command)) absl::StrAppend(&text, seen, "-F\n");
    if (!command.words.empty()) absl::StrAppend(&text, seen, "-a ", fish_text(absl::StrJoin(command.words, " ")), "\n");
    for (const Syntax::Option& option : options_of(command)) text += fish_option(command, option);
  }
  return text;
}

}  // namespace svdserve::cli
