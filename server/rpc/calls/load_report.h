// The server's load, told in the trailers of replies with matrices: for balancers that weigh servers by it.
#ifndef SVDSERVE_SERVER_RPC_CALLS_LOAD_REPORT_H_
#define SVDSERVE_SERVER_RPC_CALLS_LOAD_REPORT_H_

#include <atomic>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "server/pipeline.h"

namespace svdserve::server {

inline constexpr char kLoadReportKey[] = "endpoint-load-metrics-bin";

// An OrcaLoadReport of xds.data.orca.v3, of which gRPC's weighted_round_robin (gRFC A58) and Envoy read two numbers. The
// utilization is the part of the last second in which the busiest device computed. The wait of the oldest request in the
// queue is added to it, in seconds. The other number is the rate of replies. Thread-safe, but one thread ticks.
class LoadReport {
 public:
  // A reply leaves; returns the message that goes with it. Most replies after less than a millisecond have none: it would
  // be a thirtieth of their work.
  std::string of_reply(absl::Duration took) {
    std::string message;
    const int64_t earlier = replies_.fetch_add(1, std::memory_order_relaxed);
    if (took < absl::Milliseconds(1) && earlier % 8 != 0) return message;
    append(0x09, utilization_.load(std::memory_order_relaxed), &message);  // field 1, cpu_utilization
    append(0x31, rate_.load(std::memory_order_relaxed), &message);         // field 6, rps_fractional
    return message;
  }

  // Whether tick() is due, once a second.
  bool is_due(absl::Time now) const { return now - last_ >= absl::Seconds(1); }
  // oldest_queued: how long the oldest request has been in the queue.
  void tick(absl::Time now, const std::vector<DeviceState>& devices, absl::Duration oldest_queued) {
    const double seconds = absl::ToDoubleSeconds(now - last_);
    double busiest = 0;
    busy_.resize(devices.size());
    for (size_t i = 0; i < devices.size(); ++i) {
      const double busy = absl::ToDoubleSeconds(devices[i].busy - busy_[i]) / seconds;
      if (devices[i].healthy && busy > busiest) busiest = busy;
      busy_[i] = devices[i].busy;
    }
    const int64_t replies = replies_.load(std::memory_order_relaxed);
    utilization_.store(busiest + absl::ToDoubleSeconds(oldest_queued), std::memory_order_relaxed);
    rate_.store(static_cast<double>(replies - counted_) / seconds, std::memory_order_relaxed);
    counted_ = replies;
    last_ = now;
  }

 private:
  // A field of eight bytes, little-endian as this machine is.
  static void append(char tag, double value, std::string* message) {
    char bytes[1 + sizeof value] = {tag};
    std::memcpy(bytes + 1, &value, sizeof value);
    message->append(bytes, sizeof bytes);
  }

  std::atomic<int64_t> replies_{0};
  std::atomic<double> utilization_{0}, rate_{0};
  // Used by the thread that ticks.
  absl::Time last_ = absl::UnixEpoch();
  int64_t counted_ = 0;
  std::vector<absl::Duration> busy_;
};

}  // namespace svdserve::server
#endif  // SVDSERVE_SERVER_RPC_CALLS_LOAD_REPORT_H_
