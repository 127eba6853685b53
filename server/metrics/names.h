// Every time series of the server: its name, unit and meaning, and its labels. Dashboards and alerts are written
// against this list, so a name never changes its meaning.
#ifndef SVDSERVE_SERVER_METRICS_NAMES_H_
#define SVDSERVE_SERVER_METRICS_NAMES_H_

namespace svdserve::server {

// The last word of a name is its unit: _seconds, _bytes; a counter ends in _total; a plain noun is a count of things.
struct MetricName {
  const char* name;
  const char* help;
};

namespace metric {

// --- requests -----------------------------------------------------------------------------------
// Labels: rpc, kind (values vectors answers), dtype (f32 .. ci16, invalid, unread), shape (k4 .. k512, k4_long ..,
// factor, invalid, unread), status (gRPC code's name).
inline constexpr MetricName kRequests{"svdserve_requests_total",
                                      "Requests with a reply; each request of a stream counts."};
// Labels: phase (queue batch_assembly compute respond total).
inline constexpr MetricName kPhase{
    "svdserve_phase_seconds",
    "Time of each phase. queue: a request from admission until a device took it. "
    "batch_assembly: a batch from its first request until it was cut. compute: a batch on "
    "its device. respond: a request from its last result until its reply goes to the "
    "transport. total: a request from its arrival until its reply goes to the transport."};

// --- admission ----------------------------------------------------------------------------------
inline constexpr MetricName kAdmittedRequests{"svdserve_admitted_requests_total", "Requests admitted."};
inline constexpr MetricName kAdmittedBytes{"svdserve_admitted_bytes_total",
                                           "Bytes of operands and results of the requests admitted."};
// Labels: reason (OVERLOADED_BYTES OVERLOADED_REQUESTS DRAINING DEADLINE_UNREACHABLE QUEUE_TIMEOUT), as clients see it.
inline constexpr MetricName kRefused{"svdserve_refused_requests_total",
                                     "Valid requests rejected at admission, by reason."};
inline constexpr MetricName kInflightRequests{"svdserve_inflight_requests",
                                              "Requests that are admitted and whose memory is not yet free."};
inline constexpr MetricName kInflightBytes{"svdserve_inflight_bytes",
                                           "Bytes of operands and results of the requests in flight."};
inline constexpr MetricName kInflightRequestsLimit{"svdserve_inflight_requests_limit",
                                                   "Requests above this limit are rejected."};
inline constexpr MetricName kInflightBytesLimit{"svdserve_inflight_limit_bytes",
                                                "Requests above this limit are rejected."};
inline constexpr MetricName kWaitingRequests{"svdserve_waiting_requests",
                                             "Calls that wait for memory before their messages are received."};
inline constexpr MetricName kOpenStreams{"svdserve_open_streams",
                                         "Open DecomposeStream and EigendecomposeStream calls."};
inline constexpr MetricName kRefusedConnections{
    "svdserve_refused_connections_total", "Connections closed at once, because the server had as many as it may have."};

inline constexpr MetricName kCutOffConnections{
    "svdserve_cut_off_connections_total",
    "Connections broken, because far more bytes or streams came than their calls account for."};

// Labels: file (certificate client_ca). Without TLS, or without roots, the series is absent.
inline constexpr MetricName kTlsExpiry{
    "svdserve_tls_expiry_timestamp_seconds",
    "End of validity, in seconds since the epoch. certificate: of the first of the server's chain to expire. "
    "client_ca: of the last root of client certificates to expire."};
// Labels: result (loaded rejected).
inline constexpr MetricName kTlsReloads{"svdserve_tls_reloads_total",
                                        "Looks at the TLS files that found others. loaded: new connections use them. "
                                        "rejected: they are wrong, and those from before stay in use."};

// --- large matrices, of DecomposeLarge ----------------------------------------------------------
inline constexpr MetricName kFactors{"svdserve_factors_total", "Large matrices accepted: uploads begun."};
inline constexpr MetricName kFactorBytesReserved{
    "svdserve_factor_reserved_bytes_total",
    "Most bytes that the accepted large matrices take while they are computed."};
inline constexpr MetricName kFactorReceived{"svdserve_factor_received_bytes_total",
                                            "Bytes of operands of large matrices received."};
inline constexpr MetricName kFactorSent{"svdserve_factor_sent_bytes_total", "Bytes of results of large matrices sent."};
// Labels: phase (upload queue compute download).
inline constexpr MetricName kFactorPhase{
    "svdserve_factor_phase_seconds",
    "Time of each phase of a large matrix. upload: from acceptance until commit. queue: until a device took it. "
    "compute: on the device. download: until the last chunk went to the transport."};
// Labels: part (as the engine names them: qr gram inner ..).
inline constexpr MetricName kFactorPart{"svdserve_factor_compute_seconds_total",
                                        "Time of each part of the computation of large matrices."};
inline constexpr MetricName kFactorFlops{"svdserve_factor_compute_flops_total",
                                         "Real floating-point operations that the mathematics of each part needs."};
inline constexpr MetricName kFactorSweeps{"svdserve_factor_sweeps_total",
                                          "Outer sweeps of the large matrices computed."};
inline constexpr MetricName kFactorRotations{"svdserve_factor_rotations_total",
                                             "Rotations of the large matrices computed."};
// Labels: reason (as clients see it).
inline constexpr MetricName kFactorFailures{"svdserve_factor_failures_total",
                                            "Calls of DecomposeLarge that ended with an error, by reason."};
inline constexpr MetricName kFactorsResumed{
    "svdserve_factors_resumed_total", "Large matrices that a call went on with, by the token of an earlier call."};
inline constexpr MetricName kCheckpointStates{"svdserve_checkpoint_states_total",
                                              "States of the computation of large matrices that were saved."};
inline constexpr MetricName kCheckpointResumedSweeps{
    "svdserve_checkpoint_resumed_sweeps_total",
    "Sweeps in svdserve_factor_sweeps_total that came from a state that was saved, and were not computed again."};
inline constexpr MetricName kCheckpointFailures{"svdserve_checkpoint_failures_total",
                                                "Files of large matrices that could not be written or read."};
inline constexpr MetricName kCheckpoints{"svdserve_checkpoints", "Large matrices with files in --checkpoint-dir."};
inline constexpr MetricName kCheckpointBytes{"svdserve_checkpoint_bytes",
                                             "Bytes in --checkpoint-dir that are kept for large matrices."};
inline constexpr MetricName kFactorsInflight{"svdserve_inflight_factors",
                                             "Large matrices that are accepted and whose memory is not yet free."};
inline constexpr MetricName kFactorBytes{"svdserve_inflight_factor_bytes", "Bytes reserved for large matrices now."};
inline constexpr MetricName kFactorBytesLimit{"svdserve_inflight_factor_limit_bytes",
                                              "Requests above this limit are rejected."};
inline constexpr MetricName kFactorsWaiting{"svdserve_waiting_factors",
                                            "Large matrices in the queue, which wait for a device or for memory."};
inline constexpr MetricName kFactorsRunning{"svdserve_running_factors", "Large matrices that a device computes."};
// Labels: members (2 4 8).
inline constexpr MetricName kGangWait{
    "svdserve_gang_wait_seconds",
    "Time in the queue of each large matrix that several GPUs then computed together. members: how many."};
inline constexpr MetricName kGangsWaiting{"svdserve_waiting_gangs",
                                          "Large matrices in the queue for several GPUs together."};
inline constexpr MetricName kGangsRunning{"svdserve_running_gangs",
                                          "Large matrices that several GPUs compute together."};
inline constexpr MetricName kGangHeld{
    "svdserve_gang_held_devices", "GPUs without a large matrix, held for one that waits for other GPUs or for memory."};

// --- queue and batches --------------------------------------------------------------------------
inline constexpr MetricName kQueuedRequests{"svdserve_queued_requests", "Admitted requests that no device has taken."};
inline constexpr MetricName kOldestQueued{"svdserve_oldest_queued_seconds",
                                          "Age of the oldest queued request; 0 without any."};
// Labels: reason (lane_free full age drain).
inline constexpr MetricName kBatches{"svdserve_batches_total", "Batches cut, by reason."};
inline constexpr MetricName kBatchRequests{"svdserve_batch_requests", "Requests, or parts of requests, in a batch."};
inline constexpr MetricName kBatchMatrices{"svdserve_batch_matrices", "Matrices in a batch."};
inline constexpr MetricName kBatchBytes{"svdserve_batch_bytes", "Bytes of a batch's operands."};

inline constexpr MetricName kBatchRetries{"svdserve_batch_retries_total",
                                          "Batches that went to another device because the first one failed them."};

// --- devices ------------------------------------------------------------------------------------
// Labels: status (ok non_finite not_converged out_of_range by_qr near_defective).
inline constexpr MetricName kMatrices{"svdserve_matrices_total", "Matrices decomposed, by status."};
// Labels: device, backend (host cuda), model, uuid, instruction_set; the host has no model and no uuid.
inline constexpr MetricName kDeviceInfo{"svdserve_device_info", "Always 1; its labels describe the device."};
// Labels: device.
inline constexpr MetricName kDeviceHealthy{"svdserve_device_healthy", "1 while the device takes work."};
inline constexpr MetricName kDeviceMemory{"svdserve_device_memory_bytes",
                                          "The device's own memory; 0 on the host, which has none."};
inline constexpr MetricName kDeviceOutstanding{"svdserve_device_outstanding_batches",
                                               "Batches that the lanes of the device hold: its queue."};
inline constexpr MetricName kDeviceBusy{"svdserve_device_busy_seconds_total",
                                        "Time in which at least one lane of the device computed."};
inline constexpr MetricName kDeviceUploaded{"svdserve_device_uploaded_bytes_total",
                                            "Bytes copied to the device; 0 on the host, which reads in place."};
inline constexpr MetricName kDeviceDownloaded{"svdserve_device_downloaded_bytes_total",
                                              "Bytes copied from the device; 0 on the host, which writes in place."};
inline constexpr MetricName kDeviceFaults{"svdserve_device_faults_total",
                                          "Batches and large matrices that the device failed, alone or in a gang."};
inline constexpr MetricName kDeviceLost{"svdserve_device_losses_total", "Times a device failed for good."};
inline constexpr MetricName kDeviceHangs{
    "svdserve_device_hangs_total",
    "Batches and large matrices on which the device hung. The first takes the device out of service."};
inline constexpr MetricName kDevicePool{"svdserve_device_pool_bytes",
                                        "Bytes of the device's own memory that its lanes have allocated, without those "
                                        "of large matrices and libraries; 0 on the host."};
inline constexpr MetricName kDevices{"svdserve_devices", "Devices of this server."};
inline constexpr MetricName kHealthyDevices{"svdserve_healthy_devices", "Devices that take work."};
inline constexpr MetricName kDegraded{"svdserve_degraded",
                                      "1 once a device was lost or hangs: the server computes with the others."};
// Labels: state (in_use kept). Without a GPU nothing is pinned.
inline constexpr MetricName kPinned{"svdserve_pinned_bytes",
                                    "Bytes of pinned memory for operands and results. in_use: of requests, and of "
                                    "replies until they are sent. kept: for later requests; the server gives them "
                                    "back only to pin blocks of other sizes at the limit."};
inline constexpr MetricName kPinnedLimit{"svdserve_pinned_limit_bytes",
                                         "Operands and results above this limit lie in memory that is not pinned."};

// --- the server ---------------------------------------------------------------------------------
inline constexpr MetricName kReady{"svdserve_ready", "1 while the server takes new work, as /readyz says."};
// Labels: version, compiler, build_type.
inline constexpr MetricName kBuildInfo{"svdserve_build_info", "Always 1; its labels describe the program."};
// By the names that every Prometheus client library gives them.
inline constexpr MetricName kProcessCpu{"process_cpu_seconds_total", "User and system CPU time of the process."};
inline constexpr MetricName kProcessResident{"process_resident_memory_bytes", "Resident memory of the process."};
inline constexpr MetricName kProcessStart{"process_start_time_seconds", "Start of the process since the epoch."};
inline constexpr MetricName kProcessFiles{"process_open_fds", "Open file descriptors of the process."};

}  // namespace metric
}  // namespace svdserve::server
#endif  // SVDSERVE_SERVER_METRICS_NAMES_H_
