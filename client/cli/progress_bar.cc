#include "client/cli/progress_bar.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "client/cli/printable.h"

namespace svdserve::cli {
namespace {

constexpr double kSecondsBetween = 0.1;

std::string stage_of(const client::LargeProgress& p) {
  if (p.stage == client::LargeStage::kSweep && p.sweep > 0) return absl::StrFormat("sweep %d", p.sweep);
  return name(p.stage);
}

std::string duration(double seconds) {
  if (seconds < 60) return absl::StrFormat("%.1f s", seconds);
  const auto minutes = static_cast<int64_t>(std::round(seconds)) / 60;
  if (minutes >= 60) return absl::StrFormat("%d h %02d min", minutes / 60, minutes % 60);
  return absl::StrFormat("%d min %02d s", minutes, static_cast<int64_t>(std::round(seconds)) % 60);
}

}  // namespace

std::string progress_line(const client::LargeProgress& p) {
  constexpr int kWidth = 30;
  const int done = static_cast<int>(p.overall * kWidth);
  std::string bar(static_cast<size_t>(done), '=');
  if (done < kWidth) bar += '>';
  bar.resize(kWidth, ' ');
  std::string line = absl::StrFormat("%-12s [%s] %3d %%", stage_of(p), bar, static_cast<int>(100 * p.overall));
  if (p.stage == client::LargeStage::kSweep && p.off_diagonal < 1) {
    absl::StrAppendFormat(&line, "  cosines to %.1e", p.off_diagonal);
  }
  if (!p.device.empty() && p.stage != client::LargeStage::kDownload) {
    absl::StrAppend(&line, "  on ", printable(p.device));
  }
  absl::StrAppend(&line, "  ", duration(p.elapsed_seconds));
  if (p.overall < 1) absl::StrAppend(&line, ", ", duration(p.eta_seconds), " left");
  return line;
}

ProgressBar::ProgressBar() : enabled_(::isatty(STDERR_FILENO) == 1) {}

void ProgressBar::show(const client::LargeProgress& p) {
  if (!enabled_) return;
  if (drawn_ && p.stage == last_.stage && p.elapsed_seconds - last_.elapsed_seconds < kSecondsBetween) return;
  std::string line = progress_line(p);
  winsize terminal{};  // a line that wraps could not be drawn over
  if (ioctl(STDERR_FILENO, TIOCGWINSZ, &terminal) == 0 && terminal.ws_col > 1) {
    line.resize(std::min<size_t>(line.size(), terminal.ws_col - 1));
  }
  std::fprintf(stderr, "\r%s\033[K", line.c_str());
  std::fflush(stderr);
  drawn_ = true;
  last_ = p;
}

void ProgressBar::clear() {
  if (!drawn_) return;
  std::fputs("\r\033[K", stderr);
  std::fflush(stderr);
  drawn_ = false;
}

}  // namespace svdserve::cli
