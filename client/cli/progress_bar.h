// How far a large matrix is, as a line on a terminal.
#ifndef SVDSERVE_CLIENT_CLI_PROGRESS_BAR_H_
#define SVDSERVE_CLIENT_CLI_PROGRESS_BAR_H_

#include <string>

#include "client/cpp/large.h"

namespace svdserve::cli {

// "sweep 4      [==============>               ]  48 %  cosines to 1.2e-05  on cuda:0  3.4 s, 3.7 s left": of the whole
// call
std::string progress_line(const client::LargeProgress& progress);

// Draws that line on stderr over and over, ten times a second at most, as far as it fits; nothing where stderr is no
// terminal. Not thread-safe.
class ProgressBar {
 public:
  ProgressBar();
  ~ProgressBar() { clear(); }
  ProgressBar(const ProgressBar&) = delete;
  ProgressBar& operator=(const ProgressBar&) = delete;

  void show(const client::LargeProgress& progress);
  // Takes the line away, for what is to be printed there.
  void clear();

 private:
  bool enabled_;
  bool drawn_ = false;
  client::LargeProgress last_ = {};
};

}  // namespace svdserve::cli
#endif  // SVDSERVE_CLIENT_CLI_PROGRESS_BAR_H_
