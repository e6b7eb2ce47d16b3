#include "engine/scheduler/resumption.h"

#include <algorithm>
#include <chrono>

#include "engine/scheduler/block_supply.h"
#include "shared/cache_layout.h"

namespace holdfast::engine {
namespace {

// The deepest `count` rows are another source's; what is left of a seat's is
// not all of its conversation.
void TakeFromEnd(SourceRows& rows_of, int count) {
  while (count > 0 && !rows_of.empty()) {
    const int here = std::min(count, rows_of.back().second);
    count -= here;
    rows_of.back().second -= here;
    if (rows_of.back().second == 0) rows_of.pop_back();
  }
  for (auto& [source, rows] : rows_of) {
    if (source == CacheSource::kEnd) source = CacheSource::kResident;
  }
}

AnchorKind KindOf(StoredState state) {
  switch (state) {
    case StoredState::kLine:
      return AnchorKind::kLine;
    case StoredState::kMessage:
    case StoredState::kTurn:
      return AnchorKind::kMessage;
    case StoredState::kEnd:
      break;
  }
  return AnchorKind::kEnd;
}

}  // namespace

Resumption::Resumption(EngineState& state, const Request& request,
                       std::span<const KeyId> prompt, const PrefixKey& root)
    : state_(state), request_(request), prompt_(prompt), root_(root) {
  if (state.tiering == nullptr) return;
  ExtendPrefixKeys(root, prompt, block_keys_);
  prompt_view_ = {root, prompt, block_keys_, request.session_key};
}

void Resumption::Start(Sequence& sequence, SeatClaim& claim) {
  sequence_ = &sequence;
  from_tiers_ = false;
  tier_miss_ = MissReason::kNone;
  tiers_.reset();
  if (state_.tiering == nullptr || request_.cache_mode == CacheMode::kBypass) {
    return;
  }
  state_.tiering->leases.Collect(std::chrono::steady_clock::now());
  tiers_.emplace(
      state_, prompt_view_, request_.cache_mode == CacheMode::kDefault,
      [this, &claim](int rows) {
        return HaveBlocks(state_, claim, *sequence_, rows, /*gated=*/false);
      },
      sequence);
  tiers_->Start(InPlacePosition());
}

std::optional<CacheReport> Resumption::Poll() {
  CacheReport report;
  if (tiers_) {
    const std::optional<TierResumption> from = tiers_->Poll();
    if (!from) return std::nullopt;
    tiers_.reset();
    tier_miss_ = from->miss;
    from_tiers_ = from->source != CacheSource::kNone;
    if (from_tiers_) report = FromTiers(*from);
  }
  if (!from_tiers_) {
    // A start within a block copies it.
    if (sequence_->table.kind() == BlockTable::Kind::kPooled &&
        HaveOneBlock(state_) == Supply::kWait) {
      return std::nullopt;
    }
    report = InPlace();
  }
  ClaimRows(report);
  return report;
}

void Resumption::GiveUp() {
  if (tiers_) tiers_->GiveUp();
  tiers_.reset();
}

void Resumption::ClaimRows(CacheReport& report) {
  if (request_.cache_mode == CacheMode::kBypass || state_.unclaimed.empty()) {
    return;
  }
  const int rows =
      from_tiers_ ? 0
                  : state_.unclaimed.Below(root_, prompt_, report.resumed_at);
  if (rows > 0) {
    report.source = CacheSource::kSpill;
    report.restored = rows;
    TakeFromEnd(report.rows_of, rows);
  }
  if (request_.cache_mode == CacheMode::kDefault) {
    state_.unclaimed.Claim(root_, prompt_);
  }
}

ResumePlan Resumption::Plan(int limit) const {
  if (request_.cache_mode == CacheMode::kBypass) {
    ResumePlan cold;
    cold.miss = MissReason::kBypass;
    return cold;
  }
  const CachedStates cached{.pool = state_.pool,
                            .residents = state_.Residents(),
                            .kept = state_.retained.Sequences(),
                            .running = state_.running,
                            .recurrent = state_.model.layout().Recurrent(),
                            .rule = state_.rule,
                            .session_key = request_.session_key};
  return PlanResume(cached, root_, prompt_, limit);
}

int Resumption::InPlacePosition() const {
  return Plan(static_cast<int>(prompt_.size())).position;
}

CacheReport Resumption::FromTiers(const TierResumption& from) const {
  const Sequence& sequence = *sequence_;
  return {.source = from.source,
          .resumed_at = sequence.rows(),
          .restored = from.restored,
          .rows_of = from.rows_of,
          .computed = 0,
          .miss = MissReason::kNone,
          .anchor = KindOf(from.state),
          .anchors_taken = 0};
}

CacheReport Resumption::InPlace() {
  Sequence& sequence = *sequence_;
  CacheReport report;
  const bool pooled = sequence.table.kind() == BlockTable::Kind::kPooled;
  int limit = static_cast<int>(prompt_.size());
  for (bool started = false; !started;) {
    // Gone before the first step: it refers to other conversations' anchors.
    const ResumePlan plan = Plan(limit);
    if (pooled) state_.retained.Touch(plan.kept);
    started = StartSequence(
        plan, prompt_, state_.model.kv_shape(),
        state_.section_buffers.section_bytes(), state_.backend, state_.pool,
        [&] { return pooled && state_.retained.GiveBlock(); }, sequence);
    report = {.source = plan.source,
              .resumed_at = sequence.rows(),
              .restored = 0,
              .rows_of = plan.rows_of,
              .computed = 0,
              .miss = plan.miss,
              .anchor = plan.anchor,
              .anchors_taken = 0};
    limit = plan.position / kBlockTokens * kBlockTokens;
  }
  // The tiers know better than the pool why there was nothing.
  if (report.miss == MissReason::kCold && tier_miss_ != MissReason::kNone) {
    report.miss = tier_miss_;
  }
  return report;
}

}  // namespace holdfast::engine
