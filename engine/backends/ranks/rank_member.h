// A member of a ring (backends/ring/ring_member.h) that is a process of its own, as its leader sees it.
//
// A rank has its device to itself: an error there, or a death, is a lost member, and nothing of the leader's is touched.
// Matrices cross by memory that both reach, never by the socket. stop() kills; so does the destructor where anything was
// wrong with any rank of the ring. Else ranks are kept for the next matrix, for a while.
#ifndef SVDSERVE_ENGINE_BACKENDS_RANKS_RANK_MEMBER_H_
#define SVDSERVE_ENGINE_BACKENDS_RANKS_RANK_MEMBER_H_

#include <algorithm>
#include <cstdint>
#include <memory>
#include <set>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "engine/backends/ranks/rank_messages.h"
#include "engine/backends/ranks/rank_pool.h"
#include "engine/backends/ranks/rank_process.h"
#include "engine/backends/ranks/shared_memory.h"
#include "engine/backends/ring/ring_member.h"

namespace svdserve::ranks {

// Bytes that the ranks of a ring have in common; 0: none.
using CommonBytes = uint64_t (*)(const ring::RingShape& shape, int members, bool complex);

// E: the elements of one of the two kinds.
template <class E>
class RankMember {
 public:
  using Element = E;

  RankMember(std::shared_ptr<RankLease> lease, int own, CommonBytes common_bytes,
             std::shared_ptr<const SharedMemories> memories)
      : lease_(std::move(lease)),
        process_(lease_->process(own)),
        own_(own),
        common_bytes_(common_bytes),
        memories_(std::move(memories)) {}
  ~RankMember() {
    if (waits_for_answer_) lease_->give_up();
    if (lease_->is_sound()) end_work();
    if (!lease_->is_sound()) lease_->end(own_);
  }
  RankMember(const RankMember&) = delete;
  RankMember& operator=(const RankMember&) = delete;

  void reserve(const ring::RingShape& shape) {
    const SharedBlock& common = lease_->common(common_bytes_(shape, lease_->members(), kIsComplex));
    Values values;
    values.put(own_build()).put(own_).put(lease_->members()).put(kIsComplex).put(shape).put(common.bytes);
    ask(Ask::kReserve, values, common.file != nullptr ? common.file->get() : -1);
    const std::string name = answer().get_text();
    if (own_ == 0) lease_->name_ring(name);
  }
  void take(const ring::UnionPlace& place, const ring::RingColumns<E>& columns) {
    ask_about(Ask::kTake, place, columns);
    (void)answer();
  }
  void give(const ring::UnionPlace& place, const ring::RingColumns<E>& columns) {
    ask_about(Ask::kGive, place, columns);
    Values values = answer();
    phases_.resize(values.get<uint64_t>());
    for (LargePhaseTime& phase : phases_) {
      phase.name = values.get_text();
      phase.seconds = values.get<double>();
      phase.flops = values.get<double>();
    }
  }
  void offer(const ring::UnionPlace& sent) {
    ask(Ask::kOffer, Values().put(sent));
    (void)answer();
  }
  template <class Alive>
  void exchange(int own, int partner, const ring::UnionPlace& sent, const ring::UnionPlace& got, const Alive& alive) {
    ask(Ask::kExchange, Values().put(own).put(partner).put(sent).put(got).put(lease_->ring_name()));
    (void)answer(alive);
  }
  void p_step(const large::PStep<E>& step) { p_steps({step}); }
  void p_steps(const std::vector<large::PStep<E>>& steps) {
    Values values;
    values.put(static_cast<uint64_t>(steps.size()));
    for (const large::PStep<E>& step : steps) {
      CrossingStep s;
      s.rows = step.x.rows, s.columns = step.x.cols, s.v_rows = step.v.rows, s.has_v = static_cast<bool>(step.v);
      s.positive = step.positive, s.width = step.width, s.tolerance = step.tolerance;
      s.smallest_exponent = step.smallest_exponent, s.inner_sweeps = step.inner_sweeps;
      const auto blocks = static_cast<size_t>((step.x.cols + step.width - 1) / step.width);
      values.put(s).put(step.pairs, static_cast<size_t>(step.count)).put(step.places, blocks);
    }
    ask(Ask::kPSteps, values);
  }
  void reset_counters() { ask(Ask::kResetCounters); }
  large::PStepCounters read_counters() {
    ask(Ask::kReadCounters);
    return answer().template get<large::PStepCounters>();
  }
  // As of the last give().
  void tell(std::vector<LargePhaseTime>& phases) const { phases.insert(phases.end(), phases_.begin(), phases_.end()); }
  void stop() {
    lease_->give_up();
    process_.kill();
  }

 private:
  static constexpr bool kIsComplex = !std::is_same_v<E, double>;

  void ask(Ask what, const Values& values = {}, int descriptor = -1) {
    try {
      waits_for_answer_ = what < Ask::kPSteps;
      process_.socket().send(static_cast<int32_t>(what), values, descriptor);
    } catch (const SocketClosed&) {
      fail_by_end();
    }
  }
  Values answer() {
    return answer([] {});
  }
  template <class Alive>
  Values answer(const Alive& alive) {
    for (;;) {
      Message message = receive();
      switch (static_cast<Answer>(message.kind)) {
        case Answer::kDone:
          waits_for_answer_ = false;
          return std::move(message.values);
        case Answer::kWaits:
          alive();
          continue;
        case Answer::kFails:
          lease_->give_up();
          large::LargeStop stop;
          stop.status = message.values.get<LargeStatus>();
          stop.device_lost = message.values.get<bool>();
          stop.detail = message.values.get_text();
          throw stop;
      }
    }
  }
  Message receive() {
    try {
      return process_.socket().receive();
    } catch (const SocketClosed&) {
      fail_by_end();
    }
  }
  [[noreturn]] void fail_by_end() {
    lease_->give_up();
    throw large::LargeStop{LargeStatus::kFault, "the process of a rank has ended", true};
  }
  void ask_about(Ask what, const ring::UnionPlace& place, const ring::RingColumns<E>& columns) {
    const SharedMemories::Place at = memories_->find(columns.x);
    const auto offset = [&](const void* address) {
      return at.offset +
             static_cast<uint64_t>(static_cast<const char*>(address) - reinterpret_cast<const char*>(columns.x));
    };
    CrossingColumns c;
    c.number = at.number, c.block_bytes = at.block.bytes, c.x = at.offset, c.f = offset(columns.f);
    c.has_v = columns.v != nullptr;
    if (c.has_v) c.v = offset(columns.v);
    c.count = columns.count;
    std::copy(at.block.handle.begin(), at.block.handle.end(), c.handle);
    const bool is_new = known_.insert(at.number).second;
    c.has_descriptor = is_new && at.block.file != nullptr;
    ask(what, Values().put(c).put(place), c.has_descriptor ? at.block.file->get() : -1);
  }
  // Afterwards the rank has closed all blocks, and its device's memory is free.
  void end_work() {
    try {
      ask(Ask::kEnd);
      if (!process_.socket().has_news_within(lease_->time_to_leave())) return lease_->give_up();
      (void)answer();
    } catch (...) {
      lease_->give_up();
    }
  }

  const std::shared_ptr<RankLease> lease_;
  RankProcess& process_;
  const int own_;
  const CommonBytes common_bytes_;
  const std::shared_ptr<const SharedMemories> memories_;
  bool waits_for_answer_ = false;
  std::set<uint64_t> known_;  // blocks that the rank has opened
  std::vector<LargePhaseTime> phases_;
};

// A Home of backends/ring/ring_backend.h whose checkpoints are where ranks reach them.
template <class Home>
class RankHome : public Home {
 public:
  template <class... Arguments>
  explicit RankHome(std::shared_ptr<SharedMemories> memories, Arguments&&... arguments)
      : Home(std::forward<Arguments>(arguments)...), memories_(std::move(memories)) {}
  std::shared_ptr<void> checkpoint_memory(uint64_t bytes) { return memories_->allocate(bytes); }

 private:
  const std::shared_ptr<SharedMemories> memories_;
};

// New members that are ranks of these devices.
template <class E>
ring::Members<RankMember<E>> rank_members(RankPool& pool, const std::vector<int>& devices, CommonBytes common_bytes,
                                          const std::shared_ptr<const SharedMemories>& memories) {
  const std::shared_ptr<RankLease> lease = pool.take(devices);
  ring::Members<RankMember<E>> members;
  for (int own = 0; own < lease->members(); ++own) {
    members.push_back(std::make_shared<RankMember<E>>(lease, own, common_bytes, memories));
  }
  return members;
}

}  // namespace svdserve::ranks
#endif  // SVDSERVE_ENGINE_BACKENDS_RANKS_RANK_MEMBER_H_
