#include "server/checkpoint/checkpoint_states.h"

#include <algorithm>
#include <utility>

namespace svdserve::server {

CheckpointStates::CheckpointStates(StateFolder folder, Clock* clock)
    : shared_(std::make_shared<Shared>()), clock_(clock), next_(clock->now() + folder.interval) {
  shared_->folder = std::move(folder);
}

bool CheckpointStates::due() {
  if (shared_->gave_up || shared_->unfinished > 0) return false;
  asked_ = clock_->now();
  return asked_ >= next_ && shared_->folder.is_ours();
}

// A state of this kind that another computation has left was of no use to this one.
bool CheckpointStates::begin(LargeState state, uint64_t bytes) {
  const StateFolder& folder = shared_->folder;
  writer_.reset();
  reader_ = {};  // the file that it has may be replaced
  if (shared_->gave_up) return false;
  state_ = state;
  if (state != LargeState::kSweep) folder.directory->remove(folder.name, name(state));
  if (bytes_there() + static_cast<int64_t>(bytes) > folder.max_bytes) {
    fail(*shared_, state, "the matrix has too little room");
    return false;
  }
  std::string failed;
  writer_ = folder.directory->begin(folder.name, name(state), bytes, &failed);
  if (writer_ == nullptr) fail(*shared_, state, failed);
  return writer_ != nullptr;
}

int64_t CheckpointStates::bytes_there() const {
  int64_t bytes = 0;
  for (int s = 0; s <= static_cast<int>(LargeState::kLast); ++s) {
    const char* const file = name(static_cast<LargeState>(s));
    bytes += std::max<int64_t>(0, shared_->folder.directory->size(shared_->folder.name, file));
  }
  return bytes;
}

void CheckpointStates::write(const void* bytes, uint64_t count) {
  if (writer_ == nullptr) return;
  const std::string failed = writer_->append(bytes, count);
  if (failed.empty()) return;
  fail(*shared_, state_, failed);
  writer_.reset();
}

void CheckpointStates::end() {
  if (writer_ == nullptr) return;
  const StateFolder& folder = shared_->folder;
  const absl::Time now = clock_->now();
  if (folder.interval > absl::ZeroDuration()) {
    next_ = now + std::max(folder.interval, (now - asked_) * (1 / kShareForStates - 1));
  }
  ++shared_->unfinished;
  folder.push([shared = shared_, state = state_, writer = std::move(writer_)] {
    if (!shared->gave_up && shared->folder.is_ours()) {
      const std::string failed = writer->finish();
      failed.empty() ? shared->folder.saved() : fail(*shared, state, failed);
    }
    --shared->unfinished;
  });
}

void CheckpointStates::fail(Shared& shared, LargeState state, const std::string& why) {
  shared.gave_up = true;
  shared.folder.failed(true, state, why);
}

uint64_t CheckpointStates::open(LargeState state) {
  const StateFolder& folder = shared_->folder;
  reader_ = {};
  read_ = state;
  if (!folder.is_ours() || !folder.directory->has(folder.name, name(state))) return 0;
  std::string failed;
  reader_ = folder.directory->open_file(folder.name, name(state), &failed);
  if (!failed.empty()) folder.failed(false, state, failed);
  return reader_.left();
}

bool CheckpointStates::read(void* bytes, uint64_t count) {
  if (count == 0) return true;
  const std::string failed = reader_.read(bytes, count);
  if (!failed.empty()) shared_->folder.failed(false, read_, failed);
  if (!failed.empty() || reader_.left() == 0) reader_ = {};
  return failed.empty();
}

}  // namespace svdserve::server
