// Pages found beforehand: all of them, with the contents they had, and none after the object's life.
#include "server/large/pages_ahead.h"

#include <gtest/gtest.h>

#include <cstring>

namespace svdserve::server {
namespace {

class Memory {
 public:
  explicit Memory(size_t bytes) : bytes_(bytes) {
    void* const at = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    data_ = at == MAP_FAILED ? nullptr : static_cast<std::byte*>(at);
    if (data_ != nullptr) madvise(data_, bytes, MADV_NOHUGEPAGE);  // one page at a time is touched below
  }
  ~Memory() {
    if (data_ != nullptr) munmap(data_, bytes_);
  }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;

  std::span<std::byte> bytes() const { return {data_, bytes_}; }
  // The pages that the system has found.
  size_t resident() const {
    std::vector<unsigned char> pages(bytes_ / static_cast<size_t>(sysconf(_SC_PAGESIZE)));
    if (mincore(data_, bytes_, pages.data()) != 0) return 0;
    size_t found = 0;
    for (const unsigned char page : pages) found += page & 1;
    return found;
  }

 private:
  const size_t bytes_;
  std::byte* data_ = nullptr;
};

bool system_can() {
  const Memory page(static_cast<size_t>(sysconf(_SC_PAGESIZE)));
  return madvise(page.bytes().data(), page.bytes().size(), MADV_POPULATE_WRITE) == 0;
}

TEST(PagesAheadTest, AreAllThereWithTheirContents) {
  if (!system_can()) GTEST_SKIP() << "Linux before 5.14";
  const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  const Memory first(5 * PagesAhead::kPiece + 3 * page), second(2 * page);
  std::memcpy(first.bytes().data() + 7 * page - 2, "here", 4);
  ASSERT_EQ(first.resident(), 2);
  ASSERT_EQ(second.resident(), 0);
  {
    const PagesAhead ahead({first.bytes(), {}, second.bytes()});
    while (second.resident() < 2) std::this_thread::yield();
  }
  EXPECT_EQ(first.resident(), first.bytes().size() / page);
  EXPECT_EQ(std::memcmp(first.bytes().data() + 7 * page - 2, "here", 4), 0);
}

// A page of which only a part belongs to the memory is left alone: the rest may be somebody's who unmaps it.
TEST(PagesAheadTest, AreWholePages) {
  if (!system_can()) GTEST_SKIP() << "Linux before 5.14";
  const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  const Memory all(4 * page), behind(page);
  {
    const PagesAhead ahead({all.bytes().subspan(1, 3 * page), all.bytes().subspan(1, 5), behind.bytes()});
    while (behind.resident() < 1) std::this_thread::yield();
  }
  EXPECT_EQ(all.resident(), 2);
}

// Under the sanitizers memory that was unmapped, or a thread that goes on, is found.
TEST(PagesAheadTest, EndWithTheObject) {
  for (int i = 0; i < 50; ++i) {
    const Memory memory(4 * PagesAhead::kPiece);
    const PagesAhead ahead({memory.bytes()});
    if (i % 2 == 0) std::this_thread::yield();
  }
}

}  // namespace
}  // namespace svdserve::server
