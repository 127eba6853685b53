// Inputs that are not .npy: members of archives, Matrix Market, CSV, raw numbers.
#include "client/cli/formats/input.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <complex>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "client/cli/commands/commands.h"
#include "tests/client/commands_fixture.h"
#include "tests/client/fake_service.h"

namespace svdserve::cli {
namespace {

using client::DataType;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Complex = std::complex<double>;

class FormatsTest : public CommandsTest {
 protected:
  std::string text(const std::string& name, const std::string& content) const {
    std::ofstream(path(name), std::ios::binary) << content;
    return path(name);
  }
  // The numbers of one matrix, row by row.
  template <class T>
  static std::vector<T> numbers(const std::string& path, int64_t rows, int64_t cols, const InputFormat& format = {}) {
    const auto stack = load_matrices(path, format);
    EXPECT_TRUE(stack.ok()) << stack.status().message;
    if (!stack.ok()) return {};
    EXPECT_EQ(stack->batch.rows, rows);
    EXPECT_EQ(stack->batch.cols, cols);
    EXPECT_EQ(stack->batch.count, 1);
    EXPECT_EQ(client::element_bytes(stack->batch.data_type), sizeof(T));
    std::vector<T> v(static_cast<size_t>(rows * cols));
    std::memcpy(v.data(), stack->batch.data, v.size() * sizeof(T));
    return v;
  }
  static std::string error(const std::string& path, const InputFormat& format = {}) {
    const auto stack = load_matrices(path, format);
    EXPECT_FALSE(stack.ok());
    EXPECT_EQ(stack.status().code, client::Code::kInvalidArgument);
    return stack.status().message;
  }
};

// --- Matrix Market ------------------------------------------------------------------------------

TEST_F(FormatsTest, MatrixMarketArrays) {
  const std::string head = "%%MatrixMarket matrix array ";
  EXPECT_THAT(numbers<double>(text("a.mtx", head + "real general\n% a comment\n\n2 3\n1\n2\n3.5\n-4e0\n+5\n6\n"), 2, 3),
              ElementsAre(1, 3.5, 5, 2, -4, 6));
  EXPECT_THAT(numbers<double>(text("a.mtx", head + "integer symmetric\r\n2 2\r\n1\r\n2\r\n3\r\n"), 2, 2),
              ElementsAre(1, 2, 2, 3));
  EXPECT_THAT(numbers<double>(text("a.mtx", head + "real skew-symmetric\n3 3\n1\n2\n3\n"), 3, 3),
              ElementsAre(0, -1, -2, 1, 0, -3, 2, 3, 0));
  EXPECT_THAT(
      numbers<Complex>(text("a.mtx", "%%matrixmarket MATRIX Array Complex HERMITIAN\n2 2\n1 0\n2 3\n4 0"), 2, 2),
      ElementsAre(Complex(1, 0), Complex(2, -3), Complex(2, 3), Complex(4, 0)));
  EXPECT_THAT(numbers<Complex>(text("b", head + "complex symmetric\n2 2\n1 0\n2 3\n4 0\n"), 2, 2),  // known by its head
              ElementsAre(Complex(1, 0), Complex(2, 3), Complex(2, 3), Complex(4, 0)));
}

TEST_F(FormatsTest, MatrixMarketCoordinates) {
  const std::string head = "%%MatrixMarket matrix coordinate ";
  EXPECT_THAT(numbers<double>(text("a.mtx", head + "real general\n2 3 3\n1 3 7\n2 1 -1\n1 3 1\n"), 2, 3),
              ElementsAre(0, 0, 8, -1, 0, 0));
  EXPECT_THAT(numbers<double>(text("a.mtx", head + "pattern symmetric\n2 2 2\n1 1\n2 1\n"), 2, 2),
              ElementsAre(1, 1, 1, 0));
  EXPECT_THAT(numbers<Complex>(text("a.mtx", head + "complex hermitian\n2 2 2\n2 2 5 0\n2 1 1 2\n"), 2, 2),
              ElementsAre(Complex(), Complex(1, -2), Complex(1, 2), Complex(5, 0)));
  EXPECT_THAT(numbers<double>(text("a.mtx", head + "real general\n2 2 0\n"), 2, 2), ElementsAre(0, 0, 0, 0));
}

TEST_F(FormatsTest, ErrorsInMatrixMarketNameTheLine) {
  const std::string coordinate = "%%MatrixMarket matrix coordinate real general\n";
  const std::vector<std::pair<std::string, std::string>> all = {
      {"", "line 1: must begin with %%MatrixMarket"},
      {"1 2\n", "line 1: must begin with %%MatrixMarket"},
      {"%%MatrixMarket vector array real general\n", "line 1: \"vector\" is not supported"},
      {"%%MatrixMarket matrix sparse real general\n", "line 1: \"sparse\" is not array or coordinate"},
      {"%%MatrixMarket matrix array quaternion general\n", "line 1: \"quaternion\" is not real, complex"},
      {"%%MatrixMarket matrix array real\n", "line 1: \"\" is not general, symmetric"},
      {coordinate + "2 2\n", "line 2: must have the rows, the columns and the number of entries"},
      {coordinate + "2 x 1\n", "line 2: must have the rows"},
      {coordinate + "2000000 2000000 1\n", "line 2: 2000000x2000000 in full is more than the memory of this machine"},
      {coordinate + "9223372036854775807 2 1\n", "line 2: 9223372036854775807x2 in full is more"},
      {coordinate + "2 2 2\n1 1 1\n", "line 3: ends after 1 of 2 entries"},
      {coordinate + "2 2 1\n3 1 1\n", "line 3: (3, 1) is not in a matrix of 2x2"},
      {coordinate + "2 2 1\n0 1 1\n", "line 3: (0, 1) is not in a matrix of 2x2"},
      {coordinate + "2 2 1\n% here\n1 1 one\n", "line 4: \"one\" is not a number"},
      {coordinate + "2 2 1\n1 1 1 2\n", "line 3: has more: \"2\""},
      {coordinate + "2 2 1\n1 1 1\n2 2 2\n", "line 4: has more than the 1 entries of the matrix"},
      {"%%MatrixMarket matrix array complex general\n1 1\n1\n", "line 3: \"\" is not the imaginary part of a number"},
      {"%%MatrixMarket matrix array real general\n2 1\n1\n", "line 3: ends after 1 numbers, before that of row 2 and"},
      {"%%MatrixMarket matrix array real symmetric\n2 1\n1\n", "line 2: a matrix with a symmetry must be square"},
      {"%%MatrixMarket matrix coordinate real symmetric\n2 2 2\n1 1 1\n1 2 3\n",
       "line 4: (1, 2) is above the diagonal"},
      {"%%MatrixMarket matrix coordinate complex hermitian\n2 2 1\n1 2 3 4\n", "line 3: (1, 2) is above the diagonal"},
      {"%%MatrixMarket matrix coordinate real skew-symmetric\n2 2 1\n2 2 1\n", "line 3: (2, 2) is on the diagonal"},
      {"%%MatrixMarket matrix coordinate pattern general\n2 2 1\n2 1 5\n",
       "line 3: has a value, \"5\", which a pattern"},
      {"%%MatrixMarket matrix coordinate pattern hermitian\n2 2 0\n",
       "line 1: a hermitian matrix is complex, not pattern"},
      {"%%MatrixMarket matrix array real hermitian\n1 1\n1\n", "line 1: a hermitian matrix is complex, not real"},
      {"%%MatrixMarket matrix coordinate pattern skew-symmetric\n2 2 0\n", "line 1: a pattern has no signs"},
      {"%%MatrixMarket matrix array integer general\n2 1\n-7\n1.5\n", "line 4: \"1.5\" is not an integer"},
      {"%%MatrixMarket matrix array complex hermitian\n1 1\n1 2\n", "line 3: (1, 1) is on the diagonal of a hermitian"},
      {"%%MatrixMarket matrix coordinate complex hermitian\n2 2 1\n2 2 1 -1\n", "line 3: (2, 2) is on the diagonal"}};
  for (const auto& [content, why] : all) {
    EXPECT_THAT(error(text("a.mtx", content)), ::testing::StartsWith(path("a.mtx") + ": " + why)) << content;
  }
}

// --- CSV ----------------------------------------------------------------------------------------

TEST_F(FormatsTest, CsvIsATableOfNumbers) {
  EXPECT_THAT(numbers<double>(text("a.csv", "# x, y\n1, 2.5,-3e2\r\n\n 4,5,+6"), 2, 3),
              ElementsAre(1, 2.5, -300, 4, 5, 6));
  EXPECT_THAT(numbers<double>(text("a.csv", "1;2\n3;4\n"), 2, 2), ElementsAre(1, 2, 3, 4));
  EXPECT_THAT(numbers<double>(text("a.txt", "  1\t2 \n3    4\n"), 2, 2, {.format = "csv"}), ElementsAre(1, 2, 3, 4));
  EXPECT_THAT(numbers<double>(text("a.csv", "7\n"), 1, 1), ElementsAre(7));
}

TEST_F(FormatsTest, ASpreadsheetMarksItsBytes) {
  EXPECT_THAT(numbers<double>(text("marked.csv",
                                   "\xef\xbb\xbf"
                                   "1,2\r\n3,4\r\n"),
                              2, 2),
              ElementsAre(1, 2, 3, 4));
}

TEST_F(FormatsTest, CsvMayBeComplex) {
  EXPECT_THAT(numbers<Complex>(text("a.csv", "1+2j,3\n(4.5-1e-1j),-2j\n"), 2, 2),
              ElementsAre(Complex(1, 2), Complex(3, 0), Complex(4.5, -0.1), Complex(0, -2)));
}

TEST_F(FormatsTest, ErrorsInCsvNameLineAndColumn) {
  const std::vector<std::pair<std::string, std::string>> all = {
      {"x,y\n1,2\n", "line 1: column 1: \"x\" is not a number; begin a heading with #"},
      {"1,2\n3,four\n", "line 2: column 2: \"four\" is not a number"},
      {"1,2\n\n3\n", "line 3: has 1 number, but the rows before have 2"},
      {"1,2,\n", "line 1: column 3: \"\" is not a number"},
      {"# nothing\n", "has no numbers"},
      {"1+2k\n", "line 1: column 1: \"1+2k\" is not a number"},
      {"1," + std::string(100, 'z') + "\n", "line 1: column 2: \"" + std::string(40, 'z') + "...\" is not a number"}};
  for (const auto& [content, why] : all) {
    EXPECT_THAT(error(text("a.csv", content)), ::testing::StartsWith(path("a.csv") + ": " + why)) << content;
  }
}

// --- raw numbers --------------------------------------------------------------------------------

TEST_F(FormatsTest, RawNumbersNeedAShape) {
  const std::vector<float> numbers_of_file = {1, 2, 3, 4, 5, 6};
  const std::string bytes(reinterpret_cast<const char*>(numbers_of_file.data()), 24), raw = text("a.bin", bytes);
  EXPECT_THAT(numbers<float>(raw, 2, 3, {.shape = "2,3", .dtype = "f32"}), ElementsAre(1, 2, 3, 4, 5, 6));
  EXPECT_THAT(numbers<float>(raw, 3, 2, {.format = "raw", .shape = "3x2", .dtype = "<f4"}),
              ElementsAre(1, 2, 3, 4, 5, 6));
  const auto stack = load_matrices(raw, {.shape = "3,1,1", .dtype = "c64"});
  ASSERT_TRUE(stack.ok());
  EXPECT_THAT(stack->batch_shape, ElementsAre(3));
  EXPECT_EQ(stack->batch.data_type, DataType::kC64);
  EXPECT_EQ(error(raw, {.shape = "2,3"}), raw + ": has 24 bytes, but --shape 2,3 of f64 is 48 bytes");
  EXPECT_EQ(error(raw, {.shape = "4000000000,4000000000"}),
            raw + ": has 24 bytes, but --shape 4000000000,4000000000 of f64 is larger than any file");
  EXPECT_THAT(error(raw, {.shape = "2,-3"}), HasSubstr("--shape: \"2,-3\" is not a list of sizes"));
  EXPECT_THAT(error(raw, {.shape = "2,3", .dtype = "f16x"}), HasSubstr("--dtype: \"f16x\" is neither f32, f64"));
  EXPECT_THAT(error(raw, {.format = "raw"}), HasSubstr("--format raw needs --shape"));
  EXPECT_THAT(error(raw, {.dtype = "f32"}), HasSubstr("--dtype is for raw numbers, with --shape"));
  EXPECT_THAT(error(raw, {.format = "csv", .shape = "2,3"}), HasSubstr("--shape is for raw numbers"));
  EXPECT_THAT(error(raw, {.format = "mat"}), HasSubstr("--format: \"mat\" is not npy, npz, mtx, csv or raw"));
  EXPECT_EQ(error(raw), raw +
                            ": not .npy, .npz or Matrix Market, and not named .csv; say what it is by --format, or "
                            "--shape of raw numbers");
}

TEST_F(FormatsTest, RawNumbersOf16BitsHaveTheServicesNames) {
  const std::vector<uint16_t> halves = {0x3c00, 0xc100, 0x0001, 0x7bff};  // as binary16: 1, -2.5, 2^-24, 65504
  const std::string raw = text("a.bin", std::string(reinterpret_cast<const char*>(halves.data()), 8));
  struct Case {
    const char *dtype, *shape, *exponent;
    DataType type;
    std::vector<float> wide;
  };
  const std::vector<Case> all = {{"f16", "2,2", "", DataType::kF16, {1, -2.5, 0x1p-24f, 65504}},
                                 {"c32", "1,2", "", DataType::kC32, {1, -2.5, 0x1p-24f, 65504}},
                                 {"bf16", "2,2", "", DataType::kBF16, {0x1p-7f, -8, 0x1p-133f, 0x1.fep120f}},
                                 {"i16", "2,2", "-1", DataType::kI16, {7680, -8064, 0.5, 15871.5}},
                                 {"ci16", "2,1", "0", DataType::kCI16, {15360, -16128, 1, 31743}}};
  for (const Case& c : all) {
    const auto stack = load_matrices(raw, {.shape = c.shape, .dtype = c.dtype, .exponent = c.exponent});
    ASSERT_TRUE(stack.ok()) << stack.status().to_string();
    EXPECT_EQ(stack->batch.data_type, c.type) << c.dtype;
    const MatrixStack wide = widened(*stack);
    EXPECT_EQ(wide.batch.data_type, result_type(c.type)) << c.dtype;
    const auto* const numbers = static_cast<const float*>(wide.batch.data);
    EXPECT_EQ(std::vector<float>(numbers, numbers + 4), c.wide) << c.dtype;
  }
  EXPECT_THAT(numbers<double>(raw, 2, 2, {.shape = "2,2", .dtype = "i16"}), ElementsAre(15360, -16128, 1, 31743));
  EXPECT_THAT(error(raw, {.shape = "1,2", .dtype = "ci16"}), HasSubstr("ci16 needs --exponent E"));
  EXPECT_THAT(error(raw, {.shape = "1,2", .dtype = "c32", .exponent = "0"}), HasSubstr("leave it out"));
  EXPECT_EQ(
      error(raw, {.shape = "1,2", .dtype = "ci32"}),
      raw +
          ": --dtype: \"ci32\" is neither f32, f64, c64, c128, f16, bf16, c32, i16 or ci16 nor a type of NumPy such "
          "as <f4");
  // A byte order makes it NumPy's name of another type.
  const std::string long_raw = text("b.bin", std::string(64, '\0'));
  EXPECT_THAT(error(long_raw, {.shape = "1,2", .dtype = "<c32"}), HasSubstr("NumPy's clongdouble, are not supported"));
}

// --- archives -----------------------------------------------------------------------------------

class NpzTest : public FormatsTest {
 protected:
  void SetUp() override {
    if (std::system("/usr/bin/python3 -c 'import numpy' 2>/dev/null") != 0) {
      GTEST_SKIP() << "no NumPy in /usr/bin/python3";
    }
    const std::string script = text("write.py", R"(
import sys, zipfile
import numpy as np
folder = sys.argv[1]
h, x = np.arange(12.0).reshape(3, 2, 2), np.array([[1 + 2j, 3], [4, 5]], dtype=np.complex64)
np.savez(f"{folder}/stored.npz", h=h, x=x)
np.savez_compressed(f"{folder}/packed.npz", h=h, x=x, zeros=np.zeros((1000, 30, 30)))
np.savez(f"{folder}/one.npz", np.eye(2))
with zipfile.ZipFile(f"{folder}/bz2.npz", "w", zipfile.ZIP_BZIP2) as z:
    z.writestr("h.npy", bytes(1000))
zipfile.ZipFile(f"{folder}/none.npz", "w").close()
with zipfile.ZipFile(f"{folder}/large.npz", "w", zipfile.ZIP_DEFLATED) as z:
    z.comment = b"a comment"
    with z.open("in/h.npy", "w", force_zip64=True) as f:
        np.lib.format.write_array(f, np.eye(3))
)");
    ASSERT_EQ(std::system(("/usr/bin/python3 " + script + " " + path("")).c_str()), 0);
  }
};

TEST_F(NpzTest, MembersAreArrays) {
  for (const char* file : {"stored.npz", "packed.npz"}) {
    EXPECT_THAT(numbers<std::complex<float>>(path(file) + ":x", 2, 2), ElementsAre(std::complex<float>(1, 2), 3, 4, 5));
    const auto h = load_matrices(path(file) + ":h");
    ASSERT_TRUE(h.ok()) << h.status().message;
    EXPECT_THAT(h->batch_shape, ElementsAre(3));
    double last = 0;  // of any alignment in the archive
    std::memcpy(&last, static_cast<const std::byte*>(h->batch.data) + 11 * sizeof last, sizeof last);
    EXPECT_EQ(last, 11);
  }
  EXPECT_THAT(numbers<double>(path("one.npz"), 2, 2), ElementsAre(1, 0, 0, 1));  // the only one
  EXPECT_THAT(numbers<double>(path("one.npz") + ":arr_0", 2, 2), ElementsAre(1, 0, 0, 1));
  EXPECT_THAT(numbers<double>(path("large.npz") + ":in/h", 3, 3), ElementsAre(1, 0, 0, 0, 1, 0, 0, 0, 1));
  EXPECT_EQ(load_matrices(path("packed.npz") + ":zeros")->batch.count, 1000);
  EXPECT_EQ(output_stem(path("stored.npz") + ":x"), "stored.x");
  EXPECT_EQ(output_stem(path("large.npz") + ":in/h"), "large.in_h");
}

TEST_F(NpzTest, ErrorsNameTheMembers) {
  const std::string stored = path("stored.npz"), mine = ": not a readable .npz file: ";
  EXPECT_EQ(error(stored), stored + ": has several arrays; name one of h, x, such as FILE.npz:h");
  EXPECT_EQ(error(stored + ":y"), stored + ":y: has no array \"y\"; it has h, x");
  EXPECT_EQ(error(path("none.npz")), path("none.npz") + mine + "it has no arrays");
  EXPECT_EQ(error(path("bz2.npz")),
            path("bz2.npz") + mine + "its member h is compressed by another method than deflate");
  EXPECT_EQ(error(text("short.npz", "PK\x03\x04")), path("short.npz") + mine + "it has no directory at its end");
  EXPECT_THAT(load_matrices(path("missing.npz") + ":h").status().message, HasSubstr("missing.npz: No such file"));
  std::string bytes = contents("stored.npz");
  bytes[200] = static_cast<char>(bytes[200] ^ 1);
  EXPECT_THAT(error(text("flipped.npz", bytes) + ":h"), HasSubstr("its member h has another checksum"));
}

TEST_F(NpzTest, AnyBytesAreAnErrorAndNoCrash) {
  std::mt19937 generator(1);
  for (const char* file : {"stored.npz", "large.npz"}) {
    const std::string good = contents(file);
    for (int i = 0; i < 500; ++i) {
      std::string bytes = good;
      for (int n = 0; n < 3; ++n) bytes[generator() % bytes.size()] = static_cast<char>(generator());
      if (i % 3 == 0) bytes.resize(generator() % bytes.size());
      const auto array = load_array(text("bad.npz", bytes) + ":h", {.format = "npz"});
      EXPECT_TRUE(array.ok() || array.status().code == client::Code::kInvalidArgument);
    }
  }
}

// --- the commands -------------------------------------------------------------------------------

TEST_F(FormatsTest, CommandsTakeEveryFormat) {
  client::testing::FakeService service;
  const std::string csv = text("a.csv", "4,1\n1,3\n");
  const Outcome o = run(run_values, {csv}, service.address());
  EXPECT_EQ(o.code, kDone) << o.err;
  EXPECT_THAT(o.out, HasSubstr("a.csv: 1 matrix of 2x2 f64\nlargest         8\n"));
  std::filesystem::create_directory(path("out"));
  const std::string mtx = text("b.mtx", "%%MatrixMarket matrix array real general\n1 1\n2\n");
  EXPECT_EQ(run(run_values, {csv, mtx, "-o", path("out")}, service.address()).code, kDone);
  EXPECT_THAT(contents("out/a.npy"), HasSubstr("'shape': (2,)"));
  EXPECT_THAT(contents("out/b.npy"), HasSubstr("'shape': (1,)"));
  EXPECT_EQ(run(run_eigh, {csv, "-o", path("out")}, service.address()).code, kDone);
  EXPECT_THAT(contents("out/a.w.npy"), HasSubstr("'shape': (2,)"));
  EXPECT_EQ(run(run_values, {path("g.npy"), "--format", "csv"}, kNobody).code, kBadUsage);
  const Outcome replaced = run(run_values, {csv, "-o", csv}, kNobody);
  EXPECT_THAT(replaced.err, HasSubstr("are the same file"));
}

TEST_F(NpzTest, AnArchiveIsNotReplaced) {
  const Outcome o = run(run_values, {path("stored.npz") + ":h", "-o", path("stored.npz")}, kNobody);
  EXPECT_EQ(o.code, kBadUsage);
  EXPECT_THAT(o.err, HasSubstr("are the same file"));
}

TEST_F(FormatsTest, ASignatureMayBeARowOrAColumn) {
  EXPECT_THAT(*load_signature(text("j.csv", "1,-1,1\n")), ElementsAre(1, -1, 1));
  EXPECT_THAT(*load_signature(text("j.csv", "1\n-1\n")), ElementsAre(1, -1));
  EXPECT_THAT(load_signature(text("j.csv", "1,2\n")).status().message, HasSubstr("j.csv: entry 1 is 2, but must be"));
}

}  // namespace
}  // namespace svdserve::cli
