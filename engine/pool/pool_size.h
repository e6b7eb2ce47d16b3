// How large the pool is.
#ifndef HOLDFAST_ENGINE_POOL_POOL_SIZE_H_
#define HOLDFAST_ENGINE_POOL_POOL_SIZE_H_

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "shared/cache_layout.h"

namespace holdfast::engine {

struct PoolRequest {
  std::optional<std::uint64_t> tokens;  // --pool-tokens
  std::optional<double> gigabytes;      // --pool-gb, of 10^9 bytes
  int model_context = 0;                // what the model allows
  int wanted_context = 0;               // --max-context; 0: the model's
  int seats = 1;
  // What is kept besides the seats' conversations, by budget.
  std::uint64_t pin_bytes = 0;
  std::uint64_t park_bytes = 0;
  std::uint64_t stash_bytes = 0;
  std::uint64_t available_bytes = 0;  // memory that the machine can give
};

struct PoolPlan {
  int blocks = 0;
  int max_context = 0;  // tokens: the longest conversation that fits
  std::uint64_t block_bytes = 0;
  int seats = 1;
  std::uint64_t conversation_bytes = 0;  // one conversation of max_context
  // What of the request's budgets the pool holds beside one such conversation a
  // seat, when all are at their longest: guests first, then pinned heads.
  std::uint64_t stash_bytes = 0;
  std::uint64_t pin_bytes = 0;
  std::uint64_t park_bytes = 0;
  std::uint64_t bytes() const { return block_bytes * blocks; }
};

// By default one conversation of the whole context for each seat, and the
// budgets; cut to one conversation and half of what is then left of the memory.
// An error (kOutOfRange) names the flag that cannot be met.
absl::StatusOr<PoolPlan> PlanPool(const CacheLayout& layout,
                                  const PoolRequest& request);

// For the log at start.
std::string DescribePool(const PoolPlan& plan, const CacheLayout& layout);

}  // namespace holdfast::engine

#endif  // HOLDFAST_ENGINE_POOL_POOL_SIZE_H_
