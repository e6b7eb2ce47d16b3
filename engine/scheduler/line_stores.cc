#include "engine/scheduler/line_stores.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "engine/cache/state_image.h"
#include "shared/cache_layout.h"
#include "shared/deadlines.h"

namespace holdfast::engine {

LineStores::LineStores(EngineState& state, const Request& request,
                       const PromptView& prompt, const Sequence& sequence)
    : state_(state), request_(request), prompt_(prompt), sequence_(sequence) {
  const int grid = static_cast<int>(state.model.layout().grid_tokens);
  const int at = sequence.rows();
  const bool starts_at_one = sequence.HasEnd() && at % grid == 0;
  const int first_line = starts_at_one ? at : (at / grid + 1) * grid;
  // A guest's lines are neither stored nor counted.
  if (state.tiering == nullptr || request.cache_mode != CacheMode::kDefault ||
      sequence.table.retention() == RetentionClass::kGuest ||
      first_line > static_cast<int>(prompt.ids.size())) {
    return;
  }
  const AdmittedLines admitted = state.tiering->tiers.Admit(
      prompt, sequence.rows(), request.session_key, request.head);
  const auto add = [&](int line, Tier tier) {
    if (line % grid == 0 && line >= first_line) lines_.emplace_back(line, tier);
  };
  for (const int line : admitted.disk) add(line, Tier::kDisk);
  add(admitted.store, Tier::kStore);
  std::ranges::sort(lines_);
  Reached();
}

LineStores::~LineStores() {
  for (const StoreJob& job : staged_) {
    state_.tiering->leases.returns()->Add(job.lease);
  }
}

void LineStores::Reached() {
  const int position = sequence_.rows();
  while (!lines_.empty() && lines_.front().first <= position) {
    const auto [line, tier] = lines_.front();
    lines_.pop_front();
    // A step never crosses a line, so a line that was passed was stopped at.
    // On top of `session` rows nothing is a cold run's.
    if (line != position ||
        sequence_.ProvenanceAt(position) != Provenance::kGrid ||
        Stage(tier, position))
      continue;
    ++state_.tiering->counters->of(tier)
          .stores[static_cast<std::size_t>(StoreOutcome::kDropped)];
  }
}

bool LineStores::Stage(Tier tier, int position) {
  Tiering& tiering = *state_.tiering;
  auto state_blocks =
      StageState(state_.model.layout(), state_.backend,
                 sequence_.sections.get(), tiering.lending->pool(),
                 /*evict=*/true);
  if (!state_blocks) return false;
  std::vector<BlockId> rows;
  for (int i = 0; i < position / kBlockTokens; ++i) {
    rows.push_back(sequence_.table.block(i));
  }
  auto lent = tiering.lending->Lend(rows);
  if (!lent) {
    tiering.lending->Release(*state_blocks);
    return false;
  }
  StoreJob job;
  job.blocks = *std::move(lent);
  std::vector<BlockId> leased = job.blocks;
  leased.insert(leased.end(), state_blocks->begin(), state_blocks->end());
  const auto deadline =
      deadlines::Lease(leased.size() * state_.pool.block_bytes());
  const auto lease = tiering.leases.Grant(
      std::move(leased), std::chrono::steady_clock::now() + deadline);
  // The lease has references of its own.
  tiering.lending->Release(*state_blocks);
  tiering.lending->Release(job.blocks);
  if (!lease) return false;
  job.tier = tier;
  job.root = prompt_.root;
  job.ids.assign(prompt_.ids.begin(), prompt_.ids.begin() + position);
  job.states.push_back(
      {position, StoredState::kLine, *std::move(state_blocks)});
  job.lease = *lease;
  job.session_key = request_.session_key;
  job.deadline = deadline;
  staged_.push_back(std::move(job));
  return true;
}

void LineStores::Submit() {
  for (StoreJob& job : std::exchange(staged_, {})) {
    state_.tiering->Store(std::move(job));
  }
}

}  // namespace holdfast::engine
