// svdctl's commands. Each takes the words after its name and returns the exit code.
#ifndef SVDSERVE_CLIENT_CLI_COMMANDS_COMMANDS_H_
#define SVDSERVE_CLIENT_CLI_COMMANDS_COMMANDS_H_

#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "client/cli/arguments.h"
#include "client/cli/context.h"
#include "client/cpp/types.h"

namespace svdserve::cli {

inline constexpr int kDone = 0;
inline constexpr int kFailed = 1;      // the server, the network or a file said no
inline constexpr int kBadUsage = 2;    // the command line or the input is wrong
inline constexpr int kExceptions = 3;  // computed, but not every matrix is ok

int run_values(const std::vector<std::string>& words);
int run_svd(const std::vector<std::string>& words);
int run_hsvd(const std::vector<std::string>& words);
int run_eigh(const std::vector<std::string>& words);
int run_eig(const std::vector<std::string>& words);
int run_eigvals(const std::vector<std::string>& words);
int run_capacity(const std::vector<std::string>& words);
int run_info(const std::vector<std::string>& words);
int run_health(const std::vector<std::string>& words);
int run_plan(const std::vector<std::string>& words);
int run_bench(const std::vector<std::string>& words);
int run_latency(const std::vector<std::string>& words);

// The options of each, as its run function parses them.
Syntax syntax_of_values();
Syntax syntax_of_svd();
Syntax syntax_of_hsvd();
Syntax syntax_of_eigh();
Syntax syntax_of_eig();
Syntax syntax_of_eigvals();
Syntax syntax_of_capacity();
Syntax syntax_of_info();
Syntax syntax_of_health();
Syntax syntax_of_plan();
Syntax syntax_of_bench();
Syntax syntax_of_latency();

// Parses; the exit code where the command is over with that: help was printed, or the usage is wrong.
std::optional<int> parse_or_explain(Arguments* arguments, const Context& context,
                                    const std::vector<std::string>& words);

// "auto, bidiagonal, bisection or jacobi".
std::string names_of(std::span<const client::Method> methods);

// Their names, one by one.
std::vector<std::string> list_of(std::span<const client::Method> methods);

// One of client::kSvdMethods by its name.
std::optional<client::Method> parse_method(const std::string& text);

// Prints "svdctl COMMAND: why" on stderr, with a server's words escaped and an option for the field that it sets.
// Returns the exit code that fits: kBadUsage for errors that the caller can mend, else kFailed.
int fail(const Context& context, const client::Status& reported);
int bad_usage(const Context& context, const std::string& why);

// check_outputs() with the files of the connection as further inputs. Notes in the context whether an output is stdout,
// which takes one array, or printed values, but not both.
client::Status check_files(Context* context, const std::vector<NamedFile>& outputs, std::vector<NamedFile> inputs,
                           bool force);

// Names the files that -o PREFIX stands for, PREFIX.u.npy for ("u", file), where they have no name yet. A folder as the
// prefix has them under the name of the input. Fails for "-".
client::Status name_outputs(const std::string& prefix, const std::string& in,
                            const std::vector<std::pair<std::string, std::string*>>& files);

}  // namespace svdserve::cli
#endif  // SVDSERVE_CLIENT_CLI_COMMANDS_COMMANDS_H_
