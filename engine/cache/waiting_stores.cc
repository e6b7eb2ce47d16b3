#include "engine/cache/waiting_stores.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "engine/cache/state_image.h"
#include "engine/cache/tiering.h"
#include "shared/check.h"

namespace holdfast::engine {

void WaitingStores::Add(Waiting waiting) {
  HF_CHECK(!full());
  waiting_.push_back(std::move(waiting));
}

void WaitingStores::Retry(Tiering& tiering, Time now) {
  // What is told may ask again.
  while (!waiting_.empty()) {
    Waiting& first = waiting_.front();
    const bool late = now >= first.deadline;
    if (!late && !Store(tiering, first, now)) return;
    Waiting gone = std::move(first);
    waiting_.pop_front();
    Leave(gone);
    if (late) gone.done(StoreOutcome::kDropped);
  }
}

bool WaitingStores::Store(Tiering& tiering, Waiting& waiting, Time now) {
  Lending& lending = *tiering.lending;
  auto image =
      StageImage(waiting.image.span(), lending.pool(), /*evict=*/false);
  if (!image) return false;
  auto rows = lending.Lend(waiting.rows);
  if (!rows) {
    lending.Release(*image);
    return false;
  }
  std::vector<BlockId> leased = *rows;
  leased.insert(leased.end(), image->begin(), image->end());
  const auto lease = tiering.leases.Grant(std::move(leased), waiting.deadline);
  // The lease has references of its own.
  lending.Release(*rows);
  lending.Release(*image);
  if (!lease) return false;
  StoreJob& job = waiting.job;
  const int end = static_cast<int>(job.ids.size());
  job.blocks = *std::move(rows);
  job.states = {{end, waiting.kind, *std::move(image)}};
  job.lease = *lease;
  job.deadline = std::chrono::duration_cast<std::chrono::milliseconds>(
      waiting.deadline - now);
  tiering.leases.Await(*lease);
  tiering.Store(std::move(job), std::move(waiting.done));
  return true;
}

void WaitingStores::Leave(Waiting& waiting) {
  for (const BlockId block : waiting.rows) {
    pool_.Unref(block, BlockPool::Touch::kNo);
  }
  waiting.rows.clear();
}

void WaitingStores::Clear() {
  for (Waiting& waiting : std::exchange(waiting_, {})) {
    Leave(waiting);
    waiting.done(StoreOutcome::kDropped);
  }
}

}  // namespace holdfast::engine
