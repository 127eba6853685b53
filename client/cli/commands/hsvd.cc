// svdctl hsvd.
#include <optional>

#include "client/cli/commands/commands.h"
#include "client/cli/commands/large.h"
#include "client/cli/connection.h"
#include "client/cli/files/npy.h"
#include "client/cli/files/output_target.h"
#include "client/cli/interruption.h"

namespace svdserve::cli {
namespace {

struct HsvdArguments {
  Connection connection;
  std::string g, j;
  LargeFiles files;
  LargeArguments large;
  client::LargeOptions options;
  bool force = false;
};

// The exit code where the command is over with that.
std::optional<int> parse(const std::vector<std::string>& words, HsvdArguments* to) {
  Arguments a(
      "svdctl hsvd [options] G.npy J.npy",
      "Hyperbolic decomposition G = U diag(S) V^H with U^H U = I and V^H J V = J. G (m, n), m >= n, has full\n"
      "column rank. J (n) is the diagonal, each number 1 or -1. The results are U (m, n), S (n) and V^H (n, n):\n"
      "columns in the order of J, S descending among those of equal sign. A summary goes to stderr.");
  a.operand("G.npy", &to->g);
  a.operand("J.npy", &to->j);
  a.section("Options");
  a.option("--u", "U.npy", "write U to this file", &to->files.u);
  a.option("--s", "S.npy", "write the singular values to this file", &to->files.s);
  a.option("--vh", "VH.npy", "write V^H to this file", &to->files.vh);
  a.flag("--force", kForceHelp, &to->force);
  to->large.declare(&a);
  to->connection.declare(&a);
  a.epilogue(kOneMatrixExitCodes);
  if (const auto code = parse_or_explain(&a, "hsvd", words)) return code;
  if (const auto wrong = to->large.read(&to->options)) return bad_usage("hsvd", *wrong);
  return std::nullopt;
}

}  // namespace

int run_hsvd(const std::vector<std::string>& words) {
  HsvdArguments args;
  if (const auto code = parse(words, &args)) return *code;
  std::vector<NamedFile> inputs = args.connection.files();
  inputs.push_back({"G.npy", args.g});
  inputs.push_back({"J.npy", args.j});
  if (const auto s = check_outputs(args.files.outputs(), inputs, args.force); !s.ok()) return fail("hsvd", s);
  MatrixStack stack;
  std::vector<int8_t> signature;
  if (const auto code = load_one("hsvd", args.g, args.j, &stack, &signature)) return *code;
  const auto options = args.connection.options();
  if (!options.ok()) return fail("hsvd", options.status());
  const Interruption interruption;
  client::Client client(*options);
  return run_large("hsvd", client, stack, signature, args.files, args.options, args.large.verbose, interruption,
                   args.connection.call());
}

}  // namespace svdserve::cli
