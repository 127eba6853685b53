// A folder of .npy files, and commands of svdctl that run in the test's process.
#ifndef SVDSERVE_TESTS_CLIENT_COMMANDS_FIXTURE_H_
#define SVDSERVE_TESTS_CLIENT_COMMANDS_FIXTURE_H_

#include <gtest/gtest.h>

#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <numeric>
#include <string>
#include <string_view>
#include <vector>

#include "client/cli/files/npy.h"

namespace svdserve::cli {

using Words = std::vector<std::string>;

// An address without a server.
inline constexpr char kNobody[] = "127.0.0.1:1";

class CommandsTest : public ::testing::Test {
 protected:
  CommandsTest() {
    std::string name = ::testing::TempDir() + "svdctl_XXXXXX";
    EXPECT_NE(mkdtemp(name.data()), nullptr);
    folder_ = name;
    write("a.npy", {3, 2, 2}, 12);
    write("g.npy", {2, 2}, 4);
    write("j.npy", {2}, 2);
  }
  ~CommandsTest() override { std::filesystem::remove_all(folder_); }

  // An array of ones.
  void write(const std::string& name, const std::vector<int64_t>& shape, size_t numbers) const {
    const std::vector<double> ones(numbers, 1);
    std::ofstream(path(name), std::ios::binary)
        << npy_header("f8", shape) << std::string_view(reinterpret_cast<const char*>(ones.data()), 8 * numbers);
  }
  // 1 + 2i, 3 + 4i, 5 + 6i, 7 + 8i in the order of the file, 2 x 2.
  void write_complex(const std::string& name, bool fortran_order) const {
    std::vector<double> numbers(8);
    std::iota(numbers.begin(), numbers.end(), 1);
    std::ofstream(path(name), std::ios::binary) << npy_header("c16", {2, 2}, fortran_order)
                                                << std::string_view(reinterpret_cast<const char*>(numbers.data()), 64);
  }
  std::string path(const std::string& name) const { return folder_ / name; }
  std::string contents(const std::string& name) const {
    std::ifstream in(path(name), std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
  }

  struct Outcome {
    int code = 0;
    std::string out, err;
  };
  // stdin stays that of the test.
  static Outcome run(int (*command)(const Words&), Words words, const std::string& address) {
    words.insert(words.end(), {"--address", address});
    ::testing::internal::CaptureStdout();
    ::testing::internal::CaptureStderr();
    const int code = command(words);
    return {code, ::testing::internal::GetCapturedStdout(), ::testing::internal::GetCapturedStderr()};
  }

 private:
  std::filesystem::path folder_;
};

}  // namespace svdserve::cli
#endif  // SVDSERVE_TESTS_CLIENT_COMMANDS_FIXTURE_H_
