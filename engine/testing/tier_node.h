// An engine together with tiers in memory, started again with what another one
// stored.
#ifndef HOLDFAST_ENGINE_TESTING_TIER_NODE_H_
#define HOLDFAST_ENGINE_TESTING_TIER_NODE_H_

#include <chrono>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "engine/cache/state_image.h"
#include "engine/scheduler/session_spill.h"
#include "engine/testing/fake_tiers.h"
#include "engine/testing/loop_engine.h"
#include "engine/testing/test_engine.h"

namespace holdfast::engine::testing {

// Reading is much cheaper than computing: a tier that starts deeper is taken.
inline constexpr char kCheapTiers[] =
    "prefill=100,store=100,disk=100,spill=100";

// `Engine` is a TestEngine or a LoopEngine.
template <typename Engine>
struct TierNodeOf {
  // The tiers hold what those of `from` held, if any.
  explicit TierNodeOf(std::unique_ptr<Engine> own_engine,
                      const TierNodeOf* from = nullptr,
                      const char* tier_costs = kCheapTiers)
      : engine(std::move(own_engine)) {
    EngineState& state = engine->state();
    tiers = std::make_unique<FakeTiers>(state.pool);
    tiers->image_bytes = StateImageBytes(state.model.layout());
    if (from != nullptr) {
      tiers->entries = from->tiers->entries;
      tiers->jobs = from->tiers->jobs;
      tiers->drained = from->tiers->drained;
    }
    Attach(*ParsePlannerCosts(tier_costs));
  }
  ~TierNodeOf() {
    if (engine != nullptr) engine->state().tiering.reset();
  }
  TierNodeOf(const TierNodeOf&) = delete;
  TierNodeOf& operator=(const TierNodeOf&) = delete;

  // To other costs.
  void Attach(std::unique_ptr<PlannerCosts> own_costs) {
    EngineState& state = engine->state();
    state.tiering.reset();
    costs = std::move(own_costs);
    state.tiering = std::make_unique<Tiering>(
        *tiers, *costs, reinterpret_cast<std::byte*>(leases.data()),
        state.pool);
  }
  // Rows are copied to be lent (arena `pinned`), into room for so many blocks.
  void CopyToLend(kernels::Backend& backend, int blocks) {
    EngineState& state = engine->state();
    state.tiering.reset();
    copies = AllocateAligned(blocks * state.pool.block_bytes());
    state.tiering = std::make_unique<Tiering>(
        *tiers, *costs, reinterpret_cast<std::byte*>(leases.data()),
        std::make_unique<Lending>(state.pool, backend, copies.get(), blocks));
    tiers->ReadFrom(state.tiering->lending->pool());
  }
  // As at a planned stop.
  void Spill() {
    SpillConversations(engine->state(),
                       [end = std::chrono::steady_clock::now() +
                              std::chrono::seconds(10)] { return end; });
  }
  // The bits of a cold run are expected, whatever the caches gave.
  Answer RunChecked(const Request& request) {
    const Answer warm = engine->Run(request);
    engine->state().tiering->leases.Collect({});
    ExpectSame(warm, engine->Cold(request));
    return warm;
  }

  std::unique_ptr<Engine> engine;
  std::unique_ptr<FakeTiers> tiers;
  std::unique_ptr<PlannerCosts> costs;
  AlignedBytes copies;
  std::vector<std::uint64_t> leases =
      std::vector<std::uint64_t>(kLeaseTableBytes / 8);
};

using TierNode = TierNodeOf<TestEngine>;
using LoopTierNode = TierNodeOf<LoopEngine>;

}  // namespace holdfast::engine::testing

#endif  // HOLDFAST_ENGINE_TESTING_TIER_NODE_H_
