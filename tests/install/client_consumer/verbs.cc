// Every verb with Eigen's matrices, its futures, and groups, by the installed client: verbs ADDRESS
#include <svdserve/client.h>
#include <svdserve/eigen.h>

#include <Eigen/Dense>
#include <array>
#include <chrono>
#include <complex>
#include <cstdio>
#include <exception>
#include <vector>

// NOLINTNEXTLINE(google-build-using-namespace): as users write, beside names of Eigen
using namespace svdserve::client;
using namespace std::chrono_literals;

namespace {

constexpr double kBound = 1e-12;
int mistakes = 0;

void check(const char* what, double error, double bound = kBound) {
  const bool right = error <= bound;  // not for NaN
  std::printf("%-32s %.1e%s\n", what, error, right ? "" : "  WRONG");
  if (!right) ++mistakes;
}

template <class A, class D>
double svd_error(const A& a, const D& d) {
  return (a - d.u() * d.s().asDiagonal() * d.vh()).norm();
}

template <class A, class E>
double eigh_error(const A& a, const E& e, int64_t i) {
  return (a * e.u(i) - e.u(i) * e.w(i).asDiagonal()).norm();
}

// One matrix, of every kind that Eigen has.
void single_matrices(Client& client) {
  const Eigen::MatrixXd a = Eigen::MatrixXd::Random(6, 4);
  check("a matrix", svd_error(a, client.svd(a, {.timeout = 10s}).value()));
  const Eigen::Matrix<double, 5, 3, Eigen::RowMajor> rows = Eigen::Matrix<double, 5, 3, Eigen::RowMajor>::Random();
  check("by rows, of fixed size", svd_error(rows, client.svd(rows).value()));
  check("a block", svd_error(a.block(1, 1, 4, 2), client.svd(a.block(1, 1, 4, 2)).value()));
  check("its transpose", svd_error(a.transpose(), client.svd(a.transpose()).value()));
  const auto named = a.bottomRows(3);  // with gaps
  check("a named block", svd_error(named, client.svd(named).value()));
  const Eigen::MatrixXd u = client.svd(a.transpose() * a)->u();  // a copy from a result that is gone
  check("an expression", (u.transpose() * u - Eigen::MatrixXd::Identity(4, 4)).norm());
  const Eigen::VectorXcd x = Eigen::VectorXcd::Random(5);
  check("a vector", std::abs(client.singular_values(x)->s()[0] - x.norm()));
  const Eigen::Matrix4d square = Eigen::Matrix4d::Random();
  const auto e = client.eig(square, {.vectors = Vectors::kFull}).value();
  check("eig: v", (square * e.v() - e.v() * e.w().asDiagonal()).norm());
  check("eig: wh", (e.wh() * square - e.w().asDiagonal() * e.wh()).norm());
}

// Ranges of matrices are batches or groups; all of it with futures.
void many_matrices(Client& client) {
  std::vector<Eigen::Matrix4cd> many(50);
  for (Eigen::Matrix4cd& m : many) {
    m.setRandom();
    m = (m + m.adjoint()).eval();
  }
  std::vector<Eigen::MatrixXf> several = {Eigen::MatrixXf::Random(3, 5), Eigen::MatrixXf::Random(8, 2)};
  Verbs<true> async = client.async();
  auto hermitian = async.eigh(many, {.timeout = 10s});
  auto groups = async.svd_groups(several, {.timeout = 10s});
  auto moved = async.eigh(std::vector<Eigen::Matrix4cd>(many));
  auto kept = async.singular_values(std::vector<Eigen::Matrix4cd>(many));
  auto capacities = async.capacity(many, {0, 10});
  auto precoders = async.precoders(many, 2);
  auto mimo = async.mimo(many, {.condition_number = true, .singular_values = true});
  auto eigen = async.eig(many);

  const auto e = hermitian.get().value();
  double worst = 0;
  for (size_t i = 0; i < many.size(); ++i) worst = std::max(worst, eigh_error(many[i], e, static_cast<int64_t>(i)));
  check("eigh of a range", worst);
  check("of a temporary range", eigh_error(many[7], moved.get().value(), 7));
  const auto g = groups.get().value();
  check("groups", svd_error(several[0], g[0]) + svd_error(several[1], g[1]), 1e-5);
  const auto s = kept.get().value();
  const auto m = mimo.get().value();
  check("mimo", std::abs(m.condition_number[3] - s.s(3)[0] / s.s(3)[3]) / m.condition_number[3]);
  const Eigen::ArrayXd gains = s.s(3).array().square();
  check("capacity", std::abs(capacities.get().value()[3](1) - (1 + 10 * gains / 4).log().sum() / std::log(2.0)));
  const auto p = precoders.get().value();
  const double power = (many[3] * p.v(3)).squaredNorm();
  check("precoders", std::abs(power - gains[0] - gains[1]) / power);
  check("eig", std::abs(eigen.get().value().w(3).sum() - many[3].trace()));
}

// One large matrix: four futures at a time, each with a thread of its own.
void large_matrices(Client& client) {
  const Eigen::MatrixXd a = Eigen::MatrixXd::Random(60, 40);
  const Eigen::MatrixXd square = a.transpose() * a;
  std::vector<int8_t> signature(40, 1);
  for (size_t i = 0; i < 20; ++i) signature[2 * i] = -1;
  Eigen::VectorXd j(40);
  for (int i = 0; i < 40; ++i) j[i] = signature[static_cast<size_t>(i)];

  auto svd = client.async().svd_large(a, {.timeout = 60s});
  auto hsvd = client.async().hsvd(a, signature);
  auto eigh = client.async().eigh_large(square);
  auto factored = client.async().eigh_factored(a, signature);
  auto eig = client.async().eig_large(Eigen::MatrixXd(a.topRows(40)));
  check("svd_large", svd_error(a, svd.get().value()), 1e-10);
  const auto h = hsvd.get().value();
  check("hsvd", svd_error(a, h) + std::abs((h.vh() * j.asDiagonal() * h.vh().transpose()).cwiseAbs().sum() - 40),
        1e-10);
  const auto e = eigh.get().value();
  check("eigh_large", (square * e.u() - e.u() * e.w().asDiagonal()).norm(), 1e-10);
  const auto f = factored.get().value();
  check("eigh_factored", (a * j.asDiagonal() * a.transpose() * f.u() - f.u() * f.w().asDiagonal()).norm(), 1e-10);
  const auto g = eig.get().value();
  check("eig_large", (a.topRows(40) * g.v() - g.v() * g.w().asDiagonal()).norm(), 1e-10);
}

// Ranges that are not Eigen's, groups of them, and their results as Eigen's.
void ranges(Client& client) {
  std::array<std::complex<float>, 8> a = {};
  for (size_t i = 0; i < a.size(); ++i) a[i] = {static_cast<float>(i * i % 5), static_cast<float>(i)};
  const std::vector<Stack<std::complex<float>>> groups = {{a, {2, 2}}, {a, {4, 2, MemoryOrder::kColumnMajor}}};
  const auto d = client.svd_groups(groups, {.timeout = 10s}).value();
  const Eigen::Map<const Eigen::MatrixXcf> tall(a.data(), 4, 2);
  const auto& t = d[1];
  check("a group of spans", (tall - to_eigen(t.u()) * to_eigen(t.s()).asDiagonal() * to_eigen(t.vh())).norm(), 1e-5);
  const auto second = d[0].u(1);
  check("of another order", std::abs(second(1, 0) - to_eigen(second)(1, 0)), 0);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  Client client({.address = argv[1]});
  try {
    single_matrices(client);
    many_matrices(client);
    large_matrices(client);
    ranges(client);
  } catch (const std::exception& e) {
    std::printf("%s\n", e.what());
    return 1;
  }
  return mistakes == 0 ? 0 : 1;
}
