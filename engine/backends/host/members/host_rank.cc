#include "engine/backends/host/members/host_rank.h"

#include <complex>
#include <new>

#include "engine/backends/host/base/conjugate.h"
#include "engine/backends/ring/ring_layout.h"

namespace svdserve::host {
namespace {

uint64_t aligned(uint64_t bytes) { return (bytes + kCacheLine - 1) / kCacheLine * kCacheLine; }

// The memory of a ring: the slot that each member offers, what is known of pairs, and the slots of each member.
struct Layout {
  Layout(const ring::RingShape& shape, bool complex) {
    const uint64_t element = complex ? sizeof(std::complex<double>) : sizeof(double);
    const auto columns = static_cast<uint64_t>(ring::kSlots * shape.slot_columns);
    pairs = aligned(ring::kMostMembers * sizeof(int32_t));
    slots = pairs + aligned(PairTracking::count(shape.blocks()) * sizeof(int32_t));
    v = aligned(columns * static_cast<uint64_t>(shape.rows) * element);
    f = v + aligned(columns * static_cast<uint64_t>(shape.v_rows) * element);
    of_member = f + aligned(columns * sizeof(int32_t));
  }
  uint64_t pairs = 0, slots = 0;  // from the beginning
  uint64_t v = 0, f = 0;          // from the beginning of a member's slots
  uint64_t of_member = 0;
};

}  // namespace

uint64_t host_rank_common_bytes(const ring::RingShape& shape, int members, bool complex) {
  const Layout layout(shape, complex);
  return layout.slots + static_cast<uint64_t>(members) * layout.of_member;
}

template <class E>
HostRank<E>::HostRank(HostRankKind& kind, const std::shared_ptr<SharedTracking>& tracking)
    : Base(kind.arena, kind.threads, tracking), tracking_(tracking) {}

template <class E>
void HostRank<E>::reserve(const ring::RingShape& shape, int own, int /*members*/, void* common) {
  if (common == nullptr) throw std::bad_alloc();
  shape_ = shape;
  own_ = own;
  common_ = static_cast<char*>(common);
  auto* const pairs = reinterpret_cast<int32_t*>(common_ + Layout(shape, kComplex<E>).pairs);
  tracking_->pairs = PairTracking(shape.blocks(), {std::shared_ptr<void>(), pairs});
  this->use(shape, slots_of(own));
}

template <class E>
int32_t& HostRank<E>::offered(int member) const {
  return reinterpret_cast<int32_t*>(common_)[member];
}

template <class E>
ring::RingColumns<E> HostRank<E>::slots_of(int member) const {
  const Layout layout(shape_, kComplex<E>);
  char* const first = common_ + layout.slots + static_cast<uint64_t>(member) * layout.of_member;
  return {reinterpret_cast<E*>(first), reinterpret_cast<int32_t*>(first + layout.f),
          reinterpret_cast<E*>(first + layout.v), 0};
}

template class HostRank<double>;
template class HostRank<std::complex<double>>;

}  // namespace svdserve::host
