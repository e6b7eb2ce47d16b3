// Why the pool keeps rows, lowest first: what is taken first when blocks are
// short.
#ifndef HOLDFAST_ENGINE_POOL_RETENTION_CLASS_H_
#define HOLDFAST_ENGINE_POOL_RETENTION_CLASS_H_

#include <cstddef>

namespace holdfast::engine {

enum class RetentionClass {
  kNone,      // nobody's: in the index until their block is needed, or lent
  kGuest,     // of a short request between two turns
  kParked,    // what an earlier conversation had past its head
  kPinned,    // the head of an earlier conversation
  kResident,  // of a seat's last conversation, or of a running request
};
inline constexpr std::size_t kRetentionClasses = 5;

constexpr std::size_t IndexOf(RetentionClass c) {
  return static_cast<std::size_t>(c);
}

constexpr const char* RetentionClassName(RetentionClass c) {
  switch (c) {
    case RetentionClass::kNone:
      return "none";
    case RetentionClass::kGuest:
      return "guest";
    case RetentionClass::kParked:
      return "parked";
    case RetentionClass::kPinned:
      return "pinned";
    case RetentionClass::kResident:
      break;
  }
  return "resident";
}

}  // namespace holdfast::engine

#endif  // HOLDFAST_ENGINE_POOL_RETENTION_CLASS_H_
