// The output of svdctl for large matrices, shown and written, and the diagonal of J that it reads.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <stop_token>
#include <string>
#include <thread>
#include <utility>

#include "client/cli/files/npy.h"
#include "client/cli/files/npy_output.h"
#include "client/cli/formats/input.h"
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

TEST(NpyOutput, IsFilledWhileItIsWritten) {
  constexpr size_t kPieces = 64, kPiece = 64 << 10;
  const Folder folder;
  std::string expected;
  {
    const auto file = NpyOutput::make(folder / "u.npy", "u1", {kPieces * kPiece}, false, kPieces * kPiece);
    const auto memory = NpyOutput::make("", "u1", {1}, false, 1);
    ASSERT_TRUE(file.ok() && memory.ok());
    {
      const WriteBehind behind({file->get(), memory->get()});
      for (size_t i = 0; i < kPieces; ++i) {
        std::memset((*file)->data().data() + i * kPiece, static_cast<int>(i + 1), kPiece);
        (*file)->begin_writing();
        expected.append(kPiece, static_cast<char>(i + 1));
      }
    }
    ASSERT_TRUE(commit({file->get(), memory->get()}).ok());
  }
  const std::string found = contents(folder / "u.npy");
  ASSERT_GE(found.size(), expected.size());
  EXPECT_TRUE(found.substr(found.size() - expected.size()) == expected);
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

// A descriptor of a test's own, closed at its end.
class Descriptor {
 public:
  explicit Descriptor(int number) : number_(number) { EXPECT_GE(number, 0) << std::strerror(errno); }
  ~Descriptor() { ::close(number_); }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int number() const { return number_; }
  std::string in(const std::string& folder) const { return folder + "/" + std::to_string(number_); }

 private:
  int number_;
};

// Checks outputs alone.
client::Status check(const std::vector<std::string>& paths) {
  std::vector<NamedFile> outputs;
  for (const std::string& path : paths) outputs.push_back({"-o", path});
  return check_outputs(outputs, {}, false);
}

TEST(NpyOutput, ADescriptorIsWrittenIntoFromWhereItStands) {
  const Folder folder;
  const std::string array = npy_header("f8", {2}) + std::string(16, '\0');
  // As the shell opens what is behind >>, behind >, and behind <>.
  for (const int flags : {O_WRONLY | O_APPEND, O_WRONLY | O_TRUNC, O_RDWR}) {
    std::ofstream(folder / "x") << "before" << std::string(300, '.');
    const std::string old = (flags & O_TRUNC) != 0 ? "" : contents(folder / "x");
    const Descriptor file(::open((folder / "x").c_str(), flags));
    if ((flags & O_ACCMODE) == O_RDWR) ::lseek(file.number(), 0, SEEK_END);
    std::filesystem::create_symlink(file.in("/proc/self/fd"), folder / "link");  // as /dev/stdout is one
    std::string expected = old;
    for (const std::string& path :
         {file.in("/dev/fd"), file.in("/proc/self/fd"), file.in("/proc/" + std::to_string(getpid()) + "/fd"),
          file.in("/proc/thread-self/fd"), folder / "link"}) {
      ASSERT_TRUE(check({path}).ok()) << path;
      const auto out = NpyOutput::make(path, "f8", {2}, false, 16);
      ASSERT_TRUE(out.ok()) << out.status().to_string();
      EXPECT_EQ(folder.files(), 2u);  // the link and x
      EXPECT_TRUE(commit({out->get()}).ok());
      expected += array;
      EXPECT_EQ(contents(folder / "x"), expected) << path;
    }
    std::filesystem::remove(folder / "link");
  }
}

TEST(NpyOutput, APipeBehindADescriptorMayBlock) {
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  const Descriptor from(ends[0]), to(ends[1]);
  {
    const auto out = NpyOutput::make(to.in("/dev/fd"), "f8", {20000}, false, 160000);  // beyond a pipe's buffer
    ASSERT_TRUE(out.ok());
    std::string read(npy_header("f8", {20000}).size() + 160000, 'x');
    std::thread reader([&] {
      for (size_t at = 0; at < read.size();) {
        const ssize_t n = ::read(from.number(), read.data() + at, read.size() - at);
        if (n <= 0) break;
        at += static_cast<size_t>(n);
      }
    });
    EXPECT_TRUE(commit({out->get()}).ok());
    reader.join();
    EXPECT_EQ(read, npy_header("f8", {20000}) + std::string(160000, '\0'));
  }
  // Nobody reads: a stop ends it.
  const auto out = NpyOutput::make(to.in("/dev/fd"), "f8", {20000}, false, 160000);
  ASSERT_TRUE(out.ok());
  std::stop_source stop;
  std::thread stopper([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    stop.request_stop();
  });
  EXPECT_EQ(commit({out->get()}, stop.get_token()).code, client::Code::kCancelled);
  stopper.join();
}

TEST(CheckOutputs, OfDescriptors) {
  const Folder folder;
  std::ofstream(folder / "x") << "x";
  const Descriptor reading(::open((folder / "x").c_str(), O_RDONLY)), writing(::open((folder / "x").c_str(), O_WRONLY));
  EXPECT_TRUE(check({writing.in("/dev/fd")}).ok());
  EXPECT_THAT(check({reading.in("/dev/fd")}).message, HasSubstr("Bad file descriptor"));
  EXPECT_THAT(check({"/dev/fd/987654"}).message, HasSubstr("Bad file descriptor"));
  EXPECT_EQ(check({writing.in("/dev/fd"), folder / "x"}).code, client::Code::kInvalidArgument);
}

mode_t mode_of(const std::string& path) {
  struct stat about {};
  EXPECT_EQ(::stat(path.c_str(), &about), 0) << path;
  return about.st_mode & 07777;
}

// Writes an array to a path.
void write_output(const std::string& path) {
  const auto out = NpyOutput::make(path, "f8", {2}, false, 16);
  ASSERT_TRUE(out.ok()) << out.status().to_string();
  ASSERT_TRUE(commit({out->get()}).ok());
}

TEST(NpyOutput, HasThePermissionsOfTheFileWhosePlaceItTakes) {
  const Folder folder;
  const mode_t before = ::umask(022);
  for (const mode_t mode : {0600, 0640, 0444, 0666, 0751}) {
    std::ofstream(folder / "u.npy") << "old";
    ASSERT_EQ(::chmod((folder / "u.npy").c_str(), mode), 0);
    {
      const auto out = NpyOutput::make(folder / "u.npy", "f8", {2}, false, 16);
      ASSERT_TRUE(out.ok());
      EXPECT_EQ(mode_of((folder / "u.npy.") + std::to_string(getpid()) + ".part"), mode);  // from the beginning
      EXPECT_EQ(contents(folder / "u.npy"), "old");
      EXPECT_TRUE(commit({out->get()}).ok());
    }
    EXPECT_EQ(mode_of(folder / "u.npy"), mode);
    EXPECT_EQ(contents(folder / "u.npy").substr(1, 5), "NUMPY");
    std::filesystem::remove(folder / "u.npy");
  }
  write_output(folder / "new.npy");
  EXPECT_EQ(mode_of(folder / "new.npy"), 0644u);
  ::umask(before);
}

TEST(NpyOutput, HasItsOwnerToo) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root gives files away";
  constexpr uid_t kOwner = 1234, kSomebodyElse = 4321;
  const Folder folder;
  ASSERT_EQ(::chmod((folder / ".").c_str(), 0777), 0);
  const auto make_old = [&](mode_t mode) {
    std::ofstream(folder / "u.npy") << "old";
    ASSERT_EQ(::chown((folder / "u.npy").c_str(), kOwner, kOwner), 0);
    ASSERT_EQ(::chmod((folder / "u.npy").c_str(), mode), 0);
  };
  struct stat about {};
  make_old(0640);
  write_output(folder / "u.npy");
  ASSERT_EQ(::stat((folder / "u.npy").c_str(), &about), 0);
  EXPECT_EQ(about.st_uid, kOwner);
  EXPECT_EQ(about.st_gid, kOwner);
  EXPECT_EQ(about.st_mode & 0777, 0640u);
  // A user that may not give the file to that group opens it to no other.
  for (const auto& [old_mode, mode] : {std::pair{0640, 0600}, {0644, 0644}, {0604, 0600}, {0664, 0644}}) {
    make_old(static_cast<mode_t>(old_mode));
    ASSERT_EQ(::seteuid(kSomebodyElse), 0);
    write_output(folder / "u.npy");
    ASSERT_EQ(::seteuid(0), 0);
    ASSERT_EQ(::stat((folder / "u.npy").c_str(), &about), 0);
    EXPECT_EQ(about.st_uid, kSomebodyElse);
    EXPECT_EQ(about.st_mode & 0777, static_cast<mode_t>(mode));
    std::filesystem::remove(folder / "u.npy");
  }
}

TEST(NpyOutput, NamesMayBeAsLongAsTheyCanBe) {
  const Folder folder;
  for (const size_t length : {240, 248, 255}) {
    const std::string a(length, 'a'), b = std::string(length - 1, 'a') + 'b';
    {
      const auto first = NpyOutput::make(folder / a, "f8", {2}, false, 16);
      const auto second = NpyOutput::make(folder / b, "f8", {3}, false, 24);  // in the same folder, alike
      ASSERT_TRUE(first.ok() && second.ok()) << first.status().to_string();
      EXPECT_EQ(folder.files(), 2u);
      EXPECT_TRUE(commit({first->get(), second->get()}).ok());
    }
    EXPECT_EQ(folder.files(), 2u);
    EXPECT_EQ(contents(folder / a), npy_header("f8", {2}) + std::string(16, '\0'));
    EXPECT_EQ(contents(folder / b), npy_header("f8", {3}) + std::string(24, '\0'));
    std::filesystem::remove(folder / a);
    std::filesystem::remove(folder / b);
  }
  EXPECT_THAT(NpyOutput::make(folder / std::string(256, 'a'), "f8", {2}, false, 16).status().message,
              HasSubstr("File name too long"));
}

TEST(CheckOutputs, RefusesWhatCannotBeWrittenAndTheSameFileTwice) {
  const Folder folder;
  std::ofstream(folder / "a.npy") << "a";
  std::filesystem::create_symlink("a.npy", folder / "link.npy");
  std::filesystem::create_symlink("loop", folder / "loop");
  std::filesystem::create_hard_link(folder / "a.npy", folder / "hard.npy");
  EXPECT_TRUE(check({folder / "a.npy", "", folder / "new.npy", ""}).ok());
  for (const char* other : {"a.npy", "link.npy", "hard.npy", "./a.npy"}) {
    const auto s = check({folder / "a.npy", folder / other});
    EXPECT_EQ(s.code, client::Code::kInvalidArgument) << other;
    EXPECT_THAT(s.message, HasSubstr("are the same file"));
  }
  EXPECT_FALSE(check({folder / "new.npy", folder / "./new.npy"}).ok());
  EXPECT_THAT(check({folder / "."}).message, HasSubstr("Is a directory"));
  EXPECT_THAT(check({folder / "none/u.npy"}).message, HasSubstr("No such file or directory"));
  EXPECT_THAT(check({folder / "loop"}).message, HasSubstr("Too many levels"));
  EXPECT_EQ(contents(folder / "a.npy"), "a");
}

// Every spelling of an input's path, and every link to it, is recognised.
TEST(CheckOutputs, AnInputIsReplacedByForceAlone) {
  const Folder folder;
  const std::string in = folder / "a.npy";
  std::ofstream(in) << "a";
  std::ofstream(folder / "b.npy") << "b";
  std::filesystem::create_symlink("a.npy", folder / "link.npy");
  std::filesystem::create_symlink("link.npy", folder / "link_of_link.npy");
  std::filesystem::create_hard_link(in, folder / "hard.npy");
  std::filesystem::create_directory(folder / "d");
  const Descriptor open(::open(in.c_str(), O_WRONLY | O_APPEND));
  const auto refused = [&](const std::string& output, const std::string& input) {
    const std::vector<NamedFile> outputs = {{"--u", folder / "new.npy"}, {"--s", output}};
    const std::vector<NamedFile> inputs = {{"--tls-ca", ""}, {"IN.npy", input}};
    EXPECT_TRUE(check_outputs(outputs, inputs, true).ok());
    const client::Status s = check_outputs(outputs, inputs, false);
    if (s.ok()) return false;
    EXPECT_EQ(s.code, client::Code::kInvalidArgument);
    EXPECT_EQ(s.message, "--s " + output + " and IN.npy " + input +
                             " are the same file: name another output, or replace the input by --force");
    return true;
  };
  for (const std::string& name : {in, folder / "./a.npy", folder / "d/../a.npy", folder / "link.npy",
                                  folder / "link_of_link.npy", folder / "hard.npy", open.in("/dev/fd")}) {
    EXPECT_TRUE(refused(name, in)) << name;
    EXPECT_TRUE(refused(in, name)) << name;
  }
  EXPECT_FALSE(refused(folder / "b.npy", in));
  EXPECT_FALSE(refused(folder / "new2.npy", in));
  EXPECT_FALSE(refused(folder / "b.npy", folder / "none.npy"));  // that it is not there is said later
  EXPECT_EQ(contents(in), "a");
}

TEST(CheckOutputs, TwoOutputsAreNeverOneFile) {
  const Folder folder;
  const std::string u = folder / "u.npy";
  for (const bool force : {false, true}) {
    EXPECT_EQ(check_outputs({{"--u", u}, {"--s", ""}, {"--vh", u}}, {}, force).message,
              "--vh " + u + " and --u " + u + " are the same file: give each output a file of its own");
  }
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
  EXPECT_EQ(progress_line({.stage = LargeStage::kUpload, .elapsed_seconds = 1.26, .overall = 0.5, .eta_seconds = 59.9}),
            "upload       [===============>              ]  50 %  1.3 s, 59.9 s left");
  EXPECT_EQ(progress_line({.stage = LargeStage::kSweep,
                           .fraction = 1,
                           .sweep = 4,
                           .off_diagonal = 1.2e-5,
                           .elapsed_seconds = 119.7,
                           .overall = 0.25,
                           .eta_seconds = 7265}),
            "sweep 4      [=======>                      ]  25 %  cosines to 1.2e-05  2 min 00 s, 2 h 01 min left");
  EXPECT_EQ(progress_line({.stage = LargeStage::kPrepare, .elapsed_seconds = 2, .device = "cuda:0,cuda:\x1b"}),
            "prepare      [>                             ]   0 %  on cuda:0,cuda:\\x1b  2.0 s, 0.0 s left");
  EXPECT_EQ(progress_line({.stage = LargeStage::kDownload, .off_diagonal = 0.5, .device = "cuda:0"}),
            "download     [>                             ]   0 %  0.0 s, 0.0 s left");
  EXPECT_EQ(progress_line({.stage = LargeStage::kDownload, .elapsed_seconds = 3, .overall = 1}),
            "download     [==============================] 100 %  3.0 s");
}

}  // namespace
}  // namespace svdserve::cli
