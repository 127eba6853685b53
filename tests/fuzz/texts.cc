// Texts and files: the head of an HTTP request, .npy files, the server's flags.
#include <algorithm>
#include <cstring>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "client/cli/files/npy.h"
#include "server/config.h"
#include "server/metrics/http_reply.h"
#include "tests/fuzz/targets.h"

namespace svdserve::fuzz {
namespace {

std::string_view text_of(Bytes bytes) { return {reinterpret_cast<const char*>(bytes.data()), bytes.size()}; }

// The value of a header that replies have once.
std::string_view header(std::string_view head, std::string_view name) {
  const size_t at = head.find(name);
  require(at != std::string_view::npos && head.find(name, at + 1) == std::string_view::npos,
          "a header is not there once");
  const std::string_view rest = head.substr(at + name.size());
  return rest.substr(0, rest.find("\r\n"));
}

// Reads every byte of a stack, so that a sanitizer sees where they lie.
uint32_t read_all(const cli::MatrixStack& stack) {
  const client::Batch& b = stack.batch;
  if (b.count == 0) return 0;
  const int64_t size = b.count * b.rows * b.cols * static_cast<int64_t>(client::element_bytes(b.data_type));
  return hash_of({static_cast<const uint8_t*>(b.data), static_cast<size_t>(size)});
}

// The same array as a file that the project writes.
void write_and_read(const cli::NpyArray& array) {
  const cli::NpyHeader& h = array.header;
  const std::string type = h.kind + std::to_string(h.item_bytes);
  std::string file = cli::npy_header(type, h.shape, h.fortran_order);
  require(file.size() % 64 == 0, "a header is not padded");
  file.append(reinterpret_cast<const char*>(array.data.data()), array.data.size());
  const auto again = cli::parse_npy(std::as_bytes(std::span(file)));
  require(again.ok() && again->shape == h.shape && again->kind == h.kind && again->item_bytes == h.item_bytes &&
              again->fortran_order == h.fortran_order && !again->big_endian,
          "a file is read otherwise than it was written");
}

// The flags of `config` as it describes them.
std::vector<std::string> flags_of(const std::string& described) {
  std::vector<std::string> flags;
  for (size_t at = 0; at < described.size();) {
    const size_t equals = described.find('=', at);
    require(equals != std::string::npos, "a flag has no value");
    std::string name = described.substr(at, equals - at);
    std::ranges::replace(name, '_', '-');
    std::string value;
    at = equals + 1;
    if (at < described.size() && described[at] == '"') return {};  // a value in quotes: escaped, not for a command line
    const size_t end = std::min(described.find(' ', at), described.size());
    value = described.substr(at, end - at);
    at = end + 1;
    flags.push_back("--" + name + "=" + value);
  }
  return flags;
}

}  // namespace

void http_head(Bytes bytes) {
  const server::HttpHandlers handlers{[] { return "metrics\n"; }, [] { return true; }, [] { return false; }};
  const std::string reply = server::http_reply(text_of(bytes), handlers);
  const std::string_view all = reply;
  const size_t end = all.find("\r\n\r\n");
  require(end != std::string_view::npos && all.starts_with("HTTP/1.1 "), "the reply has no head");
  const std::string_view head = all.substr(0, end + 2), body = all.substr(end + 4);
  const std::string_view length = header(head, "\r\nContent-Length: ");
  const bool is_head = text_of(bytes).starts_with("HEAD ");
  require(is_head ? body.empty() || length == std::to_string(body.size()) : length == std::to_string(body.size()),
          "the reply's length is wrong");
  require(header(head, "\r\nConnection: ") == "close", "the connection stays open");
  require(reply.size() < 400, "the reply repeats the request");
}

void npy(Bytes bytes) {
  const auto file = std::as_bytes(bytes);
  const auto array = cli::to_array(file, nullptr);
  if (!array.ok()) return require(array.status().code == client::Code::kInvalidArgument, "another code");
  const auto size = cli::array_bytes(array->header);
  require(size && *size == array->data.size() && array->data.data() + *size == file.data() + file.size(),
          "the data are not the rest of the file");
  write_and_read(*array);
  const auto signature = cli::to_signature(*array);
  if (signature.ok()) {
    require(std::ranges::all_of(*signature, [](int8_t s) { return s == 1 || s == -1; }), "a sign is none");
  }
  for (const std::optional<int32_t> exponent : {std::optional<int32_t>(), std::optional<int32_t>(-3)}) {
    auto stack = cli::to_matrices(*array, exponent);
    if (!stack.ok()) continue;
    read_all(*stack);
    if (client::element_bytes(stack->batch.data_type) == 2 && stack->batch.count > 0) {
      read_all(cli::widened(*std::move(stack)));
    }
  }
}

// Lines: NAME=VALUE is a variable, others are arguments.
void configuration(Bytes bytes) {
  std::map<std::string, std::string> variables;
  std::vector<std::string> arguments, names;
  for (std::string_view rest = text_of(bytes); !rest.empty();) {
    const size_t end = std::min(rest.find('\n'), rest.size());
    const std::string line(rest.substr(0, end));
    rest.remove_prefix(std::min(end + 1, rest.size()));
    const size_t equals = line.find('=');
    if (line.starts_with("SVDSERVE_") && equals != std::string::npos) {
      variables.emplace(line.substr(0, equals), line.substr(equals + 1).c_str());
      names.push_back(line.substr(0, equals));
    } else {
      arguments.push_back(line);
    }
  }
  require(server::unknown_variables(names).size() <= names.size(), "there are more variables than were given");
  const server::ConfigOutcome got = server::read_config(arguments, [&](const char* name) {
    const auto found = variables.find(name);
    return found == variables.end() ? nullptr : found->second.c_str();
  });
  if (got.action != server::ConfigOutcome::Action::kServe) return require(!got.text.empty(), "a refusal has no words");
  const std::string described = server::describe(got.config);
  require(described.find('\n') == std::string::npos, "the description is more than a line");
  const std::vector<std::string> flags = flags_of(described);
  if (flags.empty()) return;
  const server::ConfigOutcome again = server::read_config(flags, [](const char*) { return nullptr; });
  require(again.action == server::ConfigOutcome::Action::kServe && server::describe(again.config) == described,
          "a configuration does not describe itself");
}

}  // namespace svdserve::fuzz
