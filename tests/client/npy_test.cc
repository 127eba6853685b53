#include "client/cli/files/npy.h"
#include "client/cli/files/npy_output.h"
#include "client/cli/formats/input.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <complex>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <limits>

namespace svdserve::cli {
namespace {

using client::DataType;
using client::MemoryOrder;

// A file as NumPy would write it: `dict` padded, then the data.
std::string npy(const std::string& dict, const std::string& data, int version = 1) {
  std::string head = dict;
  const size_t prefix = version == 1 ? 10 : 12;
  head.append(63 - (prefix + head.size()) % 64, ' ');
  head.push_back('\n');
  std::string file("\x93NUMPY", 6);
  file.push_back(static_cast<char>(version));
  file.push_back('\0');
  for (size_t i = 0; i < prefix - 8; ++i) file.push_back(static_cast<char>(head.size() >> (8 * i) & 0xff));
  return file + head + data;
}

std::string dict(const std::string& descr, const std::string& shape, bool fortran = false) {
  return "{'descr': '" + descr + "', 'fortran_order': " + (fortran ? "True" : "False") + ", 'shape': " + shape + ", }";
}

template <class T>
std::string bytes_of(const std::vector<T>& values, bool swapped = false) {
  std::string s(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T));
  if (swapped) {
    for (size_t i = 0; i < s.size(); i += sizeof(T)) std::reverse(s.begin() + i, s.begin() + i + sizeof(T));
  }
  return s;
}

// The stack borrows from the text, which outlives it in the tests.
client::Result<MatrixStack> read(const std::string& file) {
  const auto held = std::make_shared<std::string>(file);
  auto array = to_array(std::as_bytes(std::span(*held)), held);
  return array.ok() ? to_matrices(*std::move(array)) : array.status();
}

template <class T>
std::vector<T> elements(const MatrixStack& s) {
  const client::Batch& b = s.batch;
  std::vector<T> v(static_cast<size_t>(b.count * b.rows * b.cols));
  if (!v.empty()) std::memcpy(v.data(), b.data, v.size() * sizeof(T));
  return v;
}

TEST(Npy, ReadsEveryVersion) {
  for (const int version : {1, 2, 3}) {
    const auto s = read(npy(dict("<f8", "(1, 1, 2)"), bytes_of<double>({3, 4}), version));
    ASSERT_TRUE(s.ok()) << s.status().to_string();
    EXPECT_THAT(elements<double>(*s), ::testing::ElementsAre(3, 4));
  }
}

TEST(Npy, KeepsBatchDimensions) {
  const auto s = read(npy(dict("<f4", "(2, 3, 1, 2)"), bytes_of(std::vector<float>(12, 1))));
  ASSERT_TRUE(s.ok());
  EXPECT_THAT(s->batch_shape, ::testing::ElementsAre(2, 3));
  EXPECT_EQ(s->batch.count, 6);
  EXPECT_EQ(s->batch.rows, 1);
  EXPECT_EQ(s->batch.cols, 2);
  EXPECT_EQ(s->batch.data_type, DataType::kF32);
  const auto single = read(npy(dict("<f4", "(1, 2)"), bytes_of(std::vector<float>(2, 1))));
  ASSERT_TRUE(single.ok());
  EXPECT_TRUE(single->batch_shape.empty());
  EXPECT_EQ(single->batch.count, 1);
}

TEST(Npy, SwapsBigEndian) {
  const auto real = read(npy(dict(">f8", "(1, 2)"), bytes_of<double>({1.5, -2}, true)));
  ASSERT_TRUE(real.ok());
  EXPECT_THAT(elements<double>(*real), ::testing::ElementsAre(1.5, -2));
  const auto complex = read(npy(dict(">c8", "(1, 1)"), bytes_of<float>({1.5, -2}, true)));
  ASSERT_TRUE(complex.ok());
  EXPECT_EQ(elements<std::complex<float>>(*complex)[0], std::complex<float>(1.5, -2));
}

TEST(Npy, IntegersAndBoolsBecomeDoubles) {
  EXPECT_THAT(elements<double>(*read(npy(dict("|b1", "(1, 2)"), std::string("\0\1", 2)))),
              ::testing::ElementsAre(0, 1));
  EXPECT_THAT(elements<double>(*read(npy(dict("|i1", "(1, 2)"), "\xff\x7f"))), ::testing::ElementsAre(-1, 127));
  EXPECT_THAT(elements<double>(*read(npy(dict("|u1", "(1, 1)"), "\xff"))), ::testing::ElementsAre(255));
  EXPECT_THAT(elements<double>(*read(npy(dict("<i8", "(1, 1)"), bytes_of<int64_t>({-5})))), ::testing::ElementsAre(-5));
  EXPECT_THAT(elements<double>(*read(npy(dict(">u4", "(1, 1)"), bytes_of<uint32_t>({4000000000u}, true)))),
              ::testing::ElementsAre(4e9));
  EXPECT_THAT(elements<double>(*read(npy(dict(">i2", "(2, 1)", true), bytes_of<int16_t>({-300, 2}, true)))),
              ::testing::ElementsAre(-300, 2));
}

TEST(Npy, HalfPrecisionStaysAsItIs) {
  // 1, -2.5, the largest, the smallest normal, the smallest denormal number, infinity.
  const std::vector<uint16_t> halves = {0x3c00, 0xc100, 0x7bff, 0x0400, 0x8001, 0x7c00};
  for (const bool big : {false, true}) {
    const auto s = read(npy(dict(big ? ">f2" : "<f2", "(2, 3)"), bytes_of(halves, big)));
    ASSERT_TRUE(s.ok()) << s.status().to_string();
    EXPECT_EQ(s->batch.data_type, DataType::kF16);
    EXPECT_EQ(elements<uint16_t>(*s), halves);
    const MatrixStack wide = widened(*s);
    EXPECT_EQ(wide.batch.data_type, DataType::kF32);
    EXPECT_THAT(elements<float>(wide),
                ::testing::ElementsAre(1, -2.5, 65504, 0x1p-14f, -0x1p-24f, std::numeric_limits<float>::infinity()));
  }
}

TEST(Npy, IntegersOf16BitsWithAnExponentStayAsTheyAre) {
  const auto with = [](const std::string& file) {
    const std::span<const std::byte> bytes = std::as_bytes(std::span(file));
    auto array = to_array(bytes, nullptr);
    auto stack = to_matrices(*std::move(array), -3);
    if (stack.ok()) *stack = widened(*std::move(stack));
    return stack;
  };
  for (const bool big : {false, true}) {
    const std::string file = npy(dict(big ? ">i2" : "<i2", "(1, 3)"), bytes_of<int16_t>({-32768, 0, 9}, big));
    const auto s = with(file);
    ASSERT_TRUE(s.ok()) << s.status().to_string();
    EXPECT_THAT(elements<float>(*s), ::testing::ElementsAre(-4096, 0, 1.125f));
  }
  for (const char* type : {"<i4", "<u2", "<f2", "<f8"}) {
    const std::string file = npy(dict(type, "(1, 1)"), std::string(type[2] == '2' ? 2 : type[2] == '4' ? 4 : 8, '\0'));
    EXPECT_THAT(with(file).status().message, ::testing::HasSubstr("--exponent is for integers of 16 bits")) << type;
  }
}

// One Fortran-ordered matrix is sent as it lies; more are gathered.
TEST(Npy, UnderstandsFortranOrder) {
  const auto single = read(npy(dict("<f8", "(2, 3)", true), bytes_of<double>({1, 4, 2, 5, 3, 6})));
  ASSERT_TRUE(single.ok());
  EXPECT_EQ(single->batch.memory_order, MemoryOrder::kColumnMajor);
  EXPECT_THAT(elements<double>(*single), ::testing::ElementsAre(1, 4, 2, 5, 3, 6));

  // a[p, q, i, j] = 1000 p + 100 q + 10 i + j, first index fastest in the file.
  std::vector<double> file, expected;
  for (int j = 0; j < 2; ++j)
    for (int i = 0; i < 2; ++i)
      for (int q = 0; q < 3; ++q)
        for (int p = 0; p < 2; ++p) file.push_back(1000 * p + 100 * q + 10 * i + j);
  for (int p = 0; p < 2; ++p)
    for (int q = 0; q < 3; ++q)
      for (int i = 0; i < 2; ++i)
        for (int j = 0; j < 2; ++j) expected.push_back(1000 * p + 100 * q + 10 * i + j);
  const auto stack = read(npy(dict("<f8", "(2, 3, 2, 2)", true), bytes_of(file)));
  ASSERT_TRUE(stack.ok());
  EXPECT_EQ(stack->batch.memory_order, MemoryOrder::kRowMajor);
  EXPECT_EQ(elements<double>(*stack), expected);
  const auto swapped = read(npy(dict(">f8", "(2, 3, 2, 2)", true), bytes_of(file, true)));
  EXPECT_EQ(elements<double>(*swapped), expected);
}

TEST(Npy, AnEmptyStackIsEmpty) {
  for (const char* shape : {"(0, 4, 4)", "(3, 0, 4)", "(5, 4, 0)", "(0, 9223372036854775807, 9223372036854775807)"}) {
    const auto s = read(npy(dict("<f8", shape), ""));
    ASSERT_TRUE(s.ok()) << shape << s.status().to_string();
    EXPECT_EQ(s->batch.count, 0);
  }
}

TEST(Npy, RefusesWhatItCannotRead) {
  const std::string data = bytes_of<double>({1, 2, 3, 4});
  const std::string good = npy(dict("<f8", "(2, 2)"), data);
  ASSERT_TRUE(read(good).ok());
  const std::pair<std::string, const char*> cases[] = {
      {"", "does not begin"},
      {"PK\x03\x04 a zip archive", "does not begin"},
      {good.substr(0, 60), "ends within its header"},
      {good.substr(0, 9), "does not begin"},
      {npy(dict("<f8", "(2, 2)"), data, 4), "version 4"},
      {good.substr(0, good.size() - 1), "the file has 31"},
      {good + "x", "the file has 33"},
      {npy("[1, 2]", data), "not a dictionary"},
      {npy("{'descr': '<f8', 'shape': (2, 2), }", data), "lacks"},
      {npy("{'descr': '<f8', 'fortran_order': 1, 'shape': (2, 2), }", data), "neither True nor False"},
      {npy(dict("<f8", "(2, -2)"), data), "not a tuple"},
      {npy(dict("<f8", "2"), data), "not a tuple"},
      {npy(dict("<f8", "(99999999999999999999, 2)"), data), "not a tuple"},
      {npy(dict("<f8", "(4294967296, 4294967296)"), data), "too large"},
      {npy(dict("<f8", "(2, 2)") + " more", data), "after the dictionary"},
      {npy("{'extra': True, 'descr': '<f8'}", data), "unknown entry"},
      {npy("{'descr': [('a', '<f8')], 'fortran_order': False, 'shape': (4,), }", data), "structured"},
      {npy(dict("|O", "(2, 2)"), data), "dtype \"|O\""},
      {npy(dict("<U4", "(2, 2)"), data), "are not supported"},
      {npy(dict("<M8", "(2, 2)"), data), "are not supported"},
      {npy(dict("<f16", "(1, 2)"), data), "NumPy's longdouble, are not supported"},
      {npy(dict("<f8", "(4,)"), data), "at least 2"},
      {npy(dict("<f8", "()"), bytes_of<double>({1})), "at least 2"},
  };
  for (const auto& [file, why] : cases) {
    const auto s = read(file);
    ASSERT_FALSE(s.ok()) << why;
    EXPECT_EQ(s.status().code, client::Code::kInvalidArgument);
    EXPECT_THAT(s.status().message, ::testing::HasSubstr(why));
  }
}

// Every prefix of a good file, and every byte of its head changed, is read or refused, never more.
TEST(Npy, SurvivesDamage) {
  const std::string good = npy(dict("<f8", "(2, 2)"), bytes_of<double>({1, 2, 3, 4}));
  for (size_t i = 0; i < good.size(); ++i) (void)read(good.substr(0, i));
  for (size_t i = 0; i < 128; ++i) {
    for (int byte = 0; byte < 256; ++byte) {
      std::string bad = good;
      bad[i] = static_cast<char>(byte);
      (void)read(bad);
    }
  }
}

TEST(Npy, HeadersAreAlignedAndRoundTrip) {
  const std::vector<std::vector<int64_t>> shapes = {{4}, {2, 3}, {1000, 12, 7, 1, 1, 1, 1, 1, 1, 1, 1, 1, 2}};
  for (const auto& shape : shapes) {
    const std::string head = npy_header("f8", shape);
    EXPECT_EQ(head.size() % 64, 0u);
    int64_t items = 1;
    for (const int64_t n : shape) items *= n;
    const std::string file = head + std::string(static_cast<size_t>(items) * 8, '\0');
    const auto parsed = parse_npy(std::as_bytes(std::span(file)));
    ASSERT_TRUE(parsed.ok()) << parsed.status().to_string();
    EXPECT_EQ(parsed->shape, shape);
    EXPECT_EQ(parsed->kind, 'f');
    EXPECT_EQ(parsed->item_bytes, 8);
  }
}

class NpyFile : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string name = ::testing::TempDir() + "npy_XXXXXX";
    ASSERT_NE(mkdtemp(name.data()), nullptr);
    folder_ = name;
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  std::string folder_;
};

TEST_F(NpyFile, IsWrittenWholeAndReadBack) {
  const std::string path = folder_ + "/a.npy";
  const std::vector<double> values = {1, 2, 3, 4, 5, 6};
  {
    const auto out = NpyOutput::make(path, "f8", {1, 3, 2}, false, values.size() * sizeof(double));
    ASSERT_TRUE(out.ok()) << out.status().to_string();
    std::memcpy((*out)->data().data(), values.data(), values.size() * sizeof(double));
    ASSERT_TRUE(commit({out->get()}).ok());
  }
  const auto s = load_matrices(path);
  ASSERT_TRUE(s.ok()) << s.status().to_string();
  EXPECT_EQ(elements<double>(*s), values);
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder_), {}), 1);  // no unfinished file is left
}

TEST_F(NpyFile, APipeIsRefusedAndNotWaitedFor) {
  const std::string path = folder_ + "/pipe";
  ASSERT_EQ(mkfifo(path.c_str(), 0600), 0);
  const auto s = load_matrices(path);
  EXPECT_THAT(s.status().message, ::testing::HasSubstr("pipe is not a regular file"));
}

TEST_F(NpyFile, ErrorsNameThePath) {
  EXPECT_THAT(load_matrices(folder_ + "/none.npy").status().message, ::testing::HasSubstr("none.npy: No such file"));
  EXPECT_THAT(load_matrices(folder_).status().message, ::testing::HasSubstr("not a regular file"));
  std::ofstream(folder_ + "/empty.npy").close();
  EXPECT_THAT(load_matrices(folder_ + "/empty.npy").status().message, ::testing::HasSubstr("empty.npy"));
}

// Files of NumPy's own making: every type, byte order, memory order and a few shapes, each beside its elements as f8 or
// c16 in C order.
TEST_F(NpyFile, ReadsWhatNumPyWrites) {
  if (std::system("/usr/bin/python3 -c 'import numpy' 2>/dev/null") != 0)
    GTEST_SKIP() << "no NumPy in /usr/bin/python3";
  std::ofstream(folder_ + "/write.py") << R"(
import sys, warnings
import numpy as np
folder, n = sys.argv[1], 0
warnings.simplefilter("ignore")
for code in ["b1", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f2", "f4", "f8", "c8", "c16"]:
    for byte_order in "<>":
        for shape in [(3, 2), (5, 2, 3), (2, 3, 4, 2), (1, 1)]:
            for order in "CF":
                a = np.arange(np.prod(shape)).reshape(shape) % 100 - (3 if code[0] in "ifc" else 0)
                a = (a + 2j * a) if code[0] == "c" else a
                a = np.asarray(a.astype(byte_order + code), order=order)
                with open(f"{folder}/{n}.npy", "wb") as f:
                    np.lib.format.write_array(f, a, version=[(1, 0), (2, 0), (3, 0)][n % 3])
                a.astype("<c16" if code[0] == "c" else "<f8").tofile(f"{folder}/{n}.raw")
                n += 1
)";
  ASSERT_EQ(std::system(("/usr/bin/python3 " + folder_ + "/write.py " + folder_).c_str()), 0);
  int n = 0;
  for (; std::filesystem::exists(folder_ + "/" + std::to_string(n) + ".npy"); ++n) {
    const std::string base = folder_ + "/" + std::to_string(n);
    const auto loaded = load_matrices(base + ".npy");
    ASSERT_TRUE(loaded.ok()) << loaded.status().to_string();
    const MatrixStack s = widened(*loaded);
    const client::Batch& b = s.batch;
    std::vector<std::complex<double>> got;
    const auto as_complex = [&](const auto& v) { got.assign(v.begin(), v.end()); };
    if (b.data_type == DataType::kF32) as_complex(elements<float>(s));
    if (b.data_type == DataType::kF64) as_complex(elements<double>(s));
    if (b.data_type == DataType::kC64) as_complex(elements<std::complex<float>>(s));
    if (b.data_type == DataType::kC128) as_complex(elements<std::complex<double>>(s));
    if (b.memory_order == MemoryOrder::kColumnMajor) {
      auto row_major = got;
      for (int64_t i = 0; i < b.rows; ++i) {
        for (int64_t j = 0; j < b.cols; ++j) row_major[i * b.cols + j] = got[j * b.rows + i];
      }
      got = row_major;
    }
    std::ifstream raw(base + ".raw", std::ios::binary);
    std::string text(std::istreambuf_iterator<char>(raw), {});
    const size_t parts = text.size() / got.size() / sizeof(double);  // 1 real, 2 complex
    for (size_t i = 0; i < got.size(); ++i) {
      double expected[2] = {0, 0};
      std::memcpy(expected, text.data() + i * parts * sizeof(double), parts * sizeof(double));
      ASSERT_EQ(got[i], std::complex<double>(expected[0], expected[1])) << base << " element " << i;
    }
  }
  EXPECT_EQ(n, 224);
}

}  // namespace
}  // namespace svdserve::cli
