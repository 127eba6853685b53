// A rank's own side: it does what its leader asks, one call after the other, on the calling thread.
//
// Kind: class with
//   template <class E> Member                a member of ring_member.h, made of a Kind&, but for
//     void reserve(shape, own, members, common)      `common`: the memory that all ranks of the ring have, or null
//     void exchange(own, partner, sent, got, name, waits)    calls waits() while it waits for the partner alone
//   std::string ring_name(own, members)      by which ranks find each other
//   std::shared_ptr<void> open(descriptor, handle, bytes)    the block of a checkpoint
// Every call may throw.
#ifndef SVDSERVE_ENGINE_BACKENDS_RANKS_SERVE_RANK_H_
#define SVDSERVE_ENGINE_BACKENDS_RANKS_SERVE_RANK_H_

#include <algorithm>
#include <cstdint>
#include <exception>
#include <iterator>
#include <list>
#include <map>
#include <memory>
#include <new>
#include <string>
#include <utility>
#include <vector>

#include "engine/backends/ranks/rank_messages.h"
#include "engine/backends/ranks/rank_process.h"
#include "engine/backends/ranks/rank_socket.h"
#include "engine/backends/ranks/shared_memory.h"
#include "engine/backends/ring/ring_member.h"

namespace svdserve::ranks {

// One matrix.
class RankWork {
 public:
  virtual ~RankWork() = default;
  // Does what is asked; [out] answer.
  virtual void obey(Ask what, Message& message, Values& answer) = 0;
};

template <class Kind, class E>
class RankWorkOf final : public RankWork {
 public:
  RankWorkOf(Kind& kind, RankSocket& socket) : kind_(kind), socket_(socket), member_(kind) {}

  void obey(Ask what, Message& message, Values& answer) override {
    Values& values = message.values;
    switch (what) {
      case Ask::kReserve:
        return reserve(message, answer);
      case Ask::kTake:
      case Ask::kGive:
        return copy(what, message, answer);
      case Ask::kOffer:
        return member_.offer(values.get<ring::UnionPlace>());
      case Ask::kExchange:
        return exchange(values);
      case Ask::kReadCounters:
        answer.put(member_.read_counters());
        return;
      case Ask::kPSteps:
        return p_steps(values);
      case Ask::kResetCounters:
        return member_.reset_counters();
      case Ask::kEnd:  // the destructor does it
        return;
    }
  }

 private:
  void reserve(Message& message, Values& answer) {
    Values& values = message.values;
    const auto own = values.get<int>(), members = values.get<int>();
    (void)values.get<bool>();
    const auto shape = values.get<ring::RingShape>();
    const auto bytes = values.get<uint64_t>();
    if (message.descriptor.get() >= 0) common_ = map_host_memory(message.descriptor, bytes);
    member_.reserve(shape, own, members, common_.get());
    answer.put(kind_.ring_name(own, members));
  }
  void copy(Ask what, Message& message, Values& answer) {
    const auto c = message.values.get<CrossingColumns>();
    const auto place = message.values.get<ring::UnionPlace>();
    std::shared_ptr<void>& block = blocks_[c.number];
    if (block == nullptr) {
      MemoryHandle handle;
      std::copy(std::begin(c.handle), std::end(c.handle), handle.begin());
      block = kind_.open(message.descriptor, handle, c.block_bytes);
    }
    char* const base = static_cast<char*>(block.get());
    ring::RingColumns<E> columns;
    columns.x = reinterpret_cast<E*>(base + c.x);
    columns.f = reinterpret_cast<int32_t*>(base + c.f);
    if (c.has_v) columns.v = reinterpret_cast<E*>(base + c.v);
    columns.count = c.count;
    if (what == Ask::kTake) return member_.take(place, columns);
    member_.give(place, columns);
    std::vector<LargePhaseTime> phases;
    member_.tell(phases);
    answer.put(static_cast<uint64_t>(phases.size()));
    for (const LargePhaseTime& phase : phases) answer.put(phase.name).put(phase.seconds).put(phase.flops);
  }
  void exchange(Values& values) {
    const auto own = values.get<int>(), partner = values.get<int>();
    const auto sent = values.get<ring::UnionPlace>(), got = values.get<ring::UnionPlace>();
    const std::string name = values.get_text();
    member_.exchange(own, partner, sent, got, name, [&] { socket_.send(static_cast<int32_t>(Answer::kWaits)); });
  }
  void p_steps(Values& values) {
    const auto count = values.get<uint64_t>();
    std::list<std::vector<large::BlockPair>> pairs;  // lists, whose elements stay where they are
    std::list<std::vector<int64_t>> places;
    std::vector<large::PStep<E>> steps;
    for (uint64_t i = 0; i < count; ++i) {
      const auto s = values.get<CrossingStep>();
      pairs.push_back(values.get_all<large::BlockPair>());
      places.push_back(values.get_all<int64_t>());
      large::PStep<E> step;
      step.x.rows = s.rows, step.x.cols = s.columns;
      step.v.rows = s.v_rows, step.v.cols = s.has_v ? s.columns : 0;
      step.positive = s.positive, step.width = s.width, step.tolerance = s.tolerance;
      step.smallest_exponent = s.smallest_exponent, step.inner_sweeps = s.inner_sweeps;
      step.pairs = pairs.back().data(), step.count = static_cast<int>(pairs.back().size());
      step.places = places.back().data();
      steps.push_back(step);
    }
    large::p_steps(member_, steps, [] {});
  }

  Kind& kind_;
  RankSocket& socket_;
  std::shared_ptr<void> common_;
  std::map<uint64_t, std::shared_ptr<void>> blocks_;
  typename Kind::template Member<E> member_;
};

// Messages are those of this build alone. A back end's file may have been replaced since the leader opened it.
inline void require_build(const std::string& of_leader) {
  if (of_leader == own_build()) return;
  throw large::LargeStop{LargeStatus::kFault,
                         "this rank is of another build than its leader, whose files were replaced: start it again"};
}

// Until the leader is gone. Complex: the complex elements of this kind.
template <class Kind, class Complex>
void serve_rank(RankSocket& socket, Kind& kind) {
  std::unique_ptr<RankWork> work;
  Values failure;  // of the first call that failed and was not answered
  bool failed = false;
  const auto fail = [&](LargeStatus status, bool lost, const std::string& text) {
    failed = true;
    failure = Values().put(status).put(lost).put(text);
  };
  const auto obey = [&](Ask what, Message& message, Values& answer) {
    try {
      if (what == Ask::kReserve || what == Ask::kEnd) work.reset();
      if (what == Ask::kEnd) return;
      if (what == Ask::kReserve) {
        require_build(message.values.get_text());
        Values peek = message.values;
        (void)peek.get<int>(), (void)peek.get<int>();
        work = peek.get<bool>() ? std::unique_ptr<RankWork>(std::make_unique<RankWorkOf<Kind, Complex>>(kind, socket))
                                : std::make_unique<RankWorkOf<Kind, double>>(kind, socket);
      }
      work->obey(what, message, answer);
    } catch (const large::LargeStop& stop) {
      fail(stop.status, stop.device_lost, stop.detail);
    } catch (const std::bad_alloc&) {
      fail(LargeStatus::kOutOfMemory, false, "no memory for the workspace");
    } catch (const std::exception& error) {
      fail(LargeStatus::kFault, false, error.what());
    }
  };
  try {
    for (;;) {
      Message message = socket.receive();
      const auto what = static_cast<Ask>(message.kind);
      Values answer;
      if (!failed) obey(what, message, answer);
      if (what >= Ask::kPSteps) continue;
      if (failed) {
        socket.send(static_cast<int32_t>(Answer::kFails), failure);
      } else {
        socket.send(static_cast<int32_t>(Answer::kDone), answer);
      }
    }
  } catch (const SocketClosed&) {
  }
}

}  // namespace svdserve::ranks
#endif  // SVDSERVE_ENGINE_BACKENDS_RANKS_SERVE_RANK_H_
