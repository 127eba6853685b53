// A real svdserve process for a test: started on free ports, awaited by its ready file, stopped by SIGTERM.
#ifndef SVDSERVE_TESTS_SUPPORT_RUNNING_SERVER_H_
#define SVDSERVE_TESTS_SUPPORT_RUNNING_SERVER_H_

#include <sys/types.h>

#include <chrono>
#include <functional>
#include <string>
#include <vector>

namespace svdserve::testing {

// The output of a program and how it ended.
struct ProgramResult {
  int exit_code = -1;  // 128 + signal where a signal ended it
  std::string output;  // both streams
};
// Runs to its end; for programs that end by themselves.
ProgramResult run_program(const std::vector<std::string>& command);
// The svdserve under test.
std::string server_binary();

// Polls until `condition` holds or `limit` has passed; returns whether it held. The limit is for what is broken: a
// machine may be busy, and the code instrumented.
bool wait_until(const std::function<bool()>& condition, std::chrono::milliseconds limit = std::chrono::seconds(180));

class RunningServer {
 public:
  // `flags` follow --listen=127.0.0.1:0 --metrics-listen=127.0.0.1:0 --metrics-max-age=0s --drain-delay=0s
  // and may override them. A server that does not come up fails the test at once.
  explicit RunningServer(std::vector<std::string> flags = {});
  // stop(), which must give 0.
  ~RunningServer();
  RunningServer(const RunningServer&) = delete;
  RunningServer& operator=(const RunningServer&) = delete;

  const std::string& address() const { return grpc_; }
  const std::string& metrics_address() const { return metrics_; }
  pid_t pid() const { return pid_; }
  // Private to this server, removed with it: for certificates and sockets.
  const std::string& directory() const { return directory_; }

  void signal(int signal) const;
  // SIGTERM, then wait().
  int stop();
  // The exit code, 128 + signal where a signal ended it. A process that does not end in time is killed: a failure.
  int wait();

  std::string log() const;
  int64_t resident_bytes() const;
  int64_t peak_resident_bytes() const;

  struct HttpReply {
    int code = 0;  // 0: no answer
    std::string body;
  };
  HttpReply get(const std::string& path) const;
  // The sum of all series of `name` whose labels contain every one of `labels`, such as status="OK"; 0 without any.
  double metric(const std::string& name, const std::vector<std::string>& labels = {}) const;

 private:
  pid_t pid_ = -1;
  bool waited_ = false;
  std::string directory_, grpc_, metrics_;
};

}  // namespace svdserve::testing
#endif  // SVDSERVE_TESTS_SUPPORT_RUNNING_SERVER_H_
