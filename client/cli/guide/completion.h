// Scripts by which shells propose the next word of a command line.
#ifndef SVDSERVE_CLIENT_CLI_GUIDE_COMPLETION_H_
#define SVDSERVE_CLIENT_CLI_GUIDE_COMPLETION_H_

#include <span>
#include <string>

#include "client/cli/guide/command.h"

namespace svdserve::cli {

// Scripts that propose commands, the options of each, the values of an option, and files.
std::string bash_completion(std::span<const Command> commands);
std::string zsh_completion(std::span<const Command> commands);
std::string fish_completion(std::span<const Command> commands);

}  // namespace svdserve::cli
#endif  // SVDSERVE_CLIENT_CLI_GUIDE_COMPLETION_H_
