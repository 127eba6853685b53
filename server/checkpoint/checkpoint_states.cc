#include "server/checkpoint/checkpoint_states.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <utility>

namespace svdserve::server {
namespace {

// Bytes that are handed over at once. Twice as many are in memory at most.
constexpr uint64_t kPiece = uint64_t{4} << 20;
// Between looks at whether the computation is cancelled.
constexpr auto kLook = std::chrono::milliseconds(50);

}  // namespace

CheckpointStates::CheckpointStates(StateFolder folder, Clock* clock, const std::atomic<bool>* cancel)
    : shared_(std::make_shared<Shared>()), clock_(clock), cancel_(cancel), next_(clock->now() + folder.interval) {
  shared_->folder = std::move(folder);
}

// The lane closes the files: even that may take long.
CheckpointStates::~CheckpointStates() {
  shared_->folder.transfer([shared = shared_]() -> DiskLanes::After {
    shared->writer.reset();
    shared->reader = {};
    return {};
  });
}

// --- the computation's side ---------------------------------------------------------------------

bool CheckpointStates::wait() {
  using SystemClock = std::chrono::steady_clock;
  if (without_) return false;
  Shared& s = *shared_;
  const auto end = SystemClock::now() + absl::ToChronoMilliseconds(s.folder.patience);
  bool hangs = false;
  {
    MutexLock lock(&s.mu);
    while (s.under_way && !without_) {
      const auto now = SystemClock::now();
      hangs = now >= end;
      without_ = hangs || (cancel_ != nullptr && cancel_->load());
      if (!without_) s.changed.wait_until(&s.mu, std::min(now + kLook, end));
    }
  }
  if (hangs) s.folder.failed(purpose_.saving, purpose_.state, "the disk does not respond");
  return !without_;
}

bool CheckpointStates::start(Purpose purpose, Step step) {
  if (!wait()) return false;
  purpose_ = purpose;
  {
    MutexLock lock(&shared_->mu);
    shared_->under_way = true;
  }
  shared_->folder.transfer([shared = shared_, purpose, step = std::move(step)]() -> DiskLanes::After {
    return [shared, purpose, answer = step()] { shared->take(purpose, answer); };
  });
  return true;
}

uint64_t CheckpointStates::ask(Purpose purpose, Step step) {
  if (!start(purpose, std::move(step)) || !wait()) return 0;
  MutexLock lock(&shared_->mu);
  return shared_->value;
}

bool CheckpointStates::due() {
  if (without_ || shared_->gave_up || shared_->unfinished > 0) return false;
  asked_ = clock_->now();
  return asked_ >= next_ && shared_->folder.is_ours();
}

bool CheckpointStates::begin(LargeState state, uint64_t bytes) {
  piece_.clear();
  piece_.reserve(std::min(bytes, kPiece));
  return !shared_->gave_up &&
         ask({true, state}, [s = shared_.get(), state, bytes] { return s->begin(state, bytes); }) != 0;
}

void CheckpointStates::write(const void* bytes, uint64_t count) {
  const char* from = static_cast<const char*>(bytes);
  while (count > 0 && !shared_->gave_up && !without_) {
    const uint64_t part = std::min(count, kPiece - piece_.size());
    piece_.insert(piece_.end(), from, from + part);
    if (piece_.size() == kPiece) flush();
    from += part;
    count -= part;
  }
}

void CheckpointStates::flush() {
  if (!wait()) return;
  std::swap(piece_, shared_->piece);
  piece_.clear();
  start(purpose_, [s = shared_.get()] { return s->append(); });
}

void CheckpointStates::end() {
  if (!piece_.empty()) flush();
  if (!wait() || shared_->gave_up) return;
  const absl::Duration interval = shared_->folder.interval;
  const absl::Time now = clock_->now();
  if (interval > absl::ZeroDuration()) {
    next_ = now + std::max(interval, (now - asked_) * (1 / kShareForStates - 1));
  }
  ++shared_->unfinished;
  start(purpose_, [s = shared_, of = purpose_.state] { return Shared::end(s, of); });
}

uint64_t CheckpointStates::open(LargeState state) {
  return ask({false, state}, [s = shared_.get(), state] { return s->open(state); });
}

bool CheckpointStates::read(void* bytes, uint64_t count) {
  for (uint64_t done = 0; done < count; done += kPiece) {
    const uint64_t part = std::min(kPiece, count - done);
    if (ask(purpose_, [s = shared_.get(), part] { return s->read(part); }) == 0) return false;
    std::memcpy(static_cast<char*>(bytes) + done, shared_->piece.data(), part);
  }
  return true;
}

// --- on the lane --------------------------------------------------------------------------------

// A state of this kind that another computation has left was of no use to this one.
CheckpointStates::Answer CheckpointStates::Shared::begin(LargeState of, uint64_t bytes) {
  writer.reset();
  reader = {};  // the file that it has may be replaced
  Answer answer;
  folder.create([&] {
    if (of != LargeState::kSweep) answer.failed = folder.directory->remove(folder.name, name(of));
    if (!answer.failed.empty()) return;
    if (bytes_there() + static_cast<int64_t>(bytes) > folder.max_bytes) {
      answer.failed = "the matrix has too little room";
      return;
    }
    writer = folder.directory->begin(folder.name, name(of), bytes, &answer.failed);
  });
  gave_up = gave_up || !answer.failed.empty();
  answer.value = writer != nullptr;
  return answer;
}

int64_t CheckpointStates::Shared::bytes_there() const {
  int64_t bytes = 0;
  for (int s = 0; s <= static_cast<int>(LargeState::kLast); ++s) {
    bytes += std::max<int64_t>(0, folder.directory->size(folder.name, name(static_cast<LargeState>(s))));
  }
  return bytes;
}

CheckpointStates::Answer CheckpointStates::Shared::append() {
  if (writer == nullptr) return {};
  Answer answer{1, writer->append(piece.data(), piece.size())};
  if (!answer.failed.empty()) {
    gave_up = true;
    writer.reset();
  }
  return answer;
}

CheckpointStates::Answer CheckpointStates::Shared::end(const std::shared_ptr<Shared>& self, LargeState of) {
  if (self->writer == nullptr) {
    --self->unfinished;
    return {};
  }
  // One file, however often the task is copied.
  const auto file = std::make_shared<std::unique_ptr<CheckpointWriter>>(std::move(self->writer));
  const auto task = [self, of, file]() -> DiskLanes::After {
    const bool wanted = !self->gave_up && self->folder.is_ours();
    const std::string failed = wanted ? (*file)->finish() : "";
    file->reset();
    self->gave_up = self->gave_up || !failed.empty();
    return [self, of, wanted, failed] {
      --self->unfinished;
      if (!failed.empty()) self->folder.failed(true, of, failed);
      if (wanted && failed.empty()) self->folder.saved();
    };
  };
  return {1, "", task};
}

CheckpointStates::Answer CheckpointStates::Shared::open(LargeState of) {
  reader = {};
  Answer answer;
  if (!folder.is_ours() || !folder.directory->has(folder.name, name(of))) return answer;
  reader = folder.directory->open_file(folder.name, name(of), &answer.failed);
  answer.value = reader.left();
  return answer;
}

CheckpointStates::Answer CheckpointStates::Shared::read(uint64_t count) {
  piece.resize(count);
  Answer answer;
  answer.failed = reader.read(piece.data(), count);
  answer.value = answer.failed.empty();
  if (!answer.failed.empty() || reader.left() == 0) reader = {};
  return answer;
}

void CheckpointStates::Shared::take(const Purpose& purpose, const Answer& answer) {
  if (!answer.failed.empty()) folder.failed(purpose.saving, purpose.state, answer.failed);
  if (answer.finish) folder.finish(answer.finish);
  MutexLock lock(&mu);
  under_way = false;
  value = answer.value;
  changed.signal_all();
}

}  // namespace svdserve::server
