#include "client/cli/commands/table.h"

#include <algorithm>
#include <cstdio>
#include <optional>

#include "absl/strings/str_cat.h"
#include "client/cli/commands/commands.h"
#include "client/cli/context.h"
#include "client/cli/guide/completion.h"
#include "client/cli/guide/manual.h"
#include "client/cli/guide/nearest.h"
#include "client/cli/printable.h"

namespace svdserve::cli {
namespace {

// --- help, completion, man ----------------------------------------------------------------------

const Command* find(const std::string& name) {
  const auto& all = all_commands();
  const auto command = std::ranges::find_if(all, [&](const Command& c) { return c.name == name; });
  return command == all.end() ? nullptr : &*command;
}

int print(const Context& context, const std::string& text) {
  const auto written = context.print(text);
  return written.ok() ? kDone : fail(context, written);
}

int unknown_command(const std::string& name) {
  std::vector<std::string> known;
  for (const Command& command : all_commands()) known.push_back(command.name);
  const auto meant = nearest(name, known);
  std::fprintf(stderr, "svdctl: unknown command %s%s\nsvdctl help lists the commands.\n", printable(name).c_str(),
               meant ? absl::StrCat("; did you mean ", *meant, "?").c_str() : "");
  return kBadUsage;
}

Arguments declared_help(std::vector<std::string>* commands) {
  Arguments a("svdctl help [COMMAND]", "Explains a command, or lists all.");
  a.more_operands(commands);
  a.epilogue("Exit codes: 0 done, 2 wrong usage.");
  return a;
}

int run_help(const std::vector<std::string>& words) {
  const Context context("help");
  std::vector<std::string> commands;
  Arguments a = declared_help(&commands);
  if (const auto code = parse_or_explain(&a, context, words)) return *code;
  if (commands.empty()) return print(context, overview(all_commands()));
  if (commands.size() > 1) return bad_usage(context, "unexpected operand " + commands[1]);
  const Command* const command = find(commands[0]);
  return command == nullptr ? unknown_command(commands[0]) : command->run({"--help"});
}

Arguments declared_completion(std::string* shell) {
  Arguments a("svdctl completion SHELL",
              "Prints a script by which a shell completes the command lines of svdctl: bash, zsh or fish. Use it so:\n"
              "  bash  source <(svdctl completion bash), in ~/.bashrc\n"
              "  zsh   svdctl completion zsh > FOLDER/_svdctl, FOLDER in fpath\n"
              "  fish  svdctl completion fish > ~/.config/fish/completions/svdctl.fish");
  a.operand("SHELL", shell);
  a.epilogue("Exit codes: 0 done, 2 wrong usage.");
  return a;
}

int run_completion(const std::vector<std::string>& words) {
  const Context context("completion");
  std::string shell;
  Arguments a = declared_completion(&shell);
  if (const auto code = parse_or_explain(&a, context, words)) return *code;
  if (shell == "bash") return print(context, bash_completion(all_commands()));
  if (shell == "zsh") return print(context, zsh_completion(all_commands()));
  if (shell == "fish") return print(context, fish_completion(all_commands()));
  return bad_usage(context, "\"" + shell + "\" is not bash, zsh or fish");
}

Arguments declared_man() {
  Arguments a("svdctl man", "Prints the manual page svdctl(1); svdctl man | man -l - shows it.");
  a.epilogue("Exit codes: 0 done, 2 wrong usage.");
  return a;
}

int run_man(const std::vector<std::string>& words) {
  const Context context("man");
  Arguments a = declared_man();
  if (const auto code = parse_or_explain(&a, context, words)) return *code;
  return print(context, manual_page(all_commands(), SVDSERVE_VERSION));
}

Syntax syntax_of_help() {
  std::vector<std::string> commands;
  return declared_help(&commands).syntax();
}

Syntax syntax_of_completion() {
  std::string shell;
  return declared_completion(&shell).syntax();
}

Syntax syntax_of_man() { return declared_man().syntax(); }

// The operands of help are the commands themselves.
std::vector<Command> make_table() {
  std::vector<Command> all = {
      {"values", "IN.npy [-o OUT.npy]", "singular values of the matrices in a file", run_values, syntax_of_values},
      {"svd", "IN.npy [-o PREFIX]", "decomposition A = U diag(S) V^H of matrices of any size", run_svd, syntax_of_svd},
      {"hsvd", "G.npy J.npy [-o PREFIX]", "hyperbolic decomposition of one matrix, V^H J V = J", run_hsvd,
       syntax_of_hsvd},
      {"eigh", "A.npy [-o PREFIX]", "eigenvalues and eigenvectors of Hermitian matrices of any size", run_eigh,
       syntax_of_eigh},
      {"eig", "A.npy [-o PREFIX]", "eigenvalues and eigenvectors of square matrices of any size", run_eig,
       syntax_of_eig},
      {"eigvals", "A.npy [-o W.npy]", "their eigenvalues alone", run_eigvals, syntax_of_eigvals},
      {"capacity", "IN.npy --snr-db X", "capacity of the matrices as MIMO channels", run_capacity, syntax_of_capacity},
      {"info", "", "version, data types, methods, limits and devices of the server", run_info, syntax_of_info},
      {"health", "", "whether it serves; exit code 0 or 1, for container health checks", run_health, syntax_of_health},
      {"plan", "--rate R", "cores, GPUs, replicas and limits of memory for a load", run_plan, syntax_of_plan},
      {"bench", "", "load generator: rates and latency percentiles", run_bench, syntax_of_bench},
      {"latency", "", "latency of one small call beside an empty one", run_latency, syntax_of_latency},
      {"completion",
       "SHELL",
       "script of completion for bash, zsh or fish",
       run_completion,
       syntax_of_completion,
       {"bash", "zsh", "fish"}},
      {"man", "", "the manual page", run_man, syntax_of_man},
      {"help", "[COMMAND]", "explains a command", run_help, syntax_of_help}};
  for (const Command& command : std::vector<Command>(all)) all.back().words.push_back(command.name);
  return all;
}

}  // namespace

const std::vector<Command>& all_commands() {
  static const std::vector<Command> all = make_table();
  return all;
}

int run_command(const std::vector<std::string>& words) {
  if (words.empty()) {
    std::fprintf(stderr, "svdctl: no command\n\n%s", overview(all_commands()).c_str());
    return kBadUsage;
  }
  const std::string& name = words[0];
  const std::vector<std::string> others(words.begin() + 1, words.end());
  if (name == "--help" || name == "-h") return run_help({});
  if (name == "--version") return print(Context("--version"), "svdctl " SVDSERVE_VERSION "\n");
  const Command* const command = find(name);
  return command == nullptr ? unknown_command(name) : command->run(others);
}

}  // namespace svdserve::cli
