// What reading and computing cost, for choosing where a prompt starts.
#ifndef HOLDFAST_ENGINE_CACHE_PLANNER_COSTS_H_
#define HOLDFAST_ENGINE_CACHE_PLANNER_COSTS_H_

#include <array>
#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "engine/cache/tiers.h"

namespace holdfast::engine {

// One thread.
class PlannerCosts {
 public:
  virtual ~PlannerCosts() = default;
  virtual double ReadSeconds(Tier tier, std::uint64_t bytes) const = 0;
  // Of prompt rows `from` to `to`.
  virtual double PrefillSeconds(int from, int to) const = 0;
  virtual void MeasuredRead(Tier tier, std::uint64_t bytes, double seconds) = 0;
  virtual void MeasuredPrefill(int rows, double seconds) = 0;
  // Of what was measured, by this engine or an earlier one. Fixed costs: none.
  virtual PlannerRates Measured() const = 0;
  // Takes, of what an earlier engine measured, the rates that this one has not.
  virtual void Remember(const PlannerRates& rates) = 0;
  // What it reckons with at this moment; all are set.
  virtual PlannerRates Used() const = 0;
};

// Moving averages of what was measured. Before anything was, by this engine or
// one that it remembers, `first` where it is set, else a slow drive and a slow
// machine. Depth is not told apart.
std::unique_ptr<PlannerCosts> MakeMeasuredCosts(const PlannerRates& first = {});

// Never changes: --planner-costs, for tests. `text` is
// "prefill=TOKENS_PER_S,store=MB_PER_S,disk=MB_PER_S,spill=MB_PER_S", all four
// in any order, numbers above 0. The error names the part that is wrong.
absl::StatusOr<std::unique_ptr<PlannerCosts>> ParsePlannerCosts(
    const std::string& text);

}  // namespace holdfast::engine

#endif  // HOLDFAST_ENGINE_CACHE_PLANNER_COSTS_H_
