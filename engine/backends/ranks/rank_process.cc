#include "engine/backends/ranks/rank_process.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <thread>
#include <utility>

#include "engine/algorithms/large/large_backend.h"
#include "engine/algorithms/states/build_id.h"

namespace svdserve::ranks {
namespace {

// The rank's end of the socket.
constexpr int kRankSocket = 3;

// A killed process is gone in a second, or its driver hangs. Nobody waits longer then.
constexpr std::chrono::seconds kPatience{30};

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
  may_start() = true;
}

std::atomic<bool>& may_start() {
  static std::atomic<bool> may{false};
  return may;
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

RankProcess::~RankProcess() {
  kill();
  const auto until = std::chrono::steady_clock::now() + kPatience;
  while (!has_ended(process_)) {
    if (std::chrono::steady_clock::now() > until) {
      std::thread([process = process_] { waitpid(process, nullptr, 0); }).detach();
      return;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

void RankProcess::kill() const { ::kill(process_, SIGKILL); }

RankLease::~RankLease() {
  if (sound_) pool_.keep(std::move(ring_));
}

void RankLease::end(int member) {
  const std::lock_guard lock(mutex_);
  for (const auto& process : ring_.processes) {
    if (process != nullptr) process->kill();
  }
  ring_.processes[static_cast<size_t>(member)].reset();
}

const SharedBlock& RankLease::common(uint64_t bytes) {
  const std::lock_guard lock(mutex_);
  if (!has_common_ && bytes > 0) common_ = share_host_memory(bytes);
  has_common_ = true;
  return common_;
}

void RankLease::name_ring(std::string name) {
  const std::lock_guard lock(mutex_);
  name_ = std::move(name);
}

std::string RankLease::ring_name() const {
  const std::lock_guard lock(mutex_);
  return name_;
}

std::shared_ptr<RankLease> RankPool::take(const std::vector<int>& devices) {
  RankRing ring;
  {
    const std::lock_guard lock(mutex_);
    const auto at =
        std::find_if(idle_.rbegin(), idle_.rend(), [&](const auto& idle) { return idle.devices == devices; });
    if (at != idle_.rend()) {
      ring = std::move(*at);
      idle_.erase(std::next(at).base());
    }
  }
  const auto& idle = ring.processes;
  if (!std::all_of(idle.begin(), idle.end(), [](const auto& process) { return process->socket().is_quiet(); })) {
    ring.processes.clear();  // one of them has ended
  }
  ring.devices = devices;
  for (size_t i = ring.processes.size(); i < devices.size(); ++i) {
    std::vector<std::string> arguments = arguments_;
    arguments.push_back(std::to_string(devices[i]));
    ring.processes.push_back(std::make_unique<RankProcess>(arguments));
  }
  return std::make_shared<RankLease>(*this, std::move(ring));
}

void RankPool::keep(RankRing ring) {
  RankRing oldest;  // ends without the lock
  const std::lock_guard lock(mutex_);
  idle_.push_back(std::move(ring));
  if (idle_.size() <= kMostIdle) return;
  oldest = std::move(idle_.front());
  idle_.erase(idle_.begin());
}

}  // namespace svdserve::ranks
