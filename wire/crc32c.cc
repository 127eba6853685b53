#include "wire/crc32c.h"

#include <array>
#include <cstring>

#if defined(__x86_64__)
#include <nmmintrin.h>
#elif defined(__aarch64__)
#include <arm_acle.h>
#include <asm/hwcap.h>
#include <sys/auxv.h>
#endif

namespace svdserve {
namespace {

constexpr uint32_t kPolynomial = 0x82f63b78;  // 0x1edc6f41 with its bits reversed

// --- tables --------------------------------------------------------------------------------------

using Table = std::array<uint32_t, 256>;

// tables[i][b]: what byte b does to a checksum that i zero bytes follow.
constexpr std::array<Table, 8> make_tables() {
  std::array<Table, 8> tables{};
  for (uint32_t b = 0; b < 256; ++b) {
    uint32_t crc = b;
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ (crc & 1 ? kPolynomial : 0);
    tables[0][b] = crc;
  }
  for (size_t i = 1; i < 8; ++i) {
    for (uint32_t b = 0; b < 256; ++b) {
      const uint32_t crc = tables[i - 1][b];
      tables[i][b] = (crc >> 8) ^ tables[0][crc & 0xff];
    }
  }
  return tables;
}
constexpr std::array<Table, 8> kTables = make_tables();

uint64_t load_little_endian(const unsigned char* p) {
  uint64_t word = 0;
  for (int i = 7; i >= 0; --i) word = word << 8 | p[i];  // one load, says the compiler
  return word;
}

// --- the instruction -----------------------------------------------------------------------------

// The instruction gives its result after three cycles and can begin again after one. So three runs of equal length are
// computed at once. They are joined by moving the first two past the zeros that stand for the runs behind them.
constexpr size_t kRun = 8192;

// a(x) b(x) modulo the polynomial, both with the highest power in the lowest bit.
constexpr uint32_t multiply(uint32_t a, uint32_t b) {
  uint32_t product = 0;
  for (int bit = 31; bit >= 0; --bit) {
    if (a >> bit & 1) product ^= b;
    b = (b >> 1) ^ (b & 1 ? kPolynomial : 0);
  }
  return product;
}

// x^(8 bytes) modulo the polynomial: a checksum times this is the checksum that so many zero bytes follow.
constexpr uint32_t power_of_bytes(size_t bytes) {
  uint32_t power = uint32_t{1} << 31, square = uint32_t{1} << 23;  // 1, and x^8
  for (; bytes > 0; bytes >>= 1, square = multiply(square, square)) {
    if (bytes & 1) power = multiply(power, square);
  }
  return power;
}

// Four tables that move a checksum past kRun zero bytes, one look-up for each of its bytes.
constexpr std::array<Table, 4> make_run_tables() {
  constexpr uint32_t kPower = power_of_bytes(kRun);
  std::array<Table, 4> tables{};
  for (uint32_t i = 0; i < 4; ++i) {
    for (uint32_t bit = 0; bit < 8; ++bit) tables[i][1u << bit] = multiply(kPower, 1u << (8 * i + bit));
    for (uint32_t b = 1; b < 256; ++b) tables[i][b] = tables[i][b & (b - 1)] ^ tables[i][b & (~b + 1)];
  }
  return tables;
}
constexpr std::array<Table, 4> kRunTables = make_run_tables();

[[maybe_unused]] uint32_t past_a_run(uint32_t crc) {
  return kRunTables[0][crc & 0xff] ^ kRunTables[1][crc >> 8 & 0xff] ^ kRunTables[2][crc >> 16 & 0xff] ^
         kRunTables[3][crc >> 24];
}

#if defined(__x86_64__)
#define SVD_CRC_TARGET __attribute__((target("sse4.2")))
SVD_CRC_TARGET inline uint32_t step8(uint32_t crc, const unsigned char* p) {
  uint64_t word;
  std::memcpy(&word, p, 8);
  return static_cast<uint32_t>(_mm_crc32_u64(crc, word));
}
SVD_CRC_TARGET inline uint32_t step1(uint32_t crc, unsigned char byte) { return _mm_crc32_u8(crc, byte); }
bool has_instruction() { return __builtin_cpu_supports("sse4.2"); }
#elif defined(__aarch64__)
#define SVD_CRC_TARGET __attribute__((target("+crc")))
SVD_CRC_TARGET inline uint32_t step8(uint32_t crc, const unsigned char* p) {
  uint64_t word;
  std::memcpy(&word, p, 8);
  return __crc32cd(crc, word);
}
SVD_CRC_TARGET inline uint32_t step1(uint32_t crc, unsigned char byte) { return __crc32cb(crc, byte); }
bool has_instruction() { return (getauxval(AT_HWCAP) & HWCAP_CRC32) != 0; }
#else
bool has_instruction() { return false; }
#endif

#ifdef SVD_CRC_TARGET
SVD_CRC_TARGET uint32_t by_instruction(uint32_t before, const void* data, size_t bytes) {
  const auto* p = static_cast<const unsigned char*>(data);
  uint32_t crc = ~before;
  for (; bytes >= 3 * kRun; bytes -= 3 * kRun, p += 3 * kRun) {
    uint32_t second = 0, third = 0;
    for (size_t i = 0; i < kRun; i += 8) {
      crc = step8(crc, p + i);
      second = step8(second, p + kRun + i);
      third = step8(third, p + 2 * kRun + i);
    }
    crc = past_a_run(past_a_run(crc) ^ second) ^ third;
  }
  for (; bytes >= 8; bytes -= 8, p += 8) crc = step8(crc, p);
  for (; bytes > 0; --bytes, ++p) crc = step1(crc, *p);
  return ~crc;
}
#else
uint32_t by_instruction(uint32_t before, const void* data, size_t bytes) {
  return crc32c_by_tables(before, data, bytes);
}
#endif

}  // namespace

uint32_t crc32c_by_tables(uint32_t before, const void* data, size_t bytes) {
  const auto* p = static_cast<const unsigned char*>(data);
  uint32_t crc = ~before;
  for (; bytes >= 8; bytes -= 8, p += 8) {
    const uint64_t word = load_little_endian(p) ^ crc;
    crc = 0;
    for (int i = 0; i < 8; ++i) crc ^= kTables[static_cast<size_t>(7 - i)][word >> (8 * i) & 0xff];
  }
  for (; bytes > 0; --bytes, ++p) crc = (crc >> 8) ^ kTables[0][(crc ^ *p) & 0xff];
  return ~crc;
}

bool crc32c_has_instruction() {
  static const bool has = has_instruction();
  return has;
}

uint32_t crc32c(uint32_t before, const void* data, size_t bytes) {
  return crc32c_has_instruction() ? by_instruction(before, data, bytes) : crc32c_by_tables(before, data, bytes);
}

}  // namespace svdserve
