// .npy files whose numbers are written where they belong, as they come.
#ifndef SVDSERVE_CLIENT_CLI_FILES_NPY_OUTPUT_H_
#define SVDSERVE_CLIENT_CLI_FILES_NPY_OUTPUT_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <stop_token>
#include <string>
#include <thread>
#include <vector>

#include "client/cli/files/output_target.h"
#include "client/cpp/types.h"

namespace svdserve::cli {

// Memory for an array of `bytes`. With a path it is that of a mapped file FILE.PID.part beside FILE, or
// svdctl.PID.N.part where that name is too long. commit() gives it its name; without commit() it is removed. Without a
// path, and for a path that names a device, a pipe or an open descriptor, it is nothing but memory. Symbolic links are
// followed. A file that takes the place of another has its permissions and, where this process may give them, its owner
// and group. Not thread-safe.
class NpyOutput {
 public:
  // Reserves the file's space on its disk. type, shape, fortran_order: as npy_header() takes them.
  static client::Result<std::unique_ptr<NpyOutput>> make(const std::string& path, const std::string& type,
                                                         const std::vector<int64_t>& shape, bool fortran_order,
                                                         size_t bytes);
  ~NpyOutput();
  NpyOutput(const NpyOutput&) = delete;
  NpyOutput& operator=(const NpyOutput&) = delete;

  std::span<std::byte> data() const { return data_; }
  // Begins to write what was put into the file to its disk. Another thread may put in more meanwhile.
  void begin_writing() const;

 private:
  friend client::Status commit(const std::vector<NpyOutput*>& outputs, std::stop_token stop);

  NpyOutput() = default;
  client::Result<int> create_file();  // the unfinished one; its descriptor
  client::Status map_file(const std::string& head, size_t bytes);
  client::Status sync();                                   // to the disk
  client::Status write_into(const std::stop_token& stop);  // the device, pipe or descriptor; waits for a pipe's reader
  client::Status finish();

  OutputTarget target_;
  std::string unfinished_;  // empty: no file, or none any more
  int descriptor_ = -1;     // of the file
  void* mapped_ = nullptr;
  size_t mapped_bytes_ = 0;
  std::span<std::byte> data_;
};

// While it lives, files are written to their disk as they are filled. Otherwise commit() waits for all of it. The outputs
// must outlive it.
class WriteBehind {
 public:
  explicit WriteBehind(std::vector<const NpyOutput*> outputs);

 private:
  std::jthread thread_;
};

// Puts all in place, or none: what a disk or a device can refuse comes before any file gets its name. A stop ends
// the wait for the other end of a pipe, with CANCELLED.
client::Status commit(const std::vector<NpyOutput*>& outputs, std::stop_token stop = {});

}  // namespace svdserve::cli
#endif  // SVDSERVE_CLIENT_CLI_FILES_NPY_OUTPUT_H_
