// Before and behind the singular vectors of a Hermitian matrix that a team shares (algorithms/blocks/hermitian_stages.h).
// With vectors of the host they keep the contract, and a shuffled team gets the same bits.
#include <cstring>
#include <vector>

#include "engine/algorithms/blocks/hermitian_stages.h"
#include "engine/core/team.h"
#include "gtest/gtest.h"
#include "tests/support/numerics/engine_run.h"
#include "tests/support/numerics/hermitian_samples.h"
#include "tests/support/numerics/shuffled_team.h"

namespace svdserve::numerics {
namespace {

template <class E>
struct Shifted {
  std::vector<E> b;
  std::vector<typename E::Scalar> numbers, scratch;
  scalar::ShiftedHermitian<E> matrix;

  explicit Shifted(int n) : b(n * n), numbers(n + 1), scratch(n * n + 2 * n) {
    matrix = {b.data(), numbers.data(), numbers.data() + n, n};
  }
  bool same_bits(const Shifted& other) const {
    return std::memcmp(b.data(), other.b.data(), b.size() * sizeof(E)) == 0 && numbers == other.numbers;
  }
};

template <class E>
class HermitianStagesTest : public ::testing::Test {
 protected:
  static constexpr DType kType = sizeof(typename E::Scalar) == 4 ? (E::kComplex ? DType::kC64 : DType::kF32)
                                                                 : (E::kComplex ? DType::kC128 : DType::kF64);

  template <class Team>
  static PlanesResult quotients(const Team& team, Shifted<E>& shifted, const std::byte* u, bool* in_range) {
    using T = typename E::Scalar;
    const int n = shifted.matrix.k;
    PlanesResult result;
    auto &values = result.planes[index_of(Plane::kValues)], &vectors = result.planes[index_of(Plane::kLeft)];
    values.resize(n * sizeof(T));
    vectors.resize(n * n * sizeof(E));
    *in_range = scalar::hermitian_quotients(
        team, shifted.matrix, reinterpret_cast<const E*>(u), shifted.scratch.data(),
        [&](int r, T lambda) { std::memcpy(values.data() + r * sizeof(T), &lambda, sizeof(T)); },
        [&](int i, int r, const E& x) { std::memcpy(vectors.data() + (r * n + i) * sizeof(E), &x, sizeof(E)); });
    return result;
  }
};

using Elements =
    ::testing::Types<scalar::RealElement<scalar::ScalarLane<float>>, scalar::RealElement<scalar::ScalarLane<double>>,
                     scalar::ComplexElement<scalar::ScalarLane<float>>,
                     scalar::ComplexElement<scalar::ScalarLane<double>>>;
TYPED_TEST_SUITE(HermitianStagesTest, Elements);

TYPED_TEST(HermitianStagesTest, KeepTheContractWhateverTheOrderOfTheirCalls) {
  using E = TypeParam;
  constexpr DType kType = TestFixture::kType;
  const SvdEngine engine({.threads = 1});
  Random random(3);
  for (const int n : {3, 33, 40}) {
    const Problem problem{n, n, kType, Order::kColumnMajor};
    const Plan plan = plan_of(problem, {.decomposition = Decomposition::kHermitian, .vectors = Vectors::kThin});
    for (const HermitianFamily& family : hermitian_families()) {
      const Matrix m = family.make(kType, n, random);
      const auto bytes = pack({m}, Order::kColumnMajor);
      for (const bool upper : {false, true}) {
        const scalar::OperandMatrix<E> operand{{reinterpret_cast<const char*>(bytes.data()), 1, n, false}, true, upper};
        Shifted<E> shifted(n), other(n);
        scalar::shift_hermitian(scalar::Alone(), operand, shifted.matrix, shifted.scratch.data());
        scalar::shift_hermitian(ShuffledTeam(7), operand, other.matrix, other.scratch.data());
        EXPECT_TRUE(shifted.same_bits(other)) << family.name;
        const PlanesResult svd = run_planes(engine, plan_of(problem, {.vectors = Vectors::kThin}),
                                            reinterpret_cast<const std::byte*>(shifted.b.data()), 1);
        const std::byte* const u = svd.planes[index_of(Plane::kLeft)].data();
        bool in_range = false, again = false;
        const PlanesResult result = this->quotients(scalar::Alone(), shifted, u, &in_range);
        EXPECT_TRUE(result == this->quotients(ShuffledTeam(9), other, u, &again)) << family.name;
        EXPECT_TRUE(in_range && again) << family.name;
        const auto lambda = result.numbers(kType, Plane::kValues, 0, n);
        const HermitianErrors errors = hermitian_errors(plan, m, result, 0, lambda, n < 10);
        EXPECT_LE(errors.eigenvalue, 10 * n) << family.name;
        EXPECT_LE(errors.residual, 10 * n) << family.name;
        EXPECT_LE(errors.orthogonality, 10 * n) << family.name;
      }
    }
  }
}

}  // namespace
}  // namespace svdserve::numerics
