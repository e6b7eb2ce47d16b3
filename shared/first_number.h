// Where the numbers of one process begin.
#ifndef HOLDFAST_SHARED_FIRST_NUMBER_H_
#define HOLDFAST_SHARED_FIRST_NUMBER_H_

#include <cstdint>
#include <random>

namespace holdfast {

// For numbers that ascend and that another process remembers: those of a later
// process must not look like an earlier one's. Random, and far from both ends.
inline std::uint64_t RandomFirstNumber() {
  std::random_device device;
  return std::uint64_t{1} << 62 | std::uint64_t{device()} << 29;
}

}  // namespace holdfast

#endif  // HOLDFAST_SHARED_FIRST_NUMBER_H_
