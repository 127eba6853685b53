#include "client/cli/context.h"

#include <cerrno>

#include "client/cli/files/file_error.h"
#include "client/cli/printable.h"

namespace svdserve::cli {

void Context::declare(Arguments* a, const char* verbose_help) {
  a->section("Report");
  a->flag("--json", kJsonHelp, &json);
  a->flag("--quiet", "print no summary", &quiet);
  if (verbose_help != nullptr) a->flag("--verbose", verbose_help, &verbose);
  connection.declare(a);
}

client::Result<client::ClientOptions> Context::client_options() const {
  auto options = connection.options();
  if (!options.ok() || !verbose) return options;
  options->log = [name = command](client::LogLevel, const std::string& line) {
    std::fprintf(stderr, "svdctl %s: %s\n", name.c_str(), printable(line).c_str());
  };
  return options;
}

client::Status Context::print(const std::string& summary) const {
  if (quiet || json) return {};
  errno = 0;
  auto written = write_text(data_on_stdout ? stderr : stdout, summary);
  return errno == EPIPE ? client::Status() : written;
}

client::Status Context::print_json(Json::Object object) const {
  if (!json || quiet) return {};
  object.insert(object.begin(), {"command", command});
  errno = 0;
  auto written = write_text(stdout, Json(std::move(object)).text());
  return errno == EPIPE ? client::Status() : written;
}

client::Status write_text(std::FILE* to, const std::string& text) {
  std::fputs(text.c_str(), to);
  if (std::fflush(to) == 0 && std::ferror(to) == 0) return {};
  return file_error("write to", to == stdout ? "stdout" : "stderr", errno);
}

}  // namespace svdserve::cli
