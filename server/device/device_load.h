// The work of a device's lanes, in device time: while n lanes compute, each gets an n-th of the device. So the
// work of its lanes adds up to what the device still has to do, whether they run one after the other or overlap. Plain
// data under its owner's lock.
//
// Work is long or short. Long work never holds all lanes, so that short work passes it:
//   - A device with relief lanes has as many lanes for short work as without long work: relief lanes stand in for those
//     that long work holds.
//   - A device of several lanes without relief lanes keeps one of them from long work, as long as short work came
//     within kShortWorkExpected. Else all lanes may be long work's, which on a GPU may need two of them to fill it.
#ifndef SVDSERVE_SERVER_DEVICE_DEVICE_LOAD_H_
#define SVDSERVE_SERVER_DEVICE_DEVICE_LOAD_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/time/time.h"
#include "server/device/cost/cost_table.h"

namespace svdserve::server {

// Predicted work beyond this is long, and so is what has computed for longer. It is twice what batches are cut at
// (BatchLimits::max_work), so that only matrices that take this long by themselves make long batches.
inline constexpr absl::Duration kLongWork = absl::Milliseconds(8);
inline constexpr absl::Duration kShortWorkExpected = absl::Seconds(1);

class DeviceLoad {
 public:
  explicit DeviceLoad(int lanes, int relief_lanes = 0, int side_lanes = 0)
      : lanes_(static_cast<size_t>(lanes + relief_lanes + side_lanes)),
        relief_lanes_(relief_lanes),
        side_lanes_(side_lanes) {}

  // A free lane that the work may have, of the lanes and relief lanes.
  std::optional<int> free_lane(absl::Duration work, absl::Time now) const;
  std::optional<int> free_side_lane() const;
  // When short work may have a lane at the latest, if nothing ends before. InfiniteFuture: when something ends.
  absl::Time relief(absl::Time now) const;
  int held() const { return held_; }             // lanes
  bool idle() const { return held_ == ended_; }  // no lane computes or is about to

  // A lane's life: free -> held for `work` -> computing -> ended -> free, or from held back to free, or from ended to
  // computing again.
  void hold(int lane, const CostEstimate& work, absl::Time now);
  void begin(int lane, absl::Time now);
  absl::Duration end(int lane, absl::Time now);  // the device time that it took
  void release(int lane);

  // The rest of the work held, as far as it delays `work` that comes. Long work delays short work, which passes it, by
  // no more than the latter's own length. Work that takes longer than was predicted is expected to go on for as long as
  // it is late already. So the later it is, the less the others wait for it.
  absl::Duration backlog(absl::Time now, absl::Duration work = absl::InfiniteDuration()) const;
  // The same at best: no less than by the optimistic estimates, and late work ends now.
  absl::Duration optimistic_backlog(absl::Time now, absl::Duration work = absl::InfiniteDuration()) const;

  // Time in which at least one lane computed.
  absl::Duration busy(absl::Time now) const;

 private:
  enum class State : uint8_t { kFree, kHeld, kComputing, kEnded };
  struct Lane {
    State state = State::kFree;
    CostEstimate work;
    absl::Duration began;                           // share() then
    absl::Time long_from = absl::InfiniteFuture();  // while held
  };

  // The device time of a lane that would have computed all along.
  absl::Duration share(absl::Time now) const;
  void advance(absl::Time now);

  size_t lanes() const { return lanes_.size() - static_cast<size_t>(side_lanes_); }  // with relief lanes
  std::optional<int> first_free(size_t from, size_t to) const;
  // Whether the work waits for long work no longer than both overlap.
  bool passes_long(absl::Duration work) const { return work <= kLongWork && lanes() > 1; }

  std::vector<Lane> lanes_;
  int relief_lanes_;
  int side_lanes_;  // the last of them
  absl::Time short_came_ = absl::InfinitePast();
  int held_ = 0;
  int computing_ = 0;
  int ended_ = 0;
  absl::Duration busy_, share_;  // until advanced_
  absl::Time advanced_;
};

}  // namespace svdserve::server
#endif  // SVDSERVE_SERVER_DEVICE_DEVICE_LOAD_H_
