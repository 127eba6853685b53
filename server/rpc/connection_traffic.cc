#include "server/rpc/connection_traffic.h"

#include "server/peer_address.h"

namespace svdserve::server {
namespace {

// Beside a message: the headers of its call, which may be 8 KiB in size, and frames. Records of TLS add to each frame.
constexpr int64_t kCarries = 1024, kHeaders = 8192, kShareOfFrames = 16;

}  // namespace

std::shared_ptr<Traffic> ConnectionTraffic::add(const std::string& endpoint) {
  auto traffic = std::make_shared<Traffic>();
  MutexLock lock(&mu_);
  all_[endpoint] = traffic;
  return traffic;
}

void ConnectionTraffic::remove(const std::string& endpoint, const std::shared_ptr<Traffic>& traffic) {
  MutexLock lock(&mu_);
  const auto found = all_.find(endpoint);
  if (found != all_.end() && found->second == traffic) all_.erase(found);  // not that of a later connection
}

std::shared_ptr<Traffic> ConnectionTraffic::find(const std::string& endpoint) const {
  MutexLock lock(&mu_);
  const auto found = all_.find(endpoint);
  return found == all_.end() ? nullptr : found->second;
}

void CallTraffic::begin(const ConnectionTraffic& all, absl::string_view transport, Messages messages, int64_t largest) {
  traffic_ = all.find(endpoint_of(transport));
  if (traffic_ == nullptr) return;
  messages_ = messages;
  largest_ = largest + largest / kShareOfFrames;
  traffic_->due.fetch_add(largest_, std::memory_order_relaxed);
}

void CallTraffic::read(size_t bytes) {
  if (traffic_ == nullptr) return;
  const auto n = static_cast<int64_t>(bytes);
  const bool first = !was_read_.exchange(true, std::memory_order_relaxed);
  traffic_->messages.fetch_add(n + n / kShareOfFrames + kCarries + (first ? kHeaders : 0), std::memory_order_relaxed);
}

CallTraffic::~CallTraffic() {
  if (traffic_ == nullptr) return;
  const bool handled = was_read_ || !cancelled_;
  if (handled) traffic_->handled.fetch_add(1, std::memory_order_relaxed);
  // The next message of a stream may have been on its way.
  if (!was_read_ || messages_ == Messages::kMany) traffic_->forgiven.fetch_add(largest_, std::memory_order_relaxed);
  traffic_->due.fetch_sub(largest_, std::memory_order_release);  // after what it has become
}

}  // namespace svdserve::server
