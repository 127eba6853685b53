// The general help, and the manual page.
#ifndef SVDSERVE_CLIENT_CLI_GUIDE_MANUAL_H_
#define SVDSERVE_CLIENT_CLI_GUIDE_MANUAL_H_

#include <span>
#include <string>

#include "client/cli/guide/command.h"

namespace svdserve::cli {

// The text of svdctl --help: the commands, each in a line.
std::string overview(std::span<const Command> commands);

// svdctl(1) in roff, with the macros of man(7). Options that most commands have stand in a section of their own.
std::string manual_page(std::span<const Command> commands, const std::string& version);

}  // namespace svdserve::cli
#endif  // SVDSERVE_CLIENT_CLI_GUIDE_MANUAL_H_
