#include "server/base/small_file.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>

namespace svdserve::server {
namespace {

class SmallFileTest : public ::testing::Test {
 protected:
  SmallFileTest() : directory_((std::filesystem::temp_directory_path() / "svdserve_test_XXXXXX").string()) {
    EXPECT_NE(mkdtemp(directory_.data()), nullptr);
  }
  ~SmallFileTest() override { std::filesystem::remove_all(directory_); }

  std::string path(const std::string& name) const { return directory_ + "/" + name; }
  static void put(const std::string& path, const std::string& text) { std::ofstream(path) << text; }
  static std::string get(const std::string& path) {
    std::ifstream file(path);
    return {std::istreambuf_iterator<char>(file), {}};
  }

  std::string directory_, text_;
};

TEST_F(SmallFileTest, ReadsWhatAFileHolds) {
  put(path("a"), "some\ntext");
  EXPECT_EQ(read_small_file(path("a"), 9, &text_), "");
  EXPECT_EQ(text_, "some\ntext");
}

TEST_F(SmallFileTest, FollowsLinksToRead) {
  put(path("a"), "text");
  std::filesystem::create_symlink("a", path("b"));
  EXPECT_EQ(read_small_file(path("b"), 100, &text_), "");
  EXPECT_EQ(text_, "text");
}

TEST_F(SmallFileTest, SaysWhyItCannotRead) {
  put(path("empty"), "");
  put(path("long"), std::string(10001, 'x'));
  ASSERT_EQ(mkfifo(path("pipe").c_str(), 0600), 0);
  EXPECT_EQ(read_small_file(path("none"), 100, &text_), "No such file or directory");
  EXPECT_EQ(read_small_file(directory_, 100, &text_), "it is a directory");
  EXPECT_EQ(read_small_file("/dev/zero", 100, &text_), "it is not a regular file");
  EXPECT_EQ(read_small_file(path("pipe"), 100, &text_), "it is not a regular file");
  EXPECT_EQ(read_small_file(path("empty"), 100, &text_), "it is empty");
  EXPECT_EQ(read_small_file(path("long"), 10000, &text_), "it has more than 10000 bytes");
  if (geteuid() != 0) {
    ASSERT_EQ(chmod(path("long").c_str(), 0), 0);
    EXPECT_EQ(read_small_file(path("long"), 20000, &text_), "Permission denied");
  }
}

TEST_F(SmallFileTest, WritesAllOfItAndLeavesNothingBeside) {
  put(path("a"), "what was there before");
  EXPECT_EQ(write_small_file(path("a"), "new"), "");
  EXPECT_EQ(get(path("a")), "new");
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(directory_), {}), 1);
}

TEST_F(SmallFileTest, FollowsNoLinkToWrite) {
  put(path("victim"), "precious");
  const std::string temporary = path("a") + "." + std::to_string(getpid()) + ".tmp";
  for (const std::string& link : {path("a"), temporary}) std::filesystem::create_symlink("victim", link);
  EXPECT_EQ(write_small_file(path("a"), "new"), "");
  EXPECT_EQ(get(path("victim")), "precious");
  EXPECT_FALSE(std::filesystem::is_symlink(path("a")));
  EXPECT_EQ(get(path("a")), "new");
  EXPECT_FALSE(std::filesystem::exists(std::filesystem::symlink_status(temporary)));
}

TEST_F(SmallFileTest, SaysWhyItCannotWrite) {
  EXPECT_EQ(write_small_file(path("none/a"), "x"), "No such file or directory");
  std::filesystem::create_directory(path("directory"));
  EXPECT_EQ(write_small_file(path("directory"), "x"), "Is a directory");
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(directory_), {}), 1);
}

}  // namespace
}  // namespace svdserve::server
