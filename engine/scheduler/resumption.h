// Where a prompt's prefill starts, and the sequence brought there.
#ifndef HOLDFAST_ENGINE_SCHEDULER_RESUMPTION_H_
#define HOLDFAST_ENGINE_SCHEDULER_RESUMPTION_H_

#include <optional>
#include <span>
#include <vector>

#include "engine/cache/tiers.h"
#include "engine/resume/plan.h"
#include "engine/resume/sequence.h"
#include "engine/scheduler/engine_state.h"
#include "engine/scheduler/request.h"
#include "engine/scheduler/seat_claim.h"
#include "engine/scheduler/tier_resume.h"
#include "shared/prefix_key.h"

namespace holdfast::engine {

// The engine thread's. Arguments outlive it.
class Resumption {
 public:
  Resumption(EngineState& state, const Request& request,
             std::span<const KeyId> prompt, const PrefixKey& root);

  // Begins to give `sequence`, which is empty, what is cached of the prompt:
  // from the tiers when they are worth it, else from the pool. Blocks that are
  // short come by way of `claim`. Both stay until Poll says what came of it or
  // GiveUp is called; then it can begin again.
  void Start(Sequence& sequence, SeatClaim& claim);
  // Nothing: rows are being read (EngineState::bell rings), which has a
  // deadline.
  std::optional<CacheReport> Poll();
  // The sequence is empty then.
  void GiveUp();

  // The position whose rows and state are being read; 0: none is.
  int reads_to() const { return tiers_ ? tiers_->position() : 0; }
  // Rows were read for this request.
  bool from_tiers() const { return from_tiers_; }
  // Where the pool alone lets the prompt start. Changes nothing.
  int InPlacePosition() const;
  // Empty when there are no tiers.
  const PromptView& prompt_view() const { return prompt_view_; }

 private:
  ResumePlan Plan(int limit) const;
  CacheReport FromTiers(const TierResumption& from) const;
  CacheReport InPlace();
  // Rows read back at start count as their tier's, once.
  void ClaimRows(CacheReport& report);

  EngineState& state_;
  const Request& request_;
  const std::span<const KeyId> prompt_;
  const PrefixKey root_;
  std::vector<PrefixKey> block_keys_;  // when there are tiers
  PromptView prompt_view_;
  Sequence* sequence_ = nullptr;
  std::optional<TierResume> tiers_;  // while they are asked
  MissReason tier_miss_ = MissReason::kNone;
  bool from_tiers_ = false;
};

}  // namespace holdfast::engine

#endif  // HOLDFAST_ENGINE_SCHEDULER_RESUMPTION_H_
