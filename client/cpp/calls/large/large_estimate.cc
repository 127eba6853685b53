#include "client/cpp/calls/large/large_estimate.h"

#include <algorithm>

namespace svdserve::client::internal {
namespace {

constexpr double kSure = 0.1;  // after this part of a stage its time follows from what the part has taken
constexpr double kLongestPrediction = 1e9;

}  // namespace

LargeEstimate::LargeEstimate(int64_t upload_bytes, int64_t download_bytes)
    : download_(static_cast<double>(download_bytes) / static_cast<double>(std::max<int64_t>(1, upload_bytes))) {}

void LargeEstimate::predict(double seconds) {
  predicted_ = seconds > 0 ? std::min(seconds, kLongestPrediction) : 0;  // 0 for NaN, too
}

LargeEstimate::Stage LargeEstimate::stage_of(LargeStage stage) {
  switch (stage) {
    case LargeStage::kUpload:
      return Stage::kUpload;
    case LargeStage::kQueued:
      return Stage::kQueued;
    case LargeStage::kDownload:
      return Stage::kDownload;
    default:
      return Stage::kCompute;
  }
}

void LargeEstimate::complete(LargeProgress* progress) {
  const Stage stage = stage_of(progress->stage);
  const double elapsed = progress->elapsed_seconds;
  if (stage != stage_) {
    // A computation has begun since progress was told last; other stages begin with what they tell.
    began_fraction_ = stage == Stage::kCompute ? 0 : progress->fraction;
    began_at_ = stage == Stage::kCompute ? last_ : elapsed;
    stage_ = stage;
  }
  last_ = elapsed;
  progress->eta_seconds = left(progress->fraction, elapsed);
  if (stage == Stage::kDownload && progress->fraction >= 1) {
    overall_ = 1;
    progress->eta_seconds = 0;
  } else {
    const double all = std::max(elapsed + progress->eta_seconds, 1e-9);
    overall_ = std::max(overall_, std::min(0.99, elapsed / all));
  }
  progress->overall = overall_;
}

double LargeEstimate::left(double fraction, double elapsed) {
  const double done = fraction - began_fraction_, spent = elapsed - began_at_;
  if (stage_ == Stage::kUpload) uploaded_ = done > 0 ? spent / done : elapsed;
  const double compute = predicted_ > 0 ? predicted_ : uploaded_, download = uploaded_ * download_;
  if (stage_ == Stage::kUpload) return uploaded_ * (1 - fraction) + compute + download;
  if (stage_ == Stage::kQueued) return compute + download;
  double left = std::max((stage_ == Stage::kCompute ? compute : download) * (1 - began_fraction_) - spent, 0.0);
  if (done > 0) {
    const double sure = std::min(1.0, done / kSure);
    left = sure * spent * (1 - fraction) / done + (1 - sure) * left;
  }
  return left + (stage_ == Stage::kCompute ? download : 0);
}

}  // namespace svdserve::client::internal
