// Between natural and packed storage, of any number of lanes, at any alignment.
#include "engine/backends/host/packs/packing.h"

#include <gtest/gtest.h>

#include <cstring>
#include <vector>

namespace svdserve::host {
namespace {

// Matrices of `numbers` numbers that all differ, which begin at odd addresses.
template <class T>
class Matrices {
 public:
  Matrices(int lanes, size_t numbers)
      : numbers_(numbers), bytes_(static_cast<size_t>(lanes) * numbers * sizeof(T) + 1) {
    for (int l = 0; l < lanes; ++l) {
      from_.push_back(bytes_.data() + 1 + static_cast<size_t>(l) * numbers * sizeof(T));
      for (size_t e = 0; e < numbers; ++e) {
        const T x = number(l, e);
        std::memcpy(bytes_.data() + 1 + (static_cast<size_t>(l) * numbers + e) * sizeof(T), &x, sizeof(T));
      }
    }
  }
  T number(int l, size_t e) const { return static_cast<T>(static_cast<size_t>(l) * numbers_ + e + 1); }
  const char* const* from() const { return from_.data(); }

 private:
  size_t numbers_;
  std::vector<char> bytes_;
  std::vector<const char*> from_;
};

template <class T>
class Packing : public testing::Test {};
using Types = testing::Types<float, double>;
TYPED_TEST_SUITE(Packing, Types);

TYPED_TEST(Packing, OneNumberOfEachMatrixAfterTheOther) {
  for (const int lanes : {1, 2, 4, 8, 16, 32}) {
    for (size_t n = 0; n <= 11; ++n) {
      const Matrices<TypeParam> matrices(lanes, n);
      std::vector<TypeParam> packed(n * static_cast<size_t>(lanes) + 1, -1);
      interleave(matrices.from(), lanes, n, packed.data());
      for (size_t e = 0; e < n; ++e) {
        for (int l = 0; l < lanes; ++l) {
          EXPECT_EQ(packed[e * static_cast<size_t>(lanes) + static_cast<size_t>(l)], matrices.number(l, e));
        }
      }
      EXPECT_EQ(packed.back(), -1);
    }
  }
}

// Elements of one and of two numbers, from the third number on; what lies between them is not touched.
TYPED_TEST(Packing, ElementsThatLieApart) {
  constexpr size_t kFirst = 2, kApart = 5;
  for (const int lanes : {1, 2, 4, 16}) {
    for (const int components : {1, 2}) {
      for (size_t n = 1; n <= 7; ++n) {
        const auto c = static_cast<size_t>(components), width = static_cast<size_t>(lanes);
        const Matrices<TypeParam> matrices(lanes, kFirst + n * c);
        std::vector<TypeParam> packed(n * kApart * width, -1);
        interleave_apart(matrices.from(), kFirst * sizeof(TypeParam), lanes, n, components, kApart, packed.data());
        for (size_t place = 0; place < n * kApart; ++place) {
          const size_t element = place / kApart, number = place % kApart;
          for (int l = 0; l < lanes; ++l) {
            const TypeParam wanted = number < c ? matrices.number(l, kFirst + element * c + number) : TypeParam(-1);
            EXPECT_EQ(packed[place * width + static_cast<size_t>(l)], wanted) << lanes << " " << components << " " << n;
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace svdserve::host
