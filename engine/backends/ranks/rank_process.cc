#include "engine/backends/ranks/rank_process.h"

#include <elf.h>
#include <fcntl.h>
#include <link.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <system_error>
#include <thread>
#include <utility>

#include "engine/algorithms/large/large_backend.h"
#include "engine/algorithms/states/build_id.h"

namespace svdserve::ranks {
namespace {

// The rank's end of the socket.
constexpr int kRankSocket = 3;

// Sent by a terminal or a service manager to all of a group. A rank ends with its leader instead.
constexpr int kSignalsOfGroups[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT};

// Calls of posix_spawn() with what is to be freed afterwards.
class Spawn {
 public:
  Spawn() {
    posix_spawn_file_actions_init(&actions_);
    posix_spawnattr_init(&attributes_);
    // A group of its own: keys of a terminal are the leader's business. Until begin_rank() ignores signals of groups,
    // they are blocked. No other signal is.
    posix_spawnattr_setflags(&attributes_, POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGMASK);
    sigset_t blocked;
    sigemptyset(&blocked);
    for (const int signal : kSignalsOfGroups) sigaddset(&blocked, signal);
    posix_spawnattr_setsigmask(&attributes_, &blocked);
  }
  ~Spawn() {
    posix_spawn_file_actions_destroy(&actions_);
    posix_spawnattr_destroy(&attributes_);
  }
  Spawn(const Spawn&) = delete;
  Spawn& operator=(const Spawn&) = delete;
  // Returns an error number.
  int start(pid_t* process, int socket, const std::vector<std::string>& arguments) {
    std::vector<char*> argv;
    for (const std::string& argument : arguments) argv.push_back(const_cast<char*>(argument.c_str()));
    argv.push_back(nullptr);
    int error = posix_spawn_file_actions_adddup2(&actions_, socket, kRankSocket);
    if (error == 0) error = posix_spawn_file_actions_addclosefrom_np(&actions_, kRankSocket + 1);
    return error != 0 ? error : posix_spawn(process, "/proc/self/exe", &actions_, &attributes_, argv.data(), environ);
  }

 private:
  posix_spawn_file_actions_t actions_;
  posix_spawnattr_t attributes_;
};

bool has_ended(pid_t process) {
  pid_t ended = 0;
  do {
    ended = waitpid(process, nullptr, WNOHANG);
  } while (ended < 0 && errno == EINTR);
  return ended != 0;  // an error: somebody else has waited for it
}

void wait_behind(pid_t process) {
  try {
    std::thread([process] {
      while (waitpid(process, nullptr, 0) < 0 && errno == EINTR) continue;
    }).detach();
  } catch (const std::exception&) {  // its number stays taken until this process ends
  }
}

// Whether /proc/self/exe is the program that runs: it has the same program headers. Where the program is an argument of
// the dynamic loader, it is the loader.
bool can_start_itself() {
  std::string own;
  dl_iterate_phdr(
      [](dl_phdr_info* program, size_t, void* headers) {
        static_cast<std::string*>(headers)->assign(reinterpret_cast<const char*>(program->dlpi_phdr),
                                                   program->dlpi_phnum * sizeof(ElfW(Phdr)));
        return 1;
      },
      &own);
  std::ifstream file("/proc/self/exe", std::ios::binary);
  ElfW(Ehdr) header{};
  file.read(reinterpret_cast<char*>(&header), sizeof(header));
  std::string headers(own.size(), '\0');
  file.seekg(static_cast<std::streamoff>(header.e_phoff));
  file.read(headers.data(), static_cast<std::streamsize>(headers.size()));
  return file.good() && headers == own;
}

}  // namespace

Descriptor begin_rank() {
  fcntl(kRankSocket, F_SETFD, FD_CLOEXEC);  // what a library starts has no end of it
  for (const int signal : kSignalsOfGroups) ::signal(signal, SIG_IGN);
  // A call of the rank may take long, or for ever.
  std::thread([] {
    pollfd leader{kRankSocket, POLLRDHUP, 0};
    while (poll(&leader, 1, -1) < 0 && errno == EINTR) {
    }
    _exit(EXIT_SUCCESS);
  }).detach();
  return Descriptor(kRankSocket);
}

std::string own_build() { return states::build_id_of(reinterpret_cast<const void*>(&begin_rank)); }

void begin_leader() {
  ::signal(SIGCHLD, SIG_DFL);
  start_refusal() = can_start_itself()
                        ? nullptr
                        : "ranks are this program again, but /proc/self/exe is another one: start the program by its "
                          "own name, and not by the dynamic loader";
}

std::atomic<const char*>& start_refusal() {
  static std::atomic<const char*> refusal{"this program does not begin with run_as_rank()"};
  return refusal;
}

RankProcess::RankProcess(const std::vector<std::string>& arguments)
    : ends_(socket_pair()), socket_(std::move(ends_.first)) {
  std::vector<std::string> all = {"svdserve", kRankArgument};
  all.insert(all.end(), arguments.begin(), arguments.end());
  const int error = Spawn().start(&process_, ends_.second.get(), all);
  if (error != 0) {
    throw large::LargeStop{LargeStatus::kFault,
                           std::string("no process for a rank: /proc/self/exe: ") + std::strerror(error)};
  }
  ends_.second = Descriptor();  // the rank alone has it, so that both notice when the other is gone
}

RankProcess::~RankProcess() { end(Clock::now() + kPatience); }

void RankProcess::end(Clock::time_point until) {
  if (process_ < 0) return;
  kill();
  const pid_t process = std::exchange(process_, -1);
  while (!has_ended(process)) {
    if (Clock::now() > until) return wait_behind(process);
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

void RankProcess::kill() const {
  if (process_ > 0) ::kill(process_, SIGKILL);
}

}  // namespace svdserve::ranks
