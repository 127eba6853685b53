// The time that a large matrix still takes, from the progress told about it. The Python package has the same in
// _display/progress.py.
#ifndef SVDSERVE_CLIENT_CPP_CALLS_LARGE_LARGE_ESTIMATE_H_
#define SVDSERVE_CLIENT_CPP_CALLS_LARGE_LARGE_ESTIMATE_H_

#include <cstdint>

#include "client/cpp/large.h"

namespace svdserve::client::internal {

// The server predicts the time of the computation, and the download takes as long a byte as the upload. Once a stage is
// under way, its time follows from the part that is done and the time that this has taken. Thread safety: none.
class LargeEstimate {
 public:
  LargeEstimate(int64_t upload_bytes, int64_t download_bytes);

  // The computation's time, as the server says. 0, or no number: it does not say, and the computation counts for as long
  // as the upload.
  void predict(double seconds);
  // Sets overall and eta_seconds from stage, fraction and elapsed_seconds.
  void complete(LargeProgress* progress);

 private:
  enum class Stage : uint8_t { kNone, kUpload, kQueued, kCompute, kDownload };

  static Stage stage_of(LargeStage stage);
  double left(double fraction, double elapsed);

  const double download_;  // relative to the upload
  double predicted_ = 0;
  double uploaded_ = 0;  // seconds
  Stage stage_ = Stage::kNone;
  double began_fraction_ = 0, began_at_ = 0;  // of the stage
  double last_ = 0;                           // when progress was told last
  double overall_ = 0;
};

}  // namespace svdserve::client::internal
#endif  // SVDSERVE_CLIENT_CPP_CALLS_LARGE_LARGE_ESTIMATE_H_
