// Help, completion and the manual page: they have every command and option that the commands have.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "client/cli/commands/commands.h"
#include "client/cli/commands/table.h"
#include "client/cli/guide/completion.h"
#include "client/cli/guide/manual.h"
#include "client/cli/guide/nearest.h"

namespace svdserve::cli {
namespace {

using ::testing::HasSubstr;
using ::testing::IsSupersetOf;
using ::testing::StartsWith;
using Words = std::vector<std::string>;

struct Outcome {
  int code = 0;
  std::string out, err;
};

Outcome svdctl(const Words& words) {
  ::testing::internal::CaptureStdout();
  ::testing::internal::CaptureStderr();
  const int code = run_command(words);
  return {code, ::testing::internal::GetCapturedStdout(), ::testing::internal::GetCapturedStderr()};
}

// The output of a shell, stderr included.
std::string shell(const std::string& command) {
  std::string text;
  FILE* const pipe = ::popen((command + " 2>&1").c_str(), "r");
  std::array<char, 4096> part;
  for (size_t n; (n = std::fread(part.data(), 1, part.size(), pipe)) > 0;) text.append(part.data(), n);
  ::pclose(pipe);
  return text;
}

bool has_program(const std::string& name) { return shell("command -v " + name) != ""; }

Words options_of(const Command& command) {
  Words options = {"--help"};
  for (const Syntax::Option& option : command.syntax().options) {
    options.insert(options.end(), option.names.begin(), option.names.end());
  }
  return options;
}

class GuideTest : public ::testing::Test {
 protected:
  GuideTest() {
    std::string name = ::testing::TempDir() + "svdctl_XXXXXX";
    EXPECT_NE(mkdtemp(name.data()), nullptr);
    folder_ = name;
  }
  ~GuideTest() override { std::filesystem::remove_all(folder_); }
  std::string write(const std::string& name, const std::string& text) const {
    std::ofstream(folder_ / name) << text;
    return folder_ / name;
  }
  // The proposals of bash for the last of the words.
  Words proposals(const Words& words) const {
    const std::string script = write("completion.bash", bash_completion(all_commands()));
    std::string line = "cd '" + folder_.string() + "' && . '" + script + "' && COMP_WORDS=(svdctl";
    for (const std::string& word : words) line += " '" + word + "'";
    line += ") COMP_CWORD=" + std::to_string(words.size()) + " && _svdctl && printf \"%s\\n\" \"${COMPREPLY[@]}\"";
    std::istringstream listed(shell("bash -uc '" + std::string("eval \"$(cat " + write("line", line) + ")\"'")));
    Words all;
    for (std::string one; std::getline(listed, one);) {
      if (!one.empty()) all.push_back(one);
    }
    return all;
  }

  std::filesystem::path folder_;
};

TEST_F(GuideTest, HelpExplainsEveryCommand) {
  const std::string all = svdctl({"help"}).out;
  EXPECT_EQ(all, svdctl({"--help"}).out);
  for (const Command& command : all_commands()) {
    EXPECT_THAT(all, HasSubstr("\n  " + command.name + " "));
    const Outcome help = svdctl({"help", command.name});
    EXPECT_EQ(help.code, kDone);
    EXPECT_THAT(help.out, StartsWith("Usage: svdctl " + command.name));
    EXPECT_EQ(help.out, svdctl({command.name, "--help"}).out);
  }
  EXPECT_EQ(svdctl({"help", "values", "svd"}).code, kBadUsage);
  EXPECT_THAT(svdctl({"--version"}).out, StartsWith("svdctl "));
}

TEST_F(GuideTest, ASlipIsMended) {
  EXPECT_EQ(svdctl({"vlaues", "a.npy"}).err,
            "svdctl: unknown command vlaues; did you mean values?\nsvdctl help lists the commands.\n");
  EXPECT_EQ(svdctl({"help", "hvsd"}).err,
            "svdctl: unknown command hvsd; did you mean hsvd?\nsvdctl help lists the commands.\n");
  EXPECT_EQ(svdctl({"decompose"}).err, "svdctl: unknown command decompose\nsvdctl help lists the commands.\n");
  EXPECT_EQ(svdctl({"svd", "a.npy", "--topk", "3"}).err,
            "svdctl svd: unknown option --topk; did you mean --top-k?\nTry svdctl svd --help.\n");
  EXPECT_EQ(svdctl({"bench", "--find-rate", "3ms"}).err,
            "svdctl bench: unknown option --find-rate; did you mean --find-rate-p99?\nTry svdctl bench --help.\n");
  EXPECT_EQ(svdctl({}).code, kBadUsage);
}

TEST(Nearest, IsNearOrNothing) {
  const Words known = {"values", "svd", "hsvd", "eigh", "eig", "capacity", "--u", "--s", "-o"};
  EXPECT_EQ(nearest("valeus", known), "values");
  EXPECT_EQ(nearest("VALUES", known), std::nullopt);
  EXPECT_EQ(nearest("cap", known), "capacity");
  EXPECT_EQ(nearest("eign", known), "eigh");
  EXPECT_EQ(nearest("svdd", known), "svd");
  EXPECT_EQ(nearest("--q", known), std::nullopt);  // not another letter alone
  EXPECT_EQ(nearest("", known), std::nullopt);
  EXPECT_EQ(nearest(std::string(100000, 'a'), known), std::nullopt);
}

TEST_F(GuideTest, BashProposesTheOptionsOfEachCommand) {
  Words names;
  for (const Command& command : all_commands()) {
    names.push_back(command.name);
    EXPECT_THAT(proposals({command.name, "-"}), IsSupersetOf(options_of(command))) << command.name;
    for (const Syntax::Option& option : command.syntax().options) {
      if (option.choices.empty()) continue;
      EXPECT_EQ(proposals({command.name, option.names.front(), ""}), option.choices) << command.name;
      EXPECT_EQ(proposals({command.name, option.names.front(), "=", ""}), option.choices) << command.name;
      EXPECT_EQ(proposals({command.name, option.names.front(), "="}), option.choices) << command.name;
    }
  }
  EXPECT_THAT(proposals({""}), IsSupersetOf(names));
  EXPECT_EQ(proposals({"val"}), Words{"values"});
  EXPECT_EQ(proposals({"help", "h"}), (Words{"hsvd", "health", "help"}));
  EXPECT_EQ(proposals({"completion", ""}), (Words{"bash", "zsh", "fish"}));
}

TEST_F(GuideTest, BashProposesFilesWhereFilesGo) {
  write("with space.npy", "");
  EXPECT_EQ(proposals({"values", "with"}), Words{"with space.npy"});
  EXPECT_EQ(proposals({"svd", "a.npy", "--u", "with"}), Words{"with space.npy"});
  EXPECT_EQ(proposals({"svd", "a.npy", "--top-k", "with"}), Words{});
  EXPECT_EQ(proposals({"info", "with"}), Words{});
}

// The lines of a script that are about a command.
std::string part(const std::string& script, const std::string& begin, const std::string& end) {
  const size_t at = script.find(begin);
  EXPECT_NE(at, std::string::npos) << begin;
  return at == std::string::npos ? "" : script.substr(at, script.find(end, at) - at);
}

TEST_F(GuideTest, ZshAndFishKnowTheOptionsOfEachCommand) {
  const std::string zsh = svdctl({"completion", "zsh"}).out, fish = svdctl({"completion", "fish"}).out;
  for (const Command& command : all_commands()) {
    const std::string of_zsh = part(zsh, "      (" + command.name + ")\n", "        ;;\n");
    const std::string seen = "complete -c svdctl -n '__fish_seen_subcommand_from " + command.name + "'";
    for (const std::string& option : options_of(command)) {
      EXPECT_THAT(of_zsh, ::testing::AnyOf(HasSubstr(option + "["), HasSubstr(option + "=["))) << command.name;
      const std::string spelt = option.starts_with("--") ? " -l " + option.substr(2) : " -s " + option.substr(1);
      EXPECT_THAT(fish, ::testing::ContainsRegex(seen + "( -s .)?" + spelt + " ")) << command.name << option;
    }
    EXPECT_THAT(fish, HasSubstr("__fish_use_subcommand -a " + command.name + " "));
  }
  EXPECT_EQ(svdctl({"completion", "csh"}).code, kBadUsage);
  for (const auto& [name, script] : {std::pair{std::string("zsh"), zsh}, {std::string("fish"), fish}}) {
    EXPECT_EQ(has_program(name) ? shell(name + " -n " + write(name, script)) : "", "");
  }
}

TEST_F(GuideTest, TheManualPageIsSound) {
  if (!has_program("man") || !has_program("groff")) GTEST_SKIP() << "no man";
  const std::string page = write("svdctl.1", svdctl({"man"}).out);
  // As lintian has it: every warning counts.
  EXPECT_EQ(
      shell("LC_ALL=C.UTF-8 MANROFFSEQ= MANWIDTH=80 man --warnings -E UTF-8 -l -Tutf8 -Z " + page + " > /dev/null"),
      "");
  const std::string text = shell("LC_ALL=C.UTF-8 MANPAGER=cat MANWIDTH=200 man -E ascii -l " + page);
  for (const Command& command : all_commands()) {
    EXPECT_THAT(text, HasSubstr("svdctl " + command.name));
    for (const Syntax::Option& option : command.syntax().options) {
      for (const std::string& name : option.names)
        EXPECT_THAT(text, HasSubstr(name + (option.value.empty() ? "" : " ")));
    }
  }
  EXPECT_THAT(text, HasSubstr("V^H"));  // its characters stay as they are
}

}  // namespace
}  // namespace svdserve::cli
