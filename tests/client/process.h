// Programs of the project, run as a user would.
#ifndef SVDSERVE_TESTS_CLIENT_PROCESS_H_
#define SVDSERVE_TESTS_CLIENT_PROCESS_H_

#include <sys/types.h>

#include <string>
#include <vector>

namespace svdserve::testing {

struct Outcome {
  int exit_code = -1;  // -1: it did not exit by itself
  std::string out = {}, err = {};
};
// Runs a program to its end.
Outcome run(const std::vector<std::string>& words);

// A program that runs until it ends or is ended.
class Process {
 public:
  explicit Process(const std::vector<std::string>& words);
  ~Process();
  void signal(int number) const;
  Outcome wait();  // once

 private:
  std::string folder_;
  pid_t pid_ = -1;
};

// A server on a free port; stopped with SIGTERM at the end, when it must exit with 0.
class Server {
 public:
  // Fails the test where the server is not ready within 60 s.
  explicit Server(const std::vector<std::string>& flags = {});
  ~Server();
  const std::string& address() const { return address_; }

 private:
  pid_t pid_ = -1;
  std::string folder_, address_;
};

// A new folder below the test's; the caller removes it.
std::string make_folder();

}  // namespace svdserve::testing
#endif  // SVDSERVE_TESTS_CLIENT_PROCESS_H_
