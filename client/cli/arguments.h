// Command line options: declared once, parsed and explained from that.
#ifndef SVDSERVE_CLIENT_CLI_ARGUMENTS_H_
#define SVDSERVE_CLIENT_CLI_ARGUMENTS_H_

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace svdserve::cli {

using Duration = std::chrono::nanoseconds;

// The options and operands of a command as it declares them: what help, completion and the manual page are made of.
struct Syntax {
  struct Option {
    std::vector<std::string> names = {};    // such as "-o" and "--output"; none: a heading, whose text is `help`
    std::string value = {};                 // empty: a flag
    std::string help = {};                  // lines
    std::vector<std::string> choices = {};  // the values there are; none: others, too

    bool is_heading() const { return names.empty(); }
    // Whether the value is the path of a file.
    bool is_path() const;
  };
  std::string usage = {}, summary = {}, epilogue = {};
  std::vector<Option> options = {};
  std::vector<std::string> operands = {};
};

// The options and operands of one command. Options are --name VALUE or --name=VALUE, in any place; "--" ends them.
// An option that is not given keeps the value that its target has when it is declared. "-o, --output" names an option
// with two spellings.
class Arguments {
 public:
  Arguments(std::string usage, std::string summary) : usage_(std::move(usage)), summary_(std::move(summary)) {}

  // A heading of the help; the options declared after it stand below.
  void section(std::string title);
  void option(const std::string& name, const std::string& value, const std::string& help, std::string* target);
  void option(const std::string& name, const std::string& value, const std::string& help, int64_t* target,
              int64_t least);
  void option(const std::string& name, const std::string& value, const std::string& help, double* target);
  // 500us, 30s, 1.5m; a bare number is seconds.
  void option(const std::string& name, const std::string& value, const std::string& help, Duration* target);
  void option(const std::string& name, const std::string& value, const std::string& help,
              std::optional<Duration>* target);
  void flag(const std::string& name, const std::string& help, bool* target);
  // The values that the option has which was declared last, for completion.
  void choices(std::vector<std::string> values) { options_.back().choices = std::move(values); }
  // Another spelling of an option, for command lines of earlier versions; the help does not show it.
  void alias(const std::string& other, const std::string& name) { aliases_.emplace_back(other, name); }
  // One operand, such as IN.npy; required.
  void operand(const std::string& name, std::string* target);
  // Any number of operands after the others.
  void more_operands(std::vector<std::string>* targets) { more_ = targets; }
  // Text after the options: exit codes, examples.
  void epilogue(std::string text) { epilogue_ = std::move(text); }

  // Nothing: all is well. Else what is wrong, in one line.
  std::optional<std::string> parse(const std::vector<std::string>& words);
  // --help or -h was given; parse() then checks nothing else.
  bool help_wanted() const { return help_wanted_; }
  std::string help() const;
  Syntax syntax() const;

 private:
  struct Option {
    std::string name, value, help;                // value empty: a flag
    std::string expected;                         // the values that `set` takes: "an integer, at least 1"
    std::function<bool(const std::string&)> set;  // false: not such a value
    std::vector<std::string> choices = {};
  };
  void add(Option option);
  // The option that is spelt so; null: none is.
  const Option* find(const std::string& name) const;
  // The error for a name that no option has.
  std::string unknown(const std::string& name) const;
  // Nothing: the option took the value, and `*i` is at the last word that was its own.
  std::optional<std::string> parse_option(const std::vector<std::string>& words, size_t* i);

  std::string usage_, summary_, epilogue_;
  std::vector<Option> options_;  // a section has only `help`
  std::vector<std::pair<std::string, std::string>> aliases_;
  std::vector<std::pair<std::string, std::string*>> operands_;
  std::vector<std::string>* more_ = nullptr;
  bool help_wanted_ = false;
};

// A file of the command line: the option or operand that names it, such as "--u", and its path; empty: none was given.
struct NamedFile {
  std::string name, path;
};

// One value; nothing where the text is no such value.
std::optional<int64_t> parse_int(const std::string& text);
std::optional<double> parse_double(const std::string& text);
std::optional<Duration> parse_duration(const std::string& text);
// "a,b,c"; an empty text is an empty list.
std::vector<std::string> split_list(const std::string& text);

}  // namespace svdserve::cli
#endif  // SVDSERVE_CLIENT_CLI_ARGUMENTS_H_
