#include "engine/scheduler/tier_resume.h"

#include <algorithm>
#include <chrono>
#include <string>
#include <vector>

#include "engine/cache/state_image.h"
#include "shared/aligned_buffer.h"
#include "shared/deadlines.h"
#include "spdlog/spdlog.h"

namespace holdfast::engine {
namespace {

using std::chrono::duration;
using std::chrono::duration_cast;
using std::chrono::milliseconds;
using std::chrono::steady_clock;

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

TierResumption TierResume::Run(int in_place, Sequence& sequence) {
  Tiering& tiering = *state_.tiering;
  const int tokens = static_cast<int>(prompt_.ids.size());
  // Less than a block is computed sooner than asked for.
  if (tokens - in_place < kBlockTokens) return {};
  tiering.tiers.NoteMeasured(tiering.costs.Measured());
  TierLookup lookup = tiering.tiers.Lookup(prompt_);
  if (lookup.outcome == TierLookup::Outcome::kDetached) return {};
  ++tiering.counters->lookups;
  if (lookup.outcome == TierLookup::Outcome::kLate) {
    ++tiering.counters->late_lookups;
    return {.miss = MissReason::kDeadline};
  }
  tiering.store_entry_bytes = lookup.store_entry_bytes;
  tiering.costs.Remember(lookup.remembered);
  tiering.counters->NoteRates(tiering.costs.Used());
  std::erase_if(lookup.candidates, [this](const TierCandidate& candidate) {
    return !Serves(candidate);
  });
  const TierPlan plan =
      PlanTiers(tiering.costs, lookup.candidates, in_place, tokens);
  tiering.counters->CountPlan(plan);
  if (!plan.offers.empty() || !plan.too_costly.empty()) {
    spdlog::info("plan prompt={} {}", tokens, DescribePlan(plan, in_place));
  }
  TierResumption result{.miss = WhyNothing(lookup, plan)};
  for (std::size_t i = 0; i < std::min(kTries, plan.offers.size()); ++i) {
    const TierOffer& offer = plan.offers[i];
    const TierCandidate& from = offer.candidate;
    const auto start = steady_clock::now();
    const absl::Status status = Restore(offer, in_place, sequence);
    const double seconds =
        duration<double>(steady_clock::now() - start).count();
    spdlog::info(
        "restore tier={} key={} position={} bytes={} read_rows={} ms={:.1f} "
        "predicted_ms={:.1f} in_place={} offers={} status=\"{}\"",
        TierName(from.tier), ToHex(from.key).substr(0, 16), from.position,
        from.bytes, restored_, 1000 * seconds, 1000 * offer.read_s, in_place,
        plan.offers.size(), status.ok() ? "ok" : status.ToString());
    TierCounters::OfTier& count = tiering.counters->of(from.tier);
    if (status.ok()) {
      ++count.restores;
      count.tokens += restored_;
      count.bytes += from.bytes;
      count.microseconds += static_cast<std::uint64_t>(1e6 * seconds);
      if (restored_ == from.position) {
        tiering.costs.MeasuredRead(from.tier, from.bytes, seconds);
      }
      return {.source = SourceOf(from.tier),
              .restored = restored_,
              .rows_of = rows_of_};
    }
    sequence.table.Clear();
    const RestoreFailure failure = FailureOf(status);
    ++count.failed[static_cast<std::size_t>(failure)];
    // A damaged file takes with it what needs it: that is the reason, not that
    // the next one is gone.
    if (result.miss != MissReason::kCorrupt) result.miss = MissOf(failure);
    if (failure == RestoreFailure::kCancelled ||
        failure == RestoreFailure::kDeadline) {
      break;
    }
  }
  return result;
}

// As in the pool: where a cold run of this prompt has the same state; and at
// what its own conversation kept, all of whose rows the prompt has.
bool TierResume::Serves(const TierCandidate& candidate) const {
  const bool cold_passes =
      state_.rule.SharedAt(candidate.position) ||
      candidate.position == static_cast<int>(prompt_.ids.size());
  return candidate.own_session ||
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

absl::Status TierResume::Restore(const TierOffer& offer, int in_place,
                                 Sequence& sequence) {
  const int position = offer.candidate.position;
  restored_ = 0;
  // On a grid backend the rows of a chunk that is not whole, and those of a
  // conversation, are other bits than the pool's of the same ids.
  const int taint = offer.candidate.taint;
  const int have = AdoptWhatIsThere(
      state_.rule.SharedBelow(std::min(position, taint)), sequence);
  if (!hooks_.have_blocks(position)) {
    return absl::ResourceExhaustedError("no blocks for its rows");
  }
  const CacheLayout& layout = state_.model.layout();
  AlignedBuffer image(StateImageBytes(layout));
  const double saved = state_.tiering->costs.PrefillSeconds(in_place, position);
  const absl::Status status = state_.tiering->tiers.Restore(
      {.candidate = offer.candidate,
       .ids = prompt_.ids,
       .target = {.blocks = {sequence.table.pointers(),
                             static_cast<std::size_t>(sequence.table.size())},
                  .block_bytes = state_.pool.block_bytes(),
                  .have_tokens = have,
                  .state_image = image.span(),
                  .backend = &state_.backend},
       .deadline =
           deadlines::Restore(Milliseconds(offer.read_s), Milliseconds(saved)),
       .touch = touch_,
       .stop = hooks_.stop});
  if (!status.ok()) return status;
  const absl::Status read = ReadStateImage(layout, image.span(), state_.backend,
                                           sequence.sections.get());
  if (!read.ok()) return read;
  sequence.ids.assign(prompt_.ids.begin(), prompt_.ids.begin() + position);
  if (taint < position) {
    sequence.taint = taint;
    sequence.table.MarkSession(taint / kBlockTokens);
  }
  restored_ = position - have;
  return absl::OkStatus();
}

int TierResume::AdoptWhatIsThere(int limit, Sequence& sequence) {
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
  for (const BlockId block : blocks) sequence.table.Adopt(block);
  return rows;
}

}  // namespace holdfast::engine
