// svdctl hsvd.
#include <optional>

#include "client/cli/commands/commands.h"
#include "client/cli/commands/large.h"
#include "client/cli/context.h"
#include "client/cli/files/npy.h"
#include "client/cli/files/output_target.h"
#include "client/cli/formats/input.h"
#include "client/cli/interruption.h"

namespace svdserve::cli {
namespace {

struct HsvdArguments {
  InputFormat format;
  Context context{"hsvd"};
  std::string g, j;
  std::string prefix;
  LargeFiles files;
  LargeArguments large;
  client::LargeOptions options;
  bool force = false;
};

Arguments declared(HsvdArguments* to) {
  Arguments a(
      "svdctl hsvd [options] G.npy J.npy",
      "Hyperbolic decomposition G = U diag(S) V^H with U^H U = I and V^H J V = J. G (m, n), m >= n, has full\n"
      "column rank. J (n) is the diagonal, each number 1 or -1. The results are U (m, n), S (n) and V^H (n, n):\n"
      "columns in the order of J, S descending among those of equal sign. Prints the largest, the smallest and the "
      "first\n"
      "values.");
  a.operand("G.npy", &to->g);
  a.operand("J.npy", &to->j);
  a.section("Options");
  a.option("-o, --output", "PREFIX", "write U, S and V^H to PREFIX.u.npy, PREFIX.s.npy and PREFIX.vh.npy", &to->prefix);
  a.option("--u", "U.npy", "write U to this file; - is stdout, as for the others", &to->files.u);
  a.option("--s", "S.npy", "write the singular values to this file", &to->files.s);
  a.option("--vh", "VH.npy", "write V^H to this file", &to->files.vh);
  a.flag("--force", kForceHelp, &to->force);
  to->large.declare(&a);
  to->format.declare(&a);
  to->context.declare(&a, kVerboseHelp);
  a.epilogue(kOneMatrixExitCodes);
  return a;
}

// The exit code where the command is over with that.
std::optional<int> parse(const std::vector<std::string>& words, HsvdArguments* to) {
  Arguments a = declared(to);
  if (const auto code = parse_or_explain(&a, to->context, words)) return code;
  if (const auto wrong = to->large.read(&to->options)) return bad_usage(to->context, *wrong);
  if (const auto s = name_outputs(to->prefix, to->g, to->files.svd_names()); !s.ok()) return fail(to->context, s);
  return std::nullopt;
}

}  // namespace

Syntax syntax_of_hsvd() {
  HsvdArguments args;
  return declared(&args).syntax();
}

int run_hsvd(const std::vector<std::string>& words) {
  HsvdArguments args;
  const Context& context = args.context;
  if (const auto code = parse(words, &args)) return *code;
  const std::vector<NamedFile> inputs = {{"G.npy", args.g}, {"J.npy", args.j}};
  if (const auto s = check_files(&args.context, args.files.outputs(), inputs, args.force); !s.ok()) {
    return fail(context, s);
  }
  MatrixStack stack;
  std::vector<int8_t> signature;
  if (const auto code = load_one(context, args.g, args.format, args.j, &stack, &signature)) return *code;
  const auto options = context.client_options();
  if (!options.ok()) return fail(context, options.status());
  const Interruption interruption;
  client::Client client(*options);
  return run_large(context, client, stack, signature, args.files, args.options, interruption,
                   context.connection.call());
}

}  // namespace svdserve::cli
