// svdctl eigh.
#include <optional>

#include "client/cli/commands/commands.h"
#include "client/cli/commands/large.h"
#include "client/cli/connection.h"
#include "client/cli/files/npy.h"
#include "client/cli/files/output_target.h"
#include "client/cli/interruption.h"

namespace svdserve::cli {
namespace {

struct EighArguments {
  Connection connection;
  std::string a, signature;
  LargeFiles files;  // u: eigenvectors, s: eigenvalues
  LargeArguments large;
  client::LargeOptions options;
  bool upper = false, force = false;
};

// The exit code where the command is over with that.
std::optional<int> parse(const std::vector<std::string>& words, EighArguments* to) {
  Arguments a("svdctl eigh [options] A.npy",
              "Eigenvalues and eigenvectors of a Hermitian matrix, A = V diag(w) V^H. Small eigenvalues keep their\n"
              "digits where the entries of A determine them, as those of graded matrices do. The eigenvalues w (n)\n"
              "ascend, and column i of V (n, n) belongs to w[i]. A summary goes to stderr.\n"
              "With --signature the file has G (m, n), m >= n, of full column rank. The results are those\n"
              "of G diag(J) G^H (m, m), which is never formed.");
  a.operand("A.npy", &to->a);
  a.section("Options");
  a.option("--w", "W.npy", "write the eigenvalues to this file", &to->files.s);
  a.option("--v", "V.npy", "write the eigenvectors to this file", &to->files.u);
  a.flag("--upper", "read the upper triangle of A; default: the lower one", &to->upper);
  a.option("--signature", "J.npy", "A.npy has G, and this file the diagonal of J: n numbers, each 1 or -1",
           &to->signature);
  a.flag("--force", kForceHelp, &to->force);
  to->large.declare(&a);
  to->connection.declare(&a);
  a.epilogue(kOneMatrixExitCodes);
  if (const auto code = parse_or_explain(&a, "eigh", words)) return code;
  if (to->upper && !to->signature.empty())
    return bad_usage("eigh", "--upper is for a Hermitian matrix, and G is read whole");
  if (const auto wrong = to->large.read(&to->options)) return bad_usage("eigh", *wrong);
  to->options.problem =
      to->signature.empty() ? client::LargeProblem::kHermitian : client::LargeProblem::kHermitianFactor;
  to->options.triangle = to->upper ? client::Triangle::kUpper : client::Triangle::kLower;
  return std::nullopt;
}

}  // namespace

int run_eigh(const std::vector<std::string>& words) {
  EighArguments args;
  if (const auto code = parse(words, &args)) return *code;
  std::vector<NamedFile> inputs = args.connection.files();
  inputs.push_back({"A.npy", args.a});
  if (!args.signature.empty()) inputs.push_back({"--signature", args.signature});
  const std::vector<NamedFile> outputs = {{"--w", args.files.s}, {"--v", args.files.u}};
  if (const auto s = check_outputs(outputs, inputs, args.force); !s.ok()) return fail("eigh", s);
  MatrixStack stack;
  std::vector<int8_t> signature;
  if (const auto code = load_one("eigh", args.a, args.signature, &stack, &signature)) return *code;
  const auto options = args.connection.options();
  if (!options.ok()) return fail("eigh", options.status());
  const Interruption interruption;
  client::Client client(*options);
  return run_large("eigh", client, stack, signature, args.files, args.options, args.large.verbose, interruption,
                   args.connection.call());
}

}  // namespace svdserve::cli
