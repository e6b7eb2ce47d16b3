// The orders in which a race is looked for: results must be equal in all.
#ifndef HOLDFAST_TESTS_CUDA_EMULATION_ORDERS_H_
#define HOLDFAST_TESTS_CUDA_EMULATION_ORDERS_H_

#include <cstdint>

#include "tests/cuda_emulation/execution.h"

namespace holdfast::emulation {

struct RunOrder {
  Order order = Order::kAscending;
  std::uint64_t seed = 0;
};
inline constexpr RunOrder kRunOrders[] = {{Order::kAscending, 0},
                                          {Order::kDescending, 0},
                                          {Order::kShuffled, 1},
                                          {Order::kShuffled, 2},
                                          {Order::kLate, 3}};

}  // namespace holdfast::emulation

#endif  // HOLDFAST_TESTS_CUDA_EMULATION_ORDERS_H_
