// A command of svdctl as the guides know it.
#ifndef SVDSERVE_CLIENT_CLI_GUIDE_COMMAND_H_
#define SVDSERVE_CLIENT_CLI_GUIDE_COMMAND_H_

#include <string>
#include <vector>

#include "client/cli/arguments.h"

namespace svdserve::cli {

struct Command {
  std::string name;
  std::string operands;  // and options, in the overview: "IN.npy [-o OUT.npy]"
  std::string summary;   // a line
  int (*run)(const std::vector<std::string>& words);
  Syntax (*syntax)();
  std::vector<std::string> words = {};  // the operand is one of these; none: operands are files, if there are any
};

}  // namespace svdserve::cli
#endif  // SVDSERVE_CLIENT_CLI_GUIDE_COMMAND_H_
