#include "client/cli/commands/commands.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <iterator>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "client/cli/files/output_target.h"
#include "client/cli/formats/input.h"
#include "client/cli/printable.h"
#include "client/cli/report/units.h"

namespace svdserve::cli {

std::optional<int> parse_or_explain(Arguments* arguments, const Context& context,
                                    const std::vector<std::string>& words) {
  if (const auto wrong = arguments->parse(words)) return bad_usage(context, *wrong);
  if (!arguments->help_wanted()) return std::nullopt;
  std::fputs(arguments->help().c_str(), stdout);
  return kDone;
}

std::string names_of(std::span<const client::Method> methods) {
  std::string names;
  for (const client::Method& m : methods) {
    const char* const between = &m == &methods.front() ? "" : &m == &methods.back() ? " or " : ", ";
    absl::StrAppend(&names, between, name(m));
  }
  return names;
}

std::vector<std::string> list_of(std::span<const client::Method> methods) {
  std::vector<std::string> names;
  for (const client::Method& m : methods) names.push_back(name(m));
  return names;
}

std::optional<client::Method> parse_method(const std::string& text) {
  for (const client::Method m : client::kSvdMethods) {
    if (text == name(m)) return m;
  }
  return std::nullopt;
}

namespace {

// The option that sets a field of the request, such as "--top-k"; empty: none does.
std::string option_of(const std::string& field) {
  if (!field.starts_with("options.") && !field.starts_with("open.options.")) return "";
  const std::string name = field.substr(field.rfind('.') + 1);
  if (name == "pivot_strategy") return "--strategy";
  if (name == "block_variant") return "--variant";
  if (name == "starting_vectors") return "--start";
  constexpr const char* kSame[] = {"method",      "tolerance", "max_sweeps", "top_k",      "fix_phases",
                                   "certificate", "condition", "snr_db",     "group_size", "water_filling"};
  if (std::find(std::begin(kSame), std::end(kSame), name) == std::end(kSame)) return "";
  return "--" + absl::StrReplaceAll(name, {{"_", "-"}});
}

// The status with the option in the place of a field that it sets.
client::Status with_option(client::Status status) {
  const std::string option = option_of(status.field), field = status.field + ": ";
  if (option.empty()) return status;
  status.message.replace(0, status.message.starts_with(field) ? field.size() : 0, option + ": ");
  status.field.clear();
  status.reason.clear();  // the option says what is wrong with what
  return status;
}

// Errors for people: files and the command line have no code of gRPC, and the client's own have other words here.
std::string error_text(const Context& context, const client::Status& status) {
  const bool is_local = status.code == client::Code::kUnknown || (status.code == client::Code::kInvalidArgument &&
                                                                  status.reason.empty() && status.field.empty());
  if (is_local && !status.message.empty()) return status.message;
  if (status.code == client::Code::kDeadlineExceeded && status.reason == name(status.code)) {
    const auto timeout = context.connection.call().timeout;
    if (!timeout) return "no reply in time; give it more by --timeout";
    const double seconds = std::chrono::duration<double>(*timeout).count();
    return absl::StrCat("no reply within ", duration_text(seconds), ", the limit that --timeout sets");
  }
  const bool is_unreachable = status.code == client::Code::kUnavailable && !status.parameter.empty();
  if (is_unreachable) return with_option_names(status.message);
  return status.to_string();
}

}  // namespace

int fail(const Context& context, const client::Status& reported) {
  const client::Status status = with_option(reported);
  std::fprintf(stderr, "svdctl %s: %s\n", context.command.c_str(), printable(error_text(context, status)).c_str());
  return status.code == client::Code::kInvalidArgument ? kBadUsage : kFailed;
}

int bad_usage(const Context& context, const std::string& why) {
  const char* const command = context.command.c_str();
  std::fprintf(stderr, "svdctl %s: %s\nTry svdctl %s --help.\n", command, printable(why).c_str(), command);
  return kBadUsage;
}

client::Status check_files(Context* context, const std::vector<NamedFile>& outputs, std::vector<NamedFile> inputs,
                           bool force) {
  const auto invalid = [](std::string message) {
    return client::Status{.code = client::Code::kInvalidArgument, .message = std::move(message)};
  };
  if (std::ranges::count_if(inputs, [](const NamedFile& file) { return file.path == "-"; }) > 1) {
    return invalid("-: standard input can be read only once; name a file for the other input");
  }
  for (NamedFile& input : inputs) input.path = input_file(input.path);
  for (NamedFile& file : context->connection.files()) inputs.push_back(std::move(file));
  if (auto s = check_outputs(outputs, inputs, force); !s.ok()) return s;
  for (const NamedFile& output : outputs) {
    if (!is_stdout(output.path)) continue;
    if (context->json) return invalid(output.name + " " + output.path + " and --json exclude each other");
    if (context->data_on_stdout) return invalid(output.name + " " + output.path + " and --print exclude each other");
    if (output.path == "-" && ::isatty(STDOUT_FILENO) == 1) {
      return invalid(output.name + " -: standard output is a terminal; send it to a file or a pipe");
    }
    context->data_on_stdout = true;
  }
  return {};
}

client::Status name_outputs(const std::string& prefix, const std::string& in,
                            const std::vector<std::pair<std::string, std::string*>>& files) {
  if (prefix.empty()) return {};
  if (prefix == "-") {
    return {.code = client::Code::kInvalidArgument,
            .message = "-o -: several arrays do not go into one stream; send one of them there, such as --" +
                       files.front().first + " -"};
  }
  std::filesystem::path begin = prefix;
  std::error_code error;
  if (std::filesystem::is_directory(begin, error)) begin /= output_stem(in);
  for (const auto& [name, file] : files) {
    if (file->empty()) *file = begin.string() + "." + name + ".npy";
  }
  return {};
}

}  // namespace svdserve::cli
