#include "engine/pool/pool_size.h"

#include <algorithm>
#include <limits>

#include "fmt/format.h"

namespace holdfast::engine {
namespace {

// Block ids are 32-bit.
constexpr std::uint64_t kMaxBlocks = std::numeric_limits<std::int32_t>::max();

std::uint64_t BlocksFor(std::uint64_t tokens) {
  return (tokens + kBlockTokens - 1) / kBlockTokens;
}

double Mebibytes(std::uint64_t bytes) {
  return static_cast<double>(bytes) / (1 << 20);
}

// Blocks as asked for by flag or default, before the context is fitted.
std::uint64_t WantedBlocks(const PoolRequest& request,
                           std::uint64_t block_bytes,
                           std::uint64_t context_blocks) {
  if (request.tokens) return BlocksFor(*request.tokens);
  if (request.gigabytes) {
    return static_cast<std::uint64_t>(*request.gigabytes * 1e9) / block_bytes;
  }
  const std::uint64_t conversation = context_blocks * block_bytes;
  const std::uint64_t left = request.available_bytes > conversation
                                 ? request.available_bytes - conversation
                                 : 0;
  const std::uint64_t others = (request.seats - 1) * conversation;
  const std::uint64_t kept =
      request.pin_bytes + request.park_bytes + request.stash_bytes;
  return context_blocks + std::min(others + kept, left / 2) / block_bytes;
}

// As much of `budget` as `left` has, which is then less.
std::uint64_t Share(std::uint64_t budget, std::uint64_t& left) {
  const std::uint64_t share = std::min(budget, left);
  left -= share;
  return share;
}

}  // namespace

absl::StatusOr<PoolPlan> PlanPool(const CacheLayout& layout,
                                  const PoolRequest& request) {
  if (request.wanted_context > request.model_context) {
    return absl::OutOfRangeError(
        fmt::format("--max-context {}: the model was made for {} tokens",
                    request.wanted_context, request.model_context));
  }
  const int context = request.wanted_context > 0 ? request.wanted_context
                                                 : request.model_context;
  PoolPlan plan;
  plan.block_bytes = layout.BlockBytes();
  const std::uint64_t context_blocks = BlocksFor(context);
  const std::uint64_t blocks =
      WantedBlocks(request, plan.block_bytes, context_blocks);
  if (blocks == 0 || blocks > kMaxBlocks) {
    return absl::OutOfRangeError(
        fmt::format("the pool would have {} blocks of {} bytes: choose another "
                    "--pool-tokens or --pool-gb",
                    blocks, plan.block_bytes));
  }
  if (blocks < context_blocks && request.wanted_context > 0) {
    return absl::OutOfRangeError(
        fmt::format("--max-context {} needs {} blocks, the pool has {}: raise "
                    "--pool-tokens or --pool-gb",
                    context, context_blocks, blocks));
  }
  plan.blocks = static_cast<int>(blocks);
  plan.max_context = static_cast<int>(std::min<std::uint64_t>(
      static_cast<std::uint64_t>(context), blocks * kBlockTokens));
  plan.conversation_bytes = BlocksFor(plan.max_context) * plan.block_bytes;
  plan.seats = request.seats;
  std::uint64_t left = plan.bytes() - plan.conversation_bytes;
  Share((plan.seats - 1) * plan.conversation_bytes, left);
  plan.stash_bytes = Share(request.stash_bytes, left);
  plan.pin_bytes = Share(request.pin_bytes, left);
  plan.park_bytes = Share(request.park_bytes, left);
  return plan;
}

std::string DescribePool(const PoolPlan& plan, const CacheLayout& layout) {
  const auto line = [&plan](const char* name, std::uint64_t bytes) {
    return fmt::format("\n  {:<18} {:10.1f} MiB  {} tokens", name,
                       Mebibytes(bytes),
                       bytes / plan.block_bytes * kBlockTokens);
  };
  const std::uint64_t seats = plan.seats * plan.conversation_bytes;
  return fmt::format("pool: {} blocks of {} tokens, {} bytes a token",
                     plan.blocks, kBlockTokens, layout.RowBytes()) +
         line("one conversation", plan.conversation_bytes) +
         ", the longest that fits" + line("guests", plan.stash_bytes) +
         line("pinned heads", plan.pin_bytes) +
         line("parked sessions", plan.park_bytes) +
         line("whole pool", plan.bytes()) +
         fmt::format(
             ", memory is taken as it is used\n"
             "  {} seats at their longest need {:.2f} of it; a conversation "
             "that comes back copies at most {:.1f} KiB of rows",
             plan.seats,
             static_cast<double>(seats) / static_cast<double>(plan.bytes()),
             static_cast<double>(plan.block_bytes) / 1024);
}

}  // namespace holdfast::engine
