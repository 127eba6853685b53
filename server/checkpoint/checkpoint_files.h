// Files that a killed server leaves whole or not at all. Each has a checksum of its bytes, is readable by its owner
// alone, and gets its name when the disk has all of it.
#ifndef SVDSERVE_SERVER_CHECKPOINT_CHECKPOINT_FILES_H_
#define SVDSERVE_SERVER_CHECKPOINT_CHECKPOINT_FILES_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "server/base/descriptor.h"

namespace svdserve::server {

// Bytes in memory that belong together, in the order in which they lie in a file.
using ConstParts = std::vector<std::span<const char>>;
using MutableParts = std::vector<std::span<char>>;

// A directory with folders of files. Links in it are not followed. Thread-safe; one thread at a time for one folder.
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
  bool has(const std::string& folder, const std::string& name) const;
  // Removes a folder and the files in it.
  void remove(const std::string& folder) const;

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
