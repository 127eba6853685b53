// The commands of svdctl, and the one that a command line names.
#ifndef SVDSERVE_CLIENT_CLI_COMMANDS_TABLE_H_
#define SVDSERVE_CLIENT_CLI_COMMANDS_TABLE_H_

#include <string>
#include <vector>

#include "client/cli/guide/command.h"

namespace svdserve::cli {

const std::vector<Command>& all_commands();

// Runs the command that the first word names with the others; the exit code.
int run_command(const std::vector<std::string>& words);

}  // namespace svdserve::cli
#endif  // SVDSERVE_CLIENT_CLI_COMMANDS_TABLE_H_
