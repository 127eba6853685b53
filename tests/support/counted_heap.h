// Counts every allocation of the program that counted_heap.cc is linked into.
#ifndef SVDSERVE_TESTS_SUPPORT_COUNTED_HEAP_H_
#define SVDSERVE_TESTS_SUPPORT_COUNTED_HEAP_H_

#include <atomic>
#include <cstdint>

namespace svdserve {

// Bytes that are allocated now, and the most that were since somebody set peak_bytes. Thread-safe.
extern std::atomic<int64_t> live_bytes, peak_bytes;

}  // namespace svdserve
#endif  // SVDSERVE_TESTS_SUPPORT_COUNTED_HEAP_H_
