#include "server/large/large_checkpoint.h"

#include <utility>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"

namespace svdserve::server {
namespace {

constexpr const char* kFormat = "1";

// All bits of a number; std::strtod and absl::SimpleAtod read it.
std::string exact(double x) { return absl::StrFormat("%.17g", x); }

std::span<char> bytes_of(const MappedBlock& block) { return {block.data(), block.size()}; }

// The words of a text, one after the other. A word that is missing or wrong makes all of them wrong.
class Words {
 public:
  explicit Words(const std::string& text) : words_(absl::StrSplit(text, '\n')) {}

  bool good() const { return good_ && next_ == words_.size(); }
  std::string text() {
    std::string out;
    good_ = good_ && next_ < words_.size() && absl::CUnescape(words_[next_], &out);
    ++next_;
    return out;
  }
  double number() {
    double out = 0;
    good_ = absl::SimpleAtod(text(), &out) && good_;
    return out;
  }
  int64_t integer() {
    int64_t out = 0;
    good_ = absl::SimpleAtoi(text(), &out) && good_;
    return out;
  }

 private:
  std::vector<std::string> words_;
  size_t next_ = 0;
  bool good_ = true;
};

}  // namespace

std::string describe(const LargeOpen& open) {
  const Problem& p = open.problem;
  const LargeOptions& o = open.options;
  std::string signs(open.signature.size(), '+');
  for (size_t i = 0; i < signs.size(); ++i) signs[i] = open.signature[i] == 1 ? '+' : '-';
  return absl::StrJoin(std::make_tuple(p.rows, p.cols, static_cast<int>(p.dtype), static_cast<int>(p.order),
                                       static_cast<int>(open.decomposition), static_cast<int>(o.triangle),
                                       static_cast<int>(o.method), static_cast<int>(o.vectors), exact(o.tolerance),
                                       o.max_sweeps, static_cast<int>(o.strategy), static_cast<int>(o.variant), o.top_k,
                                       static_cast<int>(o.certificate), static_cast<int>(o.starting_vectors), signs),
                       " ");
}

std::string to_text(const ComputedLarge& computed) {
  const LargeOutcome& o = computed.outcome;
  std::vector<std::string> words = {kFormat,
                                    computed.device,
                                    exact(absl::ToDoubleSeconds(computed.compute)),
                                    absl::StrCat(static_cast<int>(o.status)),
                                    absl::StrCat(static_cast<int>(o.out_of_range)),
                                    absl::StrCat(static_cast<int>(o.method)),
                                    absl::StrCat(static_cast<int>(o.warm_started)),
                                    absl::StrCat(o.sweeps),
                                    absl::StrCat(o.rotations),
                                    absl::StrCat(o.proper_rotations),
                                    absl::StrCat(o.subspace_steps),
                                    exact(o.residual),
                                    exact(o.left_orthogonality),
                                    exact(o.right_orthogonality),
                                    absl::StrCat(o.rank),
                                    exact(o.factor_condition),
                                    absl::StrCat(o.members),
                                    absl::StrCat(o.phases.size())};
  for (const LargePhaseTime& phase : o.phases) {
    words.insert(words.end(), {phase.name, exact(phase.seconds), exact(phase.flops)});
  }
  return absl::StrJoin(words, "\n",
                       [](std::string* out, const std::string& word) { out->append(absl::CEscape(word)); });
}

std::optional<ComputedLarge> computed_of(const std::string& text) {
  Words words(text);
  ComputedLarge computed;
  LargeOutcome& o = computed.outcome;
  if (words.text() != kFormat) return std::nullopt;
  computed.device = words.text();
  computed.compute = absl::Seconds(words.number());
  const int64_t status = words.integer();
  o.status = static_cast<LargeStatus>(status);
  o.out_of_range = words.integer() != 0;
  const int64_t method = words.integer();
  o.method = static_cast<Method>(method);
  o.warm_started = words.integer() != 0;
  o.sweeps = static_cast<int32_t>(words.integer());
  o.rotations = words.integer();
  o.proper_rotations = words.integer();
  o.subspace_steps = static_cast<int32_t>(words.integer());
  o.residual = words.number();
  o.left_orthogonality = words.number();
  o.right_orthogonality = words.number();
  o.rank = words.integer();
  o.factor_condition = words.number();
  o.members = static_cast<int32_t>(words.integer());
  constexpr int64_t kMostPhases = 1000;
  const int64_t phases = words.integer();
  for (int64_t i = 0; i < std::min(phases, kMostPhases); ++i) {
    LargePhaseTime& phase = o.phases.emplace_back();
    phase.name = words.text();
    phase.seconds = words.number();
    phase.flops = words.number();
  }
  const bool has_results = o.status == LargeStatus::kOk || o.status == LargeStatus::kNotConverged;
  const bool known = method >= 0 && method <= static_cast<int64_t>(Method::kLast) && status >= 0;
  return words.good() && has_results && known ? std::optional(std::move(computed)) : std::nullopt;
}

void save_operand(Checkpoint& files, const std::shared_ptr<LargeMemory>& memory, TransferDone done) {
  files.save(CheckpointPart::kOperand, "", {bytes_of(memory->operand())}, memory,
             [done = std::move(done)](const std::string& failed) { done(failed.empty()); });
}

void load_operand(Checkpoint& files, const std::shared_ptr<LargeMemory>& memory, TransferDone done) {
  files.load(CheckpointPart::kOperand, {bytes_of(memory->operand())}, memory,
             [done = std::move(done)](const std::string& failed, const std::string&) { done(failed.empty()); });
}

void save_results(Checkpoint& files, const ComputedLarge& computed,
                  const std::deque<std::shared_ptr<const ResultPiece>>& results) {
  using Pieces = std::vector<std::shared_ptr<const ResultPiece>>;
  const auto pieces = std::make_shared<const Pieces>(results.begin(), results.end());
  ConstParts parts;
  for (const auto& piece : *pieces) parts.push_back(bytes_of(piece->block));
  files.save(CheckpointPart::kResults, to_text(computed), std::move(parts), pieces, [](const std::string&) {});
}

void load_results(Checkpoint& files, const std::shared_ptr<LargeMemory>& memory, ResultsLoaded loaded) {
  MutableParts parts;
  for (int r = 0; r < kLargeResults; ++r) parts.push_back(bytes_of(memory->result(static_cast<LargeResult>(r))));
  files.load(CheckpointPart::kResults, std::move(parts), memory,
             [loaded = std::move(loaded)](const std::string& failed, const std::string& header) {
               loaded(failed.empty() ? computed_of(header) : std::nullopt);
             });
}

}  // namespace svdserve::server
