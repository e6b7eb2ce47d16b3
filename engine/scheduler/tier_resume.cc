#include "engine/scheduler/tier_resume.h"

#include <algorithm>
#include <chrono>
#include <string>
#include <vector>

#include "engine/cache/state_image.h"
#include "shared/deadlines.h"
#include "spdlog/spdlog.h"

namespace holdfast::engine {
namespace {

using std::chrono::duration;
using std::chrono::duration_cast;
using std::chrono::milliseconds;

// After so many failures the prompt starts in place.
constexpr std::size_t kTries = 3;

milliseconds Milliseconds(double seconds) {
  return duration_cast<milliseconds>(duration<double>(seconds));
}

CacheSource SourceOf(Tier tier) {
  switch (tier) {
    case Tier::kStore:
      return CacheSource::kStore;
    case Tier::kDisk:
      return CacheSource::kDisk;
    case Tier::kSpill:
      break;
  }
  return CacheSource::kSpill;
}

RestoreFailure FailureOf(const absl::Status& status) {
  switch (status.code()) {
    case absl::StatusCode::kNotFound:
      return RestoreFailure::kGone;
    case absl::StatusCode::kDataLoss:
      return RestoreFailure::kCorrupt;
    case absl::StatusCode::kFailedPrecondition:
      return RestoreFailure::kMismatch;
    case absl::StatusCode::kDeadlineExceeded:
      return RestoreFailure::kDeadline;
    case absl::StatusCode::kCancelled:
      return RestoreFailure::kCancelled;
    case absl::StatusCode::kResourceExhausted:
      return RestoreFailure::kBlocks;
    default:
      return RestoreFailure::kError;
  }
}

MissReason MissOf(RestoreFailure failure) {
  switch (failure) {
    case RestoreFailure::kGone:
      return MissReason::kEvicted;
    case RestoreFailure::kCorrupt:
      return MissReason::kCorrupt;
    case RestoreFailure::kDeadline:
      return MissReason::kDeadline;
    default:
      return MissReason::kNone;
  }
}

}  // namespace

void TierResume::Start(int in_place) {
  in_place_ = in_place;
  Tiering& tiering = *state_.tiering;
  const int tokens = static_cast<int>(prompt_.ids.size());
  // Less than a block is computed sooner than asked for.
  if (tokens - in_place < kBlockTokens) return;
  tiering.tiers.NoteMeasured(tiering.costs.Measured());
  TierLookup lookup = tiering.tiers.Lookup(prompt_);
  if (lookup.outcome == TierLookup::Outcome::kDetached) return;
  ++tiering.counters->lookups;
  if (lookup.outcome == TierLookup::Outcome::kLate) {
    ++tiering.counters->late_lookups;
    result_.miss = MissReason::kDeadline;
    return;
  }
  tiering.store_entry_bytes = lookup.store_entry_bytes;
  tiering.costs.Remember(lookup.remembered);
  tiering.counters->NoteRates(tiering.costs.Used());
  std::erase_if(lookup.candidates, [this](const TierCandidate& candidate) {
    return !Serves(candidate);
  });
  plan_ = PlanTiers(tiering.costs, lookup.candidates, in_place, tokens);
  tiering.counters->CountPlan(plan_);
  if (!plan_.offers.empty() || !plan_.too_costly.empty()) {
    spdlog::info("plan prompt={} {}", tokens, DescribePlan(plan_, in_place));
  }
  result_.miss = WhyNothing(lookup, plan_);
  ended_ = plan_.offers.empty();
}

std::optional<TierResumption> TierResume::Poll() {
  while (!ended_) {
    if (restore_ == nullptr) {
      const Supply room = FindRoom();
      if (room == Supply::kWait) return std::nullopt;
      if (room == Supply::kNone) {
        Ended(absl::ResourceExhaustedError("no blocks for its rows"), 0);
        continue;
      }
      StartRestore();
    }
    const std::optional<RestoreEnd> end = restore_->Poll();
    if (!end) return std::nullopt;
    restore_.reset();
    Ended(end->status.ok() ? TakeOver() : end->status, end->seconds);
  }
  return result_;
}

void TierResume::GiveUp() {
  restore_.reset();
  if (!ended_) Ended(absl::CancelledError("given up"), 0);
  ended_ = true;
}

void TierResume::Ended(const absl::Status& status, double seconds) {
  Tiering& tiering = *state_.tiering;
  const TierCandidate& from = offer().candidate;
  spdlog::info(
      "restore tier={} key={} position={} bytes={} read_rows={} ms={:.1f} "
      "predicted_ms={:.1f} in_place={} offers={} status=\"{}\"",
      TierName(from.tier), ToHex(from.key).substr(0, 16), from.position,
      from.bytes, restored_, 1000 * seconds, 1000 * offer().read_s, in_place_,
      plan_.offers.size(), status.ok() ? "ok" : status.ToString());
  TierCounters::OfTier& count = tiering.counters->of(from.tier);
  if (status.ok()) {
    ++count.restores;
    count.tokens += restored_;
    count.bytes += from.bytes;
    count.microseconds += static_cast<std::uint64_t>(1e6 * seconds);
    if (restored_ == from.position) {
      tiering.costs.MeasuredRead(from.tier, from.bytes, seconds);
    }
    result_ = {.source = SourceOf(from.tier),
               .state = from.state,
               .restored = restored_,
               .rows_of = rows_of_};
    ended_ = true;
    return;
  }
  sequence_.table.Clear();
  have_.reset();
  const RestoreFailure failure = FailureOf(status);
  ++count.failed[static_cast<std::size_t>(failure)];
  // A damaged file takes with it what needs it: that is the reason, not that
  // the next one is gone.
  if (result_.miss != MissReason::kCorrupt) result_.miss = MissOf(failure);
  ++tried_;
  ended_ = failure == RestoreFailure::kDeadline ||
           tried_ == std::min(kTries, plan_.offers.size());
}

// As in the pool: where a cold run of this prompt has the same state; and at
// the end of what its own conversation kept, all of whose rows the prompt has.
bool TierResume::Serves(const TierCandidate& candidate) const {
  const bool cold_passes =
      state_.rule.SharedAt(candidate.position) ||
      candidate.position == static_cast<int>(prompt_.ids.size());
  return (candidate.own_session && candidate.state == StoredState::kEnd) ||
         (candidate.position <= candidate.taint && cold_passes);
}

MissReason TierResume::WhyNothing(const TierLookup& lookup,
                                  const TierPlan& plan) const {
  if (plan.offers.empty() && !plan.too_costly.empty())
    return MissReason::kTooCostly;
  if (!lookup.candidates.empty()) return MissReason::kNone;
  if (static_cast<int>(prompt_.ids.size()) < lookup.minimum_tokens) {
    return MissReason::kBelowMinimum;
  }
  return lookup.foreign ? MissReason::kForeign : MissReason::kNone;
}

Supply TierResume::FindRoom() {
  const TierCandidate& candidate = offer().candidate;
  const int position = candidate.position;
  if (!have_) {
    // On a grid backend the rows of a chunk that is not whole, and those of a
    // conversation, are other bits than the pool's of the same ids.
    have_ = AdoptWhatIsThere(
        state_.rule.SharedBelow(std::min(position, candidate.taint)));
  }
  restored_ = position - *have_;
  return find_blocks_(position);
}

void TierResume::StartRestore() {
  const TierCandidate& candidate = offer().candidate;
  const int position = candidate.position;
  image_ = AlignedBuffer(StateImageBytes(state_.model.layout()));
  const double saved =
      state_.tiering->costs.PrefillSeconds(in_place_, position);
  restore_ = state_.tiering->tiers.StartRestore(
      {.candidate = candidate,
       .ids = prompt_.ids,
       .target = {.blocks = {sequence_.table.pointers(),
                             static_cast<std::size_t>(sequence_.table.size())},
                  .block_bytes = state_.pool.block_bytes(),
                  .have_tokens = *have_,
                  .state_image = image_.span(),
                  .backend =
                      state_.pool.host_memory() ? nullptr : &state_.backend},
       .deadline = deadlines::Restore(Milliseconds(offer().read_s),
                                      Milliseconds(saved)),
       .touch = touch_,
       .bell = state_.bell});
}

absl::Status TierResume::TakeOver() {
  const TierCandidate& candidate = offer().candidate;
  const absl::Status read =
      ReadStateImage(state_.model.layout(), image_.span(), state_.backend,
                     sequence_.sections.get());
  if (!read.ok()) return read;
  const int position = candidate.position;
  sequence_.ids.assign(prompt_.ids.begin(), prompt_.ids.begin() + position);
  sequence_.state_rows = position;
  if (candidate.taint < position) {
    sequence_.taint = candidate.taint;
    sequence_.table.MarkSession(candidate.taint / kBlockTokens);
  }
  return absl::OkStatus();
}

int TierResume::AdoptWhatIsThere(int limit) {
  std::vector<BlockId> blocks;
  int rows = 0;
  while (rows + kBlockTokens <= limit) {
    const BlockId block =
        state_.pool.Find(prompt_.block_keys[rows / kBlockTokens],
                         prompt_.ids.subspan(rows, kBlockTokens));
    if (block == kNoBlock) break;
    blocks.push_back(block);
    rows += kBlockTokens;
  }
  rows_of_ = RowsBySource(state_.pool, blocks, rows, CacheSource::kResident);
  for (const BlockId block : blocks) sequence_.table.Adopt(block);
  return rows;
}

}  // namespace holdfast::engine
