// What svdctl shows and writes of large matrices, and the diagonal of J that it reads.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <stop_token>
#include <thread>

#include "client/cli/npy.h"
#include "client/cli/npy_output.h"
#include "client/cli/progress_bar.h"

namespace svdserve::cli {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class Folder {
 public:
  Folder() {
    std::string name = ::testing::TempDir() + "svdctl_XXXXXX";
    EXPECT_NE(mkdtemp(name.data()), nullptr);
    path_ = name;
  }
  ~Folder() { std::filesystem::remove_all(path_); }
  std::string operator/(const std::string& name) const { return path_ / name; }
  size_t files() const {
    const std::filesystem::directory_iterator entries(path_);
    return static_cast<size_t>(std::distance(begin(entries), end(entries)));
  }

 private:
  std::filesystem::path path_;
};

std::string contents(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

TEST(NpyOutput, GetsItsNameWhenItIsComplete) {
  const Folder folder;
  const std::vector<double> numbers = {1, 2, 3, 4, 5, 6};
  {
    const auto out = NpyOutput::make(folder / "u.npy", "f8", {2, 3}, true, 48);
    ASSERT_TRUE(out.ok()) << out.status().to_string();
    std::memcpy((*out)->data().data(), numbers.data(), 48);
    EXPECT_FALSE(std::filesystem::exists(folder / "u.npy"));
    EXPECT_TRUE(commit({out->get()}).ok());
  }
  EXPECT_EQ(folder.files(), 1u);
  EXPECT_EQ(contents(folder / "u.npy"),
            npy_header("f8", {2, 3}, true) + std::string(reinterpret_cast<const char*>(numbers.data()), 48));
}

TEST(NpyOutput, IsGoneWithoutThat) {
  const Folder folder;
  {
    const auto out = NpyOutput::make(folder / "u.npy", "f8", {2, 3}, false, 48);
    ASSERT_TRUE(out.ok());
    EXPECT_EQ(folder.files(), 1u);
  }
  EXPECT_EQ(folder.files(), 0u);
}

TEST(NpyOutput, WithoutAPathIsMemory) {
  const auto out = NpyOutput::make("", "f8", {2, 3}, false, 48);
  ASSERT_TRUE(out.ok());
  EXPECT_EQ((*out)->data().size(), 48u);
  std::memset((*out)->data().data(), 7, 48);
  EXPECT_TRUE(commit({out->get()}).ok());
  EXPECT_TRUE(NpyOutput::make("", "f8", {0}, false, 0).ok());
}

TEST(NpyOutput, ALinkIsFollowedAndAPipeIsWrittenInto) {
  const Folder folder;
  std::filesystem::create_symlink("real.npy", folder / "link.npy");  // to what is not there yet
  ASSERT_EQ(mkfifo((folder / "pipe").c_str(), 0600), 0);
  const auto file = NpyOutput::make(folder / "link.npy", "f8", {2}, false, 16);
  const auto pipe = NpyOutput::make(folder / "pipe", "f8", {20000}, false, 160000);  // beyond a pipe's buffer
  ASSERT_TRUE(file.ok() && pipe.ok());
  std::string read;
  std::thread reader([&] { read = contents(folder / "pipe"); });
  EXPECT_TRUE(commit({file->get(), pipe->get()}).ok());
  reader.join();
  EXPECT_EQ(read, npy_header("f8", {20000}) + std::string(160000, '\0'));
  EXPECT_TRUE(std::filesystem::is_fifo(folder / "pipe"));
  EXPECT_TRUE(std::filesystem::is_symlink(folder / "link.npy"));
  EXPECT_EQ(contents(folder / "real.npy"), npy_header("f8", {2}) + std::string(16, '\0'));
}

TEST(NpyOutput, AStopEndsTheWaitForAReaderAndNothingIsInPlace) {
  const Folder folder;
  ASSERT_EQ(mkfifo((folder / "pipe").c_str(), 0600), 0);
  {
    const auto file = NpyOutput::make(folder / "u.npy", "f8", {2}, false, 16);
    const auto pipe = NpyOutput::make(folder / "pipe", "f8", {2}, false, 16);
    ASSERT_TRUE(file.ok() && pipe.ok());
    std::stop_source stop;
    stop.request_stop();
    EXPECT_EQ(commit({file->get(), pipe->get()}, stop.get_token()).code, client::Code::kCancelled);
  }
  EXPECT_EQ(folder.files(), 1u);
}

TEST(CheckOutputs, RefusesWhatCannotBeWrittenAndTheSameFileTwice) {
  const Folder folder;
  std::ofstream(folder / "a.npy") << "a";
  std::filesystem::create_symlink("a.npy", folder / "link.npy");
  std::filesystem::create_symlink("loop", folder / "loop");
  std::filesystem::create_hard_link(folder / "a.npy", folder / "hard.npy");
  EXPECT_TRUE(check_outputs({folder / "a.npy", "", folder / "new.npy", ""}).ok());
  for (const char* other : {"a.npy", "link.npy", "hard.npy", "./a.npy"}) {
    const auto s = check_outputs({folder / "a.npy", folder / other});
    EXPECT_EQ(s.code, client::Code::kInvalidArgument) << other;
    EXPECT_THAT(s.message, HasSubstr("are the same file"));
  }
  EXPECT_FALSE(check_outputs({folder / "new.npy", folder / "./new.npy"}).ok());
  EXPECT_THAT(check_outputs({folder / "."}).message, HasSubstr("Is a directory"));
  EXPECT_THAT(check_outputs({folder / "none/u.npy"}).message, HasSubstr("No such file or directory"));
  EXPECT_THAT(check_outputs({folder / "loop"}).message, HasSubstr("Too many levels"));
  EXPECT_EQ(contents(folder / "a.npy"), "a");
}

TEST(NpyOutput, SaysWhatTheDiskRefuses) {
  EXPECT_THAT(NpyOutput::make("/nonexistent/u.npy", "f8", {2}, false, 16).status().message, HasSubstr("/nonexistent"));
  const Folder folder;
  EXPECT_THAT(NpyOutput::make(folder / "u.npy", "f8", {1}, false, size_t{1} << 62).status().message,
              HasSubstr("cannot reserve space"));
  EXPECT_EQ(folder.files(), 0u);
}

void write_array(const std::string& path, const std::string& type, const std::vector<int64_t>& shape,
                 std::string_view data) {
  std::ofstream(path, std::ios::binary) << npy_header(type, shape) << data;
}

TEST(Signature, OfAnyRealType) {
  const Folder folder;
  const double doubles[] = {1, -1, -1};
  write_array(folder / "d.npy", "f8", {3}, {reinterpret_cast<const char*>(doubles), sizeof doubles});
  const float floats[] = {-1, 1};
  write_array(folder / "f.npy", "f4", {2}, {reinterpret_cast<const char*>(floats), sizeof floats});
  const int64_t integers[] = {1, -1};
  write_array(folder / "i.npy", "i8", {2}, {reinterpret_cast<const char*>(integers), sizeof integers});
  const auto read = [&](const char* name) {
    const auto s = load_signature(folder / name);
    EXPECT_TRUE(s.ok()) << s.status().to_string();
    return s.ok() ? *s : std::vector<int8_t>();
  };
  EXPECT_THAT(read("d.npy"), ElementsAre(1, -1, -1));
  EXPECT_THAT(read("f.npy"), ElementsAre(-1, 1));
  EXPECT_THAT(read("i.npy"), ElementsAre(1, -1));
}

TEST(Signature, NothingElse) {
  const Folder folder;
  const double wrong[] = {1, 1.0000001, -1, 1};
  const std::string_view bytes(reinterpret_cast<const char*>(wrong), sizeof wrong);
  write_array(folder / "value.npy", "f8", {4}, bytes);
  write_array(folder / "square.npy", "f8", {2, 2}, bytes);
  write_array(folder / "complex.npy", "c16", {2}, bytes);
  EXPECT_THAT(load_signature(folder / "value.npy").status().message, HasSubstr("entry 1 is 1.0000001,"));
  EXPECT_THAT(load_signature(folder / "square.npy").status().message, HasSubstr("one dimension"));
  EXPECT_THAT(load_signature(folder / "complex.npy").status().message, HasSubstr("real numbers"));
  EXPECT_FALSE(load_signature(folder / "none.npy").ok());
}

TEST(ProgressLine, ShowsHowFarItIs) {
  using client::LargeStage;
  EXPECT_EQ(progress_line({.stage = LargeStage::kUpload, .fraction = 0.5, .elapsed_seconds = 1.26}),
            "upload       [===============>              ]  50 %  1.3 s");
  EXPECT_EQ(progress_line({.stage = LargeStage::kSweep, .fraction = 1, .sweep = 4, .off_diagonal = 1.2e-5}),
            "sweep 4      [==============================] 100 %  cosines to 1.2e-05  0.0 s");
  EXPECT_EQ(progress_line({.stage = LargeStage::kDownload, .fraction = -1, .off_diagonal = 0.5}),
            "download     [>                             ]   0 %  0.0 s");
}

}  // namespace
}  // namespace svdserve::cli
