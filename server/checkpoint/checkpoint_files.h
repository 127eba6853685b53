// Files that a killed server leaves whole or not at all. Each has a checksum of its bytes, is readable by its owner
// alone, and gets its name when the disk has all of it.
#ifndef SVDSERVE_SERVER_CHECKPOINT_CHECKPOINT_FILES_H_
#define SVDSERVE_SERVER_CHECKPOINT_CHECKPOINT_FILES_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "server/base/descriptor.h"

namespace svdserve::server {

// Bytes in memory that belong together, in the order in which they lie in a file.
using ConstParts = std::vector<std::span<const char>>;
using MutableParts = std::vector<std::span<char>>;

// A file that is written piece by piece. It has no name before finish(), and is gone where that is not called.
class CheckpointWriter {
 public:
  CheckpointWriter(Descriptor folder, std::string name) : folder_(std::move(folder)), name_(std::move(name)) {}
  ~CheckpointWriter();
  CheckpointWriter(const CheckpointWriter&) = delete;
  CheckpointWriter& operator=(const CheckpointWriter&) = delete;

  // All three return why it failed, or nothing. open(): of so many bytes. finish() returns when the disk has it.
  std::string open(uint64_t bytes);
  std::string append(const void* bytes, size_t count);
  std::string finish();

 private:
  const Descriptor folder_;
  const std::string name_;
  std::string unfinished_;
  Descriptor file_;
  uint64_t bytes_ = 0;
  uint32_t crc32c_ = 0;
};

// A file that is read piece by piece.
class CheckpointReader {
 public:
  CheckpointReader() = default;  // of no bytes
  CheckpointReader(Descriptor file, uint64_t bytes) : file_(std::move(file)), bytes_(bytes), left_(bytes) {}

  uint64_t left() const { return left_; }
  // Returns why it failed, or nothing. With the last bytes it checks all of them.
  std::string read(void* bytes, size_t count);

 private:
  Descriptor file_;
  uint64_t bytes_ = 0, left_ = 0;
  uint32_t crc32c_ = 0;
};

// A directory with folders of files. Links in it are not followed. Thread-safe, but for a folder that is removed.
class CheckpointDirectory {
 public:
  CheckpointDirectory() = default;
  // Opens a directory of this user, creates it where it is not there, and locks it against other servers. Where it
  // cannot, the object is false, and *why says the reason.
  static CheckpointDirectory open(const std::string& path, std::string* why);
  explicit operator bool() const { return static_cast<bool>(directory_); }

  // The names of its folders.
  std::vector<std::string> folders() const;
  // Returns why it cannot be created, or nothing.
  std::string create(const std::string& folder) const;
  bool has(const std::string& folder, const std::string& name) const { return size(folder, name) >= 0; }
  // In bytes, with the checksum; -1: there is no such file.
  int64_t size(const std::string& folder, const std::string& name) const;
  // Removes a folder and the files in it; the files that a killed server has not finished.
  void remove(const std::string& folder) const;
  void remove_unfinished(const std::string& folder) const;

  // Both return why they cannot, or nothing. Removes a file that may be there.
  std::string remove(const std::string& folder, const std::string& name) const;
  // Returns when the disk knows of all names in a folder.
  std::string sync(const std::string& folder) const;

  // Begins a file of `bytes` bytes. Null: *failed says why.
  std::unique_ptr<CheckpointWriter> begin(const std::string& folder, const std::string& name, uint64_t bytes,
                                          std::string* failed) const;
  // Opens a file of any size. Where it cannot, there are no bytes, and *failed says why.
  CheckpointReader open_file(const std::string& folder, const std::string& name, std::string* failed) const;

  // Writes a file, and returns when the disk has it. It ends early where *given_up becomes true. Returns why it failed,
  // or nothing.
  std::string write(const std::string& folder, const std::string& name, const ConstParts& parts,
                    const std::atomic<bool>& given_up) const;
  // Fills `parts` from a file of exactly their size. Returns why it failed, or nothing.
  std::string read(const std::string& folder, const std::string& name, const MutableParts& parts,
                   const std::atomic<bool>& given_up) const;
  // Likewise a text of at most `max_bytes`.
  std::string read_text(const std::string& folder, const std::string& name, size_t max_bytes, std::string* text) const;

 private:
  Descriptor open_folder(const std::string& folder) const;

  Descriptor directory_, lock_;
};

}  // namespace svdserve::server
#endif  // SVDSERVE_SERVER_CHECKPOINT_CHECKPOINT_FILES_H_
