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

  std::string Path(const std::string& name) const { return directory_ + "/" + name; }
  static void Put(const std::string& path, const std::string& text) { std::ofstream(path) << text; }
  static std::string Get(const std::string& path) {
    std::ifstream file(path);
    return {std::istreambuf_iterator<char>(file), {}};
  }

  std::string directory_, text_;
};

TEST_F(SmallFileTest, ReadsWhatAFileHolds) {
  Put(Path("a"), "some\ntext");
  EXPECT_EQ(read_small_file(Path("a"), 9, &text_), "");
  EXPECT_EQ(text_, "some\ntext");
}

TEST_F(SmallFileTest, FollowsLinksToRead) {
  Put(Path("a"), "text");
  std::filesystem::create_symlink("a", Path("b"));
  EXPECT_EQ(read_small_file(Path("b"), 100, &text_), "");
  EXPECT_EQ(text_, "text");
}

TEST_F(SmallFileTest, SaysWhyItCannotRead) {
  Put(Path("empty"), "");
  Put(Path("long"), std::string(10001, 'x'));
  ASSERT_EQ(mkfifo(Path("pipe").c_str(), 0600), 0);
  EXPECT_EQ(read_small_file(Path("none"), 100, &text_), "No such file or directory");
  EXPECT_EQ(read_small_file(directory_, 100, &text_), "it is a directory");
  EXPECT_EQ(read_small_file("/dev/zero", 100, &text_), "it is not a regular file");
  EXPECT_EQ(read_small_file(Path("pipe"), 100, &text_), "it is not a regular file");
  EXPECT_EQ(read_small_file(Path("empty"), 100, &text_), "it is empty");
  EXPECT_EQ(read_small_file(Path("long"), 10000, &text_), "it has more than 10000 bytes");
  if (geteuid() != 0) {
    ASSERT_EQ(chmod(Path("long").c_str(), 0), 0);
    EXPECT_EQ(read_small_file(Path("long"), 20000, &text_), "Permission denied");
  }
}

TEST_F(SmallFileTest, WritesAllOfItAndLeavesNothingBeside) {
  Put(Path("a"), "what was there before");
  EXPECT_EQ(write_small_file(Path("a"), "new"), "");
  EXPECT_EQ(Get(Path("a")), "new");
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(directory_), {}), 1);
}

TEST_F(SmallFileTest, FollowsNoLinkToWrite) {
  Put(Path("victim"), "precious");
  const std::string temporary = Path("a") + "." + std::to_string(getpid()) + ".tmp";
  for (const std::string& link : {Path("a"), temporary}) std::filesystem::create_symlink("victim", link);
  EXPECT_EQ(write_small_file(Path("a"), "new"), "");
  EXPECT_EQ(Get(Path("victim")), "precious");
  EXPECT_FALSE(std::filesystem::is_symlink(Path("a")));
  EXPECT_EQ(Get(Path("a")), "new");
  EXPECT_FALSE(std::filesystem::exists(std::filesystem::symlink_status(temporary)));
}

TEST_F(SmallFileTest, SaysWhyItCannotWrite) {
  EXPECT_EQ(write_small_file(Path("none/a"), "x"), "No such file or directory");
  std::filesystem::create_directory(Path("directory"));
  EXPECT_EQ(write_small_file(Path("directory"), "x"), "Is a directory");
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(directory_), {}), 1);
}

}  // namespace
}  // namespace svdserve::server
