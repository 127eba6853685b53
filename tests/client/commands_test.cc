// Commands of svdctl against a service whose answers the test decides, or none.
#include "client/cli/commands/commands.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "svdserve/v1/svd_service.pb.h"
#include "tests/client/commands_fixture.h"
#include "tests/client/fake_service.h"

namespace svdserve::cli {
namespace {

using client::testing::Answer;
using client::testing::FakeService;
using client::testing::Seen;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

// --- inputs are not replaced --------------------------------------------------------------------

TEST_F(CommandsTest, AnInputIsNotReplaced) {
  std::filesystem::create_symlink("a.npy", path("link.npy"));
  std::filesystem::create_hard_link(path("a.npy"), path("hard.npy"));
  const std::string a = path("a.npy"), g = path("g.npy"), j = path("j.npy");
  const struct {
    int (*command)(const Words&);
    Words words;
  } all[] = {{run_values, {a, "-o", a}},
             {run_values, {a, "-o", path("./a.npy")}},
             {run_values, {a, "-o", path("link.npy")}},
             {run_values, {a, "-o", path("hard.npy")}},
             {run_values, {path("link.npy"), "-o", a}},
             {run_svd, {a, "--u", a}},
             {run_svd, {a, "--u", path("u.npy"), "--s", path("link.npy")}},
             {run_svd, {a, "--vh", path("hard.npy")}},
             {run_svd, {g, "--variant", "full-block", "--s", g}},
             {run_hsvd, {g, j, "--u", g}},
             {run_hsvd, {g, j, "--s", j}},
             {run_hsvd, {g, j, "--vh", path("./j.npy")}},
             {run_eigh, {a, "--w", path("link.npy")}},
             {run_eigh, {g, "--signature", j, "--v", j}},
             {run_eig, {a, "--w", path("link.npy")}},
             {run_eigvals, {a, "-o", a}},
             {run_capacity, {a, "--out", a}},
             {run_values, {a, "--tls-ca", g, "-o", g}}};
  const std::string before[] = {contents("a.npy"), contents("g.npy"), contents("j.npy")};
  for (const auto& one : all) {
    const Outcome o = run(one.command, one.words, kNobody);  // before anybody is asked
    EXPECT_EQ(o.code, kBadUsage) << o.err;
    EXPECT_THAT(o.err, HasSubstr("are the same file: name another output, or replace the input by --force"));
  }
  EXPECT_EQ(before[0], contents("a.npy"));
  EXPECT_EQ(before[1], contents("g.npy"));
  EXPECT_EQ(before[2], contents("j.npy"));
}

TEST_F(CommandsTest, AnInputIsReplacedByForce) {
  FakeService service;
  const Outcome o = run(run_values, {path("a.npy"), "-o", path("a.npy"), "--force"}, service.address());
  EXPECT_EQ(o.code, kDone) << o.err;
  EXPECT_THAT(contents("a.npy"), HasSubstr("'shape': (3, 2)"));
}

TEST_F(CommandsTest, TwoOutputsAreNeverOneFile) {
  for (const Words& more : {Words{}, Words{"--force"}}) {
    Words words = {path("g.npy"), path("j.npy"), "--u", path("x.npy"), "--vh", path("./x.npy")};
    words.insert(words.end(), more.begin(), more.end());
    const Outcome o = run(run_hsvd, words, kNobody);
    EXPECT_EQ(o.code, kBadUsage);
    EXPECT_THAT(o.err, HasSubstr("are the same file: give each output a file of its own"));
  }
}

TEST_F(CommandsTest, HelpNamesForce) {
  for (const auto command : {run_values, run_svd, run_hsvd, run_eigh, run_eig, run_eigvals, run_capacity}) {
    EXPECT_THAT(run(command, {"--help"}, kNobody).out, HasSubstr("--force"));
  }
}

// --- eigenproblems ------------------------------------------------------------------------------

TEST_F(CommandsTest, AStackOfHermitianMatricesIsABatch) {
  v1::EigendecomposeOptions options;
  FakeService service([&](const Seen& s) {
    EXPECT_EQ(s.count, 3);
    EXPECT_TRUE(options.ParseFromString(s.eigen_options));
    return Answer();
  });
  const Outcome o = run(run_eigh, {path("a.npy"), "--w", path("w.npy"), "--upper"}, service.address());
  EXPECT_EQ(o.code, kDone) << o.err;
  EXPECT_THAT(o.out, HasSubstr("a.npy: 3 matrices of 2x2 f64, all ok\n"));
  EXPECT_THAT(contents("w.npy"), HasSubstr("'shape': (3, 2)"));
  EXPECT_EQ(options.vectors(), v1::EIGENVECTORS_UNSPECIFIED);
  EXPECT_EQ(options.triangle(), v1::TRIANGLE_UPPER);
  const Outcome with_vectors = run(run_eigh, {path("a.npy"), "--v", path("v.npy"), "--fix-phases"}, service.address());
  EXPECT_EQ(with_vectors.code, kDone) << with_vectors.err;
  EXPECT_THAT(contents("v.npy"), HasSubstr("'shape': (3, 2, 2)"));
  EXPECT_EQ(options.vectors(), v1::EIGENVECTORS_RIGHT);
  EXPECT_TRUE(options.fix_phases());
  EXPECT_EQ(service.requests(), 2);
}

TEST_F(CommandsTest, AStackOfGeneralMatricesIsABatch) {
  v1::EigendecomposeOptions options;
  FakeService service(
      [&](const Seen& s) {
        EXPECT_EQ(s.count, 3);
        EXPECT_TRUE(options.ParseFromString(s.eigen_options));
        return Answer();
      },
      {.max_large_bytes = 1 << 30, .max_general_order = 2});
  const std::string a = path("a.npy"), w = path("w.npy"), v = path("v.npy"), wh = path("wh.npy");
  const struct {
    Words words;
    v1::Eigenvectors vectors;
  } all[] = {{{a, "--w", w}, v1::EIGENVECTORS_UNSPECIFIED},
             {{a, "--w", w, "--v", v}, v1::EIGENVECTORS_RIGHT},
             {{a, "--wh", wh}, v1::EIGENVECTORS_RIGHT_AND_LEFT},
             {{a, "--w", w, "--v", v, "--wh", wh}, v1::EIGENVECTORS_RIGHT_AND_LEFT}};
  for (const auto& one : all) {
    const Outcome o = run(run_eig, one.words, service.address());
    EXPECT_EQ(o.code, kDone) << o.err;
    EXPECT_THAT(o.out, HasSubstr("a.npy: 3 matrices of 2x2 f64, all ok\n"));
    EXPECT_EQ(options.problem(), v1::EIGEN_PROBLEM_GENERAL);
    EXPECT_EQ(options.vectors(), one.vectors);
  }
  EXPECT_THAT(contents("w.npy"), HasSubstr("'descr': '<c16', 'fortran_order': False, 'shape': (3, 2)"));
  for (const char* of : {"v.npy", "wh.npy"}) {
    EXPECT_THAT(contents(of), HasSubstr("'descr': '<c16', 'fortran_order': False, 'shape': (3, 2, 2)"));
  }
  const Outcome values = run(run_eigvals, {a, "-o", path("alone.npy"), "--print"}, service.address());
  EXPECT_EQ(values.code, kDone) << values.err;
  EXPECT_EQ(values.out, "1-1j 2-2j\n1-1j 2-2j\n1-1j 2-2j\n");
  EXPECT_EQ(contents("alone.npy"), contents("w.npy"));
  EXPECT_EQ(options.vectors(), v1::EIGENVECTORS_UNSPECIFIED);
  EXPECT_EQ(service.requests(), 5);
  EXPECT_TRUE(service.large().opens.empty());
}

TEST_F(CommandsTest, GeneralMatricesBeyondTheServersOrderAreLarge) {
  FakeService service([](const Seen&) { return Answer(); }, {.max_large_bytes = 1 << 30, .max_general_order = 1});
  service.large().refusals = {{.code = 3, .message = "refused", .reason = "INVALID_FIELD"}};
  const Outcome o = run(run_eig, {path("a.npy")}, service.address());
  EXPECT_EQ(o.code, kBadUsage) << o.err;
  EXPECT_EQ(service.requests(), 0);
  ASSERT_EQ(service.large().opens.size(), 1u);
  v1::LargeOpen open;
  ASSERT_TRUE(open.ParseFromString(service.large().opens[0]));
  EXPECT_EQ(open.problem(), v1::LARGE_PROBLEM_GENERAL);
}

TEST_F(CommandsTest, HermitianMatricesBeyondTheServersOrderAreLarge) {
  FakeService service([](const Seen&) { return Answer(); },
                      {.max_large_bytes = 1 << 30, .max_values = 9, .max_hermitian_order = 1});
  service.large().refusals = {{.code = 3, .message = "refused", .reason = "INVALID_FIELD"}};
  EXPECT_EQ(run(run_eigh, {path("a.npy")}, service.address()).code, kBadUsage);
  EXPECT_EQ(service.requests(), 0);
  EXPECT_EQ(service.large().opens.size(), 1u);
}

TEST_F(CommandsTest, ConditionsOfEigenvaluesAreSavedAndSummed) {
  v1::EigendecomposeOptions options;
  FakeService service(
      [&](const Seen& s) {
        EXPECT_TRUE(options.ParseFromString(s.eigen_options));
        return Answer{.exceptions = {{1, v1::MATRIX_STATUS_NEAR_DEFECTIVE}}};
      },
      {.max_large_bytes = 1 << 30, .max_general_order = 2});
  const std::string a = path("a.npy");
  const Outcome o = run(run_eig, {a, "--w", path("w.npy"), "--conditions", path("c.npy")}, service.address());
  EXPECT_EQ(o.code, kDone) << o.err;  // near defective: all is right
  EXPECT_THAT(o.out, HasSubstr("2 ok, 1 near_defective"));
  EXPECT_THAT(o.out, HasSubstr("largest condition   2 of an eigenvalue, 3.16 of V\n"));  // sqrt(2 (1 + 4))
  EXPECT_THAT(contents("c.npy"), HasSubstr("'descr': '<f8', 'fortran_order': False, 'shape': (3, 2)"));
  EXPECT_TRUE(options.condition() && !options.starting_vectors());
  const Outcome values = run(run_eigvals, {a, "--print", "--condition"}, service.address());
  EXPECT_EQ(values.code, kDone) << values.err;
  EXPECT_EQ(values.out, "1-1j 2-2j\n1-1j 2-2j\n1-1j 2-2j\n");
  EXPECT_THAT(values.err, HasSubstr("largest condition   2 of an eigenvalue"));
  write("none.npy", {0, 2, 2}, 0);
  const Outcome none = run(run_eigvals, {path("none.npy"), "--conditions", path("c.npy")}, kNobody);
  EXPECT_EQ(none.code, kDone) << none.err;
  EXPECT_THAT(contents("c.npy"), HasSubstr("'descr': '<f8', 'fortran_order': False, 'shape': (0, 2)"));
}

TEST_F(CommandsTest, StartingVectorsAreReadForEveryMatrix) {
  std::vector<double> starts;
  v1::EigendecomposeOptions options;
  FakeService service(
      [&](const Seen& s) {
        EXPECT_TRUE(options.ParseFromString(s.eigen_options));
        starts.resize(s.starting_vectors.size() / sizeof(double));
        std::memcpy(starts.data(), s.starting_vectors.data(), s.starting_vectors.size());
        return Answer();
      },
      {.max_large_bytes = 1 << 30, .max_general_order = 2});
  const std::string a = path("a.npy");
  std::vector<double> expected;  // real ones become complex
  for (int i = 0; i < 12; ++i) expected.insert(expected.end(), {1, 0});
  for (const char* start : {"a.npy", "g.npy"}) {  // one for each, and one for all
    const Outcome o = run(run_eig, {a, "--start", path(start), "--max-sweeps", "5"}, service.address());
    EXPECT_EQ(o.code, kDone) << o.err;
    EXPECT_EQ(starts, expected);
    EXPECT_TRUE(options.starting_vectors());
    EXPECT_EQ(options.max_sweeps(), 5);
  }
  write_complex("v.npy", false);
  EXPECT_EQ(run(run_eig, {path("g.npy"), "--start", path("v.npy")}, service.address()).code, kDone);
  EXPECT_THAT(starts, ElementsAre(1, 2, 3, 4, 5, 6, 7, 8));
  write_complex("v.npy", true);  // by columns: brought into the order of the matrices
  EXPECT_EQ(run(run_eig, {path("g.npy"), "--start", path("v.npy")}, service.address()).code, kDone);
  EXPECT_THAT(starts, ElementsAre(1, 2, 5, 6, 3, 4, 7, 8));
}

TEST_F(CommandsTest, WrongUsesOfStartingVectorsAndConditions) {
  FakeService service([](const Seen&) { return Answer(); }, {.max_large_bytes = 1 << 30, .max_general_order = 1});
  const std::string a = path("a.npy");
  write("wide.npy", {3, 2, 3}, 18);
  const struct {
    Words words;
    const char* why;
  } all[] = {
      {{a, "--condition"}, "--condition is for matrices up to n = 1, and these have n = 2"},
      {{a, "--conditions", path("c.npy")}, "--conditions is for matrices up to n = 1, and these have n = 2"},
      {{a, "--start", a, "--method", "qr"}, "--start is for --method jacobi"},
      {{a, "--start", path("wide.npy")}, "wide.npy: has the shape (3, 2, 3), but must have (3, 2, 2) as "},
      {{a, "--start", path("c.npy"), "--w", path("c.npy"), "--force"}, "cannot open "},
      {{a, "--start", path("g.npy"), "--w", path("g.npy")}, "are the same file"},
  };
  for (const auto& one : all) {
    const Outcome o = run(run_eig, one.words, service.address());
    EXPECT_NE(o.code, kDone);
    EXPECT_THAT(o.err, HasSubstr(one.why));
  }
  EXPECT_EQ(service.requests(), 0);
  EXPECT_TRUE(service.large().opens.empty());
}

TEST_F(CommandsTest, ErrorsOfGeneralEigenproblemsHaveCodes) {
  Answer answer{.exceptions = {{1, 1}}};
  FakeService service([&](const Seen&) { return answer; }, {.max_large_bytes = 1 << 30, .max_general_order = 2});
  write("wide.npy", {2, 3}, 6);
  const std::string a = path("a.npy");
  for (const auto command : {run_eig, run_eigvals}) {
    EXPECT_EQ(run(command, {path("wide.npy")}, service.address()).code, kBadUsage);
    EXPECT_EQ(run(command, {path("nothing.npy")}, service.address()).code, kFailed);
    EXPECT_EQ(service.requests(), 0);
  }
  const Outcome one_is_not_finite = run(run_eig, {a}, service.address());
  EXPECT_EQ(one_is_not_finite.code, kExceptions);
  EXPECT_THAT(one_is_not_finite.out, HasSubstr("2 ok, 1 non_finite"));
  answer = {.code = 3, .message = "matrices.rows: too many", .reason = "INVALID_FIELD", .field = "matrices.rows"};
  const Outcome refused = run(run_eigvals, {a}, service.address());
  EXPECT_EQ(refused.code, kBadUsage);
  EXPECT_THAT(refused.err, HasSubstr("INVALID_FIELD"));
  answer = {.code = 13, .message = "broken"};
  EXPECT_EQ(run(run_eig, {a}, service.address()).code, kFailed);
}

TEST_F(CommandsTest, RelativeAccuracyTakesLargeMatrices) {
  FakeService service([](const Seen&) { return Answer(); }, {.max_large_bytes = 1 << 30});
  const Outcome o = run(run_eigh, {path("a.npy"), "--w", path("w.npy"), "--relative"}, service.address());
  EXPECT_EQ(o.code, kDone) << o.err;
  EXPECT_THAT(o.out, HasSubstr("a.npy: 3 matrices of 2x2 f64, all ok\n"));
  EXPECT_THAT(o.out + o.err, Not(HasSubstr("matrix [2]")));
  EXPECT_EQ(service.requests(), 0);
  ASSERT_EQ(service.large().opens.size(), 3u);
  v1::LargeOpen open;
  ASSERT_TRUE(open.ParseFromString(service.large().opens[0]));
  EXPECT_EQ(open.options().method(), v1::METHOD_FACTORED);
  EXPECT_EQ(open.problem(), v1::LARGE_PROBLEM_HERMITIAN);
  const Outcome verbose = run(run_eigh, {path("a.npy"), "--relative", "--verbose"}, service.address());
  EXPECT_EQ(verbose.code, kDone) << verbose.err;
  EXPECT_THAT(verbose.err, ::testing::ContainsRegex("matrix \\[2\\]: .*s, ok\n"));
}

TEST_F(CommandsTest, MethodsOfLargeEigenproblemsMakeMatricesLarge) {
  FakeService service([](const Seen&) { return Answer(); }, {.max_large_bytes = 1 << 30});
  const std::string a = path("a.npy");
  for (const auto& [words, method] :
       std::vector<std::pair<Words, v1::Method>>{{{a, "--method", "factored"}, v1::METHOD_FACTORED},
                                                 {{a, "--method", "tridiagonal"}, v1::METHOD_TRIDIAGONAL},
                                                 {{a, "--relative", "--method", "jacobi"}, v1::METHOD_JACOBI}}) {
    const size_t before = service.large().opens.size();
    const Outcome o = run(run_eigh, words, service.address());
    EXPECT_EQ(o.code, kDone) << o.err;
    ASSERT_EQ(service.large().opens.size(), before + 3);
    v1::LargeOpen open;
    ASSERT_TRUE(open.ParseFromString(service.large().opens.back()));
    EXPECT_EQ(open.options().method(), method);
  }
  EXPECT_EQ(service.requests(), 0);
}

TEST_F(CommandsTest, VerboseIsAboutBatchesToo) {
  FakeService service(
      [](const Seen& s) {
        const auto add_bases = [](v1::DecomposeResponse* r) {
          r->set_left_vectors(std::string(3 * 4 * sizeof(double), '\0'));
          r->set_right_vectors_adjoint(r->left_vectors());
          r->set_left_columns(2);
          r->set_right_columns(2);
        };
        Answer answer{.exceptions = {{1, 1}, {2, 3}}};
        if (s.eigen_options.empty()) answer.tamper = add_bases;
        return answer;
      },
      {.max_large_bytes = 1 << 30, .max_general_order = 2});
  for (const auto command : {run_svd, run_eigh, run_eig, run_eigvals}) {
    const Outcome silent = run(command, {path("a.npy")}, service.address());
    EXPECT_EQ(silent.code, kExceptions) << silent.err;
    EXPECT_THAT(silent.err, Not(HasSubstr("queue ")));
    const Outcome o = run(command, {path("a.npy"), "--verbose"}, service.address());
    EXPECT_EQ(o.code, kExceptions) << o.err;
    EXPECT_THAT(o.err, HasSubstr("\nqueue 0 s, compute 500 ms, total 0 s; 1 message\n"));
  }
  EXPECT_EQ(service.requests(), 8);
  EXPECT_TRUE(service.large().opens.empty());
}

TEST_F(CommandsTest, OptionsOfEigenproblemsThatExcludeEachOther) {
  FakeService service([](const Seen&) { return Answer(); }, {.max_large_bytes = 1 << 30});
  write("wide.npy", {2, 3}, 6);
  const std::string a = path("a.npy"), g = path("g.npy"), j = path("j.npy");
  for (const auto& [words, what] : std::vector<std::pair<Words, const char*>>{
           {{a, "--relative", "--method", "tridiagonal"}, "leave --method out"},
           {{a, "--relative", "--fix-phases"}, "--fix-phases is not supported for large matrices"},
           {{a, "--variant", "full-block"}, "are for large matrices"},
           {{g, "--signature", j, "--relative"}, "--relative is for a Hermitian matrix"},
           {{g, "--signature", j, "--upper"}, "--upper is for a Hermitian matrix"},
           {{g, "--signature", j, "--fix-phases"}, "--fix-phases is not supported"},
           {{path("wide.npy")}, "its matrices must be square"}}) {
    const Outcome o = run(run_eigh, words, service.address());
    EXPECT_EQ(o.code, kBadUsage) << o.err;
    EXPECT_THAT(o.err, HasSubstr(what));
  }
  EXPECT_EQ(service.requests(), 0);
}

TEST_F(CommandsTest, LoadOfEigenproblems) {
  FakeService service([](const Seen& s) { return Answer{.code = s.eigen_options.empty() ? 13 : 0}; },
                      {.max_general_order = 32});
  for (const char* problem : {"eigh", "eig"}) {
    for (const Words& more : {Words{}, Words{"--stream"}}) {
      Words words = {"--problem", problem, "--count", "2", "--warmup", "0s", "--duration", "50ms"};
      words.insert(words.end(), more.begin(), more.end());
      EXPECT_EQ(run(run_bench, words, service.address()).code, kDone);
    }
    const Outcome o = run(run_bench, {"--problem", problem, "--shape", "4x2"}, service.address());
    EXPECT_EQ(o.code, kBadUsage);
    EXPECT_THAT(o.err, HasSubstr(std::string("must be square with --problem ") + problem));
  }
  EXPECT_EQ(run(run_bench, {"--problem", "eigvals"}, service.address()).code, kBadUsage);
}

TEST_F(CommandsTest, LoadHasTheMethodsOfItsProblem) {
  for (const auto& [words, what] : std::vector<std::pair<Words, const char*>>{
           {{"--method", "qr"}, "\"qr\" is not auto, bidiagonal, bisection or jacobi, the methods of --problem svd"},
           {{"--problem", "eigh", "--method", "qr"}, "\"qr\" is not auto or jacobi, the methods of --problem eigh"},
           {{"--problem", "eig", "--method", "bisection"},
            "\"bisection\" is not auto, qr or jacobi, the methods of --problem eig"}}) {
    const Outcome o = run(run_bench, words, kNobody);  // before anybody is asked
    EXPECT_EQ(o.code, kBadUsage);
    EXPECT_THAT(o.err, HasSubstr(std::string("--method: ") + what));
  }
  int method = 0;
  FakeService service(
      [&](const Seen& s) {
        method = s.method;
        return Answer();
      },
      {.max_general_order = 32});
  const Words words = {"--problem", "eig", "--method", "qr", "--warmup", "0s", "--duration", "50ms"};
  EXPECT_EQ(run(run_bench, words, service.address()).code, kDone);
  EXPECT_EQ(method, v1::METHOD_QR);
}

TEST_F(CommandsTest, LoadAsksForVectors) {
  int vectors = 0;
  FakeService service([&](const Seen& s) {
    vectors = s.vectors;
    return Answer();
  });
  const auto bench = [&](const Words& more) {
    Words words = {"--count", "3", "--warmup", "0s", "--duration", "50ms"};
    words.insert(words.end(), more.begin(), more.end());
    return run(run_bench, words, service.address());
  };
  EXPECT_THAT(bench({"--vectors", "full"}).out, HasSubstr("svd by auto with full vectors\n"));
  EXPECT_EQ(vectors, v1::VECTORS_FULL);
  EXPECT_THAT(bench({"--vectors", "thin", "--json"}).out, HasSubstr("\"vectors\": \"thin\""));
  EXPECT_EQ(vectors, v1::VECTORS_THIN);
  EXPECT_THAT(bench({}).out, HasSubstr("svd by auto\n"));
  EXPECT_EQ(vectors, v1::VECTORS_UNSPECIFIED);
  EXPECT_THAT(bench({"--vectors", "some"}).err, HasSubstr("--vectors: \"some\" is not none, thin or full"));
  EXPECT_THAT(bench({"--vectors", "full", "--problem", "eigh"}).err,
              HasSubstr("--vectors: \"full\" is not none or thin"));
  EXPECT_THAT(bench({"--vectors", "full", "--shape", "65536x2"}).err,
              HasSubstr("--count, --request-bytes: the results of a request must not exceed 4 GiB"));
}

TEST_F(CommandsTest, VerboseTellsOfRetries) {
  FakeService drains(
      [](const Seen& seen) { return seen.number == 0 ? Answer{.code = 14, .message = "draining"} : Answer(); });
  write("one.npy", {1, 2, 2}, 4);
  const Outcome o = run(run_values, {path("one.npy"), "--verbose"}, drains.address());
  EXPECT_EQ(o.code, kDone) << o.err;
  EXPECT_THAT(o.err, HasSubstr("svdctl values: " + drains.address() + ": attempt 2 of 8 follows in "));
  FakeService also([](const Seen& seen) { return Answer{.code = seen.number == 0 ? 14 : 0}; });
  EXPECT_THAT(run(run_values, {path("one.npy")}, also.address()).err, Not(HasSubstr("attempt")));
}

TEST_F(CommandsTest, HelpHasNoDefaultThatMeansNone) {
  EXPECT_THAT(run(run_bench, {"--help"}, kNobody).out, Not(HasSubstr("-2562047h")));
}

TEST_F(CommandsTest, PlanChecksItsWordsFirst) {
  for (const auto& [words, what] : std::vector<std::pair<Words, const char*>>{
           {{}, "--rate must be given, above 0"},
           {{"--rate", "1", "--latency=-1s"}, "--latency: \"-1s\" is not a duration"},
           {{"--rate", "1", "--shape", "4x4:2"}, "--shape: \"4x4:2\" is not MxN"},
           {{"--rate", "1", "--dtype", "f8"}, "--dtype: \"f8\" is not f32, f64"},
           {{"--rate", "1", "--method", "qr"}, "--method: \"qr\" is not auto, bidiagonal"},
           {{"--rate", "1", "--vectors", "some"}, "--vectors: \"some\" is not none, thin or full"},
           {{"--rate", "1", "--problem", "eig", "--snr-db", "3"}, "--top-k and --snr-db are for --problem svd"},
           {{"--rate", "1", "--water-filling"}, "for capacities, which --snr-db asks for"},
           {{"--rate", "1", "--snr-db", "3,x"}, "--snr-db: \"x\" is not a number"}}) {
    const Outcome o = run(run_plan, words, kNobody);
    EXPECT_EQ(o.code, kBadUsage);
    EXPECT_THAT(o.err, HasSubstr(what));
  }
  FakeService old;  // it does not know the call
  const Outcome o = run(run_plan, {"--rate", "1"}, old.address());
  EXPECT_EQ(o.code, kFailed);
  EXPECT_THAT(o.err, HasSubstr("this server is too old to plan capacities; update it"));
}

TEST_F(CommandsTest, LoadThatTheServerDoesNotTakeIsNotSent) {
  FakeService service([](const Seen&) { return Answer(); },
                      {.max_values = 40, .max_dimension = 100, .max_general_order = 32});
  for (const auto& [words, what] : std::vector<std::pair<Words, const char*>>{
           {{"--problem", "eig", "--shape", "4x4,33x33"},
            "\"33x33\" is too large for a batch: this server's max general order is 32"},
           {{"--problem", "eigh", "--shape", "41x41"}, "\"41x41\" is too large for a batch: this server's max values"},
           {{"--shape", "41x50"}, "\"41x50\" is too large for a batch: this server's max values"},
           {{"--shape", "101x4"}, "\"101x4\" is too large for a batch: this server's max dimension"}}) {
    const Outcome o = run(run_bench, words, service.address());
    EXPECT_EQ(o.code, kBadUsage);
    EXPECT_THAT(o.err, HasSubstr(std::string("--shape: ") + what));
    EXPECT_EQ(o.out, "");
  }
  EXPECT_EQ(service.requests(), 0);
  FakeService newer([](const Seen&) { return Answer(); }, {.max_values = 40, .max_hermitian_order = 20});
  EXPECT_THAT(run(run_bench, {"--problem", "eigh", "--shape", "21x21"}, newer.address()).err,
              HasSubstr("\"21x21\" is too large for a batch: this server's max Hermitian order is 20"));
  FakeService old;  // it knows no general matrices
  const Outcome o = run(run_bench, {"--problem", "eig"}, old.address());
  EXPECT_EQ(o.code, kBadUsage);
  EXPECT_THAT(o.err, HasSubstr("--problem: this server takes no batches of general matrices"));
}

// --- what commands print ------------------------------------------------------------------------

TEST_F(CommandsTest, TheSummaryIsPrinted) {
  FakeService service([](const Seen&) { return Answer{.exceptions = {{1, 1}}}; });
  const std::string a = path("a.npy");
  const std::string summary = a +
                              ": 3 matrices of 2x2 f64: 2 ok, 1 non_finite\n"
                              "largest         2\n"
                              "smallest        1\n"
                              "condition       2\n"
                              "numerical rank  2 of 2\n"
                              "values of [0]   1 2\n"
                              "matrix [1]: non_finite: it has an infinity or a NaN\n";
  const std::string printed = "1 2\n1 2\n1 2\n";
  const Outcome o = run(run_values, {a}, service.address());
  EXPECT_EQ(o.code, kExceptions);
  EXPECT_EQ(o.out, summary);
  EXPECT_THAT(o.err, ::testing::MatchesRegex("[^\n]* on fake:0, [^\n]* matrices/s\n"));
  const Outcome values = run(run_values, {a, "--print"}, service.address());
  EXPECT_EQ(values.out, printed);
  EXPECT_THAT(values.err, ::testing::StartsWith(summary));
  const Outcome quiet = run(run_values, {a, "--quiet"}, service.address());
  EXPECT_EQ(quiet.code, kExceptions);
  EXPECT_EQ(quiet.out + quiet.err, "");
}

// --- what servers say ---------------------------------------------------------------------------

constexpr char kTitle[] = "\x1b]0;owned\x07";  // gives a terminal another title
constexpr char kShown[] = "\\x1b]0;owned\\x07";

void expect_escaped(const std::string& said) {
  EXPECT_THAT(said, HasSubstr(kShown));
  EXPECT_THAT(said, Not(HasSubstr("\x1b")));
  EXPECT_THAT(said, Not(HasSubstr("\x07")));
}

TEST_F(CommandsTest, ErrorsAreEscaped) {
  FakeService service([](const Seen&) { return Answer{.code = 13, .message = kTitle, .reason = kTitle}; });
  for (const auto command : {run_values, run_svd, run_capacity}) {
    const Outcome o = run(command, {path("a.npy")}, service.address());
    EXPECT_EQ(o.code, kFailed);
    expect_escaped(o.err);
  }
}

TEST_F(CommandsTest, SummariesAreEscaped) {
  FakeService service([](const Seen&) { return Answer{.tamper = [](auto* r) { r->set_device(kTitle); }}; });
  const Outcome o = run(run_values, {path("a.npy")}, service.address());
  EXPECT_EQ(o.code, kDone) << o.err;
  expect_escaped(o.err);
}

TEST_F(CommandsTest, SummariesOfLargeMatricesAreEscaped) {
  FakeService service([](const Seen&) { return Answer(); }, {.max_large_bytes = 1 << 30});
  service.large().tamper = [](v1::DecomposeLargeResponse* r) {
    if (r->has_summary()) {
      r->mutable_summary()->set_device(kTitle);
      r->mutable_summary()->mutable_phases(0)->set_name(kTitle);
    }
    return 1;
  };
  const Outcome o = run(run_svd, {path("g.npy"), "--variant", "full-block", "--verbose"}, service.address());
  EXPECT_EQ(o.code, kDone) << o.err;
  expect_escaped(o.err);
}

TEST_F(CommandsTest, InfoIsEscaped) {
  for (const char* what : {"version", "device"}) {
    FakeService::Limits limits;
    (what == std::string("version") ? limits.version : limits.device) = kTitle;
    FakeService service([](const Seen&) { return Answer(); }, limits);
    const Outcome o = run(run_info, {}, service.address());
    EXPECT_EQ(o.code, kDone) << o.err;
    expect_escaped(o.out);
  }
}

TEST_F(CommandsTest, ReportsOfLoadAreEscaped) {
  FakeService::Limits limits;
  limits.version = std::string(kTitle) + ",1,2";
  FakeService service([](const Seen&) { return Answer{.code = 13, .reason = kTitle}; }, limits);
  const Outcome o = run(run_bench, {"--warmup", "0s", "--duration", "50ms", "--csv", "-"}, service.address());
  EXPECT_EQ(o.code, kFailed);
  expect_escaped(o.out);
  EXPECT_EQ(std::count(o.out.begin(), o.out.end(), ',') % 2, 0);  // as many columns in both lines
  EXPECT_THAT(o.err, Not(HasSubstr("\x1b")));
}

}  // namespace
}  // namespace svdserve::cli
