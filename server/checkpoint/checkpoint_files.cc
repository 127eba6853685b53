#include "server/checkpoint/checkpoint_files.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>
#include <optional>

#include "absl/strings/str_cat.h"
#include "wire/crc32c.h"

namespace svdserve::server {
namespace {

constexpr char kLockName[] = "lock";
constexpr char kUnfinished[] = ".unfinished";
// Between looks at whether a transfer is given up, and the checksum's share of the cache.
constexpr size_t kPiece = size_t{1} << 20;
constexpr const char* kGivenUp = "it was given up";

// The end of every file.
struct Trailer {
  char magic[8] = {'s', 'v', 'd', 's', 'e', 'r', 'v', 'e'};
  uint64_t bytes = 0;  // before the trailer
  uint32_t crc32c = 0;
  uint32_t version = 1;

  bool operator==(const Trailer&) const = default;
};

std::string why(const char* what) { return absl::StrCat(what, ": ", std::strerror(errno)); }

using Directory = std::unique_ptr<DIR, decltype([](DIR* d) { closedir(d); })>;

// The names in a directory, without "." and "..". `fd` stays open.
std::vector<std::string> names_in(int fd) {
  std::vector<std::string> names;
  const Directory directory(fdopendir(openat(fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC)));
  if (directory == nullptr) return names;
  while (const dirent* entry = readdir(directory.get())) {
    const std::string name = entry->d_name;
    if (name != "." && name != "..") names.push_back(name);
  }
  return names;
}

bool write_all(int fd, const char* data, size_t bytes) {
  while (bytes > 0) {
    const ssize_t n = write(fd, data, bytes);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return false;
    data += n;
    bytes -= static_cast<size_t>(n);
  }
  return true;
}

bool read_all(int fd, char* data, size_t bytes) {
  while (bytes > 0) {
    const ssize_t n = read(fd, data, bytes);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return false;
    data += n;
    bytes -= static_cast<size_t>(n);
  }
  return true;
}

std::string read_parts(int fd, const MutableParts& parts, const std::atomic<bool>& given_up) {
  Trailer expected, found;
  for (const auto part : parts) expected.bytes += part.size();
  struct stat about {};
  if (fstat(fd, &about) != 0) return why("fstat");
  if (static_cast<uint64_t>(about.st_size) != expected.bytes + sizeof expected) return "it has another size";
  for (const auto part : parts) {
    for (size_t done = 0; done < part.size(); done += kPiece) {
      if (given_up) return kGivenUp;
      const auto piece = part.subspan(done, std::min(kPiece, part.size() - done));
      if (!read_all(fd, piece.data(), piece.size())) return why("read");
      expected.crc32c = crc32c(expected.crc32c, piece.data(), piece.size());
    }
  }
  if (!read_all(fd, reinterpret_cast<char*>(&found), sizeof found)) return why("read");
  return found == expected ? "" : "its checksum is wrong";
}

}  // namespace

// --- one file -----------------------------------------------------------------------------------

std::string CheckpointWriter::open(uint64_t bytes) {
  static std::atomic<uint64_t> last{0};  // no two writers meet, whatever they write
  unfinished_ = absl::StrCat(name_, ".", ++last, kUnfinished);
  unlinkat(folder_.get(), unfinished_.c_str(), 0);
  file_ = Descriptor(
      openat(folder_.get(), unfinished_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600));
  if (!file_) return why("open");
  // A full disk shows before anything is written. Some file systems cannot tell.
  const int error = posix_fallocate(file_.get(), 0, static_cast<off_t>(bytes + sizeof(Trailer)));
  return error == ENOSPC || error == EFBIG ? absl::StrCat("no room: ", std::strerror(error)) : "";
}

std::string CheckpointWriter::append(const void* bytes, size_t count) {
  const char* const data = static_cast<const char*>(bytes);
  for (size_t done = 0; done < count; done += kPiece) {
    const size_t piece = std::min(kPiece, count - done);
    crc32c_ = crc32c(crc32c_, data + done, piece);
    if (!write_all(file_.get(), data + done, piece)) return why("write");
  }
  bytes_ += count;
  return "";
}

std::string CheckpointWriter::finish() {
  Trailer trailer;
  trailer.bytes = bytes_;
  trailer.crc32c = crc32c_;
  if (!write_all(file_.get(), reinterpret_cast<const char*>(&trailer), sizeof trailer)) return why("write");
  if (fsync(file_.get()) != 0) return why("fsync");
  if (renameat(folder_.get(), unfinished_.c_str(), folder_.get(), name_.c_str()) != 0) return why("rename");
  unfinished_.clear();
  return fsync(folder_.get()) == 0 ? "" : why("fsync");
}

CheckpointWriter::~CheckpointWriter() {
  if (!unfinished_.empty()) unlinkat(folder_.get(), unfinished_.c_str(), 0);
}

std::string CheckpointReader::read(void* bytes, size_t count) {
  if (count > left_) return "it is too short";
  if (!read_all(file_.get(), static_cast<char*>(bytes), count)) return why("read");
  crc32c_ = crc32c(crc32c_, bytes, count);
  left_ -= count;
  if (left_ > 0) return "";
  Trailer expected, found;
  expected.bytes = bytes_;
  expected.crc32c = crc32c_;
  if (!read_all(file_.get(), reinterpret_cast<char*>(&found), sizeof found)) return why("read");
  return found == expected ? "" : "its checksum is wrong";
}

// --- the directory ------------------------------------------------------------------------------

CheckpointDirectory CheckpointDirectory::open(const std::string& path, std::string* reason) {
  CheckpointDirectory out;
  mkdir(path.c_str(), 0700);  // it may be there
  Descriptor directory(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  struct stat about {};
  if (!directory || fstat(directory.get(), &about) != 0) {
    *reason = std::strerror(errno);
    return out;
  }
  if (about.st_uid != geteuid() || (about.st_mode & (S_IWGRP | S_IWOTH)) != 0) {
    *reason = "it must belong to the server's user, and be writable by no other";
    return out;
  }
  Descriptor lock(openat(directory.get(), kLockName, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600));
  if (!lock) {
    *reason = std::strerror(errno);
    return out;
  }
  if (flock(lock.get(), LOCK_EX | LOCK_NB) != 0) {
    *reason = errno == EWOULDBLOCK ? "another server uses it" : std::strerror(errno);
    return out;
  }
  out.directory_ = std::move(directory);
  out.lock_ = std::move(lock);
  return out;
}

std::vector<std::string> CheckpointDirectory::folders() const {
  std::vector<std::string> names = names_in(directory_.get());
  std::erase_if(names, [this](const std::string& name) { return !open_folder(name); });
  return names;
}

Descriptor CheckpointDirectory::open_folder(const std::string& folder) const {
  return Descriptor(openat(directory_.get(), folder.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
}

std::string CheckpointDirectory::create(const std::string& folder) const {
  if (mkdirat(directory_.get(), folder.c_str(), 0700) != 0) return why("mkdir");
  return fsync(directory_.get()) == 0 ? "" : why("fsync");
}

int64_t CheckpointDirectory::size(const std::string& folder, const std::string& name) const {
  const Descriptor in = open_folder(folder);
  struct stat about {};
  const bool there = in && fstatat(in.get(), name.c_str(), &about, AT_SYMLINK_NOFOLLOW) == 0 && S_ISREG(about.st_mode);
  return there ? about.st_size : -1;
}

void CheckpointDirectory::remove(const std::string& folder) const {
  if (const Descriptor fd = open_folder(folder)) {
    for (const std::string& name : names_in(fd.get())) unlinkat(fd.get(), name.c_str(), 0);
  }
  unlinkat(directory_.get(), folder.c_str(), AT_REMOVEDIR);
}

std::string CheckpointDirectory::remove(const std::string& folder, const std::string& name) const {
  const Descriptor fd = open_folder(folder);
  if (!fd) return errno == ENOENT ? "" : why("open");
  return unlinkat(fd.get(), name.c_str(), 0) == 0 || errno == ENOENT ? "" : why("unlink");
}

std::string CheckpointDirectory::sync(const std::string& folder) const {
  const Descriptor fd = open_folder(folder);
  if (!fd) return errno == ENOENT ? "" : why("open");
  return fsync(fd.get()) == 0 ? "" : why("fsync");
}

void CheckpointDirectory::remove_unfinished(const std::string& folder) const {
  const Descriptor fd = open_folder(folder);
  if (!fd) return;
  for (const std::string& name : names_in(fd.get())) {
    if (name.ends_with(kUnfinished)) unlinkat(fd.get(), name.c_str(), 0);
  }
}

std::unique_ptr<CheckpointWriter> CheckpointDirectory::begin(const std::string& folder, const std::string& name,
                                                             uint64_t bytes, std::string* failed) const {
  Descriptor in = open_folder(folder);
  if (!in) {
    *failed = why("open");
    return nullptr;
  }
  auto writer = std::make_unique<CheckpointWriter>(std::move(in), name);
  *failed = writer->open(bytes);
  return failed->empty() ? std::move(writer) : nullptr;
}

CheckpointReader CheckpointDirectory::open_file(const std::string& folder, const std::string& name,
                                                std::string* failed) const {
  const Descriptor in = open_folder(folder);
  Descriptor file(in ? openat(in.get(), name.c_str(), O_RDONLY | O_NOFOLLOW | O_CLOEXEC) : -1);
  struct stat about {};
  if (!file || fstat(file.get(), &about) != 0) {
    *failed = why("open");
    return {};
  }
  const auto size = static_cast<uint64_t>(about.st_size);
  *failed = size <= sizeof(Trailer) ? "it has another size" : "";
  return failed->empty() ? CheckpointReader(std::move(file), size - sizeof(Trailer)) : CheckpointReader();
}

std::string CheckpointDirectory::write(const std::string& folder, const std::string& name, const ConstParts& parts,
                                       const std::atomic<bool>& given_up) const {
  uint64_t bytes = 0;
  for (const auto part : parts) bytes += part.size();
  std::string failed;
  const auto writer = begin(folder, name, bytes, &failed);
  if (writer == nullptr) return failed;
  for (const auto part : parts) {
    for (size_t done = 0; done < part.size(); done += kPiece) {
      if (given_up) return kGivenUp;
      const auto piece = part.subspan(done, std::min(kPiece, part.size() - done));
      failed = writer->append(piece.data(), piece.size());
      if (!failed.empty()) return failed;
    }
  }
  return writer->finish();
}

std::string CheckpointDirectory::read(const std::string& folder, const std::string& name, const MutableParts& parts,
                                      const std::atomic<bool>& given_up) const {
  const Descriptor in = open_folder(folder);
  if (!in) return why("open");
  const Descriptor file(openat(in.get(), name.c_str(), O_RDONLY | O_NOFOLLOW | O_CLOEXEC));
  if (!file) return why("open");
  return read_parts(file.get(), parts, given_up);
}

std::string CheckpointDirectory::read_text(const std::string& folder, const std::string& name, size_t max_bytes,
                                           std::string* text) const {
  const Descriptor in = open_folder(folder);
  struct stat about {};
  if (!in || fstatat(in.get(), name.c_str(), &about, AT_SYMLINK_NOFOLLOW) != 0) return why("open");
  const auto bytes = static_cast<size_t>(std::max<off_t>(about.st_size, 0));
  if (bytes < sizeof(Trailer) || bytes - sizeof(Trailer) > max_bytes) return "it has another size";
  text->resize(bytes - sizeof(Trailer));
  return read(folder, name, {std::span(text->data(), text->size())}, std::atomic<bool>(false));
}

}  // namespace svdserve::server
