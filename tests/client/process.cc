#include "tests/client/process.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <thread>

namespace svdserve::testing {
namespace {

std::string read_file(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

pid_t spawn(const std::vector<std::string>& words, const std::string& out, const std::string& err) {
  std::vector<char*> argv;
  for (const std::string& w : words) argv.push_back(const_cast<char*>(w.c_str()));
  argv.push_back(nullptr);
  const pid_t pid = fork();
  if (pid == 0) {
    const auto redirect = [](const std::string& path, int to) {
      dup2(open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600), to);
    };
    // Whatever these tests were started with, nohup for one.
    for (const int number : {SIGHUP, SIGINT, SIGTERM, SIGPIPE}) std::signal(number, SIG_DFL);
    redirect(out, 1);
    redirect(err, 2);
    execv(argv[0], argv.data());
    _exit(127);
  }
  return pid;
}

int wait_for(pid_t pid) {
  int status = 0;
  waitpid(pid, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

}  // namespace

std::string make_folder() {
  std::string name = ::testing::TempDir() + "svdserve_XXXXXX";
  EXPECT_NE(mkdtemp(name.data()), nullptr);
  return name;
}

Process::Process(const std::vector<std::string>& words)
    : folder_(make_folder()), pid_(spawn(words, folder_ + "/out", folder_ + "/err")) {}

Process::~Process() {
  if (pid_ > 0) {
    kill(pid_, SIGKILL);
    wait_for(pid_);
  }
  std::filesystem::remove_all(folder_);
}

void Process::signal(int number) const { kill(pid_, number); }

Outcome Process::wait() {
  Outcome o;
  o.exit_code = wait_for(pid_);
  pid_ = -1;
  o.out = read_file(folder_ + "/out");
  o.err = read_file(folder_ + "/err");
  return o;
}

Outcome run(const std::vector<std::string>& words) { return Process(words).wait(); }

Server::Server(const std::vector<std::string>& flags) : folder_(make_folder()) {
  const std::string ready = folder_ + "/ready";
  std::vector<std::string> words = {
      SVDSERVE_PROGRAM, "--listen", "127.0.0.1:0", "--metrics-listen", "127.0.0.1:0", "--ready-file", ready,
      "--drain-delay",  "0s"};
  words.insert(words.end(), flags.begin(), flags.end());
  pid_ = spawn(words, folder_ + "/out", folder_ + "/err");
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(180);
  while (!std::filesystem::exists(ready) && waitpid(pid_, nullptr, WNOHANG) == 0) {
    if (std::chrono::steady_clock::now() > end) break;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  std::ifstream in(ready);
  for (std::string line; std::getline(in, line);) {
    if (line.starts_with("grpc=")) address_ = line.substr(5);
  }
  EXPECT_FALSE(address_.empty()) << "the server did not start: " << read_file(folder_ + "/err");
}

Server::~Server() {
  kill(pid_, SIGTERM);
  EXPECT_EQ(wait_for(pid_), 0) << read_file(folder_ + "/err");
  std::filesystem::remove_all(folder_);
}

}  // namespace svdserve::testing
