// The events that the stages report about themselves. An interface alone: no Prometheus, no names of series.
//
// The rpc stage records RequestFinished, and the phases kRespond and kTotal: it alone sees requests that the codec
// refuses, and the end of a reply. The core records everything else. Depth and age of the queue, and what devices are
// doing, are not events: they are read when somebody asks, by Pipeline::stats() and devices().
#ifndef SVDSERVE_SERVER_METRICS_RECORDER_H_
#define SVDSERVE_SERVER_METRICS_RECORDER_H_

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string_view>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "engine/large_engine.h"
#include "engine/problem.h"
#include "engine/result.h"
#include "server/error.h"

namespace svdserve::server {

enum class Rpc : uint8_t { kDecompose, kDecomposeStream, kDecomposeLarge, kEigendecompose, kEigendecomposeStream };
inline constexpr int kRpcs = 5;
constexpr const char* name(Rpc r) {
  constexpr const char* kNames[kRpcs] = {"Decompose", "DecomposeStream", "DecomposeLarge", "Eigendecompose",
                                         "EigendecomposeStream"};
  return kNames[static_cast<int>(r)];
}

// The kind of results asked for: singular values alone, vectors with them, or numbers made from them.
enum class Kind : uint8_t { kValues, kVectors, kAnswers };
inline constexpr int kKinds = 3;
constexpr const char* name(Kind k) {
  constexpr const char* kNames[kKinds] = {"values", "vectors", "answers"};
  return kNames[static_cast<int>(k)];
}

// A few classes of shape, so that the number of time series is bounded whatever clients send. They are k = min(m, n) up
// to 4, 8, 16, 32, 128, 512, each square-ish or elongated (max(m, n) > 4 k). Others are invalid shapes, all large
// matrices, and requests that ended before their message was read.
enum class ShapeBucket : uint8_t {
  kInvalid,
  kK4,
  kK8,
  kK16,
  kK32,
  kK128,
  kK512,
  kK4Long,
  kK8Long,
  kK16Long,
  kK32Long,
  kK128Long,
  kK512Long,
  kFactor,
  kUnread
};
inline constexpr int kShapeBuckets = 15;

constexpr ShapeBucket shape_bucket(const Problem& p) {
  const int64_t k = values_per_matrix(p);
  if (k < 1 || k > 512) return ShapeBucket::kInvalid;
  const int size = k <= 4 ? 1 : k <= 8 ? 2 : k <= 16 ? 3 : k <= 32 ? 4 : k <= 128 ? 5 : 6;
  const bool elongated = std::max(p.rows, p.cols) / 4 >= k && std::max(p.rows, p.cols) > 4 * k;
  return static_cast<ShapeBucket>(elongated ? size + 6 : size);
}

constexpr const char* name(ShapeBucket b) {
  constexpr const char* kNames[kShapeBuckets] = {"invalid",  "k4",        "k8",        "k16",     "k32",
                                                 "k128",     "k512",      "k4_long",   "k8_long", "k16_long",
                                                 "k32_long", "k128_long", "k512_long", "factor",  "unread"};
  return kNames[static_cast<int>(b)];
}

// dtype is absent where the request named none that exists.
struct RequestLabels {
  Rpc rpc = Rpc::kDecompose;
  Kind kind = Kind::kValues;
  std::optional<OperandType> dtype;
  ShapeBucket shape = ShapeBucket::kInvalid;
};

enum class Phase : uint8_t {
  kQueue,          // of a request: from admission until a device took it
  kBatchAssembly,  // of a batch: from its first request until it was cut
  kCompute,        // of a batch on its device
  kRespond,        // of a request: from the answer's readiness until the reply was handed over
  kTotal,          // of a request: from its arrival until the reply was handed over
};
inline constexpr int kPhases = 5;
constexpr const char* name(Phase p) {
  constexpr const char* kNames[kPhases] = {"queue", "batch_assembly", "compute", "respond", "total"};
  return kNames[static_cast<int>(p)];
}

// The phases of a factor of DecomposeLarge.
enum class LargePhase : uint8_t {
  kUpload,    // from its acceptance until commit
  kQueue,     // until a device took it
  kCompute,   // on the device
  kDownload,  // of the results
};
inline constexpr int kLargePhases = 4;
constexpr const char* name(LargePhase p) {
  constexpr const char* kNames[kLargePhases] = {"upload", "queue", "compute", "download"};
  return kNames[static_cast<int>(p)];
}

// Why a batch has no more in it: all that waited is in it; it is full; or what waits came too late after it.
enum class CutReason : uint8_t { kLaneFree, kFull, kAge };
inline constexpr int kCutReasons = 3;
constexpr const char* name(CutReason c) {
  constexpr const char* kNames[kCutReasons] = {"lane_free", "full", "age"};
  return kNames[static_cast<int>(c)];
}

// Thread-safe; called on the path of every request: nothing here may block, allocate much or throw.
class Recorder {
 public:
  virtual ~Recorder() = default;

  // One request was answered with `code`. Recorded by the rpc stage.
  virtual void request_finished(const RequestLabels& labels, absl::StatusCode code) = 0;
  virtual void phase_took(Phase phase, absl::Duration took) = 0;
  // One request was admitted, with this many bytes of operands and values.
  virtual void admitted(int64_t bytes) = 0;
  // One request was valid, and refused at admission.
  virtual void refused(Reason reason) = 0;
  // A batch was cut, for this reason, with so much in it.
  virtual void batch_cut(CutReason reason, int64_t requests, int64_t matrices, int64_t bytes) = 0;
  // A device computed a batch to its end.
  virtual void matrices_done(const ConvergenceReport& report) = 0;
  // One connection was closed as soon as it came: there are as many as there may be.
  virtual void connection_refused() = 0;
  // One connection was broken: its client kept the transport busy without calls.
  virtual void connection_cut_off() = 0;
  // The TLS files had changed or could not be used. Not loaded: those from before stay in use.
  virtual void tls_files_read(bool loaded) = 0;
  // A batch goes to another device, since one failed it.
  virtual void batch_retried() = 0;
  // A device failed a batch or a large matrix, or a gang that it is in did. `device`: its name.
  virtual void device_fault(std::string_view device) = 0;
  // A device failed and takes no more work.
  virtual void device_lost(std::string_view device) = 0;
  // A device gave no answer to a batch or a large matrix. Its fault and its loss are told besides.
  virtual void device_hung(std::string_view device) = 0;

  // --- of DecomposeLarge ---
  // A factor was admitted. Operand, results and working memory take this many bytes at most.
  virtual void large_accepted(int64_t bytes) = 0;
  // A chunk was taken, or is about to be sent.
  virtual void large_received(int64_t bytes) = 0;
  virtual void large_sent(int64_t bytes) = 0;
  virtual void large_phase_took(LargePhase phase, absl::Duration took) = 0;
  // A gang of so many GPUs begins to compute a factor, which has waited in the queue.
  virtual void gang_began(int members, absl::Duration waited) = 0;
  // A device computed a factor to its end.
  virtual void large_computed(const LargeOutcome& outcome) = 0;
  // A call of DecomposeLarge ended with an error.
  virtual void large_failed(Reason reason) = 0;
  // A call goes on with a matrix of an earlier one.
  virtual void large_resumed() = 0;
  // The disk has a state of a large matrix's computation.
  virtual void state_saved() = 0;
  // A file of a large matrix could not be written or read.
  virtual void checkpoint_failed() = 0;
};

// Records nothing.
class NullRecorder final : public Recorder {
 public:
  void request_finished(const RequestLabels&, absl::StatusCode) override {}
  void phase_took(Phase, absl::Duration) override {}
  void admitted(int64_t) override {}
  void refused(Reason) override {}
  void batch_cut(CutReason, int64_t, int64_t, int64_t) override {}
  void matrices_done(const ConvergenceReport&) override {}
  void connection_refused() override {}
  void connection_cut_off() override {}
  void tls_files_read(bool) override {}
  void batch_retried() override {}
  void device_fault(std::string_view) override {}
  void device_lost(std::string_view) override {}
  void device_hung(std::string_view) override {}
  void large_accepted(int64_t) override {}
  void large_received(int64_t) override {}
  void large_sent(int64_t) override {}
  void large_phase_took(LargePhase, absl::Duration) override {}
  void gang_began(int, absl::Duration) override {}
  void large_computed(const LargeOutcome&) override {}
  void large_failed(Reason) override {}
  void large_resumed() override {}
  void state_saved() override {}
  void checkpoint_failed() override {}
};

}  // namespace svdserve::server
#endif  // SVDSERVE_SERVER_METRICS_RECORDER_H_
