// The recorder that Prometheus reads. No Prometheus header here: the library stays inside the .cc file.
#ifndef SVDSERVE_SERVER_METRICS_PROMETHEUS_RECORDER_H_
#define SVDSERVE_SERVER_METRICS_PROMETHEUS_RECORDER_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "server/metrics/recorder.h"

namespace svdserve::server {

// The readings of one device.
struct DeviceReading {
  std::string name, backend, model, uuid, instruction_set;
  bool healthy = false;
  int64_t memory_bytes = 0;
  int64_t outstanding_batches = 0;
  double busy_seconds = 0;  // this and what follows only grow
  int64_t uploaded_bytes = 0;
  int64_t downloaded_bytes = 0;
  int64_t pool_bytes = 0;  // a state again
};

// States rather than events, read when somebody scrapes.
struct GaugeReadings {
  bool ready = false;
  bool degraded = false;
  std::vector<DeviceReading> devices;
  int64_t pinned_in_use_bytes = 0;
  int64_t pinned_kept_bytes = 0;
  int64_t pinned_limit_bytes = 0;
  int64_t inflight_requests = 0;
  int64_t inflight_requests_limit = 0;
  int64_t inflight_bytes = 0;
  int64_t inflight_bytes_limit = 0;
  int64_t queued_requests = 0;
  double oldest_queued_seconds = 0;
  int64_t waiting_requests = 0;
  int64_t open_streams = 0;
  int64_t factors = 0;  // accepted, and their memory not yet free
  int64_t factor_bytes = 0;
  int64_t factor_bytes_limit = 0;
  int64_t checkpoints = 0, checkpoint_bytes = 0;
  int64_t waiting_factors = 0;
  int64_t running_factors = 0;
  int64_t waiting_gangs = 0, running_gangs = 0, gang_held_devices = 0;
  absl::Time tls_certificate_expiry = absl::InfiniteFuture();  // InfiniteFuture: there is none
  absl::Time tls_client_ca_expiry = absl::InfiniteFuture();
};

// Thread-safe. An event costs an atomic addition or, in a histogram, one uncontended lock: series are looked up by
// label once, when they first appear. Their number is bounded by the values of the labels' enums, and the number of
// devices.
class PrometheusRecorder final : public Recorder {
 public:
  PrometheusRecorder();
  ~PrometheusRecorder() override;

  void request_finished(const RequestLabels& labels, absl::StatusCode code) override;
  void phase_took(Phase phase, absl::Duration took) override;
  void admitted(int64_t bytes) override;
  void refused(Reason reason) override;
  void batch_cut(CutReason reason, int64_t requests, int64_t matrices, int64_t bytes) override;
  void matrices_done(const ConvergenceReport& report) override;
  void connection_refused() override;
  void connection_cut_off() override;
  void tls_files_read(bool loaded) override;
  void batch_retried() override;
  void device_fault(std::string_view device) override;
  void device_lost(std::string_view device) override;
  void device_hung(std::string_view device) override;
  void large_accepted(int64_t bytes) override;
  void large_received(int64_t bytes) override;
  void large_sent(int64_t bytes) override;
  void large_phase_took(LargePhase phase, absl::Duration took) override;
  void gang_began(int members, absl::Duration waited) override;
  void large_computed(const LargeOutcome& outcome) override;
  void large_failed(Reason reason) override;
  void large_resumed() override;
  void state_saved() override;
  void checkpoint_failed() override;

  // Every series in Prometheus' text format, with `readings` as the state.
  std::string render(const GaugeReadings& readings);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace svdserve::server
#endif  // SVDSERVE_SERVER_METRICS_PROMETHEUS_RECORDER_H_
