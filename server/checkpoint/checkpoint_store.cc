#include "server/checkpoint/checkpoint_store.h"

#include <sys/random.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cctype>
#include <future>
#include <map>
#include <optional>
#include <unordered_map>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "server/base/log.h"
#include "server/base/mutex.h"
#include "server/checkpoint/checkpoint_states.h"
#include "server/checkpoint/disk_lanes.h"

namespace svdserve::server {
namespace {

constexpr const char* kPartNames[] = {"operand", "results"};
// Written last: a folder without it is left over from a server that was killed before it had the operand.
constexpr char kRequestName[] = "request";
// A description has a character for each column's sign at most.
constexpr size_t kMaxText = size_t{4} << 20;
constexpr const char* kGivenUp = "it was given up";

std::string header_name(CheckpointPart part) { return absl::StrCat(kPartNames[static_cast<int>(part)], ".header"); }

ResumeToken new_token() {
  ResumeToken token(kResumeTokenBytes, '\0');
  // So few bytes come at once, or not at all.
  return getrandom(token.data(), token.size(), 0) == static_cast<ssize_t>(token.size()) ? token : ResumeToken();
}

// The token of a folder's name; empty: it is not one of ours.
ResumeToken token_of(const std::string& folder) {
  const auto is_digit = [](char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); };
  if (folder.size() != 2 * kResumeTokenBytes || !std::all_of(folder.begin(), folder.end(), is_digit)) return "";
  return absl::HexStringToBytes(folder);
}

// Memory that goes once, for all copies of a task.
std::shared_ptr<std::shared_ptr<const void>> holding(std::shared_ptr<const void> memory) {
  return std::make_shared<std::shared_ptr<const void>>(std::move(memory));
}

// The contents of a request file.
struct RequestText {
  std::string owner, description;
  int64_t bytes = 0;
};
std::string write_request(const RequestText& request) {
  return absl::StrCat("1\n", absl::CEscape(request.owner), "\n", absl::CEscape(request.description), "\n",
                      request.bytes, "\n");
}
std::optional<RequestText> read_request(const std::string& text) {
  const std::vector<std::string> lines = absl::StrSplit(text, '\n');
  RequestText request;
  const bool good = lines.size() == 5 && lines[0] == "1" && absl::CUnescape(lines[1], &request.owner) &&
                    absl::CUnescape(lines[2], &request.description) && absl::SimpleAtoi(lines[3], &request.bytes) &&
                    request.bytes > 0;
  return good ? std::optional(std::move(request)) : std::nullopt;
}

}  // namespace

// Tasks of lanes read what comes before `taken`. The store's lock guards the rest, and changes of `claim`.
struct CheckpointEntry {
  ResumeToken token;
  std::string folder;
  RequestText request;
  const std::shared_ptr<DiskLanes::Lane> lane = DiskLanes::make_lane();
  std::atomic<bool> given_up{false};            // its transfers are to end, and its files go
  std::atomic<bool> saved[2] = {false, false};  // by CheckpointPart
  Mutex creating;                               // held while a state's file is created, and while the folder is removed
  std::promise<void> gone;                      // the folder is
  // Its states are those of computations since so many devices have failed it. Older ones are still to be removed.
  std::atomic<uint64_t> faults{0}, removing{0};
  std::atomic<uint64_t> claim{0};  // 0: nobody's

  std::function<void()> taken;
  int transfers = 0;  // of the operand to disk: waiting or under way
  absl::Time expires = absl::InfiniteFuture();
  uint64_t age = 0;  // in the order of release
};

struct CheckpointStore::Impl {
  Impl(CheckpointDirectory d, const CheckpointOptions& o, Clock* c, Recorder* r)
      : directory(std::make_shared<const CheckpointDirectory>(std::move(d))),
        options(o),
        clock(c),
        recorder(r),
        lanes(absl::ToChronoMilliseconds(o.patience)) {
    take_over();
  }
  ~Impl() {
    MutexLock lock(&mu);
    ending = true;
    for (const auto& [token, entry] : entries) entry->given_up = true;
  }

  // The files of an earlier server. Those that are not complete go.
  void take_over() {
    MutexLock lock(&mu);
    for (const std::string& folder : directory->folders()) {
      const ResumeToken token = token_of(folder);
      if (token.empty()) continue;
      std::string text;
      const bool readable = directory->read_text(folder, kRequestName, kMaxText, &text).empty();
      std::optional<RequestText> request = readable ? read_request(text) : std::nullopt;
      if (!request || !directory->has(folder, kPartNames[0])) {
        directory->remove(folder);
        continue;
      }
      const auto entry = std::make_shared<CheckpointEntry>();
      entry->token = token;
      entry->folder = folder;
      entry->request = *std::move(request);
      entry->saved[0] = true;
      directory->remove_unfinished(folder);
      entry->saved[1] = directory->has(folder, kPartNames[1]);
      bytes += entry->request.bytes;
      entries.emplace(token, entry);
      release(entry.get());
    }
    log_info("checkpoints", {{"directory", options.directory}, {"matrices", entries.size()}, {"bytes", bytes}});
  }

  void release(CheckpointEntry* entry) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu) {
    entry->claim = 0;
    entry->taken = nullptr;
    entry->age = ++last_number;
    entry->expires = clock->now() + options.keep;
  }

  // Nobody finds it any more. Its room is free when its files are gone.
  void remove(const std::shared_ptr<CheckpointEntry>& entry) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu) {
    if (entries.erase(entry->token) == 0) return;
    entry->given_up = true;
    entry->claim = 0;
    lanes.push(entry->lane, [this, files = directory, entry]() -> DiskLanes::After {
      {
        MutexLock creating(&entry->creating);
        files->remove(entry->folder);
      }
      entry->gone.set_value();
      return [this, entry] {
        MutexLock lock(&mu);
        bytes -= entry->request.bytes;
      };
    });
  }

  void drop_states(const std::shared_ptr<CheckpointEntry>& entry) {
    MutexLock lock(&mu);
    if (entry->given_up) return;  // they go with the rest
    ++entry->removing;            // first: states since this fault are not looked for before the others are gone
    ++entry->faults;
    lanes.push(entry->lane, [this, files = directory, entry]() -> DiskLanes::After {
      std::string failed;
      for (int s = 0; s <= static_cast<int>(LargeState::kLast) && failed.empty(); ++s) {
        failed = files->remove(entry->folder, name(static_cast<LargeState>(s)));
      }
      if (failed.empty()) failed = files->sync(entry->folder);
      if (failed.empty()) --entry->removing;  // else nobody reads them, and none are saved
      return [this, entry, failed] { tell_failure(*entry, true, "states", failed); };
    });
  }

  // Makes room by files that nobody claims: the oldest of the owner that has most of them, again and again. False: there
  // is too little room. Files that are removed count no more, although they go a little later: the lane waits for that.
  bool make_room(int64_t needed, const std::shared_ptr<DiskLanes::Lane>& lane) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu) {
    std::map<std::string, int64_t> unclaimed;  // bytes by owner
    int64_t kept = 0, claimed = 0;
    for (const auto& [token, entry] : entries) {
      kept += entry->request.bytes;
      (entry->claim == 0 ? unclaimed[entry->request.owner] : claimed) += entry->request.bytes;
    }
    if (claimed + needed > options.max_bytes) return false;
    while (kept + needed > options.max_bytes) {
      const auto most = std::max_element(unclaimed.begin(), unclaimed.end(),
                                         [](const auto& a, const auto& b) { return a.second < b.second; });
      const std::shared_ptr<CheckpointEntry> oldest = oldest_of(most->first);
      kept -= oldest->request.bytes;
      most->second -= oldest->request.bytes;
      remove(oldest);
      lanes.push(lane, [oldest]() -> DiskLanes::After {
        oldest->gone.get_future().wait();
        return {};
      });
    }
    return true;
  }
  // Whether all that is there and this are in the lower half of the room.
  bool has_room_for_states(int64_t needed) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu) {
    int64_t kept = 0;
    for (const auto& [token, entry] : entries) kept += entry->request.bytes;
    return kept + needed <= options.max_bytes / 2;
  }
  std::shared_ptr<CheckpointEntry> oldest_of(const std::string& owner) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu) {
    std::shared_ptr<CheckpointEntry> oldest;
    for (const auto& [token, entry] : entries) {
      if (entry->claim != 0 || entry->request.owner != owner) continue;
      if (oldest == nullptr || entry->age < oldest->age) oldest = entry;
    }
    return oldest;
  }

  // On the entry's lane.
  static std::string write(const CheckpointDirectory& directory, CheckpointEntry* entry, CheckpointPart part,
                           const std::string& header, const ConstParts& parts) {
    const std::string& folder = entry->folder;
    const auto text = [&](const std::string& name, const std::string& content) {
      return directory.write(folder, name, {std::span(content.data(), content.size())}, entry->given_up);
    };
    if (entry->given_up) return kGivenUp;
    std::string failed = part == CheckpointPart::kOperand ? directory.create(folder) : "";
    if (failed.empty() && !header.empty()) failed = text(header_name(part), header);
    if (failed.empty()) failed = directory.write(folder, kPartNames[static_cast<int>(part)], parts, entry->given_up);
    if (failed.empty() && part == CheckpointPart::kOperand) failed = text(kRequestName, write_request(entry->request));
    return failed;
  }

  void tell_failure(const CheckpointEntry& entry, bool saving, const char* part, const std::string& failed) {
    if (failed.empty() || entry.given_up) return;
    log_warning(saving ? "checkpoint_failed" : "checkpoint_unreadable", {{"part", part}, {"error", failed}});
    recorder->checkpoint_failed();
  }

  void written(const std::shared_ptr<CheckpointEntry>& entry, CheckpointPart part, const std::string& failed) {
    tell_failure(*entry, true, kPartNames[static_cast<int>(part)], failed);
    MutexLock lock(&mu);
    entry->saved[static_cast<int>(part)] = failed.empty();
    if (part != CheckpointPart::kOperand) return;
    --entry->transfers;
    if (!failed.empty() && !ending) remove(entry);
  }

  const std::shared_ptr<const CheckpointDirectory> directory;
  const CheckpointOptions options;
  Clock* const clock;
  Recorder* const recorder;
  mutable Mutex mu;
  bool ending ABSL_GUARDED_BY(mu) = false;
  std::unordered_map<ResumeToken, std::shared_ptr<CheckpointEntry>> entries ABSL_GUARDED_BY(mu);
  int64_t bytes ABSL_GUARDED_BY(mu) = 0;         // of entries, and of files that are still being removed
  uint64_t last_number ABSL_GUARDED_BY(mu) = 0;  // of claims and of releases
  DiskLanes lanes;                               // last: what comes of their tasks uses the others
};

// --- the store ----------------------------------------------------------------------------------

std::unique_ptr<CheckpointStore> CheckpointStore::open(const CheckpointOptions& options, Clock* clock,
                                                       Recorder* recorder, std::string* why) {
  CheckpointDirectory directory = CheckpointDirectory::open(options.directory, why);
  if (!directory) return nullptr;
  return std::unique_ptr<CheckpointStore>(
      new CheckpointStore(std::make_unique<Impl>(std::move(directory), options, clock, recorder)));
}

CheckpointStore::CheckpointStore(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
CheckpointStore::~CheckpointStore() = default;

Checkpoint CheckpointStore::begin(const std::string& owner, const std::string& description, int64_t bytes,
                                  int64_t states, std::function<void()> taken) {
  Checkpoint out;
  ResumeToken token = new_token();
  if (token.empty()) return out;
  MutexLock lock(&impl_->mu);
  if (impl_->ending) return out;
  const auto entry = std::make_shared<CheckpointEntry>();
  if (impl_->has_room_for_states(bytes + states)) {
    bytes += states;
  } else if (!impl_->make_room(bytes, entry->lane)) {
    return out;
  }
  out.store_ = this;
  out.entry_ = entry;
  out.claim_ = ++impl_->last_number;
  out.entry_->folder = absl::BytesToHexString(token);
  out.entry_->request = {owner, description, bytes};
  out.entry_->claim = out.claim_;
  out.entry_->taken = std::move(taken);
  out.entry_->token = token;
  impl_->bytes += bytes;
  impl_->entries.emplace(std::move(token), out.entry_);
  return out;
}

CheckpointStore::Claim CheckpointStore::claim(const ResumeToken& token, const std::string& owner,
                                              const std::string& description, std::function<void()> taken,
                                              Checkpoint* claimed) {
  std::function<void()> tell;
  {
    MutexLock lock(&impl_->mu);
    const auto found = impl_->entries.find(token);
    if (found == impl_->entries.end()) return Claim::kUnknown;
    const std::shared_ptr<CheckpointEntry>& entry = found->second;
    if (entry->request.owner != owner || !entry->saved[0]) return Claim::kUnknown;
    if (entry->request.description != description) return Claim::kDiffers;
    tell = std::exchange(entry->taken, std::move(taken));
    claimed->store_ = this;
    claimed->entry_ = entry;
    claimed->claim_ = entry->claim = ++impl_->last_number;
  }
  if (tell) tell();
  return Claim::kYes;
}

void CheckpointStore::remove_expired() {
  MutexLock lock(&impl_->mu);
  const absl::Time now = impl_->clock->now();
  std::vector<std::shared_ptr<CheckpointEntry>> expired;
  for (const auto& [token, entry] : impl_->entries) {
    if (entry->claim == 0 && entry->expires <= now) expired.push_back(entry);
  }
  for (const auto& entry : expired) impl_->remove(entry);
}

CheckpointUsage CheckpointStore::usage() const {
  MutexLock lock(&impl_->mu);
  return {static_cast<int64_t>(impl_->entries.size()), impl_->bytes};
}

// --- a claim ------------------------------------------------------------------------------------

const ResumeToken& Checkpoint::token() const { return entry_->token; }

Checkpoint::~Checkpoint() { release(); }

std::function<void()> Checkpoint::release() {
  if (entry_ == nullptr) return nullptr;
  CheckpointStore::Impl* const impl = store_->impl_.get();
  MutexLock lock(&impl->mu);
  if (entry_->claim != claim_) return nullptr;
  const bool stays = entry_->saved[0] || entry_->transfers > 0;
  if (!stays) {
    impl->remove(entry_);
    return nullptr;
  }
  impl->release(entry_.get());
  return [impl, entry = entry_, age = entry_->age] {
    MutexLock drop(&impl->mu);
    if (entry->claim == 0 && entry->age == age) impl->remove(entry);
  };
}

std::unique_ptr<LargeStateStore> Checkpoint::states(int64_t others_bytes, const std::atomic<bool>* cancel) {
  if (entry_ == nullptr || entry_->request.bytes <= others_bytes) return nullptr;
  CheckpointStore::Impl& impl = *store_->impl_;
  StateFolder folder;
  folder.directory = impl.directory;
  folder.name = entry_->folder;
  folder.max_bytes = entry_->request.bytes - others_bytes;
  folder.interval = impl.options.state_interval;
  folder.patience = impl.options.state_patience;
  folder.is_ours = [entry = entry_, claim = claim_, faults = entry_->faults.load()] {
    return entry->saved[0] && entry->claim == claim && entry->faults == faults && entry->removing == 0;
  };
  folder.create = [entry = entry_, is_ours = folder.is_ours](const std::function<void()>& file) {
    MutexLock creating(&entry->creating);
    if (is_ours()) file();
  };
  folder.transfer = [&impl, lane = DiskLanes::make_lane()](DiskLanes::Task task) {
    impl.lanes.push(lane, std::move(task));
  };
  folder.finish = [&impl, entry = entry_](DiskLanes::Task task) { impl.lanes.push(entry->lane, std::move(task)); };
  folder.failed = [&impl, entry = entry_](bool saving, LargeState state, const std::string& why) {
    impl.tell_failure(*entry, saving, name(state), why);
  };
  folder.saved = [&impl] { impl.recorder->state_saved(); };
  return std::make_unique<CheckpointStates>(std::move(folder), impl.clock, cancel);
}

std::function<void()> Checkpoint::states_dropper() const {
  if (entry_ == nullptr) return nullptr;
  return [impl = store_->impl_.get(), entry = entry_] { impl->drop_states(entry); };
}

void Checkpoint::drop() {
  if (entry_ == nullptr) return;
  CheckpointStore::Impl& impl = *store_->impl_;
  MutexLock lock(&impl.mu);
  if (entry_->claim == claim_) impl.remove(entry_);
}

void Checkpoint::save(CheckpointPart part, std::string header, ConstParts parts, std::shared_ptr<const void> keep,
                      Done done) {
  CheckpointStore::Impl& impl = *store_->impl_;
  MutexLock lock(&impl.mu);
  if (entry_->claim != claim_) return;
  if (part == CheckpointPart::kOperand) ++entry_->transfers;
  impl.lanes.push(
      entry_->lane,
      [&impl, files = impl.directory, entry = entry_, part, header = std::move(header), parts = std::move(parts),
       held = holding(std::move(keep)), done = std::move(done)]() -> DiskLanes::After {
        const std::string failed = CheckpointStore::Impl::write(*files, entry.get(), part, header, parts);
        return [&impl, entry, part, held, done, failed] {
          impl.written(entry, part, failed);
          held->reset();
          done(failed);
        };
      });
}

bool Checkpoint::has(CheckpointPart part) const { return entry_->saved[static_cast<int>(part)]; }

void Checkpoint::load(CheckpointPart part, MutableParts parts, std::shared_ptr<const void> keep, Loaded loaded) {
  CheckpointStore::Impl& impl = *store_->impl_;
  MutexLock lock(&impl.mu);
  if (entry_->claim != claim_) return;
  impl.lanes.push(entry_->lane,
                  [&impl, files = impl.directory, entry = entry_, part, parts = std::move(parts),
                   held = holding(std::move(keep)), loaded = std::move(loaded)]() -> DiskLanes::After {
                    const char* const file = kPartNames[static_cast<int>(part)];
                    const std::string failed = files->read(entry->folder, file, parts, entry->given_up);
                    std::string header;
                    if (files->has(entry->folder, header_name(part))) {
                      (void)files->read_text(entry->folder, header_name(part), kMaxText, &header);
                    }
                    return [&impl, entry, file, held, loaded, failed, header] {
                      impl.tell_failure(*entry, false, file, failed);
                      held->reset();
                      loaded(failed, header);
                    };
                  });
}

}  // namespace svdserve::server
