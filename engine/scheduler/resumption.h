// Where a prompt's prefill starts, and the sequence brought there.
#ifndef HOLDFAST_ENGINE_SCHEDULER_RESUMPTION_H_
#define HOLDFAST_ENGINE_SCHEDULER_RESUMPTION_H_

#include <functional>
#include <span>
#include <vector>

#include "engine/cache/tiers.h"
#include "engine/resume/plan.h"
#include "engine/resume/sequence.h"
#include "engine/scheduler/engine_state.h"
#include "engine/scheduler/request.h"
#include "engine/scheduler/seat_claim.h"
#include "shared/prefix_key.h"

namespace holdfast::engine {

// The engine thread's. Arguments outlive it.
class Resumption {
 public:
  // `stop` says whether the request was cancelled.
  Resumption(EngineState& state, const Request& request,
             std::span<const KeyId> prompt, const PrefixKey& root,
             const std::function<bool()>& stop);

  // Gives `sequence`, which is empty, what is cached of the prompt: from the
  // tiers when they are worth it, else from the pool. Blocks that are short
  // come by way of `claim`.
  CacheReport Run(Sequence& sequence, SeatClaim& claim);

  // Rows were read for this request.
  bool from_tiers() const { return from_tiers_; }
  // Where the pool alone lets the prompt start. Changes nothing.
  int InPlacePosition() const;
  // Empty when there are no tiers.
  const PromptView& prompt_view() const { return prompt_view_; }

 private:
  ResumePlan Plan(int limit) const;
  // False, and the sequence is empty, when no tier serves.
  bool FromTiers(Sequence& sequence, SeatClaim& claim, CacheReport& report);
  void InPlace(Sequence& sequence, CacheReport& report);
  // Rows read back at start count as their tier's, once.
  void ClaimRows(CacheReport& report);

  EngineState& state_;
  const Request& request_;
  const std::span<const KeyId> prompt_;
  const PrefixKey root_;
  const std::function<bool()>& stop_;
  std::vector<PrefixKey> block_keys_;  // when there are tiers
  PromptView prompt_view_;
  MissReason tier_miss_ = MissReason::kNone;
  bool from_tiers_ = false;
};

}  // namespace holdfast::engine

#endif  // HOLDFAST_ENGINE_SCHEDULER_RESUMPTION_H_
