// Operands, states and results of large matrices on disk, so that they survive the server. A caller shows a token to go on with
// its matrix. server/decisions/0106-large-matrices-survive-a-restart.md says why it is so.
#ifndef SVDSERVE_SERVER_CHECKPOINT_CHECKPOINT_STORE_H_
#define SVDSERVE_SERVER_CHECKPOINT_CHECKPOINT_STORE_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "absl/time/time.h"
#include "engine/large_engine.h"
#include "server/base/clock.h"
#include "server/checkpoint/checkpoint_files.h"
#include "server/metrics/recorder.h"

namespace svdserve::server {

// 16 random bytes. Their owner may go on with the matrix.
using ResumeToken = std::string;
inline constexpr size_t kResumeTokenBytes = 16;

// A file of one matrix.
enum class CheckpointPart : uint8_t { kOperand, kResults };

class CheckpointStore;
struct CheckpointEntry;

// The claim of one call on the files of its matrix. Nobody else writes to them, until another call takes them over;
// from then on the claim is void, and its functions do nothing. Move-only; not thread-safe. The store outlives it.
class Checkpoint {
 public:
  // Told why a part was not transferred, or nothing where it was. Called on a thread of the store's.
  using Done = std::function<void(const std::string& failed)>;
  // Likewise, with the part's header.
  using Loaded = std::function<void(const std::string& failed, const std::string& header)>;

  Checkpoint() = default;
  Checkpoint(Checkpoint&& other) noexcept { swap(other); }
  Checkpoint& operator=(Checkpoint&& other) noexcept {
    swap(other);
    return *this;
  }
  // The files stay for CheckpointOptions::keep where the operand was saved, and go where it was not.
  ~Checkpoint();

  explicit operator bool() const { return entry_ != nullptr; }
  const ResumeToken& token() const;
  // Writes a part in the background. `keep` holds the memory of `parts`.
  void save(CheckpointPart part, std::string header, ConstParts parts, std::shared_ptr<const void> keep, Done done);
  // Whether the part was saved, by whichever server.
  bool has(CheckpointPart part) const;
  // Fills `parts` in the background. `keep` holds their memory.
  void load(CheckpointPart part, MutableParts parts, std::shared_ptr<const void> keep, Loaded loaded);
  // Where the computation of the matrix keeps its states. `others_bytes`: of operand and results, which are the part of
  // the room that they have. `cancel`: of that computation, which does not wait for the disk then. Null: there is no room
  // for states. It may outlive the claim, not the store.
  std::unique_ptr<LargeStateStore> states(int64_t others_bytes, const std::atomic<bool>* cancel);
  // To be called where a device fails that computes the matrix from here on. All states that were saved, or are to be, are
  // of no use then, whoever has the matrix. It may outlive the claim, not the store. Null: there is no claim.
  std::function<void()> states_dropper() const;
  // The matrix needs its files no more.
  void drop();
  // Gives up the claim. The function drops the files, unless another call has claimed them since. It outlives the claim,
  // not the store. Until it is called they stay as other files do that no call claims. Null: there is no claim.
  std::function<void()> release();

 private:
  friend class CheckpointStore;
  void swap(Checkpoint& other) noexcept {
    std::swap(store_, other.store_);
    std::swap(entry_, other.entry_);
    std::swap(claim_, other.claim_);
  }

  CheckpointStore* store_ = nullptr;
  std::shared_ptr<CheckpointEntry> entry_;
  uint64_t claim_ = 0;
};

struct CheckpointOptions {
  std::string directory;
  int64_t max_bytes = 0;                              // operands, results and states of all matrices
  absl::Duration keep;                                // of files that no call claims
  absl::Duration state_interval = {};                 // StateFolder's
  absl::Duration patience = absl::Seconds(10);        // with the disk, when the store ends
  absl::Duration state_patience = absl::Seconds(60);  // StateFolder's
};

struct CheckpointUsage {
  int64_t matrices = 0;
  int64_t bytes = 0;  // that room is kept for
};

// Thread-safe. Each matrix has a lane for its files, and one for the states of its computation (DiskLanes). So no matrix
// waits for the files of another, and no caller for the disk.
class CheckpointStore {
 public:
  // Takes over what an earlier server left in the directory. Null: *why says the reason.
  static std::unique_ptr<CheckpointStore> open(const CheckpointOptions& options, Clock* clock, Recorder* recorder,
                                               std::string* why);
  // Ends the transfers under way. It does not wait long for a disk that hangs; see DiskLanes.
  ~CheckpointStore();
  CheckpointStore(const CheckpointStore&) = delete;
  CheckpointStore& operator=(const CheckpointStore&) = delete;

  // Files for a new matrix. `owner`: who may resume it. `description`: a line that names all that was asked for.
  // `taken`: another call took it over; called on that call's thread. Files that no call claims make room, the
  // oldest first of the owner with most of them. Empty: there is no room, or no folder.
  // `bytes`: of operand and results. `states`: of states, which it has only in the lower half of the room, and for which
  // no files go. So operands and results always have the upper half.
  Checkpoint begin(const std::string& owner, const std::string& description, int64_t bytes, int64_t states,
                   std::function<void()> taken);

  enum class Claim : uint8_t { kYes, kUnknown, kDiffers };
  // Goes on with a matrix. kUnknown: there is none of this owner with an operand on disk. kDiffers: of this description.
  Claim claim(const ResumeToken& token, const std::string& owner, const std::string& description,
              std::function<void()> taken, Checkpoint* claimed);

  // Removes what nobody has claimed for too long.
  void remove_expired();
  CheckpointUsage usage() const;

 private:
  friend class Checkpoint;
  struct Impl;
  explicit CheckpointStore(std::unique_ptr<Impl> impl);

  std::unique_ptr<Impl> impl_;
};

}  // namespace svdserve::server
#endif  // SVDSERVE_SERVER_CHECKPOINT_CHECKPOINT_STORE_H_
