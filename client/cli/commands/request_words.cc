#include "client/cli/commands/request_words.h"

#include <algorithm>
#include <iterator>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "client/cli/commands/commands.h"

namespace svdserve::cli {

namespace {

// A name of --problem, and the methods of its batches.
struct ProblemAndMethods {
  std::string name;
  client::Problem problem;
  std::vector<client::Method> methods;
};

const std::vector<ProblemAndMethods>& problems() {
  using client::Method;
  static const std::vector<ProblemAndMethods> all = {
      {"svd", client::Problem::kSvd, {std::begin(client::kSvdMethods), std::end(client::kSvdMethods)}},
      {"eigh", client::Problem::kHermitian, {Method::kAuto, Method::kJacobi}},
      {"eig", client::Problem::kGeneral, {Method::kAuto, Method::kQr, Method::kJacobi}}};
  return all;
}

}  // namespace

std::optional<ShapeAndWeight> parse_shape(const std::string& text) {
  const std::vector<std::string> parts = absl::StrSplit(text, ':');
  const std::vector<std::string> sides = absl::StrSplit(parts[0], 'x');
  if (parts.size() > 2 || sides.size() != 2) return std::nullopt;
  const auto rows = parse_int(sides[0]), cols = parse_int(sides[1]);
  const auto weight = parts.size() == 2 ? parse_double(parts[1]) : 1.0;
  constexpr int64_t kMost = 1 << 20;  // far beyond any server's limit: keeps the products small
  if (!rows || !cols || !weight || *rows < 1 || *cols < 1 || *rows > kMost || *cols > kMost || !(*weight > 0)) {
    return std::nullopt;
  }
  return ShapeAndWeight{*rows, *cols, *weight};
}

void declare_problem(Arguments* arguments, ProblemWords* words) {
  arguments->option("--problem", "NAME",
                    "svd: singular values; eigh, eig: eigenvalues of Hermitian, of general\nmatrices", &words->problem);
  arguments->choices({"svd", "eigh", "eig"});
  std::string methods;
  for (const ProblemAndMethods& p : problems()) {
    absl::StrAppend(&methods, methods.empty() ? "" : ";\n", p.name, ": ", names_of(p.methods));
  }
  arguments->option("--method", "NAME", methods, &words->method);
  arguments->choices({"auto", "bidiagonal", "bisection", "jacobi", "qr"});
  arguments->option("--vectors", "WHICH", "none, thin or full: singular vectors or eigenvectors, too", &words->vectors);
  arguments->choices({"none", "thin", "full"});
}

std::optional<std::string> read_problem(const ProblemWords& words, client::ComputeOptions* to) {
  const auto problem =
      std::ranges::find_if(problems(), [&](const ProblemAndMethods& p) { return p.name == words.problem; });
  if (problem == problems().end()) return "--problem: \"" + words.problem + "\" is not svd, eigh or eig";
  to->problem = problem->problem;
  const auto method = std::ranges::find_if(problem->methods, [&](client::Method m) { return name(m) == words.method; });
  if (method == problem->methods.end()) {
    return absl::StrCat("--method: \"", words.method, "\" is not ", names_of(problem->methods),
                        ", the methods of --problem ", words.problem);
  }
  to->method = *method;
  constexpr const char* kVectors[] = {"none", "thin", "full"};
  const auto vectors = std::ranges::find(kVectors, words.vectors);
  if (vectors == std::end(kVectors)) return "--vectors: \"" + words.vectors + "\" is not none, thin or full";
  to->vectors = static_cast<client::Vectors>(vectors - kVectors);
  if (to->problem == client::Problem::kHermitian && to->vectors == client::Vectors::kFull) {
    return "--vectors: \"full\" is not none or thin, as --problem eigh has";
  }
  return std::nullopt;
}

}  // namespace svdserve::cli
