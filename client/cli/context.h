// The name of a command, its server, and how it reports.
#ifndef SVDSERVE_CLIENT_CLI_CONTEXT_H_
#define SVDSERVE_CLIENT_CLI_CONTEXT_H_

#include <cstdio>
#include <string>
#include <utility>

#include "client/cli/arguments.h"
#include "client/cli/connection.h"
#include "client/cli/report/json.h"
#include "client/cpp/types.h"

namespace svdserve::cli {

struct Context {
  explicit Context(std::string name) : command(std::move(name)) {}

  std::string command;
  Connection connection;
  bool json = false;            // an object of JSON to stdout instead of the summary
  bool quiet = false;           // no summary
  bool verbose = false;         // also times of the server, and every matrix that is not ok
  bool data_on_stdout = false;  // an array or values go there, so that the summary goes to stderr

  // Those of the connection; with --verbose a line on stderr for each retry and each failover.
  client::Result<client::ClientOptions> client_options() const;
  // --json, --quiet and the options of the connection. verbose_help: of --verbose; null: the command does not have it.
  void declare(Arguments* arguments, const char* verbose_help = nullptr);
  // Prints a summary to where it belongs, or nowhere. Fails where it cannot be written, but not for a reader that went.
  client::Status print(const std::string& summary) const;
  // Prints an object to stdout, "command" before its members, if --json asks for it. Fails as print() does.
  client::Status print_json(Json::Object object) const;
};

// The help of --json: docs/svdctl.schema.json describes the object.
inline constexpr char kJsonHelp[] = "print an object of JSON instead, with the keys of docs/svdctl.schema.json";

// Writes to a stream; fails where it takes no more.
client::Status write_text(std::FILE* to, const std::string& text);

}  // namespace svdserve::cli
#endif  // SVDSERVE_CLIENT_CLI_CONTEXT_H_
