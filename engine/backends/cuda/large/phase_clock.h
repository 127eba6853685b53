// Where the time of a large matrix goes, by events in its stream. Stages follow each other; of p-steps every kSampled-th
// is measured kernel by kernel, and stands for the others.
#ifndef SVDSERVE_ENGINE_BACKENDS_CUDA_LARGE_PHASE_CLOCK_H_
#define SVDSERVE_ENGINE_BACKENDS_CUDA_LARGE_PHASE_CLOCK_H_

#include <cuda_runtime_api.h>

#include <algorithm>
#include <array>
#include <deque>
#include <string>
#include <vector>

#include "engine/backends/cuda/large/large_lane.h"
#include "engine/large_engine.h"

namespace svdserve::cuda {

class PhaseClock {
 public:
  explicit PhaseClock(cudaStream_t stream) : stream_(stream) {}
  ~PhaseClock() {
    for (const cudaEvent_t event : events_) (void)cudaEventDestroy(event);
  }
  PhaseClock(const PhaseClock&) = delete;
  PhaseClock& operator=(const PhaseClock&) = delete;

  // Ends the stage before, and begins this one. Names may come again.
  void stage(const char* name) {
    const cudaEvent_t now = new_event();
    require(cudaEventRecord(now, stream_), "recording an event");
    if (begun_ != nullptr) intervals_.push_back({current_, begun_, now});
    begun_ = now;
    current_ = index_of(name);
  }
  void count(double flops) {
    if (begun_ != nullptr) stages_[current_].flops += flops;
  }

  // Four events for the p-step that follows, or null: it is not measured. A p-step by halves has them in one half: before
  // and behind its Gram matrices, before and behind its postmultiplication.
  cudaEvent_t* marks_of_p_step(int halves = 1) {
    if (p_steps_++ % kSampled != 0) return nullptr;
    if (idle_.empty()) {
      marks_.emplace_back();
      for (cudaEvent_t& event : marks_.back().events) event = new_event();
      idle_.push_back(&marks_.back());
    }
    pending_.push_back(idle_.back());
    idle_.pop_back();
    pending_.back()->halves = halves;
    return pending_.back()->events.data();
  }
  void count_p_step(double gram_flops) { gram_flops_ += gram_flops; }
  void count_active_pairs(double inner_flops, double postmultiply_flops) {
    inner_flops_ += inner_flops;
    postmultiply_flops_ += postmultiply_flops;
  }
  // When the stream is known to have passed all p-steps.
  void collect() {
    for (Marks* const marks : pending_) {
      std::array<double, 3> own{};
      for (size_t i = 0; i < own.size(); ++i) own[i] = seconds_between(marks->events[i], marks->events[i + 1]);
      // The other half takes as long, and does so while this one's rotations are computed or awaited.
      const int others = marks->halves - 1;
      own[1] = std::max(own[1] - others * (own[0] + own[2]), 0.0);
      own[0] *= marks->halves;
      own[2] *= marks->halves;
      for (size_t i = 0; i < own.size(); ++i) seconds_[i] += own[i];
      ++sampled_;
      idle_.push_back(marks);
    }
    pending_.clear();
  }

  // When the stream has passed everything. "sweep" is the time of sweeps beside the kernels of p-steps.
  std::vector<LargePhaseTime> phases() {
    collect();
    stage("end");
    require(cudaEventSynchronize(begun_), "waiting for the end");
    for (const Interval& i : intervals_) stages_[i.stage].seconds += seconds_between(i.begin, i.end);
    intervals_.clear();
    std::vector<LargePhaseTime> all;
    for (const LargePhaseTime& s : stages_) {
      if (s.name == "end") continue;
      all.push_back(s);
      if (s.name != "sweep" || sampled_ == 0) continue;
      const char* const names[] = {"gram", "inner", "postmultiply"};
      const double flops[] = {gram_flops_, inner_flops_, postmultiply_flops_};
      double rest = s.seconds;
      for (size_t i = 0; i < seconds_.size(); ++i) {
        const double own = seconds_[i] * static_cast<double>(p_steps_) / static_cast<double>(sampled_);
        all.push_back({names[i], own, flops[i]});
        rest -= own;
      }
      all[all.size() - 4].seconds = std::max(rest, 0.0);
    }
    return all;
  }

 private:
  struct Marks {
    std::array<cudaEvent_t, 4> events{};
    int halves = 1;
  };
  struct Interval {
    size_t stage;
    cudaEvent_t begin, end;
  };
  static constexpr int64_t kSampled = 8;

  cudaEvent_t new_event() {
    cudaEvent_t event = nullptr;
    require(cudaEventCreate(&event), "creating an event");
    events_.push_back(event);
    return event;
  }
  static double seconds_between(cudaEvent_t begin, cudaEvent_t end) {
    float ms = 0;
    require(cudaEventElapsedTime(&ms, begin, end), "reading a clock");
    return ms * 1e-3;
  }
  size_t index_of(const std::string& name) {
    const auto it = std::find_if(stages_.begin(), stages_.end(), [&](const auto& s) { return s.name == name; });
    if (it != stages_.end()) return static_cast<size_t>(it - stages_.begin());
    stages_.push_back({name, 0, 0});
    return stages_.size() - 1;
  }

  cudaStream_t stream_;
  std::vector<cudaEvent_t> events_;  // all of them
  std::vector<LargePhaseTime> stages_;
  std::vector<Interval> intervals_;
  size_t current_ = 0;
  cudaEvent_t begun_ = nullptr;
  std::deque<Marks> marks_;
  std::vector<Marks*> idle_, pending_;
  std::array<double, 3> seconds_{};  // of the p-steps that were measured
  int64_t p_steps_ = 0, sampled_ = 0;
  double gram_flops_ = 0, inner_flops_ = 0, postmultiply_flops_ = 0;
};

}  // namespace svdserve::cuda
#endif  // SVDSERVE_ENGINE_BACKENDS_CUDA_LARGE_PHASE_CLOCK_H_
