// Enumerations of the code and their numbers on the wire. Both ends have enumerations of their own, with the values of
// the contract in the contract's order. A range says where they begin, and static_asserts hold it to the proto.
#ifndef SVDSERVE_WIRE_ENUMS_H_
#define SVDSERVE_WIRE_ENUMS_H_

#include <cstddef>
#include <cstdint>
#include <optional>

namespace svdserve::wire {

// The values of E are 0 .. last. The number of a value on the wire is the value plus `shift`.
template <class E>
struct EnumRange {
  int shift = 0;
  E last = E{};
};

// The EnumRange of an enumeration: a specialization beside its codec. Other enumerations have none.
template <class E>
inline constexpr std::nullptr_t kRange = nullptr;

template <class E>
constexpr int number_of(E value) {
  return static_cast<int>(value) + kRange<E>.shift;
}

// Nothing: no value of E has this number.
template <class E>
constexpr std::optional<E> value_of(int number) {
  const int64_t value = int64_t{number} - kRange<E>.shift;  // a number may be the least that there is
  if (value < 0 || value > static_cast<int64_t>(kRange<E>.last)) return std::nullopt;
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
  return number_of(E{}) == first && number_of(kRange<E>.last) == last;
}

}  // namespace svdserve::wire
#endif  // SVDSERVE_WIRE_ENUMS_H_
