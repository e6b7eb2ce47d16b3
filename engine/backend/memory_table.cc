#include "engine/backend/memory_table.h"

#include "fmt/format.h"

namespace holdfast::engine {
namespace {

std::string Row(const std::string& what, std::uint64_t bytes,
                const std::string& note) {
  constexpr double kMebi = 1 << 20;
  return fmt::format("\n  {:<28} {:10.1f} MiB  {}", what,
                     static_cast<double>(bytes) / kMebi, note);
}

}  // namespace

std::string DescribeDeviceMemory(const DeviceMemoryPlan& plan) {
  std::string table = "device memory, all of it taken at the start";
  table += Row("weights", plan.weight_bytes, "");
  for (const DeviceMemoryUse& use : plan.workspace) {
    if (use.bytes > 0) table += Row(use.what, use.bytes, "workspace");
  }
  table += Row("rows (KV)", plan.pool_bytes, "the pool");
  table += Row("anchors and states", plan.state_bytes,
               fmt::format("{} copies of the sections", plan.states));
  if (plan.staging_bytes > 0) {
    table += Row("staging", plan.staging_bytes,
                 fmt::format("host memory, {}", plan.staging_pinned));
  }
  const std::uint64_t left =
      plan.budget.bytes > plan.wanted() ? plan.budget.bytes - plan.wanted() : 0;
  return table + Row("left of the budget", left, plan.budget.how);
}

}  // namespace holdfast::engine
