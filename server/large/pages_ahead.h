// Has the system find the pages of results before they are written. A page's first use costs more than the copy of what
// goes there.
#ifndef SVDSERVE_SERVER_LARGE_PAGES_AHEAD_H_
#define SVDSERVE_SERVER_LARGE_PAGES_AHEAD_H_

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <stop_token>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

namespace svdserve::server {

// Touches the memory on a thread of its own, from the first page to the last, until the object's life ends. The memory
// must outlive it. Contents stay as they are, and other threads may write meanwhile. Without a thread, or before Linux
// 5.14, nothing is done.
class PagesAhead {
 public:
  // The system holds a lock of the process's memory for a piece. Pieces begin where huge pages do.
  static constexpr uintptr_t kPiece = uintptr_t{4} << 20;

  explicit PagesAhead(std::vector<std::span<std::byte>> memory) {
    try {
      thread_ = std::jthread([memory = std::move(memory)](const std::stop_token& stop) {
        for (const std::span<std::byte> m : memory) touch(m, stop);
      });
    } catch (const std::system_error&) {  // at a limit of threads
    }
  }

 private:
  static void touch(std::span<std::byte> memory, const std::stop_token& stop) {
    const auto page = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
    const auto begin = reinterpret_cast<uintptr_t>(memory.data());
    const uintptr_t end = (begin + memory.size()) / page * page;
    for (uintptr_t at = (begin + page - 1) / page * page; at < end;) {
      const uintptr_t next = std::min(end, (at / kPiece + 1) * kPiece);
      if (stop.stop_requested() || madvise(reinterpret_cast<void*>(at), next - at, MADV_POPULATE_WRITE) != 0) return;
      at = next;
    }
  }

  std::jthread thread_;  // at its end asked to stop, and joined
};

}  // namespace svdserve::server
#endif  // SVDSERVE_SERVER_LARGE_PAGES_AHEAD_H_
