// A .npy file whose numbers are written where they belong, as they come.
#ifndef SVDSERVE_CLIENT_CLI_NPY_OUTPUT_H_
#define SVDSERVE_CLIENT_CLI_NPY_OUTPUT_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "client/cpp/types.h"

namespace svdserve::cli {

// Memory for an array of `bytes`: of a mapped file PATH.PID.part beside PATH, which gets its name by commit() and is
// removed without it; or, without a path, of nothing but memory. Not thread-safe.
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
  client::Status commit();

 private:
  NpyOutput() = default;
  client::Status map_file(const std::string& head, size_t bytes);

  std::string path_, unfinished_;  // empty: no file, or none any more
  void* mapped_ = nullptr;
  size_t mapped_bytes_ = 0;
  std::span<std::byte> data_;
};

}  // namespace svdserve::cli
#endif  // SVDSERVE_CLIENT_CLI_NPY_OUTPUT_H_
