// A rank (backends/ranks/serve_rank.h) that is a share of the host's threads.
//
// All ranks of a ring have their slots in one memory, with what is known of pairs. So a union is copied once, by the rank
// that gets it, out of the slot of the one that offered it.
#ifndef SVDSERVE_ENGINE_BACKENDS_HOST_MEMBERS_HOST_RANK_H_
#define SVDSERVE_ENGINE_BACKENDS_HOST_MEMBERS_HOST_RANK_H_

#include <cstdint>
#include <memory>
#include <string>

#include "engine/backends/host/members/host_member.h"
#include "engine/backends/ranks/shared_memory.h"

namespace svdserve::host {

// Bytes that the ranks of a ring have in common (backends/ranks/rank_member.h).
uint64_t host_rank_common_bytes(const ring::RingShape& shape, int members, bool complex);

struct HostRankKind;

template <class E>
class HostRank : HostMember<E> {
 public:
  using Base = HostMember<E>;

  explicit HostRank(HostRankKind& kind) : HostRank(kind, std::make_shared<SharedTracking>()) {}
  using Base::give;
  using Base::p_step;
  using Base::read_counters;
  using Base::reset_counters;
  using Base::take;
  using Base::tell;
  // Throws std::bad_alloc where `common` is null.
  void reserve(const ring::RingShape& shape, int own, int members, void* common);
  void offer(const ring::UnionPlace& sent) { offered(own_) = sent.slot; }
  // Never waits: the partner has offered before.
  template <class Waits>
  void exchange(int /*own*/, int partner, const ring::UnionPlace& /*sent*/, const ring::UnionPlace& got,
                const std::string& /*name*/, const Waits& /*waits*/) {
    const auto from = slots_of(partner);
    this->copy(this->in_slot(from, offered(partner), got.count), this->in_slot(got.slot, got.count));
  }

 private:
  HostRank(HostRankKind& kind, const std::shared_ptr<SharedTracking>& tracking);
  int32_t& offered(int member) const;
  ring::RingColumns<E> slots_of(int member) const;

  const std::shared_ptr<SharedTracking> tracking_;
  ring::RingShape shape_;
  int own_ = 0;
  char* common_ = nullptr;
};

// A process that is such a rank has this.
struct HostRankKind {
  template <class E>
  using Member = HostRank<E>;

  explicit HostRankKind(int threads) : threads(threads), arena(std::make_shared<oneapi::tbb::task_arena>(threads)) {}
  static std::string ring_name(int /*own*/, int /*members*/) { return ""; }
  static std::shared_ptr<void> open(const ranks::Descriptor& file, const ranks::MemoryHandle& /*handle*/,
                                    uint64_t bytes) {
    return ranks::map_host_memory(file, bytes);
  }

  const int threads;
  const std::shared_ptr<oneapi::tbb::task_arena> arena;
};

}  // namespace svdserve::host
#endif  // SVDSERVE_ENGINE_BACKENDS_HOST_MEMBERS_HOST_RANK_H_
