#include "tests/support/running_server.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <thread>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"

namespace svdserve::testing {
namespace {

std::string read_text(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

// Both streams go to `log`.
pid_t spawn(const std::vector<std::string>& command, const std::string& log) {
  const pid_t pid = fork();
  if (pid != 0) return pid;
  const int fd = open(log.c_str(), O_WRONLY | O_CREAT | O_APPEND, 0644);
  dup2(fd, STDOUT_FILENO);
  dup2(fd, STDERR_FILENO);
  std::vector<char*> argv;
  for (const std::string& word : command) argv.push_back(const_cast<char*>(word.c_str()));
  argv.push_back(nullptr);
  execv(argv[0], argv.data());
  _exit(127);
}

int to_exit_code(int status) { return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status); }

std::string make_directory() {
  std::string path = (std::filesystem::temp_directory_path() / "svdserve_test_XXXXXX").string();
  if (mkdtemp(path.data()) == nullptr) ADD_FAILURE() << "mkdtemp " << path;
  return path;
}

}  // namespace

std::string server_binary() {
  const char* chosen = std::getenv("SVDSERVE_TEST_BINARY");
  return chosen != nullptr ? chosen : SVDSERVE_BINARY;
}

bool wait_until(const std::function<bool()>& condition, std::chrono::milliseconds limit) {
  const auto end = std::chrono::steady_clock::now() + limit;
  while (!condition()) {
    if (std::chrono::steady_clock::now() > end) return condition();
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  return true;
}

ProgramResult run_program(const std::vector<std::string>& command) {
  const std::string directory = make_directory();
  const std::string log = directory + "/log";
  const pid_t pid = spawn(command, log);
  int status = 0;
  waitpid(pid, &status, 0);
  ProgramResult result{to_exit_code(status), read_text(log)};
  std::filesystem::remove_all(directory);
  return result;
}

RunningServer::RunningServer(std::vector<std::string> flags) : directory_(make_directory()) {
  const std::string ready = directory_ + "/ready";
  std::vector<std::string> command = {server_binary(),        "--listen=127.0.0.1:0", "--metrics-listen=127.0.0.1:0",
                                      "--metrics-max-age=0s", "--drain-delay=0s",     "--ready-file=" + ready};
  command.insert(command.end(), flags.begin(), flags.end());
  pid_ = spawn(command, directory_ + "/log");
  const bool up =
      wait_until([&] { return std::filesystem::exists(ready) || (waited_ = waitpid(pid_, nullptr, WNOHANG) == pid_); });
  if (!up || waited_) {
    std::fprintf(stderr, "svdserve did not come up:\n%s\n", log().c_str());
    std::abort();
  }
  for (const absl::string_view line : absl::StrSplit(read_text(ready), '\n')) {
    if (absl::StartsWith(line, "grpc=")) grpc_ = std::string(line.substr(5));
    if (absl::StartsWith(line, "metrics=")) metrics_ = std::string(line.substr(8));
  }
}

RunningServer::~RunningServer() {
  if (!waited_) {
    EXPECT_EQ(stop(), 0) << log();
  }
  std::filesystem::remove_all(directory_);
}

void RunningServer::signal(int signal) const { kill(pid_, signal); }

int RunningServer::stop() {
  signal(SIGTERM);
  return wait();
}

int RunningServer::wait() {
  int status = 0;
  const bool ended = wait_until([&] { return waitpid(pid_, &status, WNOHANG) == pid_; });
  if (!ended) {
    ADD_FAILURE() << "the server does not end:\n" << log();
    signal(SIGKILL);
    waitpid(pid_, &status, 0);
  }
  waited_ = true;
  return to_exit_code(status);
}

std::string RunningServer::log() const { return read_text(directory_ + "/log"); }

int64_t RunningServer::resident_bytes() const {
  std::ifstream file("/proc/" + std::to_string(pid_) + "/statm");
  int64_t total = 0, resident = 0;
  file >> total >> resident;
  return resident * sysconf(_SC_PAGESIZE);
}

int64_t RunningServer::peak_resident_bytes() const {
  const std::string status = read_text("/proc/" + std::to_string(pid_) + "/status");
  const size_t at = status.find("VmHWM:");
  return at == std::string::npos ? 0 : 1024 * std::atoll(status.c_str() + at + 6);
}

RunningServer::HttpReply RunningServer::get(const std::string& path) const {
  HttpReply reply;
  const size_t colon = metrics_.rfind(':');
  sockaddr_in to{};
  to.sin_family = AF_INET;
  to.sin_port = htons(static_cast<uint16_t>(std::atoi(metrics_.c_str() + colon + 1)));
  inet_pton(AF_INET, metrics_.substr(0, colon).c_str(), &to.sin_addr);
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const timeval limit{60, 0};
  setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
  const std::string request = "GET " + path + " HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
  std::string answer;
  if (connect(fd, reinterpret_cast<const sockaddr*>(&to), sizeof to) == 0 &&
      send(fd, request.data(), request.size(), MSG_NOSIGNAL) == static_cast<ssize_t>(request.size())) {
    char buffer[65536];
    for (ssize_t n; (n = recv(fd, buffer, sizeof buffer, 0)) > 0;) answer.append(buffer, static_cast<size_t>(n));
  }
  close(fd);
  const size_t body = answer.find("\r\n\r\n");
  if (answer.size() < 12 || body == std::string::npos) return reply;
  reply.code = std::atoi(answer.c_str() + 9);
  reply.body = answer.substr(body + 4);
  return reply;
}

double RunningServer::metric(const std::string& name, const std::vector<std::string>& labels) const {
  double sum = 0;
  const std::string text = get("/metrics").body;
  for (const absl::string_view line : absl::StrSplit(text, '\n')) {
    if (!absl::StartsWith(line, name + "{") && !absl::StartsWith(line, name + " ")) continue;
    bool matches = true;
    for (const std::string& label : labels) matches = matches && absl::StrContains(line, label);
    double value = 0;
    if (matches && absl::SimpleAtod(line.substr(line.rfind(' ') + 1), &value)) sum += value;
  }
  return sum;
}

}  // namespace svdserve::testing
