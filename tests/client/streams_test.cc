// Results under a prefix, and standard input and output as files.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "client/cli/commands/commands.h"
#include "svdserve/v1/svd_service.pb.h"
#include "tests/client/commands_fixture.h"
#include "tests/client/fake_service.h"

namespace svdserve::cli {
namespace {

using client::testing::Answer;
using client::testing::FakeService;
using client::testing::Seen;
using ::testing::HasSubstr;
using ::testing::StartsWith;
using ::testing::UnorderedElementsAre;

// Replies that have bases of 2 x 2 f64 where the request asks for them.
Answer with_bases(const Seen& s) {
  Answer reply;
  if (!s.eigen_options.empty()) return reply;
  reply.tamper = [count = s.count](v1::DecomposeResponse* r) {
    r->set_left_vectors(std::string(static_cast<size_t>(count) * 4 * sizeof(double), '\0'));
    r->set_right_vectors_adjoint(r->left_vectors());
    r->set_left_columns(2);
    r->set_right_columns(2);
  };
  return reply;
}

class StreamsTest : public CommandsTest {
 protected:
  std::vector<std::string> files_of(const std::string& folder) const {
    std::vector<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator(path(folder))) {
      names.push_back(entry.path().filename().string());
    }
    return names;
  }
};

TEST_F(StreamsTest, APrefixNamesEveryResult) {
  FakeService service(with_bases, {.max_large_bytes = 1 << 30, .max_general_order = 2});
  const std::string a = path("a.npy");
  for (const char* folder : {"svd", "eigh", "eig", "hsvd", "named", "given"}) {
    std::filesystem::create_directory(path(folder));
  }
  const struct {
    int (*command)(const Words&);
    Words words;
  } all[] = {{run_svd, {a, "-o", path("svd/x")}},
             {run_eigh, {a, "--output", path("eigh/x")}},
             {run_eig, {a, "--output=" + path("eig/x")}},
             {run_hsvd, {path("g.npy"), path("j.npy"), "-o", path("hsvd/x.1")}},
             {run_svd, {a, "-o", path("named")}},  // a folder: under the name of the input
             {run_svd, {a, "-o", path("given/x"), "--s", path("given/values.npy")}}};
  for (const auto& one : all) {
    const Outcome o = run(one.command, one.words, service.address());
    EXPECT_EQ(o.code, kDone) << o.err;
    EXPECT_THAT(o.out, HasSubstr("of 2x2 f64"));
  }
  EXPECT_THAT(files_of("svd"), UnorderedElementsAre("x.u.npy", "x.s.npy", "x.vh.npy"));
  EXPECT_THAT(files_of("eigh"), UnorderedElementsAre("x.w.npy", "x.v.npy"));
  EXPECT_THAT(files_of("eig"), UnorderedElementsAre("x.w.npy", "x.v.npy"));
  EXPECT_THAT(files_of("hsvd"), UnorderedElementsAre("x.1.u.npy", "x.1.s.npy", "x.1.vh.npy"));
  EXPECT_THAT(files_of("named"), UnorderedElementsAre("a.u.npy", "a.s.npy", "a.vh.npy"));
  EXPECT_THAT(files_of("given"), UnorderedElementsAre("x.u.npy", "values.npy", "x.vh.npy"));
  EXPECT_THAT(contents("svd/x.s.npy"), HasSubstr("'shape': (3, 2)"));
}

TEST_F(StreamsTest, APrefixDoesNotReplaceAnInput) {
  write("x.s.npy", {2, 2}, 4);
  const Outcome o = run(run_svd, {path("x.s.npy"), "-o", path("x")}, kNobody);
  EXPECT_EQ(o.code, kBadUsage);
  EXPECT_THAT(o.err, HasSubstr("are the same file"));
}

TEST_F(StreamsTest, OutIsStillAnOutput) {
  EXPECT_THAT(run(run_capacity, {path("a.npy"), "--out", path("a.npy")}, kNobody).err, HasSubstr("are the same file"));
  const std::string help = run(run_capacity, {"--help"}, kNobody).out;
  EXPECT_THAT(help, HasSubstr("  -o, --output C.npy "));
  EXPECT_THAT(help, ::testing::Not(HasSubstr("--out ")));
}

// Standard input or output, replaced as long as this lives.
class Replaced {
 public:
  Replaced(int number, int by) : number_(number), before_(::dup(number)) {
    EXPECT_EQ(::dup2(by, number), number);
    ::close(by);
  }
  ~Replaced() {
    ::dup2(before_, number_);
    ::close(before_);
  }
  Replaced(const Replaced&) = delete;
  Replaced& operator=(const Replaced&) = delete;

 private:
  int number_, before_;
};

TEST_F(StreamsTest, StandardInputIsAFileOrAPipe) {
  FakeService service;
  const std::string expected = "standard input: 3 matrices of 2x2 f64, all ok\n";
  {
    const Replaced input(STDIN_FILENO, ::open(path("a.npy").c_str(), O_RDONLY));
    EXPECT_THAT(run(run_values, {"-"}, service.address()).out, StartsWith(expected));
  }
  write("big.npy", {50000, 2, 2}, 200000);  // beyond a pipe's buffer
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  std::thread writer([&, bytes = contents("big.npy")] {
    for (size_t at = 0; at < bytes.size();) {
      const ssize_t written = ::write(ends[1], bytes.data() + at, bytes.size() - at);
      if (written <= 0) break;
      at += static_cast<size_t>(written);
    }
    ::close(ends[1]);
  });
  const Replaced input(STDIN_FILENO, ends[0]);
  const Outcome o = run(run_values, {"-"}, service.address());
  writer.join();
  EXPECT_EQ(o.code, kDone) << o.err;
  EXPECT_THAT(o.out, StartsWith("standard input: 50000 matrices of 2x2 f64, all ok\n"));
}

TEST_F(StreamsTest, StandardInputCannotBeReadTwiceNorReplaced) {
  EXPECT_THAT(run(run_hsvd, {"-", "-"}, kNobody).err, HasSubstr("standard input can be read only once"));
  const Replaced input(STDIN_FILENO, ::open(path("a.npy").c_str(), O_RDONLY));
  const Outcome o = run(run_values, {"-", "-o", path("a.npy")}, kNobody);
  EXPECT_EQ(o.code, kBadUsage);
  EXPECT_THAT(o.err, HasSubstr("are the same file"));
  const Replaced wrong(STDIN_FILENO, ::open("/dev/null", O_RDONLY));
  EXPECT_THAT(run(run_values, {"-"}, kNobody).err,
              HasSubstr("svdctl values: standard input: not .npy, .npz or Matrix Market, "));
}

TEST_F(StreamsTest, StandardOutputTakesOneArray) {
  FakeService service(with_bases);
  const std::string a = path("a.npy"), s = path("s.npy");
  EXPECT_EQ(run(run_svd, {a, "--s", s}, service.address()).code, kDone);
  for (const Words& words : {Words{a, "--s", "-"}, Words{a, "--s", "/dev/stdout"}}) {
    const Outcome o = run(run_svd, words, service.address());
    EXPECT_EQ(o.code, kDone) << o.err;
    EXPECT_EQ(o.out, contents("s.npy"));
    EXPECT_THAT(o.err, StartsWith(a + ": 3 matrices of 2x2 f64, all ok\n"));  // the summary
  }
  const Outcome several = run(run_svd, {a, "-o", "-"}, service.address());
  EXPECT_EQ(several.code, kBadUsage);
  EXPECT_EQ(several.err,
            "svdctl svd: -o -: several arrays do not go into one stream; send one of them there, such as --u -\n");
  EXPECT_THAT(run(run_svd, {a, "--s", "-", "--u", "-"}, kNobody).err, HasSubstr("are the same file"));
  EXPECT_THAT(run(run_values, {a, "-o", "-", "--print"}, kNobody).err,
              HasSubstr("-o - and --print exclude each other"));
}

}  // namespace
}  // namespace svdserve::cli
