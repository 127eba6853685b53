// A recorder that tests read back.
#ifndef SVDSERVE_TESTS_SERVER_COUNTING_RECORDER_H_
#define SVDSERVE_TESTS_SERVER_COUNTING_RECORDER_H_

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "server/base/mutex.h"
#include "server/metrics/recorder.h"

namespace svdserve::server {

class CountingRecorder final : public Recorder {
 public:
  struct Cut {
    CutReason reason;
    int64_t requests;
    int64_t matrices;
    int64_t bytes;
    friend bool operator==(const Cut&, const Cut&) = default;
  };

  void request_finished(const RequestLabels&, absl::StatusCode) override {}
  void phase_took(Phase phase, absl::Duration took) override {
    MutexLock lock(&mu_);
    phases_[phase].push_back(took);
  }
  void admitted(int64_t bytes) override {
    MutexLock lock(&mu_);
    admitted_bytes_ += bytes;
  }
  void refused(Reason reason) override {
    MutexLock lock(&mu_);
    refusals_.push_back(reason);
  }
  void batch_cut(CutReason reason, int64_t requests, int64_t matrices, int64_t bytes) override {
    MutexLock lock(&mu_);
    cuts_.push_back({reason, requests, matrices, bytes});
  }
  void matrices_done(const ConvergenceReport& report) override {
    MutexLock lock(&mu_);
    report_.ok += report.ok;
    report_.non_finite += report.non_finite;
    report_.not_converged += report.not_converged;
    report_.out_of_range += report.out_of_range;
    report_.by_qr += report.by_qr;
    report_.near_defective += report.near_defective;
  }
  void batch_retried() override {
    MutexLock lock(&mu_);
    ++retries_;
  }
  void device_fault(std::string_view device) override {
    MutexLock lock(&mu_);
    faults_.emplace_back(device);
  }
  void tls_files_read(bool) override {}
  void connection_refused() override {}
  void connection_cut_off() override {}
  void device_lost(std::string_view device) override {
    MutexLock lock(&mu_);
    lost_.emplace_back(device);
  }
  void device_hung(std::string_view device) override {
    MutexLock lock(&mu_);
    hung_.emplace_back(device);
  }
  void large_accepted(int64_t bytes) override {
    MutexLock lock(&mu_);
    factors_.accepted_bytes += bytes;
  }
  void large_received(int64_t bytes) override {
    MutexLock lock(&mu_);
    factors_.received_bytes += bytes;
  }
  void large_sent(int64_t bytes) override {
    MutexLock lock(&mu_);
    factors_.sent_bytes += bytes;
  }
  void large_phase_took(LargePhase phase, absl::Duration took) override {
    MutexLock lock(&mu_);
    factors_.phases[phase].push_back(took);
  }
  void large_computed(const LargeOutcome& outcome) override {
    MutexLock lock(&mu_);
    factors_.sweeps += outcome.sweeps;
  }
  void gang_began(int members, absl::Duration waited) override {
    MutexLock lock(&mu_);
    factors_.gangs.push_back({members, waited});
  }
  void large_failed(Reason reason) override {
    MutexLock lock(&mu_);
    factors_.failures.push_back(reason);
  }
  void large_resumed() override {
    MutexLock lock(&mu_);
    ++factors_.resumed;
  }
  void state_saved() override {
    MutexLock lock(&mu_);
    ++factors_.states;
  }
  void checkpoint_failed() override {
    MutexLock lock(&mu_);
    ++factors_.checkpoint_failures;
  }

  struct Factors {
    int64_t accepted_bytes = 0, received_bytes = 0, sent_bytes = 0;
    int64_t sweeps = 0;
    int resumed = 0, states = 0, checkpoint_failures = 0;
    std::map<LargePhase, std::vector<absl::Duration>> phases;
    std::vector<std::pair<int, absl::Duration>> gangs;  // members, time in the queue
    std::vector<Reason> failures;
  };
  Factors factors() {
    MutexLock lock(&mu_);
    return factors_;
  }

  std::vector<Cut> cuts() {
    MutexLock lock(&mu_);
    return cuts_;
  }
  int64_t cuts(CutReason reason) {
    MutexLock lock(&mu_);
    int64_t n = 0;
    for (const Cut& cut : cuts_) n += cut.reason == reason;
    return n;
  }
  std::vector<absl::Duration> phase(Phase phase) {
    MutexLock lock(&mu_);
    return phases_[phase];
  }
  ConvergenceReport report() {
    MutexLock lock(&mu_);
    return report_;
  }
  int retries() {
    MutexLock lock(&mu_);
    return retries_;
  }
  std::vector<std::string> faults() {
    MutexLock lock(&mu_);
    return faults_;
  }
  std::vector<std::string> lost() {
    MutexLock lock(&mu_);
    return lost_;
  }
  std::vector<std::string> hung() {
    MutexLock lock(&mu_);
    return hung_;
  }
  std::vector<Reason> refusals() {
    MutexLock lock(&mu_);
    return refusals_;
  }
  int64_t admitted_bytes() {
    MutexLock lock(&mu_);
    return admitted_bytes_;
  }

 private:
  Mutex mu_;
  Factors factors_;
  std::vector<Cut> cuts_;
  std::map<Phase, std::vector<absl::Duration>> phases_;
  ConvergenceReport report_;
  std::vector<Reason> refusals_;
  int retries_ = 0;
  std::vector<std::string> faults_;
  std::vector<std::string> lost_, hung_;
  int64_t admitted_bytes_ = 0;
};

}  // namespace svdserve::server
#endif  // SVDSERVE_TESTS_SERVER_COUNTING_RECORDER_H_
