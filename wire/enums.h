// Enumerations of the code and their numbers on the wire. Both ends have enumerations of their own, with the values of
// the contract in the contract's order, and name the last one `kLast`. A codec says where the numbers begin, and
// static_asserts hold both to the proto.
#ifndef SVDSERVE_WIRE_ENUMS_H_
#define SVDSERVE_WIRE_ENUMS_H_

#include <cstddef>
#include <cstdint>
#include <optional>

namespace svdserve::wire {

// The number on the wire of the value 0 of E: a specialization beside its codec. Other enumerations have none.
template <class E>
inline constexpr std::nullptr_t kFirstNumber = nullptr;

template <class E>
constexpr int number_of(E value) {
  return static_cast<int>(value) + kFirstNumber<E>;
}

// Nothing: no value of E has this number.
template <class E>
constexpr std::optional<E> value_of(int number) {
  const int64_t value = int64_t{number} - kFirstNumber<E>;  // a number may be the least that there is
  if (value < 0 || value > static_cast<int64_t>(E::kLast)) return std::nullopt;
  return static_cast<E>(value);
}

// The same for a field that may be absent: then its number is 0, which stands for `absent`.
template <class E>
constexpr std::optional<E> value_of(int number, E absent) {
  return number == 0 ? std::optional<E>(absent) : value_of<E>(number);
}

// Whether the numbers of E are first .. last of the contract.
template <class E>
constexpr bool has_numbers(int first, int last) {
  return number_of(E{}) == first && number_of(E::kLast) == last;
}

}  // namespace svdserve::wire
#endif  // SVDSERVE_WIRE_ENUMS_H_
