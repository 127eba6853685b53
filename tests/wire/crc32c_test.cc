#include "wire/crc32c.h"

#include <gtest/gtest.h>

#include <random>
#include <string>
#include <vector>

namespace svdserve {
namespace {

// RFC 3720, appendix B.4, and the check value of the catalogue of parametrised CRC algorithms.
TEST(Crc32cTest, KnownVectors) {
  std::string ascending(32, '\0'), descending(32, '\0');
  for (int i = 0; i < 32; ++i) {
    ascending[static_cast<size_t>(i)] = static_cast<char>(i);
    descending[static_cast<size_t>(i)] = static_cast<char>(31 - i);
  }
  const std::pair<std::string, uint32_t> vectors[] = {{"", 0},
                                                      {"123456789", 0xe3069283},
                                                      {std::string(32, '\0'), 0x8a9136aa},
                                                      {std::string(32, '\xff'), 0x62a8ab43},
                                                      {ascending, 0x46dd794e},
                                                      {descending, 0x113fdb5c}};
  for (const auto& [text, want] : vectors) {
    EXPECT_EQ(crc32c(0, text.data(), text.size()), want) << text.size();
    EXPECT_EQ(crc32c_by_tables(0, text.data(), text.size()), want) << text.size();
  }
}

// One bit at a time, as the definition says.
uint32_t by_bits(const std::string& text) {
  uint32_t crc = ~uint32_t{0};
  for (const char c : text) {
    crc ^= static_cast<unsigned char>(c);
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ (crc & 1 ? 0x82f63b78 : 0);
  }
  return ~crc;
}

TEST(Crc32cTest, InstructionAndTablesAndDefinitionAgreeAtEveryLengthAlignmentAndCut) {
  std::mt19937_64 random(7);
  std::string bytes(80000, '\0');
  for (char& c : bytes) c = static_cast<char>(random());
  std::vector<size_t> lengths;
  for (size_t n = 0; n < 40; ++n) lengths.push_back(n);
  for (const size_t n : {1000, 8191, 8192, 24575, 24576, 24577, 49152, 60001, 73728}) lengths.push_back(n);
  for (const size_t length : lengths) {
    for (size_t first = 0; first < 9; ++first) {
      const std::string text = bytes.substr(first, length);
      const uint32_t want = by_bits(text);
      EXPECT_EQ(crc32c(0, bytes.data() + first, length), want) << length << " at " << first;
      EXPECT_EQ(crc32c_by_tables(0, bytes.data() + first, length), want) << length << " at " << first;
      const size_t cut = length == 0 ? 0 : random() % length;
      EXPECT_EQ(crc32c(crc32c(0, text.data(), cut), text.data() + cut, length - cut), want);
      EXPECT_EQ(crc32c_by_tables(crc32c_by_tables(0, text.data(), cut), text.data() + cut, length - cut), want);
    }
  }
}

TEST(Crc32cTest, EveryFlippedBitIsSeen) {
  std::string text(3 * 8192 + 100, 'x');
  const uint32_t before = crc32c(0, text.data(), text.size());
  for (size_t bit = 0; bit < 8 * text.size(); bit += 613) {
    text[bit / 8] = static_cast<char>(text[bit / 8] ^ (1 << bit % 8));
    EXPECT_NE(crc32c(0, text.data(), text.size()), before) << bit;
    text[bit / 8] = static_cast<char>(text[bit / 8] ^ (1 << bit % 8));
  }
}

}  // namespace
}  // namespace svdserve
