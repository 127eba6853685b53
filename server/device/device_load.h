// What the lanes of a device are doing, in device time: while n lanes compute, each gets an n-th of the device. So the
// work of its lanes adds up to what the device still has to do, whether they run one after the other or overlap. Plain
// data under its owner's lock.
#ifndef SVDSERVE_SERVER_DEVICE_DEVICE_LOAD_H_
#define SVDSERVE_SERVER_DEVICE_DEVICE_LOAD_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/time/time.h"
#include "server/device/cost_table.h"

namespace svdserve::server {

class DeviceLoad {
 public:
  explicit DeviceLoad(int lanes, int side_lanes = 0)
      : lanes_(static_cast<size_t>(lanes + side_lanes)), side_lanes_(side_lanes) {}

  std::optional<int> free_lane() const;
  std::optional<int> free_side_lane() const;     // numbered after the lanes
  int held() const { return held_; }             // lanes
  bool idle() const { return held_ == ended_; }  // no lane computes or is about to

  // A lane's life: free -> held for `work` -> computing -> ended -> free, or from held back to free, or from ended to
  // computing again.
  void Hold(int lane, const CostEstimate& work);
  void Begin(int lane, absl::Time now);
  absl::Duration End(int lane, absl::Time now);  // the device time that it took
  void Release(int lane);

  // What is left of the work held. Work that takes longer than was predicted is expected to go on for as long as it is
  // late already: so the longer it is late, the less is it waited for.
  absl::Duration Backlog(absl::Time now) const;
  // The same at best: no less than by the optimistic estimates, and late work ends now.
  absl::Duration OptimisticBacklog(absl::Time now) const;

  // Time in which at least one lane computed.
  absl::Duration busy(absl::Time now) const;

 private:
  enum class State : uint8_t { kFree, kHeld, kComputing, kEnded };
  struct Lane {
    State state = State::kFree;
    CostEstimate work;
    absl::Duration began;  // share() then
  };

  // The device time of a lane that would have computed all along.
  absl::Duration share(absl::Time now) const;
  void Advance(absl::Time now);

  std::optional<int> FirstFree(size_t from, size_t to) const;

  std::vector<Lane> lanes_;
  int side_lanes_;  // the last of them
  int held_ = 0;
  int computing_ = 0;
  int ended_ = 0;
  absl::Duration busy_, share_;  // until advanced_
  absl::Time advanced_;
};

}  // namespace svdserve::server
#endif  // SVDSERVE_SERVER_DEVICE_DEVICE_LOAD_H_
