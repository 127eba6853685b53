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

void declare_problem(Arguments* arguments, std::string* problem, std::string* method) {
  arguments->option("--problem", "NAME",
                    "svd: singular values; eigh, eig: eigenvalues of Hermitian, of general\nmatrices", problem);
  arguments->choices({"svd", "eigh", "eig"});
  std::string methods;
  for (const ProblemAndMethods& p : problems()) {
    absl::StrAppend(&methods, methods.empty() ? "" : ";\n", p.name, ": ", names_of(p.methods));
  }
  arguments->option("--method", "NAME", methods, method);
  arguments->choices({"auto", "bidiagonal", "bisection", "jacobi", "qr"});
}

std::optional<std::string> read_problem(const std::string& name_of_problem, const std::string& name_of_method,
                                        client::ComputeOptions* to) {
  const auto problem =
      std::ranges::find_if(problems(), [&](const ProblemAndMethods& p) { return p.name == name_of_problem; });
  if (problem == problems().end()) return "--problem: \"" + name_of_problem + "\" is not svd, eigh or eig";
  to->problem = problem->problem;
  const auto method =
      std::ranges::find_if(problem->methods, [&](client::Method m) { return name(m) == name_of_method; });
  if (method == problem->methods.end()) {
    return absl::StrCat("--method: \"", name_of_method, "\" is not ", names_of(problem->methods),
                        ", the methods of --problem ", name_of_problem);
  }
  to->method = *method;
  return std::nullopt;
}

}  // namespace svdserve::cli
