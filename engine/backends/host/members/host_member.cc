#include "engine/backends/host/members/host_member.h"

#include <algorithm>

namespace svdserve::host {
namespace {

// Columns that a task copies.
constexpr int64_t kTaskColumns = 64;

}  // namespace

template <class E>
void HostMember<E>::reserve(const ring::RingShape& shape) {
  const auto columns = static_cast<size_t>(ring::kSlots * shape.slot_columns);
  x_.reserve(columns * static_cast<size_t>(shape.rows));
  f_.reserve(columns);
  if (shape.v_rows > 0) v_.reserve(columns * static_cast<size_t>(shape.v_rows));
  use(shape, {x_.data(), f_.data(), v_.data(), 0});
  std::call_once(tracking_->once, [&] { tracking_->pairs = PairTracking(shape.blocks()); });
}

template <class E>
ring::RingColumns<E> HostMember<E>::in_slot(const ring::RingColumns<E>& slots, int slot, int64_t columns) const {
  const int64_t first = slot * shape_.slot_columns;
  return {slots.x + first * shape_.rows, slots.f + first, shape_.v_rows > 0 ? slots.v + first * shape_.v_rows : nullptr,
          columns};
}

template <class E>
void HostMember<E>::copy(const ring::RingColumns<E>& from, const ring::RingColumns<E>& to) const {
  threads_.for_ranges(from.count, kTaskColumns, [&](int64_t first, int64_t last) {
    std::copy(from.x + first * shape_.rows, from.x + last * shape_.rows, to.x + first * shape_.rows);
    std::copy(from.f + first, from.f + last, to.f + first);
    if (shape_.v_rows == 0) return;
    std::copy(from.v + first * shape_.v_rows, from.v + last * shape_.v_rows, to.v + first * shape_.v_rows);
  });
}

template <class E>
void HostMember<E>::take(const ring::UnionPlace& place, const ring::RingColumns<E>& columns) {
  copy(columns, in_slot(place.slot, columns.count));
}

template <class E>
void HostMember<E>::give(const ring::UnionPlace& place, const ring::RingColumns<E>& columns) {
  copy(in_slot(place.slot, columns.count), columns);
}

template <class E>
void HostMember<E>::send(const ring::UnionPlace& place, HostMember& to, int to_slot) {
  copy(in_slot(place.slot, place.count), to.in_slot(to_slot, place.count));
}

template <class E>
void HostMember<E>::p_step(large::PStep<E> step) {
  step.x.data = slots_.x;
  step.x.ld = std::max<int64_t>(shape_.rows, 1);
  step.f = slots_.f;
  step.v.data = shape_.v_rows > 0 ? slots_.v : nullptr;
  step.v.ld = std::max<int64_t>(shape_.v_rows, 1);
  p_steps_.run(step, tracking_->pairs);
}

template class HostMember<double>;
template class HostMember<std::complex<double>>;

}  // namespace svdserve::host
